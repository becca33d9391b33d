"""How long each phase of a takeover took, for logs, traces and the topic's statistics.

Times count from the moment at which this process learned of its ownership (acquire).
"""

import time
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.ids import OwnerEpoch
from oncelog.core.topic_events.effects import TakeoverPhase

#: Takeovers kept for the statistics.
KEPT = 20


class PhaseEnd(NamedTuple):
    """When a phase ended. handled: recovered entries, producers of the snapshot, or replayed entries; else 0.
    last_append_ms: see `TakeoverPhaseEnded`."""

    phase: str
    at_ns: int
    handled: int
    last_append_ms: int | None


@dataclass(frozen=True, slots=True)
class TakeoverRecord:
    """One finished takeover. phases_ms: {phase: ms from acquire to its end}. silent_ms: from the last entry before the
    takeover to its end, by the clocks of both owners: nothing was stored meanwhile. None: no entry was replayed."""

    owner_epoch: OwnerEpoch
    began_ms: int
    total_ms: float
    replayed_entries: int
    phases_ms: dict[str, float]
    silent_ms: int | None = None


@dataclass(slots=True)
class TakeoverTrace:
    finished: deque[TakeoverRecord] = field(default_factory=lambda: deque(maxlen=KEPT))
    _ended: list[PhaseEnd] = field(default_factory=list)

    def begin(self) -> None:
        """Start the clock, unless a takeover is running."""
        if not self._ended:
            self.ended(TakeoverPhase.ACQUIRE, handled=0)

    def ended(self, phase: TakeoverPhase, *, handled: int, last_append_ms: int | None = None) -> None:
        self._ended.append(PhaseEnd(phase.value, time.time_ns(), handled, last_append_ms))

    def finish(self, owner_epoch: OwnerEpoch) -> TakeoverRecord:
        """The topic is served: keep the record."""
        began = self._ended[0].at_ns
        phases_ms = {end.phase: (end.at_ns - began) / 1e6 for end in self._ended}
        replay = next((end for end in reversed(self._ended) if end.phase == "replay"), None)
        replayed, last_ms = (0, None) if replay is None else (replay.handled, replay.last_append_ms)
        silent_ms = None if last_ms is None else max(0, self._ended[-1].at_ns // 1_000_000 - last_ms)
        record = TakeoverRecord(
            owner_epoch, began // 1_000_000, max(phases_ms.values()), replayed, phases_ms, silent_ms
        )
        self.finished.append(record)
        self._ended = []
        return record
