"""What export, import and compact share: options as the jobs take them, checked before Spark starts, and answers."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import typer
from rich.console import Console

from oncelog.cli.admin.tables import show
from oncelog.cli.failures import explain
from oncelog.cli.options import Output
from oncelog.core.errors import OncelogError

OptionsT = TypeVar("OptionsT")
_TABLE_WIDTH = 150


def given(**options: str | Path | bool | None) -> dict[str, str]:
    """Options as jobs take them, by their names, as texts. None and "": not given. Executors may have another working
    directory, so paths are whole ones."""
    return {name: _text(value) for name, value in options.items() if value not in (None, "")}


def _text(value: str | Path | bool | None) -> str:
    if isinstance(value, Path):
        return str(value.absolute())
    return str(value).lower() if isinstance(value, bool) else str(value)


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
        return
    console = Console(highlight=False)
    # A file or a pipe has no width, and the table is made for reading.
    show(told, console if console.is_terminal else Console(highlight=False, width=_TABLE_WIDTH))


def tell_progress(sentence: str) -> None:
    """On standard error: standard output holds the answer alone."""
    print(f"{sentence} …", file=sys.stderr, flush=True)
