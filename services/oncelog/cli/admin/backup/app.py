"""The group of commands: a module that adds commands is called here."""

import typer

from oncelog.cli.admin.backup.copies import add_copies
from oncelog.cli.admin.backup.records import add_records
from oncelog.cli.admin.backup.restore import add_restore

backup = typer.Typer(help="Keep copies of ZooKeeper's records, and restore a lost ZooKeeper.", no_args_is_help=True)
add_copies(backup)
add_restore(backup)
add_records(backup)
