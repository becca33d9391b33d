"""More partitions for a partitioned topic.

    prepare      the new partitions are created; clients do not use them yet
    subscribe    each subscription of the topic is created in each new partition, before its first message
    grow         clients use the new partitions
    subscribe    the same for subscriptions that were created meanwhile

Rules
- Each step can be repeated, so a growth that was interrupted is finished by the same request.
- The messages of a producer name with sequence ids stay in the partitions that the topic had when the name was first
  opened (`core/sdk/producer/routing`): a message that is sent again must reach the partition that has it
  (hazard resent-to-another-partition).
- Only while every registered process knows that rule.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from oncelog.core.errors import (
    Conflict,
    InvalidArgument,
    SubscriptionGone,
    SubscriptionNotFound,
    TopicNotFound,
)
from oncelog.core.ids import GROWTHS_MAX
from oncelog.core.names import TopicName, check_partitions
from oncelog.metadata.topics.subscription_calls import SubscriptionCalls
from oncelog.metadata_store.records.topic_store import NameRecord, TopicStore
from oncelog.rpc.codecs.reader_codec import StartEdge, start_message
from oncelog.wire import consumer_pb2, subscriptions_pb2

#: Partitions that are asked at the same time.
_AT_ONCE = 16


class PartitionGrowth:
    """Used by the REST interface, which checks rights."""

    def __init__(self, topics: TopicStore, calls: SubscriptionCalls) -> None:
        self._topics = topics
        self._calls = calls

    async def grow(self, topic: TopicName, partitions: int) -> None:
        """Give the topic this number of partitions. The same number again finishes an interrupted growth.

        Raises TopicNotFound if there is no partitioned topic; InvalidArgument for fewer partitions than it has, or too
        many growths; InvalidName for a name that is too long for theirs; and the errors of SubscriptionCalls.
        """
        record = await self._record(topic)
        if partitions < record.partitions:
            message = f"topic {topic} has {record.partitions} partitions, which cannot become {partitions}"
            raise InvalidArgument(f"{message}: give a higher number", field="partitions", limit=record.partitions)
        if partitions > record.partitions:
            check_partitions(topic, partitions)
            _check(topic, record)
            await self._topics.prepare_growth(topic, partitions)
            for number in range(record.partitions, partitions):
                await self._topics.create(replace(topic, partition=number))
            await self._subscribe(topic, record.partitions, partitions)
            await self._topics.grow(topic, partitions)
        elif not record.former_partitions:
            await self._topics.note(topic)
            return
        else:
            await self._topics.grow(topic, partitions)
        first = record.partitions if partitions > record.partitions else record.former_partitions[-1]
        await self._subscribe(topic, first, partitions)

    async def _record(self, topic: TopicName) -> NameRecord:
        found = await self._topics.find(topic)
        if found is None or found.value.deleted:
            raise TopicNotFound(f"topic {topic} does not exist: create it", topic=str(topic))
        if not found.value.partitions:
            raise InvalidArgument(
                f"topic {topic} has no partitions: a topic that was created without them cannot get any", field="topic"
            )
        return found.value

    async def _subscribe(self, topic: TopicName, first: int, end: int) -> None:
        """Create each subscription of the partitions below `first` in the partitions first to end - 1."""
        old, room = [replace(topic, partition=number) for number in range(first)], asyncio.Semaphore(_AT_ONCE)

        async def names(partition: TopicName) -> list[str]:
            async with room:
                with suppress(TopicNotFound):  # a partition that was never used
                    return await self._calls.names(partition)
            return []

        holders: dict[str, TopicName] = {}
        for partition, found in zip(old, await asyncio.gather(*map(names, old)), strict=True):
            for name in found:
                holders.setdefault(name, partition)
        changes = [change for name, holder in sorted(holders.items()) for change in await self._creation(name, holder)]

        async def create(partition: TopicName) -> None:
            async with room:
                for change in changes:
                    with suppress(Conflict):  # it exists
                        await self._calls.change(partition, change)

        await asyncio.gather(*(create(replace(topic, partition=number)) for number in range(first, end)))

    async def _creation(self, name: str, holder: TopicName) -> Iterable[subscriptions_pb2.ChangeSubscriptionRequest]:
        """Nothing if the subscription was deleted meanwhile."""
        try:
            described = await self._calls.describe(holder, name)
        except (SubscriptionNotFound, SubscriptionGone):
            return ()
        properties = [consumer_pb2.SubscriptionProperty(name=key, value=value)
                      for key, value in described["properties"].items()]  # fmt: skip
        create = subscriptions_pb2.CreateSubscription(
            start=start_message(StartEdge.EARLIEST), properties=properties, role=described["role"] or ""
        )
        return (subscriptions_pb2.ChangeSubscriptionRequest(subscription=name, create=create),)


def _check(topic: TopicName, record: NameRecord) -> None:
    if len(record.former_partitions) >= GROWTHS_MAX:
        message = f"topic {topic} has got more partitions {GROWTHS_MAX} times, which is the limit"
        raise InvalidArgument(f"{message}: create a new topic", field="partitions", limit=GROWTHS_MAX)
