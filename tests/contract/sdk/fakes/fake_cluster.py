"""A cluster in one process that the SDK cannot tell from a real one: real gRPC, real dedup, and a log that never fails.

What it leaves out is what the SDK must not depend on: storage nodes, ZooKeeper, and time. Owners are servers that come
and go; topics, with their log and marks, stay.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from oncelog.core.errors import (
    ServiceUnavailable,
    TopicNotFound,
)
from oncelog.core.ids import (
    ProducerId,
    SessionNumber,
    TopicId,
)
from oncelog.rpc.codecs.metadata_codec import LEDGERS, LOOKUP
from oncelog.rpc.server import Server
from oncelog.wire.metadata_pb2 import (
    LedgerMember,
    LedgersAnswer,
    LedgersRequest,
    LookupAnswer,
    LookupRequest,
    TopicLedger,
)
from tests.contract.sdk.fakes.fake_consume import ConsumeKnobs
from tests.contract.sdk.fakes.fake_owner import FakeOwner
from tests.contract.sdk.fakes.fake_topic import FakeTopic
from tests.contract.sdk.fakes.knobs import Knobs, Seen


class FakeCluster:
    """One metadata service, and one owner at a time."""

    def __init__(self) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.by_id: dict[TopicId, FakeTopic] = {}
        self.owner: FakeOwner | None = None
        self.knobs = Knobs()
        self.seen = Seen()
        self.knobs.gate.set()
        self.knobs.names.set()
        self.consume = ConsumeKnobs()
        self.consume.writable.set()
        #: {full name: number of partitions}, and the numbers before each growth
        self.partitioned: dict[str, int] = {}
        self.former_partitions: dict[str, list[int]] = {}
        self.url = ""
        self._metadata = Server()
        self._metadata.unary(LOOKUP, self.look_up)
        self._metadata.unary(LEDGERS, self.ledgers)
        self._epoch = 0
        self._numbers = 0

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["FakeCluster"]:
        cluster = cls()
        cluster.url = f"oncelog://127.0.0.1:{await cluster._metadata.start()}"
        await cluster.take_over()
        try:
            yield cluster
        finally:
            if cluster.owner is not None:
                await cluster.owner.kill()
            await cluster._metadata.stop(grace_ms=0)

    async def take_over(self) -> None:
        """A new owner for every topic; the one before is killed."""
        if self.owner is not None:
            await self.owner.kill()
        self._epoch += 1
        owner = FakeOwner(self, self._epoch)
        await owner.start()
        self.owner = owner

    async def depose(self) -> FakeOwner:
        """A new owner for every topic; the one before lives on, answers from the past, and is returned."""
        before, self.owner = self.owner, None
        assert before is not None
        before.knows = {topic_id: len(topic.entries) for topic_id, topic in self.by_id.items()}
        before.consumers.blind = True
        await self.take_over()
        return before

    async def kill_owner(self) -> None:
        """Nobody serves until `take_over`."""
        assert self.owner is not None
        await self.owner.kill()
        self.owner = None

    def topic(self, name: str) -> FakeTopic:
        return self.topics[f"public/default/{name}"]

    def grow(self, name: str, partitions: int) -> None:
        topic = f"public/default/{name}"
        self.former_partitions.setdefault(topic, []).append(self.partitioned[topic])
        self.partitioned[topic] = partitions

    def next_producer_id(self) -> ProducerId:
        self._numbers += 1
        return ProducerId(self._numbers)

    def next_session(self) -> SessionNumber:
        self._numbers += 1
        return SessionNumber(self._numbers)

    async def ledgers(self, request: LedgersRequest) -> LedgersAnswer:
        """The requested ledgers of the topic, each with the members that a test has set."""
        topic = self.topic(request.topic.rpartition("/")[2])
        members = [LedgerMember(incarnation=member, address=address) for member, address in self.knobs.members]
        listed = [TopicLedger(ledger_id=ledger_id, members=members) for ledger_id in request.ledger_ids]
        return LedgersAnswer(topic_id=topic.topic_id, ledgers=listed)

    async def look_up(self, request: LookupRequest) -> LookupAnswer:
        if request.topic in self.partitioned:
            answer = LookupAnswer(
                cluster_id="fake",
                partitions=self.partitioned[request.topic],
                former_partitions=self.former_partitions.get(request.topic, []),
            )
            self.knobs.looked_up(request.topic)
            return answer
        topic = self.topics.get(request.topic)
        if topic is None:
            if not (self.knobs.may_create and request.create_if_missing):
                self.seen.refused_look_ups += 1
                raise TopicNotFound(f"{request.topic} does not exist")
            topic = self.topics[request.topic] = FakeTopic(request.topic)
            self.by_id[topic.topic_id] = topic
        if self.owner is None:
            raise ServiceUnavailable("no owner is live")
        return LookupAnswer(
            cluster_id="fake",
            topic_id=topic.topic_id,
            owner_address=self.owner.address,
            owner_epoch=self.owner.epoch,
            owner_incarnation=self.owner.incarnation,
        )
