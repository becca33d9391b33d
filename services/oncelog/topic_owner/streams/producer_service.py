"""Administration of producers, for metadata services. They have checked the caller's rights."""

import asyncio
import json
import logging
import time

from oncelog.core.errors import InvalidArgument, NotFound
from oncelog.core.ids import ProducerId
from oncelog.core.publishing.producer_listing import (
    ListedProducer,
    ProducerFilter,
    generations_of,
    page_of,
    producer_of,
)
from oncelog.core.topic_events.events import ProducerRemovalRequested
from oncelog.topic_owner.observe.producer_states import generations_json, producer_json
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.streams.current_topic import current_topic, still_served
from oncelog.wire import producers_pb2 as pb

logger = logging.getLogger(__name__)

#: Producers of one answer, about 500 bytes each.
LISTED_MAX = 1_000
#: Each looks at some hundred producers, and the owner does other work in between.
LOOKS_MAX = 400


class ProducerService:
    """The handlers."""

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics

    async def list(self, request: pb.ListProducersRequest) -> pb.ListProducersAnswer:
        """Raises InvalidArgument, NotOwner, TopicLoading."""
        if not 1 <= request.limit <= LISTED_MAX:
            raise InvalidArgument(f"limit={request.limit}: give 1 to {LISTED_MAX}", field="limit", limit=LISTED_MAX)
        runner, _ = await current_topic(self._topics, request.topic, request.topic_id)
        wanted, found, after = _filter_of(request), list[ListedProducer](), request.after
        for look in range(LOOKS_MAX):
            if look:
                await asyncio.sleep(0)
            openings = still_served(runner).openings
            page = page_of(openings, wanted, after=after, limit=request.limit - len(found), now_ms=_now_ms())
            found += page.producers
            after = page.next_after or 0
            if not after or len(found) == request.limit:
                break
        shown = [json.dumps(producer_json(each)) for each in found]
        return pb.ListProducersAnswer(producers_json=shown, next_after=after)

    async def describe(self, request: pb.DescribeProducerRequest) -> pb.DescribeProducerAnswer:
        """Raises NotFound, NotOwner, TopicLoading."""
        _, serving = await current_topic(self._topics, request.topic, request.topic_id)
        if request.WhichOneof("producer") == "name":
            pid = serving.log.table.state.producers.id_of(request.name)
        else:
            pid = ProducerId(request.producer_id)
        listed = None if pid is None else producer_of(serving.openings, pid, now_ms=_now_ms())
        if listed is None:
            asked = request.name if request.HasField("name") else f"id {request.producer_id}"
            raise NotFound(f"topic {request.topic} has no producer {asked}: it never had one, or it has expired")
        generations = generations_json(generations_of(serving.openings, listed.producer_id))
        shown = {**producer_json(listed), "generations": generations}
        return pb.DescribeProducerAnswer(producer_json=json.dumps(shown))

    async def remove(self, request: pb.RemoveProducerRequest) -> pb.RemoveProducerAnswer:
        """Raises NotFound, Conflict, NotOwner, TopicLoading."""
        runner, _ = await current_topic(self._topics, request.topic, request.topic_id)
        pid, by = ProducerId(request.producer_id), request.by
        await runner.consumers.administer(
            ProducerRemovalRequested(0, pid, by, delete=request.delete, force=request.force)
        )
        done = "deleted" if request.delete else "expired"
        logger.info("topic %s: producer %d was %s by %s", runner.name, pid, done, by)
        return pb.RemoveProducerAnswer()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _filter_of(request: pb.ListProducersRequest) -> ProducerFilter:
    return ProducerFilter(
        name_prefix=request.name_prefix,
        role=request.role if request.HasField("role") else None,
        connected=request.connected if request.HasField("connected") else None,
        idle_ms=request.idle_ms if request.HasField("idle_ms") else None,
        expires_ms=request.expires_ms if request.HasField("expires_ms") else None,
    )
