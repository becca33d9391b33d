"""Partitioned topics: a name for several parts, each of which is a topic of its own, made when it is first used.

These routes come before those of single topics: `partitioned` in the place of a topic's name lists them.
"""

from typing import Annotated

from fastapi import APIRouter, Body
from pydantic import Field, StrictInt

from oncelog.core.access import Right
from oncelog.core.errors import Conflict
from oncelog.metadata.coordination.coordination import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.values import NamespacePath, Partitions, TopicPath

_NAMESPACE = "/admin/v2/persistent/{tenant}/{namespace}"
_PARTITIONS = f"{_NAMESPACE}/{{topic}}/partitions"
#: A topic's parts are told to every client of it, and deleted in one go.
PARTITIONS_MAX = 1_000

Count = Annotated[
    StrictInt, Field(ge=1, le=PARTITIONS_MAX), Body(description=f"The number of parts: 1 to {PARTITIONS_MAX}.")
]


def routes(coordination: Coordination) -> APIRouter:
    """Create, list, show and delete topics with parts."""
    router = APIRouter(tags=["topics"])
    seen = requires(Right.ADMIN, Right.PRODUCE, Right.CONSUME)

    @router.get(
        f"{_NAMESPACE}/partitioned",
        summary="List the partitioned topics",
        operation_id="list_partitioned_topics",
        dependencies=[seen],
    )
    async def list_partitioned_topics(namespace: NamespacePath) -> list[str]:
        """Full names, sorted, without their parts."""
        names = await coordination.topics.topics(namespace)
        return [f"{namespace}/{name}" for name, record in names.items() if record.partitions]

    @router.put(
        _PARTITIONS,
        summary="Create a partitioned topic",
        operation_id="create_partitioned_topic",
        status_code=204,
        dependencies=[requires(Right.ADMIN, Right.PRODUCE)],
    )
    async def create_partitioned_topic(topic: TopicPath, count: Count) -> None:
        """`conflict` when a topic of that name exists, with parts or without; waits while those of a deleted one go.

        The parts, `<topic>-partition-0` and so on, come to be when they are used.
        """
        await coordination.deletions.until_free(topic)
        if not await coordination.lookup.create(topic, partitions=count):
            raise Conflict(f"topic {topic} exists", field="topic")

    @router.get(
        _PARTITIONS, summary="Tell how many parts a topic has", operation_id="get_partitions", dependencies=[seen]
    )
    async def get_partitions(topic: TopicPath) -> Partitions:
        """0 for a topic that is not partitioned."""
        return Partitions(partitions=(await coordination.lookup.find(topic)).partitions)

    @router.delete(
        _PARTITIONS,
        summary="Delete a partitioned topic",
        operation_id="delete_partitioned_topic",
        status_code=204,
        dependencies=[requires(Right.ADMIN)],
    )
    async def delete_partitioned_topic(topic: TopicPath) -> None:
        """With all its parts, each of them as by deleting a topic. `conflict` for a topic without parts.

        From then on none of its parts is made again. Answered when all of them are gone and the name is free, which
        one whose owner does not answer holds up: then `service_unavailable`, and repeating the request waits on.
        """
        await coordination.deletions.delete_partitioned(topic)

    return router
