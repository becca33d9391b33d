"""Output of the job commands: errors in options before Spark starts, progress, and results."""

import json
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import typer
from rich.console import Console

from oncelog.cli.admin.tables import show, table_console
from oncelog.cli.failures import explain
from oncelog.cli.options import Output
from oncelog.core.errors import OncelogError

OptionsT = TypeVar("OptionsT")
_TABLE_WIDTH = 150
_EVERY_S = 5.0


def checked(read: Callable[[], OptionsT]) -> OptionsT:
    """The result of `read`. Wrong options are explained, and end the command, before Spark starts."""
    try:
        return read()
    except OncelogError as error:
        raise typer.Exit(explain(error, Console(stderr=True, highlight=False))) from error


def print_result(result: dict[str, object], output: Output) -> None:
    """Print a result as a JSON object in one line, or as tables."""
    if output is Output.JSON:
        print(json.dumps(result), flush=True)
    else:
        show(result, table_console(_TABLE_WIDTH))


def print_progress(sentence: str) -> None:
    """Print to standard error: standard output has only the result."""
    print(f"{sentence} …", file=sys.stderr, flush=True)


class TaskProgress:
    """Prints a step and how many of its tasks are done: on a terminal one line that is overwritten, otherwise one line
    every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = ("", -1)
        self._at_s = 0.0

    def report(self, step: str, done: int, count: int) -> None:
        now_s = time.monotonic()
        new = (step, done) != self._last
        soon = step == self._last[0] and now_s - self._at_s < _EVERY_S and done < count
        if not new or (soon and not self._console.is_terminal):
            return
        self._last, self._at_s = (step, done), now_s
        text = f"{step}: {done} of {count} tasks"
        if self._console.is_terminal:
            self._console.print(text, end="\r" if done < count else "\n", markup=False)
        else:
            self._console.print(text, markup=False)
