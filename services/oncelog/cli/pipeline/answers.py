"""What commands of jobs say: what is wrong with their options before Spark starts, progress, and answers."""

import json
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import typer
from rich.console import Console

from oncelog.cli.admin.tables import show
from oncelog.cli.failures import explain
from oncelog.cli.options import Output
from oncelog.core.errors import OncelogError

OptionsT = TypeVar("OptionsT")
_TABLE_WIDTH = 150


def checked(read: Callable[[], OptionsT]) -> OptionsT:
    """What `read` returns. What is wrong with the options is explained, and ends the command, before Spark starts."""
    try:
        return read()
    except OncelogError as error:
        raise typer.Exit(explain(error, Console(stderr=True, highlight=False))) from error


def answer(told: dict[str, object], output: Output) -> None:
    """Print it: an object of JSON in one line, or tables of it."""
    if output is Output.JSON:
        print(json.dumps(told), flush=True)
    else:
        show(told, table_console(_TABLE_WIDTH))


def timed(told: dict[str, object], began_s: float) -> dict[str, object]:
    """`told`, and the seconds since `began_s` of the monotonic clock."""
    return told | {"seconds": round(time.monotonic() - began_s, 3)}


def table_console(width: int) -> Console:
    """For a table on standard output. width: of a file or a pipe, which have none; the table is made for reading."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=width)


def tell_progress(sentence: str) -> None:
    """On standard error: standard output holds the answer alone."""
    print(f"{sentence} …", file=sys.stderr, flush=True)
