"""Partitioned topics: the commands that users of Pulsar know."""

from typing import Annotated

import typer

from oncelog.cli.admin.commands import admin_command
from oncelog.cli.admin.places import topic_path, topics_path
from oncelog.cli.admin.rest import AdminApi, Answer

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="A name, or tenant/namespace/name.")]
NamespaceArgument = Annotated[str, typer.Argument(metavar="NAMESPACE", help="tenant/namespace.")]
CountOption = Annotated[int, typer.Option("--partitions", "-p", min=1, help="The number of parts.")]


def add_partitions(app: typer.Typer) -> None:
    """Create, show, list and delete topics with parts."""

    @admin_command(app, "create-partitioned-topic")
    def create_partitioned_topic(api: AdminApi, topic: TopicArgument, partitions: CountOption) -> Answer:
        """Create a topic with so many parts, each of which is made when it is first used."""
        api.put(_path(topic), partitions)
        return f"topic {topic} is created with {partitions} parts"

    @admin_command(app, "get-partitioned-topic-metadata")
    def show_partitions(api: AdminApi, topic: TopicArgument) -> Answer:
        """Show how many parts a topic has; 0: it is not partitioned."""
        return api.get(_path(topic))

    @admin_command(app, "list-partitioned-topics")
    def list_partitioned_topics(api: AdminApi, namespace: NamespaceArgument = "public/default") -> Answer:
        """List the partitioned topics of a namespace."""
        return api.get(f"{topics_path(namespace)}/partitioned")

    @admin_command(app, "delete-partitioned-topic")
    def delete_partitioned_topic(api: AdminApi, topic: TopicArgument) -> Answer:
        """Delete a topic with all its parts and their messages, for good."""
        api.delete(_path(topic))
        return f"topic {topic} is deleted with all its parts"


def _path(topic: str) -> str:
    return f"{topic_path(topic)}/partitions"
