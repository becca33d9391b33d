"""Spans of one message at a time of each consumer, made only while traces are exported.

deliver       from the append of the message to the log until it is handed to the consumer's stream
process       until its acknowledgement, or a negative one, arrives: the network and the application
acknowledge   until the answer is handed to the stream: the acknowledgement is durable

The spans of one message carry its topic and its index, as the statistics and the SDK show it.
"""

import time
from dataclasses import dataclass, field

from oncelog.core.delivery.events import AckRequested, AnswerAck, DeliverMessages, NackRequested
from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import ConsumerNumber
from oncelog.runtime.telemetry import SpanName
from oncelog.topic_owner.shell.topic_runner import TopicRunner

#: The consumer has had the message for so long that another one is followed.
FOLLOWED_NS_MAX = 60_000_000_000


@dataclass(slots=True)
class _Followed:
    """request: that acknowledges it; None: none has arrived. since_ns: when its current phase began."""

    index: int
    since_ns: int
    request: int | None = None


@dataclass(slots=True)
class ConsumeTrace:
    """The messages of one stream that are followed, one of each consumer."""

    _followed: dict[ConsumerNumber, _Followed] = field(default_factory=dict)

    def delivered(self, runner: TopicRunner, report: DeliverMessages) -> None:
        """The frame is handed to the stream."""
        if not runner.parts.metrics.telemetry.exports_spans:
            return
        now_ns = time.time_ns()
        former = self._followed.get(report.consumer)
        if former is None or now_ns - former.since_ns > FOLLOWED_NS_MAX:
            first = report.entries[0]
            index = first.ranges[0].first
            self._followed[report.consumer] = _Followed(index, now_ns)
            appended_ns = peek_header(first.entry.data).append_time_ms * 1_000_000
            _record(runner, SpanName.DELIVER, index, min(appended_ns, now_ns), now_ns)

    def requested(self, runner: TopicRunner, request: AckRequested | NackRequested) -> None:
        """A request has arrived, which may concern the message."""
        followed = self._followed.get(request.consumer)
        if followed is not None and followed.request is None and _concerns(request, followed.index):
            now_ns = time.time_ns()
            _record(runner, SpanName.PROCESS, followed.index, followed.since_ns, now_ns)
            followed.request, followed.since_ns = request.request, now_ns

    def answered(self, runner: TopicRunner, answer: AnswerAck) -> None:
        """The answer is handed to the stream."""
        followed = self._followed.get(answer.consumer)
        if followed is not None and followed.request == answer.request:
            del self._followed[answer.consumer]
            _record(runner, SpanName.ACKNOWLEDGE, followed.index, followed.since_ns, time.time_ns())

    def forget(self, consumer: ConsumerNumber) -> None:
        """The consumer is gone."""
        self._followed.pop(consumer, None)


def _concerns(request: AckRequested | NackRequested, index: int) -> bool:
    below = request.below if isinstance(request, AckRequested) else None
    return (below is not None and index < below) or any(first <= index <= last for first, last in request.ranges)


def _record(runner: TopicRunner, name: SpanName, index: int, began_ns: int, ended_ns: int) -> None:
    attributes: dict[str, str | int] = {"oncelog.topic": runner.name, "oncelog.message_index": index}
    runner.parts.metrics.telemetry.record_span(name, began_ns=began_ns, ended_ns=ended_ns, attributes=attributes)
