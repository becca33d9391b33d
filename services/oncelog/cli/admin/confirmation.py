"""The question before a command that loses something.

Rules
- The command says what would be lost. On a terminal the user types a name; `--yes` answers beforehand.
- Without a terminal and without `--yes` nothing is done, and the error says what would have been lost.
- With `--yes` no loss is looked up: a script sends its request, whether or not statistics can be read.
"""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from oncelog.cli.admin.waiting import progress
from oncelog.cli.failures import Exit
from oncelog.core.errors import InvalidArgument

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking. Needed without a terminal.")]


def confirm(yes: bool, loss: Callable[[], str], *, typed: str) -> None:
    """Returns if the user agrees.

    yes: --yes was given. loss: what would be done, from its verb on (`delete topic orders with 7 messages`); called
    only if it is shown. typed: the words that the user types to agree. Raises InvalidArgument, and errors of `loss`.
    """
    if yes:
        return
    what = loss()
    if not sys.stdin.isatty():
        raise InvalidArgument(f"nothing was done: this would {what}; give --yes to do it", field="yes")
    progress(f"This will {what}.")
    # Not click's prompt: it writes to standard output, which is for programs.
    print(f"Type {typed} to do it: ", end="", file=sys.stderr, flush=True)
    try:
        answer = sys.stdin.readline().strip()
    except KeyboardInterrupt:
        progress("\nnothing was done")
        raise typer.Exit(Exit.INTERRUPTED) from None
    if answer != typed:
        raise InvalidArgument(f"nothing was done: {answer!r} was typed, not {typed}", field="yes")
