"""The consume stream to one topic owner: what its consumers ask for, and what the owner reports.

A report of credit takes the place of an unsent older one of the same consumer. Consumers number their requests on their
own; the stream needs numbers that are unique on it, so openings and seeks are renumbered here.

No answer follows to what ends a consumer. So an acknowledgement of no message goes behind it, in the name of the ended
consumer: the owner answers that it is not attached, and this proves that it was detached before.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from oncelog.client.network.owner_stream import Attempt, OwnerStream
from oncelog.core.delivery.events import (
    AckRequested,
    AnswerAck,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerDetached,
    ConsumerHeld,
    ConsumerOpening,
    EndConsumer,
    FlowReported,
    NackRequested,
    SeekRequested,
    Subscribed,
)
from oncelog.core.delivery.store_binding.events import EffectsRequest, RewindRequested
from oncelog.core.ids import ConsumerNumber, OwnerEpoch, SeekEpoch, TopicId
from oncelog.core.sdk.consumer.events import ConsumerEvent, OwnerReported
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.consumer_codec import (
    CONSUME,
    ConsumerReport,
    ConsumerRequest,
    OpenConsumer,
    ReportedEvent,
    SeekThrough,
)
from oncelog.runtime.tasks import BackgroundTasks

#: Of one frame; far below what an owner takes (`consumer_codec`), so that a frame stays small.
_REQUESTS_MAX = 4_096
_RANGES_MAX = 16_384
#: Names and properties of an opening count as this many ranges.
_OPENING_RANGES = 1_024


class _Seek(NamedTuple):
    by: Attempt[ConsumerEvent]
    #: the consumer's own number of the seek
    request: int


class _Outbox:
    def __init__(self) -> None:
        self._waiting: deque[ConsumerRequest] = deque()
        #: {consumer: its newest report of credit}; an older one keeps its place in `_waiting`
        self._flows: dict[ConsumerNumber, FlowReported] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, request: ConsumerRequest) -> None:
        if isinstance(request, FlowReported):
            waits = request.consumer in self._flows
            self._flows[request.consumer] = request
            if waits:
                return
        self._waiting.append(request)

    def clear(self) -> None:
        self._waiting.clear()
        self._flows.clear()

    def take(self) -> Sequence[ConsumerRequest] | None:
        frame: list[ConsumerRequest] = []
        ranges_left = _RANGES_MAX
        while self._waiting and len(frame) < _REQUESTS_MAX:
            request = self._waiting[0]
            if isinstance(request, FlowReported):
                request = self._flows[request.consumer]
            ranges_left -= _range_count(request)
            if frame and ranges_left < 0:
                break
            self._waiting.popleft()
            if isinstance(request, FlowReported):
                del self._flows[request.consumer]
            frame.append(request)
        return frame or None


def _range_count(request: ConsumerRequest) -> int:
    match request:
        case OpenConsumer(opening=ConsumerOpening(resume=resume)):
            counts = 0 if resume is None else len(resume.delivery_counts or ())
            return _OPENING_RANGES + (0 if resume is None else len(resume.ranges) + len(resume.begun)) + counts
        case NackRequested(ranges=ranges, delivery_counts=counts_of):
            return len(ranges) + len(counts_of or ())
        case FlowReported(begun=ranges) | AckRequested(ranges=ranges) | RewindRequested(ranges=ranges):
            return len(ranges)
    return 0


class ConsumeStream(OwnerStream[ConsumerEvent, Sequence[ConsumerRequest], list[ReportedEvent]]):
    """Sessions are consumers."""

    _kind = "consume"
    #: Acknowledgements come at the end of a turn of the loop: they share a frame with its other requests.
    _gathers = True
    _outbox: _Outbox

    def __init__(self, channel: Channel, background: BackgroundTasks) -> None:
        super().__init__(channel, channel.stream(CONSUME), _Outbox(), background)
        self._seeks: dict[int, _Seek] = {}

    # --- for consumers ------------------------------------------------------------------------------------------------

    def open(
        self, topic: str, topic_id: TopicId, opening: ConsumerOpening, feed: Callable[[ConsumerEvent], None]
    ) -> None:
        """Ask to attach; AnswerSubscribe or StreamLost follows, with the opening's own call as the attempt."""
        call = self._ask(feed, opening.call)
        if self.alive:
            self._add(OpenConsumer(topic, topic_id, replace(opening, call=call)))

    def seek(self, consumer: ConsumerNumber, request: SeekRequested) -> None:
        """AnswerSeek follows, with the request's own call."""
        by = self._sessions.get(consumer)
        if self.alive and by is not None:
            self._last_call += 1
            self._seeks[self._last_call] = _Seek(by, request.call)
            self._add(SeekThrough(consumer, replace(request, call=self._last_call)))

    def send(
        self, request: FlowReported | AckRequested | NackRequested | EffectsRequest | ConsumerDetached | ConsumerHeld
    ) -> None:
        """Requests to a stream that was lost are dropped: StreamLost was fed, or will be."""
        if not self.alive:
            return
        self._add(request)
        if isinstance(request, ConsumerDetached):
            self._sessions.pop(request.consumer, None)
            if not request.lost:
                self._part(request.consumer)
                self._add(AckRequested(request.consumer, 0, SeekEpoch(0), ()))

    def _add(self, request: ConsumerRequest) -> None:
        self._outbox.add(request)
        self._wake.set()

    # --- the owner ----------------------------------------------------------------------------------------------------

    def _dispatch(self, answer: list[ReportedEvent]) -> None:
        for owner_epoch, report in answer:
            self._reported(owner_epoch, report)

    def _reported(self, owner_epoch: OwnerEpoch, report: ConsumerReport) -> None:
        match report:
            case AnswerSubscribe():
                self._answered(owner_epoch, report)
            case AnswerSeek():
                seek = self._seeks.pop(report.call, None)
                if seek is not None:
                    answer = AnswerSeek(seek.request, report.result)
                    seek.by.feed(OwnerReported(seek.by.attempt, owner_epoch, answer))
            case _:
                if isinstance(report, EndConsumer):
                    holder = self._sessions.pop(report.consumer, None)
                else:
                    holder = self._sessions.get(report.consumer)
                if holder is None and isinstance(report, AnswerAck) and not report.request:
                    self._has_parted(report.consumer)
                elif holder is not None:
                    holder.feed(OwnerReported(holder.attempt, owner_epoch, report))

    def _answered(self, owner_epoch: OwnerEpoch, report: AnswerSubscribe) -> None:
        asked = self._openings.pop(report.call, None)
        if asked is None:
            return
        if isinstance(report.result, Subscribed):
            self._sessions[report.result.consumer] = asked
        asked.feed(OwnerReported(asked.attempt, owner_epoch, AnswerSubscribe(asked.attempt, report.result)))

    def _lost(self) -> None:
        self._seeks.clear()
        super()._lost()
