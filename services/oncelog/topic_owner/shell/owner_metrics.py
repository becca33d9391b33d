"""The counters of an owner, in plain integers, the latencies and spans that it records, and its last events."""

import logging
from bisect import bisect_left
from dataclasses import dataclass, field

from oncelog.core.acks.changes import EvictionReason
from oncelog.core.errors import OncelogError
from oncelog.core.formats.outcome import Outcome
from oncelog.runtime.observing.events import EventKind, EventRing
from oncelog.runtime.telemetry import LATENCY_BUCKETS_S, SpanName, Telemetry
from oncelog.topic_owner.shell.takeover_trace import TakeoverRecord

logger = logging.getLogger(__name__)

_SPANS = {
    "acquire": SpanName.ACQUIRE,
    "recover": SpanName.RECOVER,
    "load_snapshot": SpanName.LOAD_SNAPSHOT,
    "replay": SpanName.REPLAY,
    "open": SpanName.OPEN,
}


@dataclass(slots=True)
class OwnerCounts:
    """messages: {verdict: number of messages}; a duplicate does not count as stored. events: {event: how often}."""

    messages: dict[str, int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    #: {"first" | "again": messages sent to consumers}
    delivered: dict[str, int] = field(default_factory=lambda: {"first": 0, "again": 0})
    #: {"ttl" | "backlog_quota": messages acknowledged without a consumer}, those of each subscription
    evicted: dict[str, int] = field(default_factory=lambda: {each.name.lower(): 0 for each in EvictionReason})
    trimmed_ledgers: int = 0
    trimmed_messages: int = 0
    trimmed_bytes: int = 0
    orphaned_chunks: int = 0
    orphaned_chunk_bytes: int = 0
    bytes_received: int = 0
    frames_received: int = 0

    def answered(self, result: Outcome | OncelogError) -> None:
        if isinstance(result, OncelogError):
            self.event(f"batch_refused_{result.code}")
            return
        for part in result:
            name = part.kind.name.lower()
            self.messages[name] = self.messages.get(name, 0) + part.count

    def event(self, name: str, count: int = 1) -> None:
        self.events[name] = self.events.get(name, 0) + count


class OwnerMetrics:
    """The counters, the latencies, the spans of takeovers, and the events."""

    def __init__(self, telemetry: Telemetry, owner: str = "") -> None:
        """owner: its incarnation."""
        self.counts = OwnerCounts()
        self.events = EventRing("topic_owner", owner)
        self.telemetry = telemetry
        self._takeover_seconds = telemetry.latency("takeover", "From the assignment of the topic to serving it")
        self._publish_seconds = telemetry.latency(
            "publish", "From the arrival of a frame to the answer to its first batch"
        )
        #: the same measurements, because an instrument cannot be read: by bucket, one more for what is longer
        self.publish_buckets = [0] * (len(LATENCY_BUCKETS_S) + 1)

    def published(self, seconds: float) -> None:
        """One measurement at a time for each session: measuring every frame would cost more than the frame."""
        self._publish_seconds.record(seconds)
        self.publish_buckets[bisect_left(LATENCY_BUCKETS_S, seconds)] += 1

    def taken_over(self, record: TakeoverRecord, topic: str) -> None:
        """Record a finished takeover and its duration, and a span for each phase."""
        self.events.note(
            EventKind.TAKEOVER, logger, "topic taken over", topic=topic, owner_epoch=record.owner_epoch,
            ms=round(record.total_ms, 1), replayed_entries=record.replayed_entries,
            phases_ms={name: round(ms, 1) for name, ms in record.phases_ms.items()},
        )  # fmt: skip
        self.counts.event("takeover")
        self.counts.event("entry_replayed", record.replayed_entries)
        self._takeover_seconds.record(record.total_ms / 1000)
        before_ns = began_ns = record.began_ms * 1_000_000
        for name, ms in record.phases_ms.items():
            at_ns = began_ns + int(ms * 1e6)
            attributes: dict[str, str | int] = {"oncelog.topic": topic, "oncelog.owner_epoch": record.owner_epoch}
            self.telemetry.record_span(_SPANS[name], began_ns=before_ns, ended_ns=at_ns, attributes=attributes)
            before_ns = at_ns
