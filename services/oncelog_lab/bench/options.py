"""Options that commands of `oncelog bench` share."""

from pathlib import Path
from typing import Annotated

import typer

Url = Annotated[
    str | None, typer.Option("--url", help="URL of a running cluster. Default: a standalone cluster for this run.")
]
AdminUrl = Annotated[str, typer.Option("--admin-url", help="REST URL of the running cluster.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Parent of the temporary directory, on the disk to measure. Default: the system's."),
]
Runs = Annotated[int, typer.Option(min=1, max=100, help="Runs of each figure, alternating with the limits run.")]
Seconds = Annotated[float, typer.Option(min=0.2, max=60, help="Duration of one run, in seconds.")]
MessageBytes = Annotated[int, typer.Option("--message-bytes", min=1, max=1_000_000, help="Message size in bytes.")]
LargeMessageBytes = Annotated[int, typer.Option(min=1, max=1_000_000, help="Size of the larger messages in bytes.")]
BatchKib = Annotated[int, typer.Option(min=1, max=4096, help="Size of a large batch in KiB.")]
Window = Annotated[int, typer.Option(min=1, max=64, help="Number of large batches in flight.")]
SmallBatchKib = Annotated[int, typer.Option(min=1, max=4096, help="Size of a small batch in KiB.")]
SmallWindow = Annotated[int, typer.Option(min=1, max=1024, help="Number of small batches in flight, of all producers.")]
Producers = Annotated[int, typer.Option(min=1, max=1000, help="Number of producers that send the small batches.")]
Rate = Annotated[float, typer.Option(min=1, max=10_000, help="Messages per second.")]
Pairs = Annotated[int, typer.Option(min=1, max=100, help="Number of pairs of runs, with and without deduplication.")]
Messages = Annotated[int, typer.Option(min=1000, max=20_000_000, help="Number of messages in the topic.")]
Kills = Annotated[int, typer.Option(min=1, max=1000, help="Number of kills of the topic's owner.")]
Freezes = Annotated[
    int, typer.Option(min=0, max=100, help="Number of stops of the topic's owner; each takes a session timeout.")
]
StorageKills = Annotated[int, typer.Option(min=1, max=100, help="Number of kills of a storage node.")]
Replays = Annotated[int, typer.Option(min=1, max=100, help="Number of takeovers with entries to replay.")]
ReplayEntries = Annotated[
    int, typer.Option(min=10, max=1000, help="Entries to replay; after 1000 the owner writes a snapshot.")
]
Restarts = Annotated[int, typer.Option(min=1, max=1000, help="Number of producers that are opened again.")]
Topics = Annotated[int, typer.Option("--topics", min=2, max=10_000, help="Number of topics.")]
ProducerCount = Annotated[
    int, typer.Option("--producers", min=1, max=1_000_000, help="Number of producers of one topic.")
]
