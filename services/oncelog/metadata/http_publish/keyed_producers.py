"""The keyed producers of one process: one per topic, under a generated name, whose sequence ids keys are mapped to.

`core.http_publish.keyed_producer` decides about the ids. This module opens the SDK producer, serialises its claims with
a lock, renews its lease while claims are in progress, and closes it when every pending batch has its result.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import uuid4
from weakref import WeakValueDictionary

from oncelog.client.client import AsyncClient
from oncelog.client.producing.producer import AsyncProducer
from oncelog.core.errors import (
    IdempotencyUnavailable,
    InvalidArgument,
    OncelogError,
    ServiceUnavailable,
    TooManyRequests,
)
from oncelog.core.http_publish.keyed_producer import Claim, KeyedProducer
from oncelog.core.ids import SequenceId, TopicId
from oncelog.core.names import TopicName
from oncelog.core.sdk.producer.opening import MESSAGE_BYTES_MAX
from oncelog.core.sdk.producer.routing import partition_of
from oncelog.metadata.http_publish.publish_body import Messages
from oncelog.metadata.topics.topic_lookup import TopicLookup
from oncelog.metadata_store.keys.idempotency_backend import Holder
from oncelog.metadata_store.keys.idempotency_keys import KeyStore

#: If a process dies with a pending claim, a repeat of the request waits at most this long for its lease to expire.
LEASE_MS = 3_000


class OpenKeyedProducer:
    """in_progress: claims that are written, and whose answer is not recorded yet."""

    def __init__(self, topic: TopicName, topic_id: TopicId, producer: AsyncProducer) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.producer = producer
        self.core = KeyedProducer(producer.producer_name, SequenceId(producer.last_sequence_id + 1))
        #: held from the reservation of a claim until its messages are handed to the producer, or the claim is released
        self.lock = asyncio.Lock()
        self.in_progress = 0

    @property
    def usable(self) -> bool:
        return not self.core.retired and self.producer.failure is None

    @property
    def lease(self) -> Holder:
        return Holder(self.core.producer_name, LEASE_MS)


class KeyedTarget(NamedTuple):
    """topic, topic_id: of the log that gets the messages. scope: the id of the topic to which the key belongs, which
    has partitions or is that log."""

    topic: TopicName
    topic_id: TopicId
    scope: TopicId


class KeyedProducers:
    """At most `producers_max`, one per topic. `run` renews leases; retired producers close in the background."""

    def __init__(self, client: AsyncClient, lookup: TopicLookup, keys: KeyStore, *, producers_max: int) -> None:
        self._client = client
        self._producers_max = producers_max
        self._lookup = lookup
        self._keys = keys
        #: {topic: its producer}, the most recently used last
        self._producers: dict[TopicName, OpenKeyedProducer] = {}
        #: {topic: lock}, while a producer for it is being opened
        self._opening: WeakValueDictionary[TopicName, asyncio.Lock] = WeakValueDictionary()
        self._closing: set[asyncio.Task[None]] = set()

    def last_error(self, topic: TopicName) -> OncelogError | None:
        """Why its producer, or that of a partition, cannot publish now; None: it can, or no producer is open."""
        errors = (
            keyed.producer.last_error
            for name, keyed in self._producers.items()
            if topic in (name, replace(name, partition=None))
        )
        return next((error for error in errors if error is not None), None)

    async def target(self, topic: TopicName, key: str, messages: Messages) -> "KeyedTarget":
        """Where the messages of the key go, as the topic is served now. The topic is created if that is allowed.

        Of a partitioned topic, a key must find the same partition for as long as it is kept, also when the topic gets
        more of them: so only those are used that the topic was created with. Raises InvalidArgument if the messages
        belong to several partitions.
        """
        keyed = self._producers.get(topic)
        if keyed is not None and keyed.usable:
            return KeyedTarget(topic, keyed.topic_id, keyed.topic_id)
        located = await self._lookup.locate(topic, create=True)
        if not located.partitions:
            return KeyedTarget(topic, located.topic_id, located.topic_id)
        count = located.former_partitions[0] if located.former_partitions else located.partitions
        given = dict.fromkeys(partition_of(each, count) for each in messages.keys if each is not None)
        number, *others = given or (partition_of(key.encode(), count),)
        if others:
            message = (
                f"the keys of the messages belong to several partitions of {topic}: send those of one key in a request"
            )
            raise InvalidArgument(message, field="messages")
        part = replace(topic, partition=number)
        keyed = self._producers.get(part)
        if keyed is not None and keyed.usable:
            return KeyedTarget(part, keyed.topic_id, located.topic_id)
        return KeyedTarget(part, (await self._lookup.locate(part, create=True)).topic_id, located.topic_id)

    async def reserve(self, topic: TopicName, topic_id: TopicId, count: int) -> tuple[OpenKeyedProducer, Claim]:
        """Wait for the producer's lock and reserve ids. The caller then owns the lock, and must end the reservation
        with `use` and the lock's release, with `release`, or with `retire` and the lock's release.
        """
        while True:
            keyed = await self._open(topic)
            if keyed.topic_id != topic_id:
                raise ServiceUnavailable(f"topic {topic} was deleted and created again during the request: retry")
            await keyed.lock.acquire()
            if keyed.usable:
                self._producers[topic] = self._producers.pop(topic, keyed)
                return keyed, keyed.core.reserve(count)
            keyed.lock.release()
            self.retire(keyed)

    def release(self, keyed: OpenKeyedProducer) -> None:
        if keyed.core.reserved is not None:  # None: it was retired meanwhile
            keyed.core.release(keyed.core.reserved)
        keyed.lock.release()

    def use(self, keyed: OpenKeyedProducer, claim: Claim) -> None:
        """The caller must hand the messages to the SDK producer before any other task runs, then release the lock."""
        keyed.core.use(claim)
        keyed.in_progress += 1

    def done(self, keyed: OpenKeyedProducer) -> None:
        """The answer to a used claim is recorded, or is left to another request to settle."""
        keyed.in_progress -= 1
        if keyed.core.retired and not keyed.in_progress:
            self._in_background(keyed.producer.close(flush=False))

    def retire(self, keyed: OpenKeyedProducer) -> None:
        """Idempotent; also allowed for callers that do not hold the lock."""
        if self._producers.get(keyed.topic) is keyed:
            del self._producers[keyed.topic]
        if keyed.core.retired:
            return
        keyed.core.retire()
        self._in_background(self._drop_lease(keyed.core.producer_name))
        if not keyed.in_progress:
            self._in_background(keyed.producer.close(flush=False))

    async def fence(self, topic: TopicName, topic_id: TopicId, name: str) -> AsyncProducer:
        """Open the producer of this name, which any process may have opened before. This fences older instances.

        Raises ServiceUnavailable if the topic may have been deleted and created again meanwhile.
        """
        producer = await self._create_producer(topic, name)
        try:
            await self._require(topic, topic_id)
        except BaseException:
            await producer.close(flush=False)
            raise
        return producer

    async def run(self) -> None:
        """Renew the leases of producers with claims in progress; never returns."""
        while True:
            await asyncio.sleep(LEASE_MS / 3000)
            for keyed in [keyed for keyed in self._producers.values() if keyed.in_progress]:
                try:
                    await self._keys.renew(keyed.lease)
                except IdempotencyUnavailable:
                    break  # harmless: without its lease, another process may settle the claim, by the same log

    async def close(self) -> None:
        for keyed in list(self._producers.values()):
            self.retire(keyed)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _open(self, topic: TopicName) -> OpenKeyedProducer:
        opening = self._opening.setdefault(topic, asyncio.Lock())
        async with opening:
            keyed = self._producers.get(topic)
            if keyed is not None and keyed.usable:
                return keyed
            if keyed is not None:
                self.retire(keyed)
            self._make_room()
            located = await self._lookup.locate(topic, create=True)
            producer = await self._create_producer(topic, f"http-{uuid4().hex}")
            # Topic ids are never reused: the same id before and after means that the producer was opened on it.
            await self._require(topic, located.topic_id)
            keyed = self._producers[topic] = OpenKeyedProducer(topic, located.topic_id, producer)
            return keyed

    def _make_room(self) -> None:
        if len(self._producers) < self._producers_max:
            return
        idle = (keyed for keyed in self._producers.values() if not keyed.in_progress and not keyed.lock.locked())
        oldest = next(idle, None)
        if oldest is None:
            raise TooManyRequests(
                f"this service is publishing with idempotency keys to {self._producers_max} topics, the maximum: "
                "retry shortly",
                field="Idempotency-Key",
                limit=self._producers_max,
            )
        self.retire(oldest)

    async def _create_producer(self, topic: TopicName, name: str) -> AsyncProducer:
        return await self._client.create_producer(
            str(topic), producer_name=name, sequence_mode="contiguous", batch_bytes_max=MESSAGE_BYTES_MAX
        )

    async def _require(self, topic: TopicName, topic_id: TopicId) -> None:
        if (await self._lookup.find(topic)).topic_id != topic_id:
            raise ServiceUnavailable(f"topic {topic} was deleted and created again during the request: retry")

    async def _drop_lease(self, name: str) -> None:
        try:
            await self._keys.drop(name)
        except IdempotencyUnavailable:
            pass  # the lease expires

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
