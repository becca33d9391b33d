"""`oncelog-doors pulsar-proof` and `kafka-proof`."""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from rich.console import Console

from oncelog.core.errors import OncelogError
from oncelog_doors.proof.histories import ClientKind, History, Proof
from oncelog_doors.proof.table import WIDTH, Row, print_table, proven, summary, to_json
from oncelog_doors.proof.world import Side, World

_DESCRIPTION = """\
Start a cluster and two doors, and play each history twice, with real client libraries of {system} behind a proxy that
breaks connections:

{sides}

What counts is what clients were answered (acknowledged, refused) and what {read}.
"""
_EPILOG = """\
{clients}A client that is missing is reported, and its rows count as not run, never as passed.

exit code: 0 if all rows that were run have passed, 1 if one has not, or if none was run.

examples:
{examples}
"""


def described(system: str, sides: str, read: str) -> str:
    """For `--help`. sides: what decides on each of them. read: who reads."""
    return _DESCRIPTION.format(system=system, sides=sides, read=read)


def epilog(clients: str, *examples: str) -> str:
    """For `--help`. clients: how to get them."""
    return _EPILOG.format(clients=clients, examples="\n".join(f"  {each}" for each in examples))


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", proof: Proof) -> None:
    parser = commands.add_parser(
        f"{proof.protocol}-proof", help=proof.help, description=proof.description, epilog=proof.epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.set_defaults(proof=proof)
    defects, clients = ", ".join(proof.defects), ", ".join(proof.clients)
    parser.add_argument("--only", nargs="+", choices=proof.defects, metavar="DEFECT", help=f"of {defects}")
    parser.add_argument("--client", nargs="+", choices=proof.clients, metavar="CLIENT", help=f"of {clients}")
    proof.add_options(parser)
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="empty folder for data and logs; by default they are deleted"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: table")


def run(arguments: argparse.Namespace) -> int:
    """The exit code."""
    proof: Proof = arguments.proof
    chosen = [each for each in proof.histories if not arguments.only or set(each.defect.split()) & set(arguments.only)]
    kinds = [kind for kind in proof.kinds(arguments) if kind.name in (arguments.client or kind.name)]
    errors = Console(stderr=True, highlight=False)
    for kind in kinds:
        if kind.missing:
            errors.print(f"WARNING: the {kind.name} client is NOT RUN: {kind.missing}", markup=False, soft_wrap=True)
    data = arguments.data or Path(tempfile.mkdtemp(prefix=f"{proof.protocol}-proof-"))
    data.mkdir(parents=True, exist_ok=True)
    if any(data.iterdir()):
        errors.print(f"error: --data {data} is not empty: name a new folder", markup=False, soft_wrap=True)
        return 2
    try:
        rows = asyncio.run(_played(proof, chosen, kinds, data.resolve(), errors))
    except OncelogError as error:
        errors.print(f"error: {error}", markup=False, soft_wrap=True)
        return 1
    finally:
        if arguments.data is None:
            shutil.rmtree(data, ignore_errors=True)
    if arguments.output == "json":
        print(json.dumps(to_json(proof, rows), indent=2))
        errors.print(summary(rows), markup=False, soft_wrap=True)
    else:
        print_table(proof, rows, Console(width=None if sys.stdout.isatty() else WIDTH))
    return 0 if proven(rows) else 1


async def _played(
    proof: Proof, histories: Sequence[History], kinds: Sequence[ClientKind], data: Path, errors: Console
) -> list[Row]:
    """A row for each history and each client in which it can happen, in this order."""
    planned = [
        (history, kind) for history in histories for kind in kinds if kind.name in (history.clients or proof.clients)
    ]
    rows = {each: Row(each[0], each[1].name, missing=each[1].missing) for each in planned}
    playable = [(history, kind) for history, kind in planned if not kind.missing]
    if playable:
        async with World.running(data, proof) as world:
            for number, (history, kind) in enumerate(playable):
                left, right = [await _side(world, side, history, kind, number) for side in Side]
                row = rows[history, kind] = Row(history, kind.name, left, right)
                errors.print(f"{history.defect} {kind.name}: {'passed' if row.passed else 'FAILED'}", markup=False)
    return list(rows.values())


async def _side(world: World, side: Side, history: History, kind: ClientKind, number: int) -> str:
    """What came of it. number: of the row."""
    topic = f"{number}-{history.defect.replace(' ', '-')}-{kind.name}"
    async with AsyncExitStack() as stack:
        try:
            return str(await history.play(world.proof.scene(world, side, kind, topic, stack)))
        except OncelogError as error:
            return f"no outcome: {error}"
