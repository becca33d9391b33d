"""The fences of members decide whether an owner may answer, and an owner does not take back an epoch that it gave
up."""

from itertools import product

import pytest

from oncelog.core.chain.ownership import Deposed, Owned, Ownership
from oncelog.core.chain.ownership_proof import OwnershipProof, WaitVerdict, assess, assess_wait, record_decides
from oncelog.core.errors import NotOwner
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.core.ledger.member_status import FenceState
from oncelog.core.ledger.quorum import fence_suffices
from oncelog.core.records.records import RecordRead, TopicKey

HELD, FENCED, UNKNOWN = FenceState.HELD, FenceState.FENCED, FenceState.UNKNOWN
ME, TOPIC = Incarnation("d" * 32), TopicId("a" * 32)


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        ((), OwnershipProof.UNPROVED),
        ((HELD,), OwnershipProof.UNPROVED),
        ((HELD, HELD), OwnershipProof.PROVED),
        ((HELD, HELD, FENCED), OwnershipProof.PROVED),
        ((HELD, FENCED), OwnershipProof.REFUTED),
        ((UNKNOWN, UNKNOWN, UNKNOWN), OwnershipProof.UNPROVED),
        ((HELD, UNKNOWN, UNKNOWN), OwnershipProof.UNPROVED),
        ((UNKNOWN, FENCED), OwnershipProof.REFUTED),
    ],
)
def test_ack_quorum_of_unfenced_members_proves_the_owner(
    states: tuple[FenceState, ...], verdict: OwnershipProof
) -> None:
    """Three members, ack quorum 2."""
    assert assess(states, ack_quorum=2) is verdict


@pytest.mark.hazard("deposed-owner-refuses")
@pytest.mark.parametrize(("write_quorum", "ack_quorum"), [(1, 1), (3, 1), (3, 2), (3, 3), (5, 3)])
def test_no_proof_after_a_newer_owner_has_fenced_enough_members(write_quorum: int, ack_quorum: int) -> None:
    """The fences of a finished recovery leave fewer members than a proof needs, whichever members answer."""
    for states in product((HELD, FENCED, UNKNOWN), repeat=write_quorum):
        not_held = write_quorum - states.count(HELD)
        if fence_suffices(not_held, write_quorum=write_quorum, ack_quorum=ack_quorum):
            assert assess(states, ack_quorum=ack_quorum) is not OwnershipProof.PROVED


@pytest.mark.hazard("the-lost-ensemble-returns")
@pytest.mark.parametrize(("write_quorum", "ack_quorum"), [(1, 1), (3, 1), (3, 2), (3, 3), (5, 3)])
def test_record_does_not_decide_after_a_restore(write_quorum: int, ack_quorum: int) -> None:
    """A restore has raised all storage nodes but one less than the ack quorum. Before that a quorum can answer."""
    assert record_decides((UNKNOWN,) * ack_quorum, ack_quorum=ack_quorum)
    raised = (FENCED,) * (write_quorum - ack_quorum + 1)
    assert not record_decides((*raised, *(UNKNOWN,) * (ack_quorum - 1)), ack_quorum=ack_quorum)


def test_readers_wait_at_an_empty_ledger_until_it_is_fenced() -> None:
    """No member holds a ledger without entries, but an ack quorum must answer."""
    assert assess_wait((UNKNOWN, UNKNOWN), ack_quorum=2) is WaitVerdict.MAY_WAIT
    assert assess_wait((HELD, UNKNOWN, HELD), ack_quorum=2) is WaitVerdict.MAY_WAIT
    assert assess_wait((UNKNOWN,), ack_quorum=2) is WaitVerdict.UNANSWERED
    assert assess_wait((HELD, HELD, FENCED), ack_quorum=2) is WaitVerdict.FENCED
    assert assess_wait((FENCED,), ack_quorum=2) is WaitVerdict.FENCED


def _record(epoch: int) -> RecordRead[TopicKey, TopicRecord]:
    return RecordRead(TopicKey(TOPIC), TopicRecord(TOPIC, "t", owner=ME, owner_epoch=OwnerEpoch(epoch)), 7)


@pytest.mark.hazard("deposed-owner-refuses")
def test_owner_does_not_take_back_an_epoch_it_gave_up() -> None:
    """A late assignment, or one by a process that saw the old record: the topic is about to be placed again."""
    ownership = Ownership(TOPIC, ME, lambda _: None)
    ownership.gave_up(OwnerEpoch(4))
    ownership.read()
    assert isinstance(ownership.record_read(_record(4)), Deposed)
    assert isinstance(ownership.lost(""), NotOwner)


def test_owner_takes_a_higher_epoch_after_it_gave_one_up() -> None:
    """If it is the only owner, it gets the topic back."""
    ownership = Ownership(TOPIC, ME, lambda _: None)
    ownership.gave_up(OwnerEpoch(4))
    ownership.read()
    assert ownership.record_read(_record(5)) == Owned()
    assert ownership.epoch == 5
