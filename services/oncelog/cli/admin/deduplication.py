"""`oncelog admin topics deduplication`: what the owner of a topic knows of its producers, and snapshots of it."""

from typing import Annotated

import typer

from oncelog.cli.admin.commands import admin_command
from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.admin.rest_paths import topic_path

TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Topic or partition: name, or tenant/namespace/name.")
]

_HELP = """Show the deduplication of a topic, and write a snapshot of it.

    oncelog admin topics deduplication status orders

    oncelog admin topics deduplication snapshot orders

The policy that switches deduplication on and off is `topics set-deduplication`."""

deduplication = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode="markdown")


def add_deduplication(topics: typer.Typer) -> None:
    """Add the group to the commands for topics."""
    topics.add_typer(deduplication, name="deduplication")


@admin_command(deduplication, "status")
def show_deduplication(api: AdminApi, topic: TopicArgument) -> Answer:
    """Show whether deduplication is on and which level says so, producers, memory, duplicates refused, the newest
    snapshot and how much a takeover would replay behind it, and failures of the snapshot writer."""
    return api.get(f"{topic_path(topic)}/deduplication")


@admin_command(deduplication, "snapshot")
def take_snapshot(api: AdminApi, topic: TopicArgument) -> Answer:
    """Write a snapshot now, so that a takeover has little to replay. Ends when the snapshot is durable."""
    return api.post(f"{topic_path(topic)}/deduplication/snapshot")
