"""Withholds what consumers are told while nothing proves that this owner is still the current one (hazards
deposed-owner-delivers and log-known-by-a-deposed-owner).

    proof young enough -> messages go out at once
    proof too old      -> messages wait, in their order, for a new proof; afterwards all that waited goes out
    an answer that says what the log knows -> it waits for a proof that begins after it

Why: a process that was stopped wakes up with a full cache and with consumers that are still connected. Other processes
may have taken the topic over meanwhile. A consumer that never acknowledges would never notice.

Rules
- A proof counts from the moment at which it began, on this process's own clock.
- Answers to acknowledgements need no proof, because they are durable; but while something waits, what follows it waits,
  too.
- A proof is too old after half of a ZooKeeper session. A stopped owner has more time than that: its last heartbeat is
  at most a third of a session old when it stops, and its topics are given to others at the earliest two thirds of a
  session later.
- A young proof is enough for messages: two consumers may work on one for a moment. It is not enough for an answer about
  the log, which a consumer compares with its store: an owner that has not heard of an unload has a young proof, and
  does not know what was claimed since.
- If a proof is refused, the consumers are ended before what waited is released. Then their reports go nowhere, and
  answers to seeks still go out.
"""

from enum import Enum
from typing import Generic, TypeVar

from oncelog.core.delivery.events import DeliverMessages
from oncelog.core.delivery.store_binding.events import AnswerEffects

ReportT = TypeVar("ReportT")


class Needs(Enum):
    """What must prove that this owner is the current one, before a report goes out.

    NOTHING: it is durable. YOUNG_PROOF: it carries messages. NEW_PROOF: it says what the log knows now.
    """

    NOTHING = "nothing"
    YOUNG_PROOF = "young_proof"
    NEW_PROOF = "new_proof"


def needs_of(report: object) -> Needs:
    """report: an effect of the topic's subscriptions."""
    match report:
        case DeliverMessages():
            return Needs.YOUNG_PROOF
        case AnswerEffects():
            return Needs.NEW_PROOF
        case _:
            return Needs.NOTHING


class GateVerdict(Enum):
    """SEND: now. PROVE: it waits; begin a proof, and release what waits when the proof has ended, until nothing waits.
    WAIT: the proof that is under way, or another one after it, releases it."""

    SEND = "send"
    PROVE = "prove"
    WAIT = "wait"


class DeliveryGate(Generic[ReportT]):
    """The gate of one topic, for the reports to all its consumers."""

    def __init__(self, *, session_timeout_ms: int) -> None:
        self.proof_age_ms_max = session_timeout_ms // 2
        #: what waits for the proof that is under way, and what waits for the one after it
        self._waiting: list[ReportT] = []
        self._later: list[ReportT] = []

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def report(self, report: ReportT, needs: Needs, *, proof_age_ms: float) -> GateVerdict:
        """proof_age_ms: since the newest successful proof began."""
        if not self._waiting:
            is_old = proof_age_ms >= self.proof_age_ms_max
            if needs is Needs.NOTHING or (needs is Needs.YOUNG_PROOF and not is_old):
                return GateVerdict.SEND
            self._waiting.append(report)
            return GateVerdict.PROVE
        after = needs is Needs.NEW_PROOF or self._later
        (self._later if after else self._waiting).append(report)
        return GateVerdict.WAIT

    def release(self) -> list[ReportT]:
        """The proof has ended, or the topic has left. Returns what waited for it, in order. If something waits still,
        another proof begins now."""
        released, self._waiting, self._later = self._waiting, self._later, []
        return released
