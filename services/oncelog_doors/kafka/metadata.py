"""Metadata: topics, partitions, and the one broker that clients see, which leads all of them.

Any door answers for that broker. A client that has got the answer can use the topic at once: a topic that is created
for it is there before the answer is (hazard lost-first-batch).
"""

import asyncio
from collections.abc import Sequence

from oncelog.core.errors import OncelogError, PermissionDenied
from oncelog.core.names import is_of_doors
from oncelog_doors.core.kafka.error_codes import ErrorCode, code_of
from oncelog_doors.core.kafka.operations import cluster_operations, topic_operations
from oncelog_doors.core.kafka.topic_names import topic_of
from oncelog_doors.kafka.asking import LOOKUPS_AT_ONCE, Asking
from oncelog_doors.kafka.codec import Body
from oncelog_doors.kafka.small_answers import NODE_ID


async def metadata(around: Asking, version: int, asked: Body) -> Body:
    """The body of the answer. Raises OncelogError if the topics cannot be listed now."""
    wanted = asked["topics"]
    # Before version 1 no topics means all of them, because there is no null.
    if wanted is None or (version == 0 and not wanted):
        topics = await _all(around)
    else:
        may_create = asked.get("allow_auto_topic_creation", True)
        topics = await _some(around, [each["name"] for each in wanted], may_create)
    if asked.get("include_topic_authorized_operations"):
        await _add_operations(around, topics)
    broker = around.broker
    answer = {
        "brokers": [{"node_id": NODE_ID, "host": broker.host, "port": broker.port}],
        "cluster_id": around.cluster.cluster_id,
        "controller_id": NODE_ID,
        "topics": topics,
    }
    if asked.get("include_cluster_authorized_operations"):
        rights = await around.cluster.rights_of(around.namespace, around.caller)
        answer["cluster_authorized_operations"] = cluster_operations(rights)
    return answer


async def _add_operations(around: Asking, topics: Sequence[Body]) -> None:
    """To the topics that were found: what the client may do with them. Raises OncelogError."""
    found = [(each, topic_of(each["name"], around.namespace).namespace_name) for each in topics if "partitions" in each]
    rights = {name: await around.cluster.rights_of(name, around.caller) for name in dict.fromkeys(n for _, n in found)}
    for topic, namespace in found:
        topic["topic_authorized_operations"] = topic_operations(rights[namespace])


async def _all(around: Asking) -> list[Body]:
    """Raises OncelogError: the answer has no place for it, and no topics would mean that there are none."""
    try:
        found = await around.cluster.topics_of(around.namespace, around.caller)
    except PermissionDenied:
        return []  # as Kafka: topics that a client may not use are left out
    return [_topic(each.local, each.partitions) for each in found if not is_of_doors(each.local)]


async def _some(around: Asking, names: Sequence[str], may_create: bool) -> list[Body]:
    places = asyncio.Semaphore(LOOKUPS_AT_ONCE)

    async def one(name: str) -> Body:
        async with places:
            try:
                topic = topic_of(name, around.namespace)
                count = await around.cluster.partitions(topic, around.caller, may_create=may_create)
            except OncelogError as error:
                return {"error_code": _code_of_look_up(error), "name": name}
            return _topic(name, count)

    return list(await asyncio.gather(*map(one, dict.fromkeys(names))))


def _code_of_look_up(error: OncelogError) -> ErrorCode:
    """What a client does not know now it asks for again."""
    return ErrorCode.LEADER_NOT_AVAILABLE if error.retriable else code_of(error)


def _topic(name: str, count: int) -> Body:
    """count: of partitions; 0: the topic is not partitioned."""
    nodes = [NODE_ID]
    partitions = [
        {"partition_index": index, "leader_id": NODE_ID, "replica_nodes": nodes, "isr_nodes": nodes}
        for index in range(max(1, count))
    ]
    return {"name": name, "partitions": partitions}
