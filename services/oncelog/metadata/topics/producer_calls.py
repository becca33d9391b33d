"""Calls about producers to the owners of topics. A topic without an owner is placed first."""

import json
from typing import Any, NamedTuple

from oncelog.core.errors import DeadlineExceeded, NotFound, OncelogError, TopicNotFound
from oncelog.core.ids import TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.owners.owner_calls import OwnerCalls
from oncelog.metadata.topics.topic_calls import TopicCalls
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.rpc.codecs.producer_codec import DESCRIBE_PRODUCER, LIST_PRODUCERS, REMOVE_PRODUCER
from oncelog.rpc.status import may_have_been_done
from oncelog.wire import producers_pb2 as pb

Described = dict[str, Any]
#: An owner may prove first that it is the current one, and it looks at many producers where few pass the filter.
CALL_TIMEOUT_MS = 10_000


class ProducerRows(NamedTuple):
    """A page of one topic. next_after: the next page begins behind this producer id; 0: this was the last one."""

    producers: list[Described]
    next_after: int


class ProducerCalls:
    """Used by the REST interface, which checks rights."""

    def __init__(self, topics: TopicCalls, calls: OwnerCalls) -> None:
        self._topics = topics
        self._calls = calls

    async def page(self, topic: TopicName, wanted: pb.ListProducersRequest, *, after: int, limit: int) -> ProducerRows:
        """wanted: the filter. Raises TopicNotFound, and retriable errors."""

        async def ask(owner: LiveOwner, topic_id: TopicId) -> pb.ListProducersAnswer:
            request = pb.ListProducersRequest()
            request.CopyFrom(wanted)
            request.topic, request.topic_id, request.after, request.limit = str(topic), topic_id, after, limit
            return await self._calls.ask(owner, LIST_PRODUCERS, request, timeout_ms=CALL_TIMEOUT_MS)

        answer = await self._topics.of_owner(topic, ask)
        return ProducerRows([json.loads(each) for each in answer.producers_json], answer.next_after)

    async def described(self, topic: TopicName, producer: str) -> Described:
        """producer: a name, or, if no producer has this name, a producer id. Raises NotFound, TopicNotFound, and
        retriable errors."""
        try:
            return await self._described(topic, pb.DescribeProducerRequest(name=producer))
        except TopicNotFound:
            raise
        except NotFound:
            if not is_producer_id(producer):
                raise
        return await self._described(topic, pb.DescribeProducerRequest(producer_id=int(producer)))

    async def _described(self, topic: TopicName, wanted: pb.DescribeProducerRequest) -> Described:
        async def ask(owner: LiveOwner, topic_id: TopicId) -> pb.DescribeProducerAnswer:
            request = pb.DescribeProducerRequest()
            request.CopyFrom(wanted)
            request.topic, request.topic_id = str(topic), topic_id
            return await self._calls.ask(owner, DESCRIBE_PRODUCER, request, timeout_ms=CALL_TIMEOUT_MS)

        described: Described = json.loads((await self._topics.of_owner(topic, ask)).producer_json)
        return described

    async def remove(self, topic: TopicName, producer_id: int, *, by: str, delete: bool, force: bool) -> None:
        """Returns when it is durable. by: the operator.

        Raises TopicNotFound, NotFound if there is no such producer, Conflict; DeadlineExceeded if the outcome is
        unknown.
        """
        await self._described(topic, pb.DescribeProducerRequest(producer_id=producer_id))

        async def ask(owner: LiveOwner, topic_id: TopicId) -> None:
            request = pb.RemoveProducerRequest(
                topic=str(topic), topic_id=topic_id, producer_id=producer_id, by=by, delete=delete, force=force
            )
            try:
                await self._calls.ask(owner, REMOVE_PRODUCER, request, timeout_ms=CALL_TIMEOUT_MS)
            except OncelogError as error:
                if not may_have_been_done(error):
                    raise
                message = f"it is unknown whether producer {producer_id} was removed: {error.message}; ask again"
                raise DeadlineExceeded(message, **error.details) from error

        try:
            await self._topics.of_owner(topic, ask)
        except TopicNotFound:
            raise
        except NotFound:
            return  # it was there a moment ago, and its id is never given again: it is gone


def is_producer_id(text: str) -> bool:
    """Whether the text may be a producer id: a decimal number of 64 bits."""
    return text.isascii() and text.isdecimal() and len(text) < 20
