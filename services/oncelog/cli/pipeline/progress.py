"""How far a job is, on standard error: a line that is written over on a terminal, else one line every few seconds."""

import time

from rich.console import Console

_EVERY_S = 5.0


class TaskProgress:
    """Tells a step and how many of its tasks are done."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = ("", -1)
        self._at_s = 0.0

    def tell(self, step: str, done: int, count: int) -> None:
        now_s = time.monotonic()
        new = (step, done) != self._told
        soon = step == self._told[0] and now_s - self._at_s < _EVERY_S and done < count
        if not new or (soon and not self._console.is_terminal):
            return
        self._told, self._at_s = (step, done), now_s
        text = f"{step}: {done} of {count} tasks"
        if self._console.is_terminal:
            self._console.print(text, end="\r" if done < count else "\n", markup=False)
        else:
            self._console.print(text, markup=False)
