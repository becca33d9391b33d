"""The progress display of `oncelog produce`: a bar, JSON lines for programs, or nothing.

JSON lines: {"opened": {"producer_name", "last_sequence_id", "start"}}, then one per acknowledged batch of lines:
{"acked", "duplicates", "offset", "monotonic"}. These are the acknowledged lines of this run, those of them that were
stored before, the byte offset before which all lines are acknowledged, and the monotonic clock in seconds.
"""

import json
import sys
import time
from enum import StrEnum
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from oncelog.core.counted import counted


class ProgressKind(StrEnum):
    AUTO = "auto"
    BAR = "bar"
    JSON = "json"
    NONE = "none"


class ProgressView(Protocol):
    """Receives the progress of a run."""

    def opened(self, producer_name: str, last_sequence_id: int, start: int) -> None: ...

    def acked(self, lines: int, duplicates: int, offset: int) -> None:
        """lines, duplicates: totals of the run. offset: all lines before it are acknowledged; -1 for standard input."""

    def ended(self) -> None: ...


class NoProgress:
    """Shows nothing."""

    def opened(self, producer_name: str, last_sequence_id: int, start: int) -> None: ...

    def acked(self, lines: int, duplicates: int, offset: int) -> None: ...

    def ended(self) -> None: ...


class JsonProgress:
    """One JSON object per line on standard output."""

    def opened(self, producer_name: str, last_sequence_id: int, start: int) -> None:
        facts = {"producer_name": producer_name, "last_sequence_id": last_sequence_id, "start": start}
        self._print({"opened": facts})

    def acked(self, lines: int, duplicates: int, offset: int) -> None:
        self._print({"acked": lines, "duplicates": duplicates, "offset": offset, "monotonic": time.monotonic()})

    def ended(self) -> None: ...

    def _print(self, facts: dict[str, object]) -> None:
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()


class Bar:
    """A bar on standard error. size_bytes: of the whole file; None if unknown."""

    def __init__(self, size_bytes: int | None, console: Console) -> None:
        columns = [TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()]
        facts = TextColumn("{task.fields[lines]} acked, {task.fields[rate]:,.0f}/s, {task.fields[duplicates]:,} dup")
        self._progress = Progress(*columns, facts, console=console, transient=True)
        self._size_bytes = size_bytes
        self._task: TaskID | None = None
        self._began = 0.0

    def opened(self, producer_name: str, last_sequence_id: int, start: int) -> None:
        self._began = time.monotonic()
        self._task = self._progress.add_task(
            producer_name,
            total=self._size_bytes,
            completed=max(start, 0),
            lines=counted(0, "line"),
            rate=0.0,
            duplicates=0,
        )
        self._progress.start()

    def acked(self, lines: int, duplicates: int, offset: int) -> None:
        assert self._task is not None, "`opened` is called before `acked`"
        rate = lines / max(time.monotonic() - self._began, 0.001)
        completed = offset if offset >= 0 else None
        self._progress.update(
            self._task, completed=completed, lines=counted(lines, "line"), rate=rate, duplicates=duplicates
        )

    def ended(self) -> None:
        self._progress.stop()


def progress_view(kind: ProgressKind, size_bytes: int | None, console: Console) -> ProgressView:
    """The display of this kind. auto: a bar on a terminal, else nothing."""
    if kind is ProgressKind.JSON:
        return JsonProgress()
    if kind is ProgressKind.BAR or (kind is ProgressKind.AUTO and console.is_terminal):
        return Bar(size_bytes, console)
    return NoProgress()
