"""Withholds messages from consumers while nothing proves that this owner is still the current one (hazard
deposed-owner-delivers).

    proof young enough -> reports go out at once
    proof too old      -> reports wait, in their order, for a new proof; afterwards all that waited goes out

Why: a process that was stopped wakes up with a full cache and with consumers that are still connected. Other processes
may have taken the topic over meanwhile. A consumer that never acknowledges would never notice.

Rules
- A proof counts from the moment at which it began, on this process's own clock.
- Only a delivery begins a proof. Answers to acknowledgements need none, because they are durable; but while a delivery
  waits, what follows it waits, too.
- A proof is too old after half of a ZooKeeper session. A stopped owner has more time than that: its last heartbeat is
  at most a third of a session old when it stops, and its topics are given to others at the earliest two thirds of a
  session later.
- If the proof is refused, the consumers are ended before what waited is released. Then their reports go nowhere, and
  answers to seeks still go out.
"""

from enum import Enum
from typing import Generic, TypeVar

ReportT = TypeVar("ReportT")


class GateVerdict(Enum):
    """SEND: now. PROVE: it waits; begin a proof, and release what waits when the proof has ended. WAIT: it waits for
    the proof that is under way."""

    SEND = "send"
    PROVE = "prove"
    WAIT = "wait"


class DeliveryGate(Generic[ReportT]):
    """The gate of one topic, for the reports to all its consumers."""

    def __init__(self, *, session_timeout_ms: int) -> None:
        self.proof_age_ms_max = session_timeout_ms // 2
        #: what waits for the proof that is under way
        self._waiting: list[ReportT] = []

    def report(self, report: ReportT, *, delivers: bool, proof_age_ms: float) -> GateVerdict:
        """delivers: whether the report carries messages. proof_age_ms: since the newest successful proof began."""
        waits = bool(self._waiting)
        if not waits and (not delivers or proof_age_ms < self.proof_age_ms_max):
            return GateVerdict.SEND
        self._waiting.append(report)
        return GateVerdict.WAIT if waits else GateVerdict.PROVE

    def release(self) -> list[ReportT]:
        """The proof has ended, or the topic has left. Returns what waited, in order."""
        released, self._waiting = self._waiting, []
        return released
