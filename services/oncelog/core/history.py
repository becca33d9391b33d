"""Figures over time, for plots, in bounded memory: fine for the last minutes, coarse for a day.

Rules
- A series has one or more lines, such as the rate in and the rate out of a topic. Each line is kept once for each of
  `SPANS`, in a ring of floats.
- A place of a coarse ring has the mean of a rate, and the highest value of a level: the peak of a backlog is not lost.
- A figure that was not sampled is unknown (None), and never 0. Sources leave out what is idle: that is 0.
- All series together take at most `bytes_max`. If a new one finds no room, the series that has been 0 the longest goes,
  if that is `QUIET_MS` or longer; otherwise the new one is refused. Both are counted, so that a page can say so.
- A series that has been 0 for as long as anything is kept goes, too.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from math import isnan, nan
from typing import NamedTuple


class Span(NamedTuple):
    """places: of `step_ms` each."""

    step_ms: int
    places: int

    @property
    def length_ms(self) -> int:
        return self.step_ms * self.places


#: Ten minutes, one hour, one day.
SPANS = (Span(10_000, 60), Span(60_000, 60), Span(300_000, 288))
LONGEST_MS = SPANS[-1].length_ms
#: How long a series must have been 0 before another one takes its room.
QUIET_MS = 600_000
#: Of a line in all rings, and of a series beside its lines, about.
LINE_BYTES = sum(4 * span.places + 80 for span in SPANS)
SERIES_BYTES = 800


class Kind(StrEnum):
    """How several samples become one place."""

    MEAN = "mean"
    HIGHEST = "highest"


#: What a series is about, such as ("topic", NAME).
Key = tuple[str, ...]
#: In the order of the lines.
Values = Sequence[float | None]


class Lines(NamedTuple):
    """values: of each line, the oldest first, one for each step; the first one begins at begin_ms, since 1970."""

    begin_ms: int
    step_ms: int
    values: tuple[list[float | None], ...]


class _Ring:
    """One line of one span. sum, count: of the newest place."""

    __slots__ = ("count", "kind", "places", "sum")

    def __init__(self, kind: Kind, span: Span) -> None:
        self.kind = kind
        self.places = array("f", [nan]) * span.places
        self.sum, self.count = 0.0, 0

    def put(self, at: int, value: float, *, fresh: bool) -> None:
        """fresh: the place has no sample yet."""
        if fresh:
            self.sum, self.count = 0.0, 0
        if self.kind is Kind.MEAN:
            self.sum += value
            self.count += 1
            self.places[at] = self.sum / self.count
        elif not self.places[at] >= value:  # it may be unknown
            self.places[at] = value


class Series:
    """Some lines with the same times. active_ms: when a value was last above 0."""

    __slots__ = ("_newest", "_rings", "active_ms")

    def __init__(self, kinds: Sequence[Kind], now_ms: int) -> None:
        self._rings = tuple(tuple(_Ring(kind, span) for kind in kinds) for span in SPANS)
        #: number of the newest place of each span, since 1970; -1: there is none
        self._newest = [-1] * len(SPANS)
        self.active_ms = now_ms

    def put(self, values: Values, now_ms: int) -> None:
        """now_ms: since 1970; a time before the newest place, of a clock that was set back, counts as that one."""
        if any(values):
            self.active_ms = now_ms
        for number, span in enumerate(SPANS):
            newest = self._newest[number]
            place = max(newest, now_ms // span.step_ms)
            fresh = place != newest
            if fresh:
                self._forget(number, newest, place)
                self._newest[number] = place
            for ring, value in zip(self._rings[number], values, strict=True):
                if value is not None:
                    ring.put(place % span.places, value, fresh=fresh or ring.count == 0)

    def _forget(self, number: int, newest: int, place: int) -> None:
        """The places behind `newest`, up to `place`, are unknown."""
        span = SPANS[number]
        for each in range(max(newest + 1, place - span.places + 1), place + 1):
            for ring in self._rings[number]:
                ring.places[each % span.places] = nan
        for ring in self._rings[number]:
            ring.sum, ring.count = 0.0, 0

    def lines(self, range_ms: int, now_ms: int) -> Lines:
        """The last range_ms before now_ms, in the finest span that reaches so far back."""
        number, span = span_of(range_ms)
        end = now_ms // span.step_ms + 1
        begin = end - range_ms // span.step_ms
        newest = self._newest[number]
        kept = range(newest - span.places + 1, newest + 1)
        values = tuple(
            [_known(ring.places[place % span.places]) if place in kept else None for place in range(begin, end)]
            for ring in self._rings[number]
        )
        return Lines(begin * span.step_ms, span.step_ms, values)


def span_of(range_ms: int) -> tuple[int, Span]:
    """The finest span of at least this length, and its number."""
    found = next(((number, span) for number, span in enumerate(SPANS) if span.length_ms >= range_ms), None)
    return (len(SPANS) - 1, SPANS[-1]) if found is None else found


def _known(value: float) -> float | None:
    return None if isnan(value) else value


class History:
    """Many series, of which most are 0 for most of the time.

    bytes: of what is kept, about. dropped: series that were 0 and gave their room to others; refused: samples that
    found no room.
    """

    def __init__(self, kinds: Mapping[str, Sequence[Kind]], *, bytes_max: int) -> None:
        """kinds: {first element of a key: kinds of its lines}."""
        self._kinds = kinds
        self.bytes_max = bytes_max
        #: {key: series}, the one whose last value above 0 is the oldest first
        self._series: OrderedDict[Key, Series] = OrderedDict()
        self.bytes = self.dropped = self.refused = 0

    def __len__(self) -> int:
        return len(self._series)

    def __iter__(self) -> Iterator[Key]:
        """Over a copy: series may come and go meanwhile."""
        return iter(list(self._series))

    def get(self, key: Key) -> Series | None:
        return self._series.get(key)

    def put(self, key: Key, values: Values, now_ms: int) -> None:
        """One sample of one series, which begins with its first value above 0."""
        series = self._series.get(key)
        if series is None:
            if not any(values) or not self._has_room(key, now_ms):
                return
            series = self._series[key] = Series(self._kinds[key[0]], now_ms)
            self.bytes += self._bytes_of(key)
        series.put(values, now_ms)
        if series.active_ms == now_ms:
            self._series.move_to_end(key)
        elif now_ms - series.active_ms >= LONGEST_MS:
            self._drop(key)

    def idle(self, key: Key, now_ms: int) -> None:
        """The series was sampled, and has nothing but zeros."""
        self.put(key, (0.0,) * len(self._kinds[key[0]]), now_ms)

    def unknown(self, key: Key, now_ms: int) -> None:
        """The series could not be sampled."""
        self.put(key, (None,) * len(self._kinds[key[0]]), now_ms)

    def _has_room(self, key: Key, now_ms: int) -> bool:
        while self.bytes + self._bytes_of(key) > self.bytes_max:
            quietest = next(iter(self._series.items()), None)
            if quietest is None or now_ms - quietest[1].active_ms < QUIET_MS:
                self.refused += 1
                return False
            self._drop(quietest[0])
            self.dropped += 1
        return True

    def _drop(self, key: Key) -> None:
        del self._series[key]
        self.bytes -= self._bytes_of(key)

    def _bytes_of(self, key: Key) -> int:
        return SERIES_BYTES + LINE_BYTES * len(self._kinds[key[0]]) + sum(map(len, key))

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        assert self.bytes == sum(map(self._bytes_of, self._series)) <= self.bytes_max
        times = [each.active_ms for each in self._series.values()]
        assert times == sorted(times), "the quietest series is the first"
