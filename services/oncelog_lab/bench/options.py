"""Options that several commands of `oncelog bench` declare themselves."""

from pathlib import Path
from typing import Annotated

import typer

Url = Annotated[
    str | None, typer.Option("--url", help="URL of a running cluster. Default: a standalone cluster for this run.")
]
DEFAULT_ADMIN_URL = "http://127.0.0.1:8080"
AdminUrl = Annotated[
    str | None,
    typer.Option("--admin-url", help=f"REST URL of the running cluster. [default: {DEFAULT_ADMIN_URL}]"),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Parent of the temporary directory, on the disk to measure. Default: the system's."),
]
Runs = Annotated[int, typer.Option(min=1, max=100, help="Runs of each figure, alternating with the limits run.")]
MessageBytes = Annotated[int, typer.Option("--message-bytes", min=1, max=1_000_000, help="Message size in bytes.")]
Kills = Annotated[int, typer.Option(min=1, max=1000, help="Number of kills of the topic's owner.")]
