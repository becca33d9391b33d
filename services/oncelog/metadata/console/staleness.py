"""Since when what is being rendered is unknown: a figure of then is not shown as one of now."""

from collections.abc import Iterable

from oncelog.metadata.console.rest_reading import Block, Problem


class Stale:
    """Of one rendering. `begin` and `end` enclose what is made from some reads; the innermost pair counts."""

    def __init__(self) -> None:
        self._since_ms: list[int | None] = []
        #: inside a table, whose block says since when
        self.in_table = False

    @property
    def since_ms(self) -> int | None:
        """When the oldest of these reads was answered; None: all are answers of now."""
        return self._since_ms[-1] if self._since_ms else None

    def begin(self, reads: Iterable[Block]) -> str:
        times = [read.as_of_ms for read in reads if read.problem is not None and read.as_of_ms is not None]
        self._since_ms.append(min(times, default=None))
        return ""

    def end(self) -> str:
        self._since_ms.pop()
        return ""

    def table(self, inside: bool) -> str:
        self.in_table = inside
        return ""

    def word(self, now: str, then: str) -> str:
        """A verb in the present or in the past."""
        return now if self.since_ms is None else then


def distinct_problems(reads: Iterable[Block]) -> list[Block]:
    """The reads with a problem; of those with equal ones the oldest."""
    found: dict[tuple[Problem, bool], Block] = {}
    for read in reads:
        if read.problem is None:
            continue
        key = read.problem, read.known
        former = found.get(key)
        if former is None or (read.as_of_ms or 0) < (former.as_of_ms or 0):
            found[key] = read
    return list(found.values())
