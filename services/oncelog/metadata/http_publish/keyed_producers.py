"""The lanes of one process: for each topic one producer under a made-up name, whose ids keys are mapped to.

The decisions are `core.lane`'s. Here: a turn for each claim, the producer behind the lane, its lease while a claim is
on its way, and the end, when everything that is still in flight has been answered.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

from oncelog.client.client import AsyncClient
from oncelog.client.producer import AsyncProducer
from oncelog.core.errors import IdempotencyUnavailable, ServiceUnavailable, TooManyRequests
from oncelog.core.http_publish.keyed_producer import Claim, Lane
from oncelog.core.ids import SequenceId, TopicId
from oncelog.core.names import TopicName
from oncelog.core.producer.opening import MESSAGE_BYTES_MAX
from oncelog.metadata.coordination.topic_lookup import TopicLookup
from oncelog.stores.key_server import Lease
from oncelog.stores.key_store import KeyStore

#: How long a repeat waits for a process that died with the claim.
LEASE_MS = 3_000


class OpenLane:
    """in_progress: claims that are written and not recorded as answered."""

    def __init__(self, topic: TopicName, topic_id: TopicId, producer: AsyncProducer) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.producer = producer
        self.core = Lane(producer.producer_name, SequenceId(producer.last_sequence_id + 1))
        self.turn = asyncio.Lock()
        self.in_progress = 0

    @property
    def usable(self) -> bool:
        return not self.core.retired and self.producer.failure is None

    @property
    def lease(self) -> Lease:
        return Lease(self.core.producer_name, LEASE_MS)


class Lanes:
    """One for each topic, at most `lanes_max`. `run` renews leases; lanes end in the background; `close` ends all."""

    def __init__(self, client: AsyncClient, lookup: TopicLookup, keys: KeyStore, *, lanes_max: int) -> None:
        self._client = client
        self._lanes_max = lanes_max
        self._lookup = lookup
        self._keys = keys
        #: {topic: its lane}, the one used last at the end
        self._lanes: dict[TopicName, OpenLane] = {}
        #: locks, as long as somebody opens
        self._opening: WeakValueDictionary[TopicName, asyncio.Lock] = WeakValueDictionary()
        self._ending: set[asyncio.Task[None]] = set()

    async def topic_id(self, topic: TopicName) -> TopicId:
        """Of the topic as it is served, made where that is allowed."""
        lane = self._lanes.get(topic)
        if lane is not None and lane.usable:
            return lane.topic_id
        return (await self._lookup.locate(topic, create=True)).topic_id

    async def reserve(self, topic: TopicName, topic_id: TopicId, count: int) -> tuple[OpenLane, Claim]:
        """Wait for the lane's turn; it is the caller's until `use`, `give_back` or `retire`."""
        while True:
            lane = await self._open(topic)
            if lane.topic_id != topic_id:
                raise ServiceUnavailable(f"{topic} was created anew meanwhile: repeat")
            await lane.turn.acquire()
            if lane.usable:
                self._lanes[topic] = self._lanes.pop(topic, lane)
                return lane, lane.core.reserve(count)
            lane.turn.release()
            self.retire(lane)

    def give_back(self, lane: OpenLane, claim: Claim) -> None:
        lane.core.give_back(claim)
        lane.turn.release()

    def use(self, lane: OpenLane, claim: Claim) -> None:
        """The caller hands the messages to the lane's producer before anything else runs, then ends the turn."""
        lane.core.use(claim)
        lane.in_progress += 1

    def done(self, lane: OpenLane) -> None:
        """A claim that was used is recorded, or left to others."""
        lane.in_progress -= 1
        if lane.core.retired and not lane.in_progress:
            self._in_background(lane.producer.close(flush=False))

    def retire(self, lane: OpenLane) -> None:
        """May be said again, and by others than the one whose turn it is."""
        if self._lanes.get(lane.topic) is lane:
            del self._lanes[lane.topic]
        if lane.core.retired:
            return
        lane.core.retire()
        self._in_background(self._drop(lane.core.producer_name))
        if not lane.in_progress:
            self._in_background(lane.producer.close(flush=False))

    async def fence(self, topic: TopicName, topic_id: TopicId, name: str) -> AsyncProducer:
        """Open the producer of a lane, whosever it is: afterwards nobody else publishes under its name.

        Raises ServiceUnavailable when it cannot be told that it was opened on this very topic.
        """
        producer = await self._producer(topic, name)
        try:
            await self._require(topic, topic_id)
        except BaseException:
            await producer.close(flush=False)
            raise
        return producer

    async def run(self) -> None:
        """Renew the leases of lanes with claims on their way; never returns."""
        while True:
            await asyncio.sleep(LEASE_MS / 3000)
            for lane in [lane for lane in self._lanes.values() if lane.in_progress]:
                try:
                    await self._keys.renew(lane.lease)
                except IdempotencyUnavailable:
                    break  # a lease decides nothing: at worst another process settles a claim that is on its way

    async def close(self) -> None:
        for lane in list(self._lanes.values()):
            self.retire(lane)
        while self._ending:
            await asyncio.wait(self._ending)

    async def _open(self, topic: TopicName) -> OpenLane:
        opening = self._opening.setdefault(topic, asyncio.Lock())
        async with opening:
            lane = self._lanes.get(topic)
            if lane is not None and lane.usable:
                return lane
            if lane is not None:
                self.retire(lane)
            self._make_room()
            located = await self._lookup.locate(topic, create=True)
            producer = await self._producer(topic, f"http-{uuid4().hex}")
            # An id that a topic had never comes back: the same before and after means the same in between.
            await self._require(topic, located.topic_id)
            lane = self._lanes[topic] = OpenLane(topic, located.topic_id, producer)
            return lane

    def _make_room(self) -> None:
        if len(self._lanes) < self._lanes_max:
            return
        idle = next((lane for lane in self._lanes.values() if not lane.in_progress and not lane.turn.locked()), None)
        if idle is None:
            message = f"keys are published on {self._lanes_max} topics at once here: repeat in a moment"
            raise TooManyRequests(message, field="Idempotency-Key", limit=self._lanes_max)
        self.retire(idle)

    async def _producer(self, topic: TopicName, name: str) -> AsyncProducer:
        return await self._client.create_producer(
            str(topic), producer_name=name, sequence_mode="contiguous", batch_bytes_max=MESSAGE_BYTES_MAX
        )

    async def _require(self, topic: TopicName, topic_id: TopicId) -> None:
        if (await self._lookup.find(topic)).topic_id != topic_id:
            raise ServiceUnavailable(f"{topic} was created anew meanwhile: repeat")

    async def _drop(self, name: str) -> None:
        try:
            await self._keys.drop(name)
        except IdempotencyUnavailable:
            pass  # it ends by itself

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
