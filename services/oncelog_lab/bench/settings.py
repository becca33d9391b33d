"""The settings of a benchmark, which are the options of its command. Every loop is bounded by one of these."""

from dataclasses import dataclass
from typing import Annotated

import typer

from oncelog_lab.bench import options as opt


@dataclass(frozen=True, slots=True)
class LoadShape:
    """Batches of batch_bytes, `window` of them in flight."""

    batch_bytes: int
    window: int

    def __str__(self) -> str:
        return f"{self.batch_bytes / 1024:g} KiB batches, {self.window} in flight"


LARGE = LoadShape(256 * 1024, 32)
SMALL = LoadShape(64 * 1024, 128)
_Seconds = Annotated[float, typer.Option("--seconds", min=0.2, max=60, help="Duration of one run, in seconds.")]
_FREEZES = "Number of stops of the topic's owner; each takes a session timeout."
_REPLAY_ENTRIES = "Entries to replay; after 1000 the owner writes a snapshot."


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """Each default is that of the table of results, unless the benchmark has its own in `commands`."""

    runs: opt.Runs = 3
    message_bytes: opt.MessageBytes = 100
    large_message_bytes: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Size of the larger messages in bytes.")
    ] = 1024
    batch_kib: Annotated[int, typer.Option(min=1, max=4096, help="Size of a large batch in KiB.")] = 256
    window: Annotated[int, typer.Option(min=1, max=64, help="Number of large batches in flight.")] = LARGE.window
    small_batch_kib: Annotated[int, typer.Option(min=1, max=4096, help="Size of a small batch in KiB.")] = 64
    small_window: Annotated[
        int, typer.Option(min=1, max=1024, help="Number of small batches in flight, of all producers.")
    ] = SMALL.window
    producers: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of producers that send the small batches.")
    ] = 16
    rate: Annotated[float, typer.Option(min=1, max=10_000, help="Messages per second.")] = 200.0
    seconds: _Seconds = 2.0
    #: of a run that measures latencies
    latency_seconds: _Seconds = 3.0
    pairs: Annotated[
        int, typer.Option(min=1, max=100, help="Number of pairs of runs, with and without deduplication.")
    ] = 10
    #: of each half of a pair
    pair_seconds: _Seconds = 2.0
    messages: Annotated[int, typer.Option(min=1000, max=20_000_000, help="Number of messages in the topic.")] = (
        2_000_000
    )
    return_memory: Annotated[
        bool, typer.Option("--return-memory", help="Use a client with keep_memory=False; -o json has its peak_mib.")
    ] = False
    database: Annotated[
        str, typer.Option(metavar="URL", help="SQLAlchemy URL of an empty database. [default: a SQLite file]")
    ] = ""
    kills: opt.Kills = 20
    freezes: Annotated[int, typer.Option(min=0, max=100, help=_FREEZES)] = 1
    storage_kills: Annotated[int, typer.Option(min=1, max=100, help="Number of kills of a storage node.")] = 3
    replays: Annotated[int, typer.Option(min=1, max=100, help="Number of takeovers with entries to replay.")] = 3
    replay_entries: Annotated[int, typer.Option(min=10, max=1000, help=_REPLAY_ENTRIES)] = 1000
    restarts: Annotated[int, typer.Option(min=1, max=1000, help="Number of producers that are opened again.")] = 50
    topics: Annotated[int, typer.Option(min=2, max=10_000, help="Number of topics.")] = 500
    idle_seconds: Annotated[float, typer.Option(min=0.2, max=60, help="Duration of one run, in seconds.")] = 20.0
    producer_count: Annotated[
        int, typer.Option("--producers", min=1, max=1_000_000, help="Number of producers of one topic.")
    ] = 10_000

    @property
    def large(self) -> LoadShape:
        return LoadShape(self.batch_kib * 1024, self.window)

    @property
    def small(self) -> LoadShape:
        return LoadShape(self.small_batch_kib * 1024, self.small_window)
