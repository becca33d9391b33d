"""The tree of commands. Each command imports what it needs when it runs, so that --help and completion are fast."""

from typing import Annotated

import typer

from oncelog.bench.commands import app as bench
from oncelog.chaos.commands import app as chaos
from oncelog.cli.admin.app import admin
from oncelog.cli.check.command import check
from oncelog.cli.demo.command import demo
from oncelog.cli.failures import EXIT_CODES
from oncelog.cli.pipeline.app import pipeline
from oncelog.cli.produce.command import produce
from oncelog.cli.read.command import read
from oncelog.cli.standalone.command import standalone
from oncelog.pipeline.bench.command import spark as bench_spark

_HELP = f"""Oncelog: a replicated log in which every message takes effect once.

Begin with `oncelog standalone`, which runs a whole cluster on this machine, then in another terminal:

    oncelog produce greetings --from-file FILE --producer-name importer

    oncelog read greetings --from earliest

Where the cluster is: --url and --admin-url, or ONCELOG_URL and ONCELOG_ADMIN_URL.

{EXIT_CODES}"""

app = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"oncelog {version('oncelog')}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""


app.command()(standalone)
app.command()(produce)
app.command()(read)
app.command()(check)
app.command()(demo)
app.add_typer(admin, name="admin")
bench.command("spark")(bench_spark)
app.add_typer(bench, name="bench")
app.add_typer(chaos, name="chaos")
app.add_typer(pipeline, name="pipeline")
