"""What an owner counts, in plain integers, and the latencies and spans it records."""

from dataclasses import dataclass, field

from oncelog.core.errors import OncelogError
from oncelog.core.formats.outcome import Outcome
from oncelog.runtime.telemetry import Mark, Telemetry
from oncelog.topic_owner.takeover_trace import TakeoverRecord

_MARKS = {"A": Mark.OWN, "B": Mark.RECOVER, "C": Mark.LOAD, "D": Mark.REPLAY, "E": Mark.OPEN}


@dataclass(slots=True)
class OwnerCounts:
    """messages: {verdict: messages answered so}; a duplicate is never counted as stored. events: {what happened: how
    often}."""

    messages: dict[str, int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
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
    """The counts, the latencies, and the spans of takeovers."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.counts = OwnerCounts()
        self.telemetry = telemetry
        self._takeover_seconds = telemetry.latency("takeover", "From hearing of the ownership (A) to serving (E)")
        #: of one frame at a time of each session: an instrument costs more than what it would measure
        self.publish_seconds = telemetry.latency("publish", "From a frame's arrival to the answer of its first batch")

    def taken_over(self, record: TakeoverRecord, topic: str) -> None:
        """One takeover is over: its seconds, and a span for each of its marks."""
        self.counts.event("takeover")
        self.counts.event("entry_replayed", record.replayed_entries)
        self._takeover_seconds.record(record.total_ms / 1000)
        before_ns = began_ns = record.began_ms * 1_000_000
        for name, ms in record.marks_ms.items():
            at_ns = began_ns + int(ms * 1e6)
            attributes: dict[str, str | int] = {"oncelog.topic": topic, "oncelog.owner_epoch": record.owner_epoch}
            self.telemetry.record_span(_MARKS[name], began_ns=before_ns, ended_ns=at_ns, attributes=attributes)
            before_ns = at_ns
