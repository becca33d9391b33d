"""The consume streams of the fake cluster: the real subscriptions core over an ack log that is durable at once.

What a subscription has written stays with the topic when another owner takes over. Time is the event loop's.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from uuid import uuid4

from oncelog.core.acks.changes import Change
from oncelog.core.delivery.events import (
    AckRequested,
    AnswerAck,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerActive,
    ConsumerDetached,
    ConsumerEffect,
    ConsumerEvent,
    ConsumerHeld,
    ConsumerWanted,
    DeleteRequested,
    DeliverMessages,
    EndConsumer,
    FlowReported,
    MessagesRead,
    NackRequested,
    ReadMessages,
    RecallMessages,
    StoredEntry,
    Subscribed,
    SubscriptionSought,
)
from oncelog.core.delivery.store_binding.events import (
    AnswerEffects,
    BindRequested,
    DeadLetterRequested,
    EffectsAsked,
    RewindRequested,
)
from oncelog.core.delivery.subscriptions import Subscriptions
from oncelog.core.errors import ConsumerClosed, NotOwner, OncelogError, UnreadableEntry
from oncelog.core.formats.entry import EntryKind
from oncelog.core.ids import ConsumerNumber, EntryId, LedgerId, OwnerEpoch, Position, TopicId
from oncelog.rpc.codecs.consumer_codec import ConsumerReport, ConsumerRequest, OpenConsumer, ReportedEvent, SeekThrough
from oncelog.rpc.codecs.reader_codec import start_from_wire
from oncelog.rpc.server import ServerStream
from oncelog.wire.owner_pb2 import FindIndexAnswer, FindIndexRequest
from tests.contract.sdk.fakes.fake_topic import LEDGER, FakeTopic, start_of

TICK_S = 0.02
_calls = count(1)
_blocks = count(1)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


@dataclass
class ConsumeKnobs:
    """What tests turn, and what came over the wire."""

    #: acknowledgements become durable while this is set
    writable: asyncio.Event = field(default_factory=asyncio.Event)
    #: the answers say that acknowledgements are in memory only
    in_memory: bool = False
    #: the owner is of an older version, which does not know consumers of whole entries
    older: bool = False
    #: the next reads fail with these errors, which end the consumers
    read_errors: list[OncelogError] = field(default_factory=list)
    #: changes the entries of deliveries
    mangle: Callable[[StoredEntry], StoredEntry] = lambda entry: entry
    requests: list[ConsumerRequest] = field(default_factory=list)


@dataclass(slots=True)
class _Step:
    effects: list[ConsumerEffect] = field(default_factory=list)

    @property
    def now_ms(self) -> int:
        return _now_ms()

    def emit(self, effect: ConsumerEffect) -> None:
        self.effects.append(effect)


class _Outlet:
    """What waits to be written to one stream."""

    def __init__(self) -> None:
        self.events: list[ReportedEvent] = []
        self.news = asyncio.Event()

    def add(self, owner_epoch: int, report: ConsumerReport) -> None:
        self.events.append(ReportedEvent(OwnerEpoch(owner_epoch), report))
        self.news.set()


class TopicConsumers:
    """The subscriptions of one topic at one owner."""

    def __init__(self, topic: FakeTopic, owner_epoch: int, knobs: ConsumeKnobs) -> None:
        self._topic = topic
        self._epoch = owner_epoch
        self._knobs = knobs
        self._step = _Step()
        self._chain: list[tuple[Change, object]] = []
        #: {our call: (the stream, the client's call)}
        self._calls: dict[int, tuple[_Outlet, int]] = {}
        self._outlets: dict[ConsumerNumber, _Outlet] = {}
        self._core = Subscriptions(
            self._step, topic.ack_state, lambda change, token: self._chain.append((change, token)), first_index=0,
            next_index=topic.table.state.next_index, first_consumer=ConsumerNumber(next(_blocks) * 100_000),
            new_id=lambda: uuid4().hex, partition=0, taken_over=bool(topic.ack_state.subscriptions),
        )  # fmt: skip

    def tick(self) -> None:
        if self._core.log.next_index != self._topic.table.state.next_index:
            self._core.messages_end(self._topic.table.state.next_index)
        self._core.tick()
        self.settle()

    def take(self, request: ConsumerRequest, outlet: _Outlet) -> None:
        self._core.messages_end(self._topic.table.state.next_index)
        event: ConsumerEvent
        match request:
            case OpenConsumer(_, _, opening):
                whole = opening.whole_entries and not self._knobs.older
                event = replace(opening, call=self._numbered(outlet, opening.call), whole_entries=whole)
            case SeekThrough(_, seek):
                event = replace(seek, call=self._numbered(outlet, seek.call))
            case FlowReported() | AckRequested() | NackRequested() | ConsumerDetached() | ConsumerHeld():
                event = request
            case EffectsAsked() | BindRequested() | RewindRequested() | DeadLetterRequested():
                event = request
        self._core.handle(event)
        if isinstance(event, ConsumerDetached):
            self._outlets.pop(event.consumer, None)
        self.settle()

    def delete(self, subscription: str) -> None:
        """As an administrator does it, with force."""
        self._core.handle(DeleteRequested(next(_calls), subscription, force=True))
        self.settle()

    def serves(self, consumer: ConsumerNumber) -> bool:
        return consumer in self._outlets

    def _numbered(self, outlet: _Outlet, call: int) -> int:
        ours = next(_calls)
        self._calls[ours] = (outlet, call)
        return ours

    def lost(self, outlet: _Outlet) -> None:
        for consumer in [consumer for consumer, its in self._outlets.items() if its is outlet]:
            del self._outlets[consumer]
            self._core.handle(ConsumerDetached(consumer, lost=True))
        self.settle()

    def settle(self) -> None:
        """Perform the effects, and make durable what was appended, until nothing is left."""
        while True:
            self._core.end_step()
            effects, self._step.effects = self._step.effects, []
            for effect in effects:
                self._perform(effect)
            if self._chain and self._knobs.writable.is_set():
                chain, self._chain = self._chain, []
                state = self._topic.ack_state
                state.fold_changes(
                    Position(LedgerId(1), EntryId(state.position.entry_id + 1)), [change for change, _ in chain]
                )
                self._core.settled([token for _, token in chain])
            elif not effects:
                return

    def _perform(self, effect: ConsumerEffect) -> None:
        match effect:
            case AnswerSubscribe(call, result):
                outlet, theirs = self._calls.pop(call)
                if isinstance(result, Subscribed):
                    self._outlets[result.consumer] = outlet
                outlet.add(self._epoch, AnswerSubscribe(theirs, result))
            case AnswerSeek(call, sought):
                outlet, theirs = self._calls.pop(call)
                outlet.add(self._epoch, AnswerSeek(theirs, sought))
            case ReadMessages():
                self._core.handle(self._read(effect))
            case DeliverMessages():
                entries = tuple(replace(each, entry=self._knobs.mangle(each.entry)) for each in effect.entries)
                self._tell(replace(effect, entries=entries))
            case AnswerAck(consumer, request, error, durable):
                self._tell(AnswerAck(consumer, request, error, durable=durable and not self._knobs.in_memory))
            case RecallMessages() | ConsumerActive() | SubscriptionSought() | EndConsumer() | AnswerEffects():
                self._tell(effect)
            case ConsumerWanted():
                self._tell(effect)

    def _tell(
        self,
        report: DeliverMessages
        | AnswerAck
        | RecallMessages
        | ConsumerActive
        | ConsumerWanted
        | SubscriptionSought
        | EndConsumer
        | AnswerEffects,
    ) -> None:
        outlet = self._outlets.get(report.consumer)
        if outlet is not None:
            outlet.add(self._epoch, report)

    def _read(self, read: ReadMessages) -> MessagesRead:
        if self._knobs.read_errors:
            self._end_all(self._knobs.read_errors.pop(0))
            return MessagesRead(read.number, read.first_index, ())
        found = [
            StoredEntry(header.position, header.base_index, header.count, header.skip_first, data)
            for header, data in self._topic.entries
            if header.kind == EntryKind.MESSAGES and header.next_index > read.first_index
        ]
        bad = [each for each in found if each.position.entry_id in self._topic.unreadable]
        if bad and bad[0] is not found[0]:
            found = found[: found.index(bad[0])]
        elif bad:
            end = next((each.base_index for each in found if each not in bad), self._topic.table.state.next_index)
            self._end_all(UnreadableEntry(
                f"messages {read.first_index} to {end - 1} are damaged", ledger_id=LEDGER,
                entry_id=bad[0].position.entry_id, first_index=read.first_index, count=end - read.first_index,
            ))  # fmt: skip
            found = []
        return MessagesRead(read.number, read.first_index, tuple(found[:8]))

    def _end_all(self, error: OncelogError) -> None:
        for consumer in list(self._outlets):
            self._tell(EndConsumer(consumer, error))
            del self._outlets[consumer]
            self._core.handle(ConsumerDetached(consumer, lost=True))


class ConsumeStreams:
    """All consume streams of one owner."""

    def __init__(self, topics: dict[TopicId, FakeTopic], owner_epoch: int, knobs: ConsumeKnobs) -> None:
        self._topics = topics
        self._epoch = owner_epoch
        self._knobs = knobs
        self._consumers: dict[TopicId, TopicConsumers] = {}
        self._streams = 0
        #: set for an owner that was deposed and does not know it: it sees nothing new
        self.blind = False

    def of(self, topic: FakeTopic) -> TopicConsumers:
        known = self._consumers.get(topic.topic_id)
        if known is None:
            known = self._consumers[topic.topic_id] = TopicConsumers(topic, self._epoch, self._knobs)
        return known

    async def serve(self, stream: ServerStream[list[ConsumerRequest], Sequence[ReportedEvent]]) -> None:
        outlet = _Outlet()
        writing = asyncio.ensure_future(self._write(stream, outlet))
        self._streams += 1
        if self._streams == 1:
            self._tick()
        try:
            async for requests in stream:
                for request in requests:
                    self._knobs.requests.append(request)
                    self._take(request, outlet)
        finally:
            self._streams -= 1
            writing.cancel()
            for consumers in self._consumers.values():
                consumers.lost(outlet)

    def _take(self, request: ConsumerRequest, outlet: _Outlet) -> None:
        if isinstance(request, OpenConsumer):
            topic = self._topics.get(request.topic_id)
            if topic is None:
                outlet.add(0, AnswerSubscribe(request.opening.call, NotOwner()))
            else:
                self.of(topic).take(request, outlet)
            return
        for consumers in self._consumers.values():
            if consumers.serves(request.consumer):
                consumers.take(request, outlet)
                return
        if isinstance(request, AckRequested | NackRequested):
            error = ConsumerClosed("no such consumer is attached on this stream")
            outlet.add(0, AnswerAck(request.consumer, request.request, error))

    async def _write(
        self, stream: ServerStream[list[ConsumerRequest], Sequence[ReportedEvent]], outlet: _Outlet
    ) -> None:
        while True:
            await outlet.news.wait()
            outlet.news.clear()
            events, outlet.events = outlet.events, []
            await stream.write(events)

    def _tick(self) -> None:
        for consumers in [] if self.blind else self._consumers.values():
            consumers.tick()
        if self._streams:
            asyncio.get_running_loop().call_later(TICK_S, self._tick)

    async def find_index(self, request: FindIndexRequest) -> FindIndexAnswer:
        start = start_from_wire(request.start)
        topic = self._topics.get(start.topic_id)
        if topic is None:
            raise NotOwner
        at, batch_index = start_of(topic, start.at)
        begins = end = topic.table.state.next_index
        if at < len(topic.entries):
            header, _ = topic.entries[at]
            begins = header.base_index + min(header.count, max(0, batch_index - header.skip_first))
        return FindIndexAnswer(begins_at=begins, next_index=end, owner_epoch=self._epoch)
