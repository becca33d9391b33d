"""The route that truncates a topic: all its messages are deleted, and the topic stays."""

import asyncio
import time

from fastapi import APIRouter

from oncelog.core.access import Right
from oncelog.core.errors import NotOwner, ServiceUnavailable, TopicLoading
from oncelog.core.names import TopicName
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.each_partition import each_partition
from oncelog.metadata.rest.values import TopicPath

#: How long a topic that is being taken over is waited for.
LOADING_MS = 10_000
RETRY_MS = 100


def routes(coordination: Coordination) -> APIRouter:
    router = APIRouter(tags=["topics"])

    @router.delete(
        "/admin/v2/persistent/{tenant}/{namespace}/{topic}/truncate",
        summary="Truncate a topic",
        operation_id="truncate_topic",
        status_code=204,
        dependencies=[requires(Right.ADMIN)],
    )
    async def truncate_topic(topic: TopicPath) -> None:
        """Delete all messages of a topic, whether or not they are acknowledged; of a partitioned topic, in all
        partitions. Every subscription goes on at the end.

        Producers go on, and sequence ids stay known. Messages that are published meanwhile may be deleted, too. When
        this is answered, the messages are gone from the topic; storage nodes give the space back soon after. After
        `service_unavailable` the truncation goes on: repeat the request to learn when it is complete.
        """
        count = (await coordination.lookup.find(topic)).partitions
        await each_partition(topic, count, lambda each: _truncate(coordination, each))

    return router


async def _truncate(coordination: Coordination, topic: TopicName) -> None:
    deadline = time.monotonic() + LOADING_MS / 1000
    while True:
        located = await coordination.lookup.locate(topic, create=False)
        owner = coordination.owners.find(located.owner)
        try:
            if owner is None:
                raise ServiceUnavailable(f"the owner of {topic} has just gone: try again")
            await coordination.calls.truncate(owner, located.topic_id)
        except (NotOwner, TopicLoading):
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(RETRY_MS / 1000)
        else:
            return
