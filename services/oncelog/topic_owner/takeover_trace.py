"""What a takeover took, by its marks A to E: for logs, traces and the takeovers shown in statistics.

A is the moment this process heard of its ownership; each further mark is timed from there.
"""

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.ids import OwnerEpoch, TopicId

logger = logging.getLogger(__name__)

#: Takeovers remembered for the statistics.
KEPT = 20


class TakeoverMark(NamedTuple):
    """handled: entries of the recovered ledger (B), producers of the snapshot (C), replayed entries (D), 0 else."""

    mark: str
    at_ns: int
    handled: int


@dataclass(frozen=True, slots=True)
class TakeoverRecord:
    """One finished takeover. marks_ms: {mark: ms since A}."""

    owner_epoch: OwnerEpoch
    began_ms: int
    total_ms: float
    replayed_entries: int
    marks_ms: dict[str, float]


@dataclass(slots=True)
class TakeoverTrace:
    topic_id: TopicId
    finished: deque[TakeoverRecord] = field(default_factory=lambda: deque(maxlen=KEPT))
    _marks: list[TakeoverMark] = field(default_factory=list)

    def begin(self) -> None:
        """Mark A, unless a takeover is under way."""
        if not self._marks:
            self.mark("A", handled=0)

    def mark(self, name: str, *, handled: int) -> None:
        self._marks.append(TakeoverMark(name, time.time_ns(), handled))

    def finish(self, topic: str, owner_epoch: OwnerEpoch) -> TakeoverRecord:
        """Mark E was passed: keep the record and say it in one log line."""
        began = self._marks[0].at_ns
        marks = {mark.mark: (mark.at_ns - began) / 1e6 for mark in self._marks}
        replayed = next((mark.handled for mark in reversed(self._marks) if mark.mark == "D"), 0)
        record = TakeoverRecord(owner_epoch, began // 1_000_000, max(marks.values()), replayed, marks)
        self.finished.append(record)
        self._marks = []
        logger.info(
            "topic %s taken over",
            topic,
            extra={
                "fields": {
                    "topic_id": self.topic_id,
                    "owner_epoch": owner_epoch,
                    "ms": round(record.total_ms, 1),
                    "replayed_entries": replayed,
                    "marks_ms": {name: round(ms, 1) for name, ms in marks.items()},
                }
            },
        )
        return record
