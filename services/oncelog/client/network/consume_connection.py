"""One consume stream to one topic owner: it carries all consumers of this client whose topics that owner serves.

The writer sends all requests that wait, in their order, so frames grow with the load and no timer delays a request. A
report of credit takes the place of an unsent older one of the same consumer. A stream that ends is not reopened: every
consumer on it gets StreamLost and looks its owner up again.

Consumers number their requests on their own; the stream needs numbers that are unique on it, so openings and seeks are
renumbered here.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from oncelog.core.delivery.events import (
    AckRequested,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerDetached,
    ConsumerOpening,
    EndConsumer,
    FlowReported,
    NackRequested,
    SeekRequested,
    Subscribed,
)
from oncelog.core.errors import OncelogError
from oncelog.core.ids import ConsumerNumber, OwnerEpoch, TopicId
from oncelog.core.sdk.consumer.events import ConsumerEvent, OwnerReported
from oncelog.core.sdk.owner_attempts import StreamLost
from oncelog.rpc.channel import Channel, Stream
from oncelog.rpc.consumer_codec import (
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


class ConsumerUser(Protocol):
    """The connection's view of a consumer."""

    def feed(self, event: ConsumerEvent) -> None: ...


class _Attempt(NamedTuple):
    user: ConsumerUser
    attempt: int


class _Seek(NamedTuple):
    by: _Attempt
    #: the consumer's own number of the seek
    request: int


class _Requests:
    """What waits to be written, in order."""

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

    def take(self) -> list[ConsumerRequest]:
        """The next frame; empty when nothing waits."""
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
        return frame


def _range_count(request: ConsumerRequest) -> int:
    match request:
        case OpenConsumer(opening=ConsumerOpening(resume=resume)):
            counts = 0 if resume is None else len(resume.delivery_counts or ())
            return _OPENING_RANGES + (0 if resume is None else len(resume.ranges) + len(resume.begun)) + counts
        case NackRequested(ranges=ranges, delivery_counts=counts_of):
            return len(ranges) + len(counts_of or ())
        case FlowReported(begun=ranges) | AckRequested(ranges=ranges):
            return len(ranges)
    return 0


class ConsumeConnection:
    """The stream, the consumers on it, and what waits to be written."""

    def __init__(self, channel: Channel, background: BackgroundTasks) -> None:
        self.alive = True
        self._channel = channel
        self._stream: Stream[Sequence[ConsumerRequest], list[ReportedEvent]] = channel.stream(CONSUME)
        self._requests = _Requests()
        self._wake = asyncio.Event()
        #: set while everything was written
        self._written = asyncio.Event()
        self._written.set()
        self._last_call = 0
        #: {call: who asked}
        self._openings: dict[int, _Attempt] = {}
        self._seeks: dict[int, _Seek] = {}
        self._consumers: dict[ConsumerNumber, _Attempt] = {}
        background.start(self._run(background), what=f"consume stream to {channel.address}")

    @property
    def failure(self) -> OncelogError | None:
        """Why the stream ended; None while it is open."""
        return self._stream.closed

    # --- for consumers ------------------------------------------------------------------------------------------------

    def open(self, topic: str, topic_id: TopicId, opening: ConsumerOpening, user: ConsumerUser) -> None:
        """Ask to attach; AnswerSubscribe or StreamLost follows, with the opening's own call as the attempt."""
        asked = _Attempt(user, opening.call)
        if not self.alive:
            asyncio.get_running_loop().call_soon(user.feed, StreamLost(opening.call))
            return
        self._last_call += 1
        self._openings[self._last_call] = asked
        self._add(OpenConsumer(topic, topic_id, replace(opening, call=self._last_call)))

    def seek(self, consumer: ConsumerNumber, request: SeekRequested) -> None:
        """AnswerSeek follows, with the request's own call."""
        by = self._consumers.get(consumer)
        if self.alive and by is not None:
            self._last_call += 1
            self._seeks[self._last_call] = _Seek(by, request.call)
            self._add(SeekThrough(consumer, replace(request, call=self._last_call)))

    def send(self, request: FlowReported | AckRequested | NackRequested | ConsumerDetached) -> None:
        """Requests to a stream that was lost are dropped: StreamLost was fed, or will be."""
        if not self.alive:
            return
        if isinstance(request, ConsumerDetached):
            self._consumers.pop(request.consumer, None)
        self._add(request)

    def _add(self, request: ConsumerRequest) -> None:
        self._requests.add(request)
        self._written.clear()
        self._wake.set()

    async def written(self) -> None:
        """Return when everything was written, or the stream was lost."""
        await self._written.wait()

    # --- the stream ---------------------------------------------------------------------------------------------------

    async def _run(self, background: BackgroundTasks) -> None:
        writing = background.start(self._write(), what=f"consume writer to {self._channel.address}")
        try:
            async for events in self._stream:
                for owner_epoch, report in events:
                    self._dispatch(owner_epoch, report)
        except OncelogError:
            # Whatever the reason, every consumer looks its owner up again; `failure` keeps it for errors.
            pass
        finally:
            writing.cancel()
            self._lost()
            await self._channel.close()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            # Acknowledgements come at the end of a turn of the loop: they share a frame with its other requests.
            await asyncio.sleep(0)
            self._wake.clear()
            while frame := self._requests.take():
                try:
                    await self._stream.write(frame)
                except OncelogError:
                    self._stream.cancel()  # the reading side ends, too, and informs the consumers
                    return
            self._written.set()

    def _dispatch(self, owner_epoch: OwnerEpoch, report: ConsumerReport) -> None:
        match report:
            case AnswerSubscribe():
                self._answered(owner_epoch, report)
            case AnswerSeek():
                seek = self._seeks.pop(report.call, None)
                if seek is not None:
                    answer = AnswerSeek(seek.request, report.result)
                    seek.by.user.feed(OwnerReported(seek.by.attempt, owner_epoch, answer))
            case _:
                if isinstance(report, EndConsumer):
                    holder = self._consumers.pop(report.consumer, None)
                else:
                    holder = self._consumers.get(report.consumer)
                if holder is not None:
                    holder.user.feed(OwnerReported(holder.attempt, owner_epoch, report))

    def _answered(self, owner_epoch: OwnerEpoch, report: AnswerSubscribe) -> None:
        asked = self._openings.pop(report.call, None)
        if asked is None:
            return
        if isinstance(report.result, Subscribed):
            self._consumers[report.result.consumer] = asked
        asked.user.feed(OwnerReported(asked.attempt, owner_epoch, AnswerSubscribe(asked.attempt, report.result)))

    def close(self) -> None:
        """End the stream, and with it every consumer on it."""
        self._stream.cancel()

    def _lost(self) -> None:
        self.alive = False
        self._requests = _Requests()
        self._written.set()
        holders = [*self._openings.values(), *self._consumers.values()]
        self._openings.clear()
        self._seeks.clear()
        self._consumers.clear()
        for user, attempt in holders:
            user.feed(StreamLost(attempt))
