"""A cluster of topics in memory, in the forms that a door needs, with the rules of the real one."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.access import Caller
from oncelog.core.errors import (
    NamespaceNotFound,
    OncelogError,
    PermissionDenied,
    ProducerBusy,
    ProducerClosed,
    ProducerExpired,
    ProducerFenced,
    TopicNotFound,
)
from oncelog.core.ids import EntryId, LedgerId, Position, SequenceId
from oncelog.core.names import NamespaceName, TopicName, parse_topic
from oncelog_doors.core.pulsar.message_ids import FromFirst, Start
from oncelog_doors.core.pulsar.subscribing import Subscription
from oncelog_doors.core.pulsar.verdicts import Accepted, Ids, Known, Rejected, TopicRules, Verdict, verdict_on
from oncelog_doors.core.shared.named_topics import NamedTopic
from oncelog_doors.pulsar.ports import ConsumerCallbacks, Decided
from tests.doors.fake_tokens import FakeTokens
from tests.doors.pulsar.bytes_of_clients import checksum_matches
from tests.doors.pulsar.fake_log import FakeLog, FakeReader
from tests.doors.pulsar.fake_schemas import FakeSchemas
from tests.doors.pulsar.fake_subscriptions import FakeConsumer, FakeSubscription, attach


class Prepared(NamedTuple):
    ids: Ids
    entry: bytes
    is_chunk: bool = False


@dataclass
class Name:
    """Of one producer name. epoch: of its session."""

    generation: int = 0
    last: int = -1
    stored: dict[int, tuple[bytes, Position]] = field(default_factory=dict)
    session: "FakeProducer | None" = None


@dataclass
class FakeTopic:
    """takes: False: what is given waits, and so does an opening. incarnation: of the topic, if it is made again.
    together: how many batches were given in each step of the event loop."""

    takes: bool = True
    room: int = 1 << 40
    incarnation: int = 1
    fences: bool = False
    takes_again: asyncio.Event = field(default_factory=asyncio.Event)
    has_more_room: asyncio.Event = field(default_factory=asyncio.Event)
    names: dict[str, Name] = field(default_factory=dict)
    entries: list[Prepared] = field(default_factory=list)
    waiting: list[tuple["FakeProducer", Prepared, Decided]] = field(default_factory=list)
    together: list[int] = field(default_factory=list)
    _in_step: bool = False

    def given(self) -> None:
        """One batch more."""
        if not self._in_step:
            self._in_step = True
            self.together.append(0)
            asyncio.get_running_loop().call_soon(self._step_ended)
        self.together[-1] += 1

    def _step_ended(self) -> None:
        self._in_step = False

    def take(self) -> None:
        """Take what waits, and all that comes."""
        self.takes = True
        self.takes_again.set()
        waiting, self.waiting = self.waiting, []
        for producer, prepared, decided in waiting:
            producer.store(prepared, decided)


class FakeProducer:
    """Has the form of `ProducerPort`."""

    def __init__(self, topic: FakeTopic, name: str, epoch: int | None, wanted: Callable[[], None]) -> None:
        self.topic, self.name, self.epoch, self.wanted = topic, name, epoch, wanted
        self.state = topic.names[name]
        self.generation = self.state.generation
        self.last_sequence_id = SequenceId(self.state.last)
        self.said_alive = 0
        self.gave_up_name: bool | None = None
        #: of the chunks whose message is not decided
        self.chunks: list[Decided] = []
        #: how often `gives_no_more_chunks` was called
        self.chunks_ended = 0
        self.end: asyncio.Future[OncelogError] = asyncio.get_running_loop().create_future()

    @property
    def token(self) -> int:
        return self.generation << 31 | self.topic.incarnation

    def prepare(self, entry: bytes, ids: Ids, message_count: int, *, is_chunk: bool) -> Prepared | Rejected:
        if not checksum_matches(entry):
            return Rejected(f"sequence ids {ids}: the checksum is wrong")
        return Prepared(ids, entry, is_chunk)

    def has_room(self, size: int) -> bool:
        return size <= self.topic.room

    async def room(self, size: int) -> None:
        while not self.has_room(size) and not self.end.done():
            await self.topic.has_more_room.wait()
            self.topic.has_more_room.clear()

    def gives_no_more_chunks(self) -> None:
        self.chunks_ended += 1
        self.decide_chunks(Accepted())

    def decide_chunks(self, verdict: Verdict | None) -> None:
        """Of the chunks that were given."""
        chunks, self.chunks = self.chunks, []
        for decided in chunks:
            decided(verdict)

    def give(self, prepared: Prepared, decided: Decided, stored: Callable[[], None]) -> None:
        self.topic.given()
        if self.end.done():
            decided(None)
        elif prepared.is_chunk:
            stored()
            self.chunks.append(decided)
        elif self.topic.takes:
            self.store(prepared, decided)
        else:
            self.topic.waiting.append((self, prepared, decided))

    def store(self, prepared: Prepared, decided: Decided) -> None:
        if self.end.done():
            decided(None)
            return
        first = prepared.ids.sequence_id
        known, place = Known.STORED, Position(LedgerId(1), EntryId(len(self.topic.entries)))
        if first in self.state.stored:
            entry, place = self.state.stored[first]
            known = Known.SAME_BATCH if entry == prepared.entry else Known.OTHER_CONTENT
        elif first <= self.state.last:
            known = Known.STALE
        else:
            self.state.stored[first] = prepared.entry, place
            self.state.last = prepared.ids.last
            self.topic.entries.append(prepared)
        decided(verdict_on(known, prepared.ids, place, TopicRules()))

    def holder_lives(self) -> None:
        self.said_alive += 1

    async def ended(self) -> OncelogError:
        return await asyncio.shield(self.end)

    def finish(self, error: OncelogError) -> None:
        if not self.end.done():
            self.end.set_result(error)
            if self.state.session is self:
                self.state.session = None
            mine = [each for each in self.topic.waiting if each[0] is self]
            self.topic.waiting = [each for each in self.topic.waiting if each[0] is not self]
            for _, _, decided in mine:
                decided(None)

    async def close(self, *, gives_up_name: bool) -> None:
        self.gave_up_name = gives_up_name
        self.finish(ProducerClosed("closed"))


class FakeCluster(FakeTokens):
    """Has the form of `ClusterPort`."""

    def __init__(self, tokens: dict[str, str] | None = None) -> None:
        super().__init__(tokens)
        self.topics: dict[str, FakeTopic] = {}
        self.logs: dict[str, FakeLog] = {}
        self.partition_counts: dict[str, int] = {}
        #: by their use
        self.created: list[str] = []
        #: of each namespace
        self.listed: list[NamedTopic] = []
        self.schemas = FakeSchemas()
        self.read_ahead_bytes = 0
        self.asked: list[str] = []
        self.batch_bytes_max = 5 * 1024 * 1024
        self.opened: list[FakeProducer] = []
        #: openings that were cancelled
        self.withdrawn = 0
        #: look-ups and openings wait until it is set
        self.owner_answers = asyncio.Event()
        self.owner_answers.set()

    def log(self, name: str) -> FakeLog:
        return self.logs.setdefault(str(parse_topic(name)), FakeLog())

    async def open_reader(self, topic: TopicName, caller: Caller, start: Start, *, may_create: bool) -> FakeReader:
        await self.owner_answers.wait()
        if not may_create and str(topic) not in self.logs:
            raise TopicNotFound(f"there is no topic {topic}")
        log = self.log(str(topic))
        log.starts.append(start)
        log.readers.append(FakeReader(log, start))
        return log.readers[-1]

    async def open_consumer(
        self,
        topic: TopicName,
        caller: Caller,
        name: str,
        consumer_name: str,
        subscription: Subscription,
        callbacks: ConsumerCallbacks,
        *,
        may_create: bool,
    ) -> FakeConsumer:
        await self.owner_answers.wait()
        if not may_create and str(topic) not in self.logs:
            raise TopicNotFound(f"there is no topic {topic}")
        log = self.log(str(topic))
        return attach(log.subscriptions, log.batches, log.chunks, name, consumer_name, subscription, callbacks)

    async def ensure_subscription(self, topic: TopicName, caller: Caller, name: str) -> None:
        log = self.log(str(topic))
        log.subscriptions.setdefault(name, FakeSubscription(log.batches, log.chunks, FromFirst()))

    def topic(self, name: str) -> FakeTopic:
        return self.topics.setdefault(str(parse_topic(name)), FakeTopic())

    async def partitions(self, topic: TopicName, caller: Caller, *, may_create: bool) -> int:
        self.asked.append(str(topic))
        await self.owner_answers.wait()
        if str(topic) not in (*self.topics, *self.partition_counts):
            if not may_create:
                raise TopicNotFound(f"there is no topic {topic}")
            self.created.append(str(topic))
        return self.partition_counts.get(str(topic), 0)

    async def topics_of(self, namespace: NamespaceName, caller: Caller) -> list[NamedTopic]:
        """Those of `listed`; a role that is called stranger may not see them, and public/missing does not exist."""
        self.asked.append(str(namespace))
        await self.owner_answers.wait()
        if str(namespace) == "public/missing":
            raise NamespaceNotFound(str(namespace))
        if caller.role == "stranger":
            raise PermissionDenied("role stranger has no right to consume")
        return self.listed

    async def open_producer(
        self,
        topic: TopicName,
        caller: Caller,
        *,
        name: str | None,
        token: int,
        epoch: int | None,
        wanted: Callable[[], None],
    ) -> FakeProducer:
        try:
            await self.owner_answers.wait()
        except asyncio.CancelledError:
            self.withdrawn += 1
            raise
        own = self.topic(str(topic))
        while not own.takes:
            await own.takes_again.wait()
        name = name or f"assigned-{len(own.names)}"
        state = own.names.setdefault(name, Name())
        session = state.session
        if token:
            if token & (2**31 - 1) != own.incarnation or not state.generation:
                raise ProducerExpired("the token is of another producer")
            if token >> 31 != state.generation:
                raise ProducerFenced("a newer instance has this producer name")
            if session is not None and epoch is not None and session.epoch is not None and epoch <= session.epoch:
                raise ProducerFenced("a later opening of the same client has this producer")
        elif session is not None and not own.fences:
            session.wanted()
            raise ProducerBusy(f"another instance of {name!r} is connected")
        else:
            state.generation += 1
        if session is not None:
            session.finish(ProducerFenced("another one has it"))
        state.session = FakeProducer(own, name, epoch, wanted)
        self.opened.append(state.session)
        return state.session
