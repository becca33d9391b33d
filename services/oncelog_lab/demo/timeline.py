"""What the demo's plot shows: two counts over time, and the kills."""

from dataclasses import dataclass, field

#: Then every second sample goes, and from then on only every second one is taken.
SAMPLES_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Sample:
    """published: lines acknowledged to the producer. consumed: messages acknowledged by the consumers."""

    at_s: float
    published: int
    consumed: int


@dataclass(frozen=True, slots=True)
class Kill:
    """victim: producer, consumer, owner or storage node."""

    at_s: float
    victim: str


@dataclass(slots=True)
class Timeline:
    """Holds at most SAMPLES_MAX samples, whatever the duration of the run is. at_s ascends."""

    samples: list[Sample] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    _last: Sample | None = None
    _stride: int = 1
    _seen: int = 0

    def sample(self, at_s: float, published: int, consumed: int) -> None:
        self._last = Sample(at_s, published, consumed)
        if self._seen % self._stride == 0:
            self.samples.append(self._last)
        self._seen += 1
        if len(self.samples) > SAMPLES_MAX:
            self.samples = self.samples[::2]
            self._stride *= 2

    def killed(self, at_s: float, victim: str) -> None:
        self.kills.append(Kill(at_s, victim))

    def points(self) -> list[Sample]:
        """The samples, and always the last one."""
        last = self._last
        return self.samples if last is None or last in self.samples[-1:] else [*self.samples, last]
