"""Commands for partitioned topics, with the names that Pulsar uses."""

from typing import Annotated

import typer

from oncelog.cli.admin import losses
from oncelog.cli.admin.commands import admin_command
from oncelog.cli.admin.confirmation import YesOption, confirm
from oncelog.cli.admin.rest import AdminApi, Answer
from oncelog.cli.admin.rest_paths import topic_path, topics_path

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic: name, or tenant/namespace/name.")]
NamespaceArgument = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Namespace: tenant/namespace.")]
CountOption = Annotated[int, typer.Option("--partitions", "-p", min=1, help="Number of partitions.")]


def add_partitions(app: typer.Typer) -> None:
    """Add the commands that create, show, list, grow and delete partitioned topics."""

    @admin_command(app, "create-partitioned-topic", panel="Partitioned topics", line="Create one.")
    def create_partitioned_topic(api: AdminApi, topic: TopicArgument, partitions: CountOption) -> Answer:
        """Create a partitioned topic. Each partition is created on its first use."""
        api.put(_path(topic), partitions)
        return f"created topic {topic} with {partitions} partitions"

    @admin_command(app, "update-partitioned-topic", panel="Partitioned topics", line="Add partitions to one.")
    def update_partitioned_topic(
        api: AdminApi, topic: TopicArgument, partitions: CountOption, yes: YesOption = False
    ) -> Answer:
        """Give a partitioned topic more partitions. Its stored messages stay where they are.

        New messages of a key may go to another partition than before, without any order between the two. Producer names
        that exist keep the former number for messages with sequence ids of their own; new names use all partitions.
        """
        confirm(
            yes,
            lambda: (
                f"give {topic} {partitions} partitions for ever: new messages of a key may go to another partition "
                "than before, without any order between the two, and producer names that exist keep the former number "
                "for messages with sequence ids of their own"
            ),
            typed=topic,
        )
        api.post(_path(topic), partitions)
        return f"topic {topic} has {partitions} partitions"

    @admin_command(app, "get-partitioned-topic-metadata", panel="Partitioned topics", line="Show how many partitions.")
    def show_partitions(api: AdminApi, topic: TopicArgument) -> Answer:
        """Show the number of partitions of a topic; 0 if it is not partitioned."""
        return api.get(_path(topic))

    @admin_command(app, "list-partitioned-topics", panel="Partitioned topics", line="List those of a namespace.")
    def list_partitioned_topics(api: AdminApi, namespace: NamespaceArgument = "public/default") -> Answer:
        """List the partitioned topics of a namespace."""
        return api.get(f"{topics_path(namespace)}/partitioned")

    @admin_command(app, "delete-partitioned-topic", panel="Partitioned topics", line="Delete one for ever.")
    def delete_partitioned_topic(api: AdminApi, topic: TopicArgument, yes: YesOption = False) -> Answer:
        """Permanently delete a topic with all its partitions and their messages. Says what is lost, and asks first."""
        confirm(
            yes,
            lambda: f"delete topic {topic} for ever, all partitions, with {losses.of_topic(api, topic)}",
            typed=topic,
        )
        api.delete(_path(topic))
        return f"deleted topic {topic} with all its partitions"


def _path(topic: str) -> str:
    return f"{topic_path(topic)}/partitions"
