"""Whether this process still owns a topic. The fences of the ledger's members prove it, without any clock.

    an ack quorum of members hold the open ledger unfenced -> PROVED: no newer owner has recovered the ledger
    a member is fenced                                     -> REFUTED: another process recovers or has recovered it
    anything else                                          -> UNPROVED: the topic record decides, read after a sync,
                                                              if ZooKeeper is still the cluster's (`record_decides`)

Why: a newer owner acknowledges nothing before it has recovered the last ledger of the topic's list, and recovery fences
Qw - Qa + 1 members. Any Qa members include one of them. So Qa members that are unfenced at some moment after a request
began prove that no newer owner had acknowledged anything when the request began. What this owner itself has
acknowledged is in its memory. Its answer to the request is therefore linearizable (hazard deposed-owner-refuses).

Rules
- Only the open ledger proves anything. A ledger that this owner has asked to be CLOSED can be succeeded without a
  fence.
- A member of a newer era than this owner counts as fenced: ZooKeeper's records were restored since, and the topic
  record that this owner can read is perhaps that of the former ZooKeeper (hazard the-lost-ensemble-returns).
- So the record decides only after an ack quorum of storage nodes, whichever they are, has taken a call of this owner's
  era. A restore leaves out fewer than that, so none had ended when the request began.
- A member that does not hold the ledger proves nothing: it may have been fenced, and have deleted the ledger after a
  trim (hazard former-incarnation).
"""

from collections.abc import Iterable
from enum import Enum

from oncelog.core.ids import LedgerId
from oncelog.core.ledger.member_status import FenceState

#: No ledger has this id.
NO_LEDGER = LedgerId(0)


class OwnershipProof(Enum):
    PROVED = "proved"
    REFUTED = "refuted"
    UNPROVED = "unproved"


def assess(states: Iterable[FenceState], *, ack_quorum: int) -> OwnershipProof:
    """states: of distinct members, those that have answered since the request began."""
    answers = tuple(states)
    if answers.count(FenceState.HELD) >= ack_quorum:
        return OwnershipProof.PROVED
    return OwnershipProof.REFUTED if FenceState.FENCED in answers else OwnershipProof.UNPROVED


def record_decides(states: Iterable[FenceState], *, ack_quorum: int) -> bool:
    """Whether the topic record may be believed. states: of distinct storage nodes, for NO_LEDGER: FENCED is said only
    by one of a newer era."""
    return sum(1 for state in states if state is not FenceState.FENCED) >= ack_quorum


class WaitVerdict(Enum):
    """Whether readers at the end of the log may keep waiting at this owner.

    MAY_WAIT: an ack quorum answered, none of it fenced. UNANSWERED: too few answered, so they may wait for as long as a
    ZooKeeper session lasts. FENCED: another process recovers the ledger.
    """

    MAY_WAIT = "may_wait"
    UNANSWERED = "unanswered"
    FENCED = "fenced"


def assess_wait(states: Iterable[FenceState], *, ack_quorum: int) -> WaitVerdict:
    """MAY_WAIT is weaker than a proof. An owner that opened a ledger and wrote nothing to it finds no member that holds
    the ledger, and its readers miss nothing until another process fences it.
    """
    answers = tuple(states)
    if FenceState.FENCED in answers:
        return WaitVerdict.FENCED
    return WaitVerdict.MAY_WAIT if len(answers) >= ack_quorum else WaitVerdict.UNANSWERED
