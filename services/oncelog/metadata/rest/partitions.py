"""Routes for partitioned topics. Each partition is a separate topic, created on its first use.

These routes must be added before those of single topics, because `partitioned` takes the place of a topic name.
"""

from typing import Annotated

from fastapi import APIRouter, Body
from pydantic import Field, StrictInt

from oncelog.core.access import Right
from oncelog.core.errors import Conflict, CorruptEntry
from oncelog.core.names import PARTITIONS_MAX
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.values import NamespacePath, Partitions, TopicPath

_NAMESPACE = "/admin/v2/persistent/{tenant}/{namespace}"
_PARTITIONS = f"{_NAMESPACE}/{{topic}}/partitions"

Count = Annotated[
    StrictInt, Field(ge=1, le=PARTITIONS_MAX), Body(description=f"Number of partitions: 1 to {PARTITIONS_MAX}.")
]


def routes(coordination: Coordination) -> APIRouter:
    """Create, list, show, grow and delete partitioned topics."""
    router = new_router(tags=["topics"])
    may_see = requires(Right.ADMIN, Right.PRODUCE, Right.CONSUME)

    @router.get(
        f"{_NAMESPACE}/partitioned",
        summary="List the partitioned topics",
        operation_id="list_partitioned_topics",
        dependencies=[may_see],
    )
    async def list_partitioned_topics(namespace: NamespacePath) -> list[str]:
        """Full names of the partitioned topics, sorted, without their partitions, and without those whose name record
        is damaged: `list_topics` has these."""
        names = await coordination.topics.topics(namespace)
        return [
            f"{namespace}/{name}"
            for name, record in names.items()
            if not isinstance(record, CorruptEntry) and record.partitions
        ]

    @router.put(
        _PARTITIONS,
        summary="Create a partitioned topic",
        operation_id="create_partitioned_topic",
        status_code=204,
        dependencies=[requires(Right.ADMIN, Right.PRODUCE)],
    )
    async def create_partitioned_topic(topic: TopicPath, count: Count) -> None:
        """`conflict` if a topic of that name exists. Waits while a deleted partitioned topic of that name is removed.

        The partitions `<topic>-partition-0` and so on are created on first use.
        """
        if not await coordination.create_topic(topic, partitions=count):
            raise Conflict(f"topic {topic} already exists", field="topic")

    @router.get(
        _PARTITIONS, summary="Show the number of partitions", operation_id="get_partitions", dependencies=[may_see]
    )
    async def get_partitions(topic: TopicPath) -> Partitions:
        """0 if the topic is not partitioned."""
        return Partitions(partitions=(await coordination.lookup.find(topic)).partitions)

    @router.post(
        _PARTITIONS,
        summary="Give a partitioned topic more partitions",
        operation_id="update_partitioned_topic",
        status_code=204,
        dependencies=[requires(Right.ADMIN)],
    )
    async def update_partitioned_topic(topic: TopicPath, count: Count) -> None:
        """`count` is the new number, at least the present one. The same number again changes nothing, and finishes a
        request that was interrupted.

        Messages that are stored stay where they are. New messages of a key may go to another partition, so they have no
        order with the former messages of that key. A producer name keeps the former number for messages with sequence
        ids of its own, so that messages that it sends again are recognized as duplicates. Every subscription begins in
        the new partitions with their first message. Connected clients use the new partitions within a minute.
        """
        await coordination.growth.grow(topic, count)

    @router.delete(
        _PARTITIONS,
        summary="Delete a partitioned topic",
        operation_id="delete_partitioned_topic",
        status_code=204,
        dependencies=[requires(Right.ADMIN)],
    )
    async def delete_partitioned_topic(topic: TopicPath) -> None:
        """Delete the topic with all its partitions and their messages. `conflict` if it is not partitioned.

        Answered when all partitions are deleted and the name is free. If an owner does not answer, the response is
        `service_unavailable`: the deletion continues, and a repeated request waits for its end.
        """
        await coordination.deletions.delete_partitioned(topic)

    return router
