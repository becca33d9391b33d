"""Commands that look at a cluster again and again: until the work is done or the time is up, or until Ctrl-C. Progress
goes to standard error.
"""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar, cast

from rich.console import Console

from oncelog.cli.admin.commands import NegativeAnswer
from oncelog.cli.admin.rest import Answer
from oncelog.core.errors import OncelogError, Retriable

T = TypeVar("T")
#: Pause between two looks.
WAIT_S = 1.0


def waited(
    wait_seconds: int, look: Callable[[], tuple[bool, str, T]], *, passing: tuple[type[OncelogError], ...] = ()
) -> T:
    """Look until everything is done: (done, progress, answer).

    wait_seconds: the longest wait; passing: errors beside Retriable that may pass meanwhile. Raises NegativeAnswer when
    the time is up, or the error if there still is one.
    """
    ends_s = time.monotonic() + wait_seconds
    # A metadata service may be restarted meanwhile.
    repeated: tuple[type[OncelogError], ...] = (Retriable, *passing)
    shown = ""
    while True:
        try:
            done, line, answer = look()
        except repeated as error:
            if time.monotonic() >= ends_s:
                raise
            done, line, answer = False, f"{error.message}; will retry", None
        if line != shown:
            progress(line)
            shown = line
        if done:
            return cast("T", answer)
        if time.monotonic() >= ends_s:
            reason = f"not done after {wait_seconds} s{f': {line}' if line else ''}"
            raise NegativeAnswer(cast("Answer", answer), reason=reason)
        time.sleep(WAIT_S)


def watched(interval_s: float, look: Callable[[], T], *, once: bool = False) -> Iterator[T]:
    """What is seen at each look, without an end, or once. interval_s: between the begin of two looks.

    Raises the error of the first look. Later the cluster may not answer for a while: that is told, and the look is
    repeated; an error that a retry does not mend is raised.
    """
    shown: str | None = None
    seen = False
    while True:
        began_s = time.monotonic()
        try:
            yield look()
            seen, shown = True, None
        except Retriable as error:
            if not seen:
                raise
            if error.message != shown:
                progress(f"{error.message}; will retry")
                shown = error.message
        if once:
            return
        time.sleep(max(0.0, interval_s - (time.monotonic() - began_s)))


def progress(line: str) -> None:
    """Print a line to standard error."""
    Console(stderr=True, highlight=False).print(line, markup=False, soft_wrap=True)
