"""The commands of `oncelog storage`: for the directory of a stopped storage node. Only mark-restored changes it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from oncelog.cli.admin.readable import size
from oncelog.cli.failures import EXIT_CODES, Exit, explain
from oncelog.cli.options import Output, OutputOption
from oncelog.core.errors import OncelogError

_HELP = f"""Inspect the directory of a stopped storage node. Only mark-restored changes it.

A running process holds the lock of its directory: stop it first, or work on a copy of the directory.

    oncelog storage inspect /var/lib/oncelog

    oncelog storage fsck /var/lib/oncelog

    oncelog storage inspect /var/lib/oncelog --ledger 17

    oncelog storage mark-restored /var/lib/oncelog

A damaged storage node still starts: it is in limbo for the ledgers that existed then, serves the sound entries, and
gets the rest back by repair. `oncelog admin storage` shows this in the running cluster.

{EXIT_CODES}"""
_INSPECT_HELP = f"""Show the identity, segments, ledgers and holes of a directory.

A hole is a part that cannot be read and may have held records. A known hole was found by an earlier start, which put
the node into limbo: ledgers below `limbo_below` may lack entries, except those that were cleared since.

    oncelog storage inspect /var/lib/oncelog -o json

With --ledger: the records of one ledger, in the order of the files. live: whether this copy of the entry is used. With
-o json, each line is a JSON object.

    oncelog storage inspect /var/lib/oncelog --ledger 17

{EXIT_CODES}"""
_FSCK_HELP = f"""Read everything, and check every checksum. The exit code is 1 if anything is damaged.

Bytes of a torn write at the end of the last segment are not damage: they were never acknowledged.

    oncelog storage fsck /var/lib/oncelog

To repair damage, start the node: repair copies the missing entries from other nodes. Keep the directory, even if it is
damaged: it may have the only copy of an entry.

{EXIT_CODES}"""
_MARK_RESTORED_HELP = f"""Mark a directory that was restored from a backup, a snapshot or a copy.

It may lack entries that were stored since. Mark it before its first start: the node then starts in limbo, serves the
entries that it has, reports no entry as missing, and gets the rest by repair. A node recognizes an older directory by
itself, unless it lacks only the last second before a crash. If you mark a directory that lacks nothing, nothing is
lost.

    oncelog storage mark-restored /var/lib/oncelog

{EXIT_CODES}"""

DirectoryArgument = Annotated[
    Path,
    typer.Argument(metavar="DIRECTORY", exists=True, file_okay=False, help="Data directory of a stopped storage node."),
]

storage = typer.Typer(help=_HELP, no_args_is_help=True)


@storage.command("inspect", help=_INSPECT_HELP)
def inspect(
    directory: DirectoryArgument,
    ledger: Annotated[
        int | None, typer.Option("--ledger", min=0, help="Print the records of this ledger instead, a line each.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    def run() -> Exit:
        from oncelog.log_storage.directory import offline

        if ledger is not None:
            for record in offline.records_of(directory, ledger):
                line = "  ".join(f"{name}={value}" for name, value in record.items())
                print(json.dumps(record) if output is Output.JSON else line)
            return Exit.OK
        found = offline.inspect(directory)
        if output is Output.JSON:
            print(json.dumps(found))
            return Exit.OK
        _print_summary(found)
        print(f"\n{'LEDGER':>10} {'ENTRIES':>10} {'FIRST':>10} {'LAST':>10} {'SIZE':>10}  STATE")
        for each in found["ledgers"]:
            first, last = ("-" if each[name] is None else each[name] for name in ("first_entry", "last_entry"))
            states = [name for name in ("fenced", "erased", "deleted", "limbo") if each[name]]
            print(
                f"{each['ledger_id']:>10} {each['entries']:>10} {first:>10} {last:>10} "
                f"{size(each['bytes']):>10}  {', '.join(states)}".rstrip()
            )
        return Exit.OK

    _run(run)


@storage.command("fsck", help=_FSCK_HELP)
def fsck(directory: DirectoryArgument, output: OutputOption = Output.TABLE) -> None:
    def run() -> Exit:
        from oncelog.log_storage.directory import offline

        found = offline.check(directory)
        if output is Output.JSON:
            print(json.dumps(found))
        else:
            _print_summary(found)
            for entry in found["bad_entries"]:
                print(f"bad entry    ledger {entry['ledger_id']}, entry {entry['entry_id']}: {entry['reason']}")
            print("ok: everything was read, and every checksum is right" if found["sound"] else "DAMAGED: see above")
        return Exit.OK if found["sound"] else Exit.FAILED

    _run(run)


@storage.command("mark-restored", help=_MARK_RESTORED_HELP)
def mark_restored(directory: DirectoryArgument, output: OutputOption = Output.TABLE) -> None:
    def run() -> Exit:
        from oncelog.log_storage.directory import offline

        offline.mark_restored(directory)
        if output is Output.JSON:
            print(json.dumps({"path": str(directory), "marked": True}))
        else:
            print(f"{directory}: marked. Start the node: it begins in limbo, and repair restores what it lacks")
        return Exit.OK

    _run(run)


def _print_summary(found: dict[str, Any]) -> None:
    print(f"path         {found['path']}")
    print(f"cluster      {found['cluster_id']}")
    print(f"incarnation  {found['incarnation']}")
    print(f"era          {found['era']}")
    if found["identity_damage"]:
        print(f"identity     DAMAGED: {found['identity_damage']}")
    dead = found["file_bytes"] - found["live_bytes"]
    print(f"segments     {len(found['segments'])}, {size(found['file_bytes'])}, of which {size(dead)} are not live")
    print(f"ledgers      {found['ledger_count']}")
    if found["limbo_below"]:
        print(f"limbo        ledgers below {found['limbo_below']}, {len(found['limbo_cleared'])} cleared since")
    for hole in found["holes"]:
        place = "whole file" if hole["end"] is None else f"bytes {hole['start']} to {hole['end']}"
        known = "known" if hole["known"] else "NEW"
        print(f"hole         segment {hole['segment']}, {place}: {hole['what']} ({known})")


def _run(command: Callable[[], Exit]) -> None:
    try:
        raise typer.Exit(command())
    except (OncelogError, OSError) as error:
        from rich.console import Console

        raise typer.Exit(explain(error, Console(stderr=True, highlight=False))) from None
