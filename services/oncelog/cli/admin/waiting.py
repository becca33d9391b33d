"""Commands that wait for a cluster: look again until the work is done, or the time is up. Progress goes to standard
error.
"""

import time
from collections.abc import Callable
from typing import TypeVar, cast

from rich.console import Console

from oncelog.cli.admin.commands import NegativeAnswer
from oncelog.cli.admin.rest import Answer
from oncelog.core.errors import Retriable

T = TypeVar("T")
#: Pause between two looks.
WAIT_S = 1.0


def waited(wait_seconds: int, look: Callable[[], tuple[bool, str, T]]) -> T:
    """Look until everything is done: (done, progress, answer).

    wait_seconds: the longest wait. Raises NegativeAnswer when the time is up, or the error if the cluster does not
    answer then.
    """
    ends_s = time.monotonic() + wait_seconds
    shown = ""
    while True:
        try:
            done, line, answer = look()
        except Retriable as error:  # a metadata service may be restarted meanwhile
            if time.monotonic() >= ends_s:
                raise
            done, line, answer = False, f"{error.message}; will retry", None
        if line != shown:
            progress(line)
            shown = line
        if done:
            return cast("T", answer)
        if time.monotonic() >= ends_s:
            raise NegativeAnswer(cast("Answer", answer))
        time.sleep(WAIT_S)


def progress(line: str) -> None:
    """Print a line to standard error."""
    Console(stderr=True, highlight=False).print(line, markup=False, soft_wrap=True)
