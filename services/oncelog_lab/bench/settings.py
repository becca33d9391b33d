"""The settings of a benchmark. Every default is that of the table; every loop is bounded by one of these."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadShape:
    """Batches of batch_bytes, `window` of them in flight."""

    batch_bytes: int
    window: int

    def __str__(self) -> str:
        return f"{self.batch_bytes / 1024:g} KiB batches, {self.window} in flight"


LARGE = LoadShape(256 * 1024, 32)
SMALL = LoadShape(64 * 1024, 128)


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """runs: of each figure, alternating with the limits run. seconds: of one run of a load."""

    runs: int = 3
    seconds: float = 2.0
    message_bytes: int = 100
    large_message_bytes: int = 1024
    large: LoadShape = LARGE
    small: LoadShape = SMALL
    #: number of producers that send the small batches
    producers: int = 16
    #: messages per second, for latencies
    latency_rate: float = 200.0
    latency_seconds: float = 3.0
    #: pairs of runs with and without deduplication, and the seconds of each half
    pairs: int = 10
    pair_seconds: float = 2.0
    consume_messages: int = 2_000_000


@dataclass(frozen=True, slots=True)
class TakeoverSettings:
    """kills: of the owner. rate: messages per second while processes die."""

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


@dataclass(frozen=True, slots=True)
class TopicsSettings:
    topics: int = 500
    idle_seconds: float = 20.0
