"""The command of a proof: its arguments, its working directory, its cluster, and the report that it prints."""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from oncelog_lab.demo.flights import FLIGHTS
from tests.cluster.cluster_fixture import Cluster
from tests.proofs.report import Report

LINES = 24_000
LINES_MIN = 12_000
#: Faults meet ledgers at each step of their lives.
SETTINGS = {"ledger_entries_max": 16}

#: Given the arguments, the cluster and the directory for what else it writes.
Prove = Callable[[argparse.Namespace, Cluster, Path], Coroutine[Any, Any, Report]]


def prove_by_command(
    name: str, about: str | None, prove: Prove, *, seed: str, thing: str, names: Sequence[str], why_lines_min: str
) -> int:
    """Run the proof on a cluster of its own, and print its report. Returns the exit code, 0 if it is proven.

    The arguments: seed, lines, only (all of `names` by default), directory, output. Wrong ones end the process.
    name: the folder of the proof. seed: what it draws. thing: what --only names. why_lines_min: what fewer lines would
    be too short for.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.{name}", description=about)
    parser.add_argument("--seed", type=int, default=1, help=seed)
    parser.add_argument("--lines", type=int, default=LINES, help=f"lines of the file, at least {LINES_MIN} [{LINES}]")
    parser.add_argument(
        "--only", nargs="+", metavar=thing.upper(), default=list(names), help=f"these {thing}s, by name; default: all"
    )
    parser.add_argument(
        "--directory", type=Path, help="empty directory for all data and logs, which are kept [a temporary one]"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    arguments = parser.parse_args()
    if not LINES_MIN <= arguments.lines <= FLIGHTS.line_count - 1:
        parser.error(f"--lines must be {LINES_MIN} to {FLIGHTS.line_count - 1}: {why_lines_min}")
    if unknown := sorted(set(arguments.only) - set(names)):
        parser.error(f"unknown {thing} {unknown[0]!r}: {', '.join(names)}")
    with ExitStack() as stack:
        directory = proof_directory(stack, arguments.directory, f"{name.replace('_', '-')}-")
        cluster = stack.enter_context(Cluster.running(directory, **SETTINGS))
        report = asyncio.run(prove(arguments, cluster, directory))
    print(json.dumps(report.to_json()) if arguments.output == "json" else report)
    return 0 if report.proven else 1


def proof_directory(stack: ExitStack, given: Path | None, prefix: str) -> Path:
    """The directory of the command line, created if missing; otherwise a temporary one, removed when the stack is
    closed."""
    if given is None:
        temporary = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
        given = Path(stack.enter_context(temporary))
    given.mkdir(parents=True, exist_ok=True)
    return given.absolute()
