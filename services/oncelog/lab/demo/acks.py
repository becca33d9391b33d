"""What the producers of the demo saw: each acknowledgement with its time, over all their lives.

Times are this machine's monotonic clock in seconds, which all its processes share.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True)
class Acks:
    """times_s: of each acknowledgement, ascending. offset: every byte before it is acknowledged."""

    times_s: list[float] = field(default_factory=list)
    offset: int = 0
    #: duplicates of the lives that are over
    _duplicates_before: int = 0
    _duplicates_now: int = 0

    @property
    def duplicates(self) -> int:
        return self._duplicates_before + self._duplicates_now

    def life_began(self) -> None:
        """Another run of the producer: its own counts begin at 0."""
        self._duplicates_before += self._duplicates_now
        self._duplicates_now = 0

    def add(self, *, time_s: float, offset: int, duplicates: int) -> None:
        """offset, duplicates: of this life; a replay acknowledges old offsets again, which takes nothing back."""
        self.times_s.append(time_s)
        self.offset = max(self.offset, offset)
        self._duplicates_now = duplicates

    def gap_ms(self, from_s: float, to_s: float) -> float:
        """The longest time without an acknowledgement that overlaps the stretch from `from_s` to `to_s`."""
        first = max(0, bisect_left(self.times_s, from_s) - 1)
        last = bisect_left(self.times_s, to_s) + 1
        times = self.times_s[first:last]
        return 1000 * max((after - before for before, after in pairwise(times)), default=0.0)
