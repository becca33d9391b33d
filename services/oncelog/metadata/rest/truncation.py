"""The route that truncates a topic: all its messages are deleted, and the topic stays."""

from fastapi import APIRouter

from oncelog.core.access import Right
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.access import requires
from oncelog.metadata.rest.each_partition import each_partition
from oncelog.metadata.rest.values import TopicPath


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
        truncate = coordination.calls.truncate
        await each_partition(topic, count, lambda each: coordination.topic_calls.of_owner(each, truncate))

    return router
