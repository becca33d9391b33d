"""The consume stream of one client: requests become events of the topics, and reports become frames.

Reading stops (`client_stream`) while many requests have no answer, while the client does not read many answers, and
while the rights of many of its openings are being looked up.

How many messages wait for a consumer is bounded by its credit, and what waits on all streams by one budget
(`core.stream_budget`): the topics ask this stream for room before they deliver. The requests of a client that does not
read its messages are still taken, because acknowledgements let a topic go on.

A consumer belongs to the stream on which it was attached. When the stream ends, its consumers may come back with what
they hold (hazard delivered-while-held).
"""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from oncelog.core.access import Right
from oncelog.core.delivery.events import (
    AckRequested,
    AnswerAck,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerDetached,
    ConsumerHeld,
    ConsumerOpening,
    DeliverMessages,
    EndConsumer,
    FlowReported,
    NackRequested,
    RecallMessages,
    RoomReturned,
    Subscribed,
)
from oncelog.core.delivery.store_binding.events import (
    AnswerEffects,
    BindRequested,
    DeadLetterRequested,
    EffectsAsked,
    EffectsRequest,
    RewindRequested,
)
from oncelog.core.errors import ConsumerClosed, InvalidArgument, OncelogError, TooManyRequests
from oncelog.core.format_errors import UnknownFormat
from oncelog.core.formats.client_token import CONSUMERS, check_level
from oncelog.core.formats.entry import check_reader
from oncelog.core.ids import ConsumerNumber, OwnerEpoch, SubscriptionNumber
from oncelog.core.names import check_part, dead_letter_topic, parse_topic
from oncelog.core.stream_budget import ENTRY_BYTES, StreamOutbox
from oncelog.rpc.codecs.consumer_codec import (
    EVENTS_MAX,
    RANGE_NUMBERS_MAX,
    ConsumerRequest,
    OpenConsumer,
    ReportedEvent,
    SeekThrough,
)
from oncelog.rpc.frames import BLOBS_MAX
from oncelog.rpc.options import FRAME_BYTES_TARGET
from oncelog.rpc.server import ServerStream
from oncelog.topic_owner.shell.delivery_shell import DeliveryShell
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.authorization import authorize
from oncelog.topic_owner.streams.client_stream import ClientStream
from oncelog.topic_owner.streams.consume_trace import ConsumeTrace
from oncelog.topic_owner.streams.stream_rooms import StreamRooms

#: Openings of one stream whose rights and owner are being looked up.
CHECKS_MAX = 1_024
#: Consumers of one stream: one for each partition and subscription of a client.
CONSUMERS_MAX = 10_000
#: Reading stops above this many requests without an answer.
UNANSWERED_MAX = 16_384
#: Reading stops above this many reports without messages that wait to be sent; while the budget is nearly used up,
#: above REPORTS_MIN.
REPORTS_MAX = 16_384
REPORTS_MIN = 64


class ConsumeService:
    """Serves all consume streams of this owner."""

    def __init__(self, topics: TopicRegistry, rooms: StreamRooms, level: Callable[[], int]) -> None:
        """level: of the cluster."""
        self.topics = topics
        self._rooms = rooms
        self._level = level

    async def consume(self, stream: ServerStream[list[ConsumerRequest], list[ReportedEvent]]) -> None:
        """The handler of one stream. Returns when the client has finished or disconnected. Raises TooManyRequests."""
        client = ConsumeStream(self.topics, stream, self._rooms, self._level)
        try:
            await client.serve()
        finally:
            client.end()


@dataclass(slots=True)
class _Attached:
    """A consumer of this stream. version: of its program. unanswered: its requests without an answer."""

    runner: TopicRunner
    number: SubscriptionNumber
    version: int
    unanswered: int = 0


class _Reports:
    """Reports in their order, how much of a frame each takes, and what each takes of the stream's outbox.

    Messages have taken it when they were delivered, other reports take it here.
    """

    def __init__(self, outbox: StreamOutbox) -> None:
        self._outbox = outbox
        #: (report, what it takes)
        self._reports: deque[tuple[ReportedEvent, tuple[int, int, int]]] = deque()
        #: reports without messages
        self._answer_count = 0
        #: what the last frame takes of the outbox
        self._frame_bytes = 0

    @property
    def is_full(self) -> bool:
        return self._answer_count > max(REPORTS_MIN, min(REPORTS_MAX, self._outbox.free // ENTRY_BYTES))

    def put(self, report: ReportedEvent) -> None:
        self._reports.append((report, _cost(report)))
        if not isinstance(report.report, DeliverMessages):
            self._answer_count += 1
            self._outbox.take(_held_bytes(report))

    def clear(self) -> None:
        self._reports.clear()

    def take(self) -> list[ReportedEvent] | None:
        """The next frame; None: there is nothing to send. A frame holds one report at least.

        The former frame is sent: what it took of the outbox is given back.
        """
        size, self._frame_bytes = self._frame_bytes, 0
        self._outbox.give_back(size)
        frame: list[ReportedEvent] = []
        room_bytes, room_ranges, room_entries = FRAME_BYTES_TARGET, RANGE_NUMBERS_MAX // 2, BLOBS_MAX
        while self._reports and len(frame) < EVENTS_MAX:
            report, (size, ranges, entries) = self._reports[0]
            if frame and (size > room_bytes or ranges > room_ranges or entries > room_entries):
                break
            frame.append(report)
            self._reports.popleft()
            self._frame_bytes += _held_bytes(report)
            self._answer_count -= not isinstance(report.report, DeliverMessages)
            room_bytes, room_ranges, room_entries = room_bytes - size, room_ranges - ranges, room_entries - entries
        return frame or None


def _held_bytes(event: ReportedEvent) -> int:
    """What a report takes of the stream's outbox."""
    return event.report.cost_bytes if isinstance(event.report, DeliverMessages) else ENTRY_BYTES


def _cost(event: ReportedEvent) -> tuple[int, int, int]:
    """(bytes of entries, ranges, entries)."""
    match event.report:
        case DeliverMessages(entries=entries):
            size = sum(len(delivered.entry.data) for delivered in entries)
            return size, sum(len(delivered.ranges) for delivered in entries), len(entries)
        case RecallMessages(ranges=ranges):
            return 0, len(ranges), 0
        case AnswerSubscribe(result=Subscribed(kept=kept)):
            return 0, len(kept), 0
    return 0, 0, 0


class ConsumeStream(ClientStream[list[ConsumerRequest], list[ReportedEvent]]):
    """One client's stream. Receives the reports to all its consumers (the topics' ConsumerSink)."""

    def __init__(
        self,
        topics: TopicRegistry,
        stream: ServerStream[list[ConsumerRequest], list[ReportedEvent]],
        rooms: StreamRooms,
        level: Callable[[], int],
    ) -> None:
        """Raises TooManyRequests."""
        #: what waits on this stream
        self.outbox = rooms.open(stream, woken=self._room_returned)
        self._out = _Reports(self.outbox)
        super().__init__(stream, self._out.take)
        self._topics, self._level = topics, level
        self._consumers: dict[ConsumerNumber, _Attached] = {}
        #: {(topic, its call): (the same topic, the client's call, its version)}, of openings
        self._openings: dict[tuple[DeliveryShell, int], tuple[TopicRunner, int, int]] = {}
        #: {(topic, its call): the client's call}, of seeks
        self._seeks: dict[tuple[DeliveryShell, int], int] = {}
        self._trace = ConsumeTrace()
        self._unanswered = 0

    # --- from the client ----------------------------------------------------------------------------------------------

    async def take(self, frame: list[ConsumerRequest]) -> None:
        for request in frame:
            match request:
                case OpenConsumer():
                    self._open(request)
                case SeekThrough():
                    self._seek(request)
                case FlowReported() | ConsumerHeld():
                    attached = self._consumers.get(request.consumer)
                    if attached is not None:
                        attached.runner.post(request)
                case AckRequested() | NackRequested():
                    self._request(request)
                case EffectsAsked() | BindRequested() | RewindRequested() | DeadLetterRequested():
                    self._request(request)
                case ConsumerDetached(consumer, lost):
                    attached = self._forget(consumer)
                    if attached is not None:
                        attached.runner.consumers.detach(consumer, lost=lost)

    @property
    def is_full(self) -> bool:
        return self._unanswered > UNANSWERED_MAX or self._out.is_full or len(self._checks) > CHECKS_MAX

    def _request(self, request: AckRequested | NackRequested | EffectsRequest) -> None:
        attached = self._consumers.get(request.consumer)
        if attached is None:
            self._put(ReportedEvent(OwnerEpoch(0), AnswerAck(request.consumer, request.request, _not_attached())))
            return
        attached.unanswered += 1
        self._unanswered += 1
        if isinstance(request, AckRequested | NackRequested):
            self._trace.requested(attached.runner, request)
        attached.runner.post(request)

    def _seek(self, through: SeekThrough) -> None:
        attached, request = self._consumers.get(through.consumer), through.request
        error: OncelogError | None = None
        if attached is None:
            error = _not_attached()
        elif request.number != attached.number:
            error = InvalidArgument("a consumer seeks its own subscription only", field="subscription_number")
        if error is not None or attached is None:
            self._put(ReportedEvent(OwnerEpoch(0), AnswerSeek(request.call, error or _not_attached())))
            return
        consumers = attached.runner.consumers
        call = consumers.new_call()
        consumers.expect(call, self)
        self._seeks[consumers, call] = request.call
        consumers.seek(replace(request, call=call))

    # --- openings -----------------------------------------------------------------------------------------------------

    def _open(self, request: OpenConsumer) -> None:
        client_call, opening = request.opening.call, request.opening
        try:
            check_part(opening.subscription, field="subscription")
            check_part(opening.consumer_name, field="consumer_name")
            if opening.whole_entries:
                check_level(self._level(), CONSUMERS)
            if len(self._consumers) + len(self._openings) + len(self._checks) >= CONSUMERS_MAX:
                raise TooManyRequests(
                    f"a client has at most {CONSUMERS_MAX} consumers at one owner",
                    field="consumer_name",
                    limit=CONSUMERS_MAX,
                )
            runner = self._topics.runner(request.topic_id, request.topic)
        except OncelogError as error:
            self._put(ReportedEvent(OwnerEpoch(0), AnswerSubscribe(client_call, error)))
            return
        # Numbered now: a repeated request may pass its checks before the first one does.
        self.check(
            partial(self._open_checked, runner, opening, runner.consumers.new_call()),
            refused=lambda error: self._put(ReportedEvent(runner.owner_epoch, AnswerSubscribe(client_call, error))),
        )

    async def _open_checked(self, runner: TopicRunner, opening: ConsumerOpening, call: int) -> None:
        caller, client_call = self.stream.caller, opening.call
        await authorize(runner, caller, Right.CONSUME)
        await runner.ownership_proofs.until_current(opening.owner_epoch_seen)
        if opening.store_id:
            check_part(opening.effect, field="effect")
        if opening.max_deliveries or opening.dead_letter_topic:
            named = opening.dead_letter_topic
            letters = dead_letter_topic(parse_topic(runner.name), opening.subscription, named)
            await runner.parts.policies.require(caller, letters.namespace_name, Right.PRODUCE)
            opening = replace(opening, dead_letter_topic=str(letters))
        runner.consumers.expect(call, self)
        self._openings[runner.consumers, call] = runner, client_call, opening.version
        runner.consumers.open(replace(opening, call=call, role=caller.role, peer=caller.address, outbox=self.outbox))

    # --- from the topics (ConsumerSink) -------------------------------------------------------------------------------

    def subscribed(self, answer: AnswerSubscribe, topic: DeliveryShell) -> None:
        runner, client_call, version = self._openings.pop((topic, answer.call))
        if isinstance(answer.result, Subscribed):
            self._consumers[answer.result.consumer] = _Attached(runner, answer.result.number, version)
        self._put(ReportedEvent(runner.owner_epoch, replace(answer, call=client_call)))

    def sought(self, answer: AnswerSeek, topic: DeliveryShell) -> None:
        client_call = self._seeks.pop((topic, answer.call))
        self._put(ReportedEvent(topic.owner_epoch, replace(answer, call=client_call)))

    def reported(self, event: ReportedEvent) -> None:
        report = event.report
        if isinstance(report, AnswerAck | AnswerEffects) and (attached := self._consumers.get(report.consumer)):
            attached.unanswered -= 1
            self._unanswered -= 1
            if isinstance(report, AnswerAck):
                self._trace.answered(attached.runner, report)
            self.give_room()
        elif isinstance(report, DeliverMessages) and (attached := self._consumers.get(report.consumer)):
            try:
                for delivered in report.entries:
                    check_reader(delivered.entry.data, attached.version)
            except UnknownFormat as error:
                self.outbox.give_back(report.cost_bytes)
                attached.runner.consumers.detach(report.consumer, lost=False)
                self.ended(EndConsumer(report.consumer, error))
                return
            self._trace.delivered(attached.runner, report)
        self._put(event)

    def ended(self, event: EndConsumer) -> None:
        attached = self._forget(event.consumer)
        if attached is not None:
            self._put(ReportedEvent(attached.runner.owner_epoch, event))

    def _forget(self, consumer: ConsumerNumber) -> _Attached | None:
        attached = self._consumers.pop(consumer, None)
        self._trace.forget(consumer)
        if attached is not None:
            self._unanswered -= attached.unanswered
            self.give_room()
        return attached

    def _room_returned(self, consumer: Hashable) -> None:
        attached = self._consumers.get(cast("ConsumerNumber", consumer))
        if attached is not None:
            attached.runner.post(RoomReturned(cast("ConsumerNumber", consumer)))

    def _put(self, event: ReportedEvent) -> None:
        self._out.put(event)
        self._wake.set()

    # --- the end ------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Nothing more is sent. What waits is freed here, because this stream and its outbox refer to each other."""
        self.outbox.close()
        self._out.clear()

    def close(self) -> None:
        """The consumers may come back on another stream."""
        for topic, call in list(self._openings):
            topic.abandon(call)
        for consumer, attached in list(self._consumers.items()):
            self._forget(consumer)
            attached.runner.consumers.detach(consumer, lost=True)


def _not_attached() -> ConsumerClosed:
    return ConsumerClosed("no such consumer is attached on this stream")
