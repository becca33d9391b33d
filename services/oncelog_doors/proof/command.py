"""`oncelog-doors pulsar-proof`."""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from rich.console import Console

from oncelog.core.errors import OncelogError
from oncelog_doors.proof.client_kinds import ClientKind, client_kinds
from oncelog_doors.proof.histories import HISTORIES, History
from oncelog_doors.proof.table import WIDTH, Row, print_table, proven, summary, to_json
from oncelog_doors.proof.world import Scene, Side, World

HELP = "show Pulsar's defects with its own clients, and that a door has none of them"
DESCRIPTION = """\
Start a cluster and two doors, and play each history twice, with real client libraries of Pulsar behind a proxy that
breaks connections:

  under Pulsar's rule   the same door, where Pulsar's rule for duplicates decides: it compares a sequence id with the
                        highest one of its producer name. Of acknowledgements, the log gets what a broker of Pulsar
                        would write. Each row must fail in the way that is stated.
  behind the door       as users get it. Each row must pass.

What counts is what clients were answered (acknowledged, refused) and what a Reader of the same library reads back, or
another consumer receives.
"""
EPILOG = """\
clients:
  python   pip install pulsar-client
  java     --java DIR: a folder with all jars of the client, which for example
             mvn dependency:copy-dependencies -DoutputDirectory=DIR
           makes for a pom.xml with the dependency org.apache.pulsar:pulsar-client. It needs a JDK, 11 or later.
  go       --go PROGRAM: the client of version 0.19 or later, built in an empty folder with
             cp {go}/main.go . && go mod init proof-client
             go get github.com/apache/pulsar-client-go@v0.19.0 . && go build
A client that is missing is reported, and its rows count as not run, never as passed.

exit code: 0 if all rows that were run have passed, 1 if one has not, or if none was run.

examples:
  oncelog-doors pulsar-proof
  oncelog-doors pulsar-proof --only D2 --client python
  oncelog-doors pulsar-proof --java ./jars --go ./proof-client -o json
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    proof = commands.add_parser(
        "pulsar-proof", help=HELP, description=DESCRIPTION,
        epilog=EPILOG.format(go=Path(__file__).with_name("clients") / "go"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    defects = sorted({each for history in HISTORIES for each in history.defect.split()})
    proof.add_argument("--only", nargs="+", choices=defects, metavar="DEFECT", help=f"of {', '.join(defects)}")
    proof.add_argument(
        "--client", nargs="+", choices=("python", "java", "go"), metavar="CLIENT", help="of python, java, go"
    )
    proof.add_argument("--java", type=Path, metavar="DIR", help="folder with the jars of the Java client")
    proof.add_argument("--go", type=Path, metavar="PROGRAM", help="the program with the Go client")
    proof.add_argument(
        "--data", type=Path, metavar="DIR", help="empty folder for data and logs; by default they are deleted"
    )
    proof.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: table")


def run(arguments: argparse.Namespace) -> int:
    """The exit code."""
    chosen = [each for each in HISTORIES if not arguments.only or set(each.defect.split()) & set(arguments.only)]
    kinds = [
        kind for kind in client_kinds(arguments.java, arguments.go) if kind.name in (arguments.client or kind.name)
    ]
    errors = Console(stderr=True, highlight=False)
    for kind in kinds:
        if kind.missing:
            errors.print(f"WARNING: the {kind.name} client is NOT RUN: {kind.missing}", markup=False, soft_wrap=True)
    data = arguments.data or Path(tempfile.mkdtemp(prefix="pulsar-proof-"))
    data.mkdir(parents=True, exist_ok=True)
    if any(data.iterdir()):
        errors.print(f"error: --data {data} is not empty: name a new folder", markup=False, soft_wrap=True)
        return 2
    try:
        rows = asyncio.run(_played(chosen, kinds, data.resolve(), errors))
    except OncelogError as error:
        errors.print(f"error: {error}", markup=False, soft_wrap=True)
        return 1
    finally:
        if arguments.data is None:
            shutil.rmtree(data, ignore_errors=True)
    if arguments.output == "json":
        print(json.dumps(to_json(rows), indent=2))
        errors.print(summary(rows), markup=False, soft_wrap=True)
    else:
        print_table(rows, Console(width=None if sys.stdout.isatty() else WIDTH))
    return 0 if proven(rows) else 1


async def _played(histories: list[History], kinds: list[ClientKind], data: Path, errors: Console) -> list[Row]:
    """A row for each history and each client in which it can happen, in this order."""
    planned = [(history, kind) for history in histories for kind in kinds if kind.name in history.clients]
    rows = {each: Row(each[0], each[1].name, missing=each[1].missing) for each in planned}
    playable = [(history, kind) for history, kind in planned if not kind.missing]
    if playable:
        async with World.running(data) as world:
            for history, kind in playable:
                left, right = [await _side(world, side, history, kind) for side in Side]
                row = rows[history, kind] = Row(history, kind.name, left, right)
                errors.print(f"{history.defect} {kind.name}: {'passed' if row.passed else 'FAILED'}", markup=False)
    return list(rows.values())


async def _side(world: World, side: Side, history: History, kind: ClientKind) -> str:
    """What came of it."""
    topic = f"{history.defect.replace(' ', '-')}-{kind.name}"
    async with AsyncExitStack() as stack:
        try:
            return str(await history.play(Scene(world, side, kind, topic, stack)))
        except OncelogError as error:
            return f"no outcome: {error}"
