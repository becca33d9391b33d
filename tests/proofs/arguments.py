"""The command line of the proofs, and their working directory."""

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from oncelog_lab.demo.flights import FLIGHTS

LINES = 24_000
LINES_MIN = 12_000


def proof_arguments(
    prog: str, about: str | None, *, seed: str, thing: str, names: Sequence[str], why_lines_min: str
) -> argparse.Namespace:
    """The arguments: seed, lines, only (all of `names` by default), directory, output. Wrong ones end the process.

    seed: what it draws. thing: what --only names. why_lines_min: what fewer lines would be too short for.
    """
    parser = argparse.ArgumentParser(prog=prog, description=about)
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
    return arguments


def proof_directory(stack: ExitStack, given: Path | None, prefix: str) -> Path:
    """The directory of the command line, created if missing; otherwise a temporary one, removed when the stack is
    closed."""
    if given is None:
        temporary = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
        given = Path(stack.enter_context(temporary))
    given.mkdir(parents=True, exist_ok=True)
    return given.absolute()
