"""Counts over time in buckets. The buckets become wider as the time becomes longer, which bounds their number."""

from dataclasses import dataclass, field

BUCKETS_MAX = 512
#: The narrowest buckets, ms.
_WIDTH_MS = 1000


@dataclass(slots=True)
class TimeSeries:
    """counts: {bucket: count}. Bucket n begins at n * width_ms, in ms since 1970."""

    width_ms: int = _WIDTH_MS
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, time_ms: int, count: int = 1) -> None:
        number = time_ms // self.width_ms
        self.counts[number] = self.counts.get(number, 0) + count
        if len(self.counts) > BUCKETS_MAX:
            self.widen(self.width_ms * 2)

    def widen(self, width_ms: int) -> None:
        """width_ms: a multiple of the current width."""
        factor = width_ms // self.width_ms
        counts: dict[int, int] = {}
        for number, count in self.counts.items():
            counts[number // factor] = counts.get(number // factor, 0) + count
        self.width_ms, self.counts = width_ms, counts

    def merge(self, other: "TimeSeries") -> None:
        """Add the counts of another series, which is not changed."""
        theirs = TimeSeries(other.width_ms, dict(other.counts))
        width_ms = max(self.width_ms, theirs.width_ms)
        self.widen(width_ms)
        theirs.widen(width_ms)
        for number, count in theirs.counts.items():
            self.counts[number] = self.counts.get(number, 0) + count
        while len(self.counts) > BUCKETS_MAX:
            self.widen(self.width_ms * 2)

    def between(self, first_ms: int, last_ms: int, buckets: int) -> list[int]:
        """Counts in so many equal intervals from first_ms to last_ms. A bucket counts in the interval of its start."""
        found = [0] * buckets
        span_ms = max(1, last_ms - first_ms + 1)
        for number, count in self.counts.items():
            at = (max(first_ms, number * self.width_ms) - first_ms) * buckets // span_ms
            found[min(buckets - 1, max(0, at))] += count
        return found

    @property
    def total(self) -> int:
        return sum(self.counts.values())
