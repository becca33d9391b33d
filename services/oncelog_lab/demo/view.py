"""The output of the demo while it runs: events with their time, and a progress bar on a terminal."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

#: Without a terminal: the share of lines between two progress lines.
_STEP = 0.1


class DemoView:
    """Prints events, and the progress of acknowledged lines.

    After its block, events go to `errors`: the last line of standard output is the result.
    """

    def __init__(self, line_count: int, console: Console, errors: Console) -> None:
        self._console = console
        self._errors = errors
        self._line_count = line_count
        self._began_s = time.monotonic()
        self._shown = 0.0
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True) if console.is_terminal else None
        self._task = None if self._progress is None else self._progress.add_task("acknowledged", total=line_count)

    def tell(self, sentence: str) -> None:
        elapsed_s = time.monotonic() - self._began_s
        self._console.print(f"{elapsed_s:6.1f} s  {sentence}", markup=False, highlight=False, soft_wrap=True)

    def acknowledged(self, line_count: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=line_count)
        elif line_count / self._line_count >= self._shown + _STEP:
            self._shown = line_count / self._line_count
            self.tell(f"{line_count:,} of {self._line_count:,} lines acknowledged")

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._console = self._errors
