"""Requests for a snapshot now. Each is answered when a snapshot of the state at its time, or of a later one, is
durable; or with an error when that takes too long or the topic ends here."""

from typing import NamedTuple

from oncelog.core.delivery.events import AnswerAdmin
from oncelog.core.errors import OncelogError, ServiceUnavailable
from oncelog.core.ids import Position
from oncelog.core.topic_events.effects import Step

#: How long a request waits. A snapshot waits for its ledger to be opened, and for a gap after the one before it.
SNAPSHOT_WAIT_MS = 15_000


class _Wanted(NamedTuple):
    """What the snapshot must cover in both chains, and until when the request waits."""

    log: Position
    acks: Position
    until_ms: int


class SnapshotRequests:
    """Of one topic. It is true while a request waits."""

    def __init__(self, step: Step) -> None:
        self._step = step
        #: {call: what it wants}
        self._waiting: dict[int, _Wanted] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, call: int, log: Position, acks: Position) -> None:
        self._waiting[call] = _Wanted(log, acks, self._step.now_ms + SNAPSHOT_WAIT_MS)

    def durable(self, log: Position, acks: Position) -> None:
        """A snapshot with these positions is durable."""
        self._answer([call for call, wanted in self._waiting.items() if wanted.log <= log and wanted.acks <= acks])

    def tick(self) -> None:
        """Answer those that have waited too long."""
        late = [call for call, wanted in self._waiting.items() if self._step.now_ms >= wanted.until_ms]
        if late:
            waited_s = SNAPSHOT_WAIT_MS // 1000
            message = f"the snapshot is not durable after {waited_s} s: look at the storage nodes, and ask again"
            self._answer(late, ServiceUnavailable(message))

    def end(self, error: OncelogError) -> None:
        """The topic is not served here any more."""
        self._answer(list(self._waiting), error)

    def _answer(self, calls: list[int], error: OncelogError | None = None) -> None:
        for call in calls:
            del self._waiting[call]
            self._step.emit(AnswerAdmin(call, error))
