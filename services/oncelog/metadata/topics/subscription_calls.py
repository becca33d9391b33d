"""Calls about subscriptions to the owners of topics. A topic without an owner is placed first."""

import json
from typing import Any

from oncelog.core.errors import DeadlineExceeded, OncelogError
from oncelog.core.ids import TopicId
from oncelog.core.names import TopicName
from oncelog.metadata.owners.owner_calls import OwnerCalls
from oncelog.metadata.topics.topic_calls import TopicCalls
from oncelog.metadata.topics.topic_lookup import TopicLookup
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.rpc.codecs.subscription_codec import CHANGE_SUBSCRIPTION, DESCRIBE_SUBSCRIPTIONS, PEEK_MESSAGE
from oncelog.rpc.status import may_have_been_done
from oncelog.wire import subscriptions_pb2 as pb

#: An owner may prove first that it is the current one, and read the log.
CALL_TIMEOUT_MS = 10_000


class SubscriptionCalls:
    """Used by the REST interface, which checks rights."""

    def __init__(self, lookup: TopicLookup, topics: TopicCalls, calls: OwnerCalls) -> None:
        self._lookup = lookup
        self._topics = topics
        self._calls = calls

    async def partitions(self, topic: TopicName) -> int:
        """All partitions that may have subscriptions are below this number; 0: not partitioned.

        Raises TopicNotFound.
        """
        return (await self._lookup.find(topic)).partitions_created_max

    async def names(self, topic: TopicName) -> list[str]:
        """Of all subscriptions, sorted. Raises TopicNotFound, and retriable errors."""
        return list((await self._describe(topic, "")).names)

    async def describe(
        self, topic: TopicName, subscription: str, *, consumed_from: int | None = None
    ) -> dict[str, Any]:
        """Its statistics. consumed_from: with what the log knows about its effects. Raises TopicNotFound and
        SubscriptionNotFound, and retriable errors."""
        answer = await self._describe(topic, subscription, consumed_from)
        described: dict[str, Any] = json.loads(answer.statistics_json)
        return described

    async def _describe(
        self, topic: TopicName, subscription: str, consumed_from: int | None = None
    ) -> pb.DescribeSubscriptionsAnswer:
        async def ask(owner: LiveOwner, topic_id: TopicId) -> pb.DescribeSubscriptionsAnswer:
            request = pb.DescribeSubscriptionsRequest(
                topic=str(topic), topic_id=topic_id, subscription=subscription, consumed_from=consumed_from
            )
            return await self._calls.ask(owner, DESCRIBE_SUBSCRIPTIONS, request, timeout_ms=CALL_TIMEOUT_MS)

        return await self._topics.of_owner(topic, ask)

    async def change(self, topic: TopicName, change: pb.ChangeSubscriptionRequest) -> None:
        """change: without the topic. Returns when it is durable.

        Raises TopicNotFound, SubscriptionNotFound, Conflict and InvalidArgument; DeadlineExceeded if the outcome is
        unknown.
        """

        async def ask(owner: LiveOwner, topic_id: TopicId) -> None:
            request = pb.ChangeSubscriptionRequest()
            request.CopyFrom(change)
            request.topic, request.topic_id = str(topic), topic_id
            try:
                await self._calls.ask(owner, CHANGE_SUBSCRIPTION, request, timeout_ms=CALL_TIMEOUT_MS)
            except OncelogError as error:
                if not may_have_been_done(error):
                    raise
                message = f"it is unknown whether subscription {change.subscription} was changed: {error.message}"
                raise DeadlineExceeded(message, **error.details) from error

        await self._topics.of_owner(topic, ask, create=change.HasField("create") and topic.partition is not None)

    async def peek(self, topic: TopicName, subscription: str, number: int) -> pb.PeekMessageAnswer:
        """A message of the backlog, counted from 1. Raises NotFound behind its end."""

        async def ask(owner: LiveOwner, topic_id: TopicId) -> pb.PeekMessageAnswer:
            request = pb.PeekMessageRequest(
                topic=str(topic), topic_id=topic_id, subscription=subscription, number=number
            )
            return await self._calls.ask(owner, PEEK_MESSAGE, request, timeout_ms=CALL_TIMEOUT_MS)

        return await self._topics.of_owner(topic, ask)
