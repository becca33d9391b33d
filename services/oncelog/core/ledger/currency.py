"""Whether an owner is still the current one: what its ledger's members say about fences decides, and no clock.

    ack quorum of members hold the open ledger unfenced   -> PROVED: no newer owner has passed mark B
    a member is fenced                                    -> REFUTED: somebody recovers the ledger, or has done so
    anything else                                         -> UNPROVED: the topic record decides, read after a sync

Why: a newer owner acknowledges nothing before it has recovered the last ledger of the topic's list, and for that it
fences Qw - Qa + 1 members. Any Qa members share one with them, so Qa members that are not fenced at some moment after a
question began prove that no newer owner had acknowledged anything when it began. What this owner has acknowledged it
knows itself. So its answer is linearizable (hazard 6).

Rules
- Only the open ledger proves anything. One that this owner has asked to be CLOSED needs no fence to be succeeded.
- A member that does not hold the ledger proves nothing: it may have been fenced, and have forgotten the ledger after
  that was trimmed away (hazard 2).
"""

from collections.abc import Iterable
from enum import Enum

from oncelog.core.ledger.member_status import FenceState


class Currency(Enum):
    PROVED = "proved"
    REFUTED = "refuted"
    UNPROVED = "unproved"


def judge(states: Iterable[FenceState], *, ack_quorum: int) -> Currency:
    """states: of distinct members, those that have answered since the question began."""
    answers = tuple(states)
    if answers.count(FenceState.HELD) >= ack_quorum:
        return Currency.PROVED
    return Currency.REFUTED if FenceState.FENCED in answers else Currency.UNPROVED


def may_wait(states: Iterable[FenceState], *, ack_quorum: int) -> bool:
    """Whether readers at the end of the log may go on waiting here: nobody is fenced, as far as a quorum knows.

    Less than a proof: an owner that opened a ledger and wrote nothing to it finds no member that holds it, and its
    readers miss nothing until somebody else's fence is there.
    """
    answers = tuple(states)
    return FenceState.FENCED not in answers and len(answers) >= ack_quorum
