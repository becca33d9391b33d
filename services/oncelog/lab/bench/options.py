"""Options that commands of `oncelog bench` share."""

from pathlib import Path
from typing import Annotated

import typer

Url = Annotated[
    str | None, typer.Option("--url", help="A running cluster; by default a standalone one is started and ended.")
]
AdminUrl = Annotated[str, typer.Option("--admin-url", help="REST of the running cluster.")]
Data = Annotated[
    Path | None, typer.Option("--data", help="Where to put the temporary directory: on the disk to be measured.")
]
Output = Annotated[str, typer.Option("-o", "--output", help="table or json.")]
Runs = Annotated[int, typer.Option(min=1, max=100, help="Runs of each figure, in turns with the limits run.")]
Seconds = Annotated[float, typer.Option(min=0.2, max=60, help="Length of one run.")]
MessageBytes = Annotated[int, typer.Option("--message-bytes", min=1, max=1_000_000, help="Size of a message.")]
LargeMessageBytes = Annotated[int, typer.Option(min=1, max=1_000_000, help="Size of the larger messages.")]
BatchKib = Annotated[int, typer.Option(min=1, max=4096, help="Size of a large batch, KiB.")]
Window = Annotated[int, typer.Option(min=1, max=64, help="Large batches in flight.")]
SmallBatchKib = Annotated[int, typer.Option(min=1, max=4096, help="Size of a small batch, KiB.")]
SmallWindow = Annotated[int, typer.Option(min=1, max=1024, help="Small batches in flight, of all producers.")]
Producers = Annotated[int, typer.Option(min=1, max=1000, help="Producers that share the small batches.")]
Rate = Annotated[float, typer.Option(min=1, max=10_000, help="Messages a second.")]
Pairs = Annotated[int, typer.Option(min=1, max=100, help="Pairs of on and off.")]
Messages = Annotated[int, typer.Option(min=1000, max=20_000_000, help="Messages in the topic.")]
Kills = Annotated[int, typer.Option(min=1, max=1000, help="Kills of the topic's owner.")]
Freezes = Annotated[int, typer.Option(min=0, max=100, help="Owners that fall silent; each takes a session timeout.")]
StorageKills = Annotated[int, typer.Option(min=1, max=100, help="Kills of a storage node.")]
Replays = Annotated[int, typer.Option(min=1, max=100, help="Takeovers with entries to replay.")]
ReplayEntries = Annotated[
    int, typer.Option(min=10, max=1000, help="Entries to replay; above 1000 a snapshot would cover them.")
]
Restarts = Annotated[int, typer.Option(min=1, max=1000, help="Producers opened anew.")]
