"""Which topics a mirror copies, and what the target needs before it does."""

import re
from dataclasses import dataclass, replace

from oncelog.client.client import AsyncClient, network_of
from oncelog.client.network.backoff import persist
from oncelog.client.network.lookup import PartitionCounts
from oncelog.client.rest_calls import rest, topic_path
from oncelog.client.two_clusters import AT_SOURCE, AT_TARGET, two_clusters
from oncelog.core.effect_errors import PartitionsDiffer
from oncelog.core.errors import PermissionDenied, TopicNotFound
from oncelog.core.names import DEAD_LETTER_SUFFIX, NamespaceName, TopicName, is_of_doors, parse_topic

#: How the names of the subscriptions of mirrors begin.
MIRROR_SUBSCRIPTION = "mirror-"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which topics are mirrored: those that are named, or those of a namespace whose local names match."""

    topics: tuple[TopicName, ...] = ()
    namespace: NamespaceName | None = None
    pattern: re.Pattern[str] | None = None

    def takes(self, topic: TopicName) -> bool:
        """Of a topic of the namespace. Not dead-letter topics: their messages are those of another topic. Nor those of
        doors, which know the topics of their own cluster."""
        if topic.local.endswith(DEAD_LETTER_SUFFIX) or is_of_doors(topic.local):
            return False
        return self.pattern is None or self.pattern.fullmatch(topic.local) is not None


def subscription_of(cluster_id: str) -> str:
    """Of the mirror into that cluster, at the source."""
    return f"{MIRROR_SUBSCRIPTION}{cluster_id}"


async def topics_of(
    client: AsyncClient, choice: Choice, timeout_ms: int | None = None, where: str = AT_SOURCE
) -> list[TopicName]:
    """That the choice takes, in order. where: the cluster of the client. timeout_ms: None: a cluster that does not
    answer is waited for."""
    if choice.namespace is None:
        return list(choice.topics)
    namespace = choice.namespace
    listed = await rest(
        client, "GET", f"/admin/v2/persistent/{namespace}", timeout_ms=timeout_ms,
        what=f"the topics of {namespace} {where}",
    )  # fmt: skip
    names = {replace(parse_topic(name), partition=None) for name in listed}
    return sorted((name for name in names if choice.takes(name)), key=str)


async def parts_of(client: AsyncClient, topic: TopicName, where: str, timeout_ms: int | None) -> list[TopicName]:
    """The partitions of a topic; itself, if it has none. where: the cluster, for errors. Raises TopicNotFound."""
    if topic.partition is not None:
        return [topic]
    counts = await partition_counts(client, topic, where, timeout_ms)
    return [replace(topic, partition=number) for number in range(counts.now)] or [topic]


async def prepared(source: AsyncClient, target: AsyncClient, topic: TopicName, timeout_ms: int | None) -> str:
    """The target has the topic, with as many partitions; returns the id of its cluster. A missing one is created.

    Raises PartitionsDiffer; InvalidArgument for a mirror of a cluster into itself; TopicNotFound; PermissionDenied,
    which names the cluster and the right."""
    base = replace(topic, partition=None)
    counts = await partition_counts(source, base, AT_SOURCE, timeout_ms)
    try:
        there = await partition_counts(target, base, AT_TARGET, timeout_ms)
    except TopicNotFound:
        await _create(target, base, counts.now, timeout_ms)
        there = await partition_counts(target, base, AT_TARGET, timeout_ms)
    ids = await two_clusters(source, target, timeout_ms)
    check_partitions(base, counts.now, there.now)
    for client, where in ((source, AT_SOURCE), (target, AT_TARGET)):
        one = topic if topic.partition is not None or not counts.now else replace(topic, partition=0)
        await _check_reading(client, one, where)
    return ids.target


async def _check_reading(client: AsyncClient, topic: TopicName, where: str) -> None:
    """The target is first read after a restart, for the last copy: without the right the mirror would stand then."""
    try:
        await client.last_message_id(str(topic))
    except TopicNotFound:
        return  # nobody has used this partition yet
    except PermissionDenied as error:
        raise lacks(error, topic, "consume", where) from error


def lacks(error: PermissionDenied, topic: TopicName, right: str, where: str) -> PermissionDenied:
    """The error that says which cluster denies what."""
    return PermissionDenied(f"{topic} {where}: a mirror needs the right `{right}` there: {error.message}")


def check_partitions(topic: TopicName, at_source: int, at_target: int) -> None:
    """Raises PartitionsDiffer."""
    if at_source != at_target:
        raise PartitionsDiffer(
            f"{topic} has {at_source} partitions at the source and {at_target} at the target, so a key would be in "
            "different ones: give the smaller one more partitions (oncelog admin topics update)",
            source=at_source,
            target=at_target,
        )


async def partition_counts(
    client: AsyncClient, topic: TopicName, where: str, timeout_ms: int | None
) -> PartitionCounts:
    lookup = network_of(client).lookup
    return await persist(
        lambda _: lookup.partition_counts(topic), timeout_ms=timeout_ms, what=f"the topic {topic} {where}"
    )


async def _create(client: AsyncClient, topic: TopicName, partitions: int, timeout_ms: int | None) -> None:
    path = topic_path(topic)
    what = f"the creation of {topic} {AT_TARGET}"
    if partitions:
        await rest(client, "PUT", f"{path}/partitions", partitions, may_exist=True, timeout_ms=timeout_ms, what=what)
    else:
        await rest(client, "PUT", path, may_exist=True, timeout_ms=timeout_ms, what=what)
