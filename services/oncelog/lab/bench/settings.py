"""What a bench was asked for. Every default is the row of the table; every loop is bounded by one of these."""

from dataclasses import dataclass

from oncelog.lab.bench.limits import LARGE_BATCH_BYTES, LARGE_WINDOW, SMALL_BATCH_BYTES, SMALL_WINDOW


@dataclass(frozen=True, slots=True)
class Shape:
    """A load: batches of batch_bytes, `window` of them in flight."""

    batch_bytes: int
    window: int

    def __str__(self) -> str:
        return f"{self.batch_bytes / 1024:g} KiB batches, {self.window} in flight"


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """runs: of each figure, in turns with the limits run. seconds: of one run of a load."""

    runs: int = 3
    seconds: float = 2.0
    message_bytes: int = 100
    large_message_bytes: int = 1024
    large: Shape = Shape(LARGE_BATCH_BYTES, LARGE_WINDOW)
    small: Shape = Shape(SMALL_BATCH_BYTES, SMALL_WINDOW)
    #: producers that share the small batches
    producers: int = 16
    #: single messages a second, for latencies
    latency_rate: float = 200.0
    latency_seconds: float = 3.0
    #: pairs of dedup on and off, and the seconds of each half
    pairs: int = 10
    pair_seconds: float = 2.0
    consume_messages: int = 2_000_000


@dataclass(frozen=True, slots=True)
class TakeoverSettings:
    """kills: of the owner. rate: messages a second while processes die."""

    kills: int = 20
    freezes: int = 1
    storage_kills: int = 3
    rate: float = 1000.0
    message_bytes: int = 100
    #: load before each kill, and at most after it
    lead_seconds: float = 1.0
    gap_seconds_max: float = 30.0
    replays: int = 3
    replay_entries: int = 1000
    replay_messages_per_entry: int = 200
    restarts: int = 50
