"""A storage node erases a copy only by proof, refuses every call meanwhile, and keeps the fence."""

from dataclasses import replace

import pytest

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.ids import EntryId, LedgerId, TopicId
from oncelog.core.ledger.member_status import AppendStatus, CopyState, FenceState, ReadStatus
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.node.answers import AnswerFence, FenceReceived, LedgerErased
from oncelog.core.node.node_ledger import DELETED, NOT_DELETED, LedgerOrigin, RecordKind
from oncelog.core.node.review import (
    AnswerReview,
    CheckLedger,
    LedgerChecked,
    LedgerOrphaned,
    RecordTouched,
    ReviewReceived,
    TouchRecord,
)
from oncelog.core.records.status import WriteStatus
from tests.core.ledger.recovery_world import LEDGER, OPEN, TOPIC, A, B, C, entry
from tests.core.node.storage_disk import (
    E0,
    E1,
    E2,
    NONE,
    Disk,
    answer,
    append,
    erased_answer,
    read,
    read_answer,
    review,
    reviewed,
    writable,
)

ORIGIN = LedgerOrigin(TOPIC, LedgerPurpose.LOG)
CLOSED = OPEN.closed(end=EntryId(1), length=20)
#: CLOSED and whole, and its members are other nodes
ELSEWHERE = replace(CLOSED, members=(B, C), verified=True)


def touching() -> Disk:
    """A node that holds entry 0, and waits for its compare-and-set on a record that does not name it."""
    disk = writable()
    assert disk.handle(review(2)) == [CheckLedger(LEDGER, 2, ORIGIN)]
    checked = LedgerChecked(LEDGER, 2, ELSEWHERE, version=7)
    assert disk.handle(checked) == [TouchRecord(LEDGER, 2, ELSEWHERE, 7)]
    return disk


def erased() -> Disk:
    """A node that has erased its copy."""
    disk = touching()
    assert disk.handle(RecordTouched(LEDGER, 2, WriteStatus.OK)) == []
    assert disk.sync() == [LedgerErased(LEDGER), reviewed(2, CopyState.ERASED)]
    return disk


# --- deleted ledgers --------------------------------------------------------------------------------------------------


@pytest.mark.hazard("former-incarnation")
def test_deleted_ledger_is_erased_only_after_a_synced_read_proved_it() -> None:
    """A lagging follower shows records as absent that exist (hazard former-incarnation)."""
    disk = writable()
    assert disk.handle(review(2)) == [CheckLedger(LEDGER, 2, ORIGIN)]
    assert disk.handle(LedgerChecked(LEDGER, 2, OPEN)) == [reviewed(2, CopyState.HELD)]
    assert disk.unsynced == []
    disk.handle(review(3))
    assert disk.handle(LedgerChecked(LEDGER, 3, None, deleted=True)) == []
    assert disk.handle(append(5, E1)) == [answer(5, AppendStatus.ERASED, 1)]
    assert disk.handle(append(6, E1, recovery=True)) == [answer(6, AppendStatus.ERASED, 1)]
    assert [(record.kind, record.entry_id) for record in disk.unsynced] == [(RecordKind.LEDGER_ERASED, DELETED)]
    assert disk.sync() == [LedgerErased(LEDGER, deleted=True), reviewed(3, CopyState.ERASED)]


@pytest.mark.hazard("trimmed-or-lost")
def test_floor_of_a_chain_is_durable_before_anything_is_erased_by_it() -> None:
    """Without ZooKeeper it alone tells a trimmed ledger from a lost one. It only rises."""
    disk, floor = writable(), LedgerId(LEDGER + 2)
    disk.handle(review(2))
    disk.handle(LedgerChecked(LEDGER, 2, None, deleted=True, floor=floor))
    written = [(record.kind, record.ledger_id, record.data) for record in disk.unsynced]
    assert written[0] == (RecordKind.FLOOR, floor, ORIGIN.encode())
    assert written[1][:2] == (RecordKind.LEDGER_ERASED, LEDGER)
    disk.sync()
    disk.start()
    assert disk.node.ledgers.floors == {ORIGIN: floor}
    lower, higher = LedgerId(LEDGER + 1), LedgerId(LEDGER + 9)
    for check, (other, below) in enumerate([(20, floor), (21, lower), (22, higher)], 1):
        disk.handle(append(check, entry(0, ledger_id=LedgerId(other)), recovery=True))
        disk.sync()
        disk.handle(ReviewReceived(100 + check, A, LedgerId(other)))
        disk.handle(LedgerChecked(LedgerId(other), check, None, deleted=True, floor=below))
        disk.sync()
    noted = [record.ledger_id for record in disk.synced if record.kind is RecordKind.FLOOR]
    assert noted == [floor, higher]
    assert disk.node.ledgers.floors == {ORIGIN: higher}


@pytest.mark.hazard("missing-record-is-no-deletion")
def test_ledger_whose_record_is_missing_without_proof_is_kept_and_reported() -> None:
    """A lost record, or an older backup of ZooKeeper, must not erase acknowledged entries (hazard
    missing-record-is-no-deletion)."""
    disk = writable()
    disk.handle(review(2))
    checked = LedgerChecked(LEDGER, 2, None)
    assert disk.handle(checked) == [LedgerOrphaned(LEDGER), reviewed(2, CopyState.HELD)]
    assert disk.unsynced == []
    assert disk.handle(read(5, 0, 1)) == [read_answer(5, [0], [], last=0)]
    disk.handle(review(6))
    assert disk.handle(LedgerChecked(LEDGER, 3, OPEN)) == [reviewed(6, CopyState.HELD)]
    assert disk.handle(append(7, E1)) == []
    assert disk.sync() == [answer(7, AppendStatus.OK, 1)]


@pytest.mark.hazard("ledger-id-given-twice")
def test_record_of_another_topic_says_nothing_of_the_copy() -> None:
    """The ledger id was given twice by an older ZooKeeper. The copy is needed when the right one is back."""
    disk = writable()
    assert disk.handle(review(2)) == [CheckLedger(LEDGER, 2, ORIGIN)]
    record = replace(ELSEWHERE, topic_id=TopicId("f0" * 16))
    checked = LedgerChecked(LEDGER, 2, record, version=7, deleted=True)
    assert disk.handle(checked) == [LedgerOrphaned(LEDGER), reviewed(2, CopyState.HELD)]


def test_check_that_began_before_the_first_entry_erases_nothing() -> None:
    """Such a check has no origin, so it looked for no proof. The review waits for the next check."""
    disk = Disk()
    assert disk.handle(append(1, E0)) == [CheckLedger(LEDGER, 1)]
    assert disk.handle(review(2)) == []
    refused = answer(1, AppendStatus.NOT_WRITABLE, 0)
    assert disk.handle(LedgerChecked(LEDGER, 1, None)) == [refused, CheckLedger(LEDGER, 2)]
    assert disk.handle(LedgerChecked(LEDGER, 2, None)) == [reviewed(2, CopyState.ABSENT)]


def test_review_of_an_unknown_ledger_leaves_nothing_behind() -> None:
    """There is nothing to erase."""
    disk = Disk()
    assert disk.handle(review(1)) == [CheckLedger(LEDGER, 1, None)]
    assert disk.handle(LedgerChecked(LEDGER, 1, None)) == [reviewed(1, CopyState.ABSENT)]
    assert LEDGER not in disk.node.ledgers


@pytest.mark.hazard("former-incarnation")
def test_review_for_another_incarnation_is_refused() -> None:
    """The wiped node at the same address has another copy, or none."""
    wrong = AnswerReview(2, LEDGER, CopyState.ABSENT, ReadStatus.WRONG_INCARNATION)
    assert writable().handle(ReviewReceived(2, B, LEDGER)) == [wrong]


# --- copies that the record does not name -----------------------------------------------------------------------------


@pytest.mark.hazard("copy-erased-before-joining")
@pytest.mark.hazard("replaced-member-erased-early")
@pytest.mark.hazard("differing-copies")
@pytest.mark.parametrize(
    "metadata",
    [
        CLOSED,
        replace(OPEN.closed(end=EntryId(0), length=10), verified=True),
        replace(ELSEWHERE, joining=A),
        replace(ELSEWHERE, verified=False),
        replace(ELSEWHERE, frozen=True),
        replace(OPEN, members=(B, C)),
        replace(OPEN, members=(B, C)).in_recovery(),
    ],
)
def test_copy_that_may_be_needed_is_kept(metadata: LedgerMetadata) -> None:
    """A member, a joining node, and any copy of a ledger that is not whole, or frozen, or not CLOSED."""
    disk = writable()
    disk.handle(review(2))
    assert disk.handle(LedgerChecked(LEDGER, 2, metadata)) == [reviewed(2, CopyState.HELD)]
    assert disk.unsynced == []


@pytest.mark.hazard("copy-erased-before-joining")
def test_every_call_is_refused_from_before_the_compare_and_set_until_the_tombstone_is_synced() -> None:
    """An entry that is stored between the two would be acknowledged and erased (hazard copy-erased-before-joining)."""
    disk = touching()
    tombstone_synced = False
    for calls in (10, 20):
        assert disk.handle(append(calls, E1)) == [answer(calls, AppendStatus.ERASED, 1)]
        assert disk.handle(append(calls + 1, E1, recovery=True)) == [answer(calls + 1, AppendStatus.ERASED, 1)]
        assert disk.handle(append(calls + 2, E1, repair=True)) == [answer(calls + 2, AppendStatus.ERASED, 1)]
        assert disk.handle(read(calls + 3, 0, 2)) == [erased_answer(calls + 3)]
        assert disk.handle(read(calls + 4, 0, 2, fence=True)) == [erased_answer(calls + 4)]
        fence = AnswerFence(calls + 5, LEDGER, NONE, NONE, ReadStatus.ERASED)
        assert disk.handle(FenceReceived(calls + 5, A, LEDGER)) == [fence]
        assert disk.node.ledgers.fence_state(LEDGER) is FenceState.UNKNOWN
        if not tombstone_synced:
            assert disk.unsynced == []
            disk.handle(RecordTouched(LEDGER, 2, WriteStatus.OK))
            tombstone_synced = True
    assert [(record.kind, record.entry_id) for record in disk.unsynced] == [(RecordKind.LEDGER_ERASED, NOT_DELETED)]
    assert disk.sync() == [LedgerErased(LEDGER), reviewed(2, CopyState.ERASED)]


@pytest.mark.hazard("copy-erased-before-joining")
@pytest.mark.parametrize("status", [WriteStatus.CONFLICT, WriteStatus.UNKNOWN])
def test_copy_is_kept_after_a_conflict(status: WriteStatus) -> None:
    """A repairer may have named this node since the record was read."""
    disk = touching()
    assert disk.handle(RecordTouched(LEDGER, 2, status)) == [reviewed(2, CopyState.HELD)]
    assert disk.unsynced == []
    assert disk.handle(read(5, 0, 1)) == [read_answer(5, [0], [], last=0)]
    assert disk.handle(append(6, E1)) == []
    assert disk.sync() == [answer(6, AppendStatus.OK, 1)]


def test_review_that_arrives_during_the_compare_and_set_waits_for_the_next_check() -> None:
    """The record may have changed since it was read."""
    disk = touching()
    assert disk.handle(review(3)) == []
    again = [reviewed(2, CopyState.HELD), CheckLedger(LEDGER, 3, ORIGIN)]
    assert disk.handle(RecordTouched(LEDGER, 2, WriteStatus.CONFLICT)) == again
    assert disk.handle(LedgerChecked(LEDGER, 3, CLOSED)) == [reviewed(3, CopyState.HELD)]


def test_late_response_to_a_compare_and_set_erases_nothing() -> None:
    """It belongs to a check that is over."""
    disk = touching()
    disk.handle(RecordTouched(LEDGER, 2, WriteStatus.UNKNOWN))
    assert disk.handle(RecordTouched(LEDGER, 2, WriteStatus.OK)) == []
    assert disk.unsynced == []


def test_entries_that_were_accepted_before_are_answered_before_the_tombstone() -> None:
    """They are synced before it, and their number is lower."""
    disk = writable()
    disk.handle(append(2, E1))
    disk.handle(review(3))
    disk.handle(LedgerChecked(LEDGER, 2, ELSEWHERE, version=7))
    disk.handle(RecordTouched(LEDGER, 2, WriteStatus.OK))
    done = [answer(2, AppendStatus.OK, 1), LedgerErased(LEDGER), reviewed(3, CopyState.ERASED)]
    assert disk.sync() == done
    assert disk.index.last_entry(LEDGER) is None


# --- erased ledgers ---------------------------------------------------------------------------------------------------


@pytest.mark.hazard("answer-of-a-former-member")
@pytest.mark.parametrize("restarted", [False, True])
def test_erased_ledger_answers_erased_and_keeps_its_fence(restarted: bool) -> None:
    """ "Missing" would be a negative, and two negatives cut an acknowledged entry (hazard
    answer-of-a-former-member)."""
    disk = erased()
    if restarted:
        disk.start()
    check = 2 * (not restarted)
    for number in (check + 1, check + 2):
        assert disk.handle(append(3, E1)) == [answer(3, AppendStatus.ERASED, 1)]
        assert disk.handle(append(4, E1, recovery=True)) == [answer(4, AppendStatus.ERASED, 1)]
        assert disk.handle(read(5, 0, 2)) == [erased_answer(5)]
        assert disk.handle(read(6, 0, 2, fence=True)) == [erased_answer(6)]
        assert disk.handle(FenceReceived(7, A, LEDGER)) == [AnswerFence(7, LEDGER, NONE, NONE, ReadStatus.ERASED)]
        assert disk.handle(review(8)) == [CheckLedger(LEDGER, number, ORIGIN)]
        assert disk.handle(LedgerChecked(LEDGER, number, ELSEWHERE)) == [reviewed(8, CopyState.ERASED)]
    assert disk.unsynced == []
    assert disk.node.ledgers.fence_state(LEDGER) is FenceState.UNKNOWN
    assert not disk.node.ledgers


@pytest.mark.parametrize("restarted", [False, True])
def test_repair_begins_a_new_life_of_an_erased_ledger(restarted: bool) -> None:
    """The tombstone erases lower numbers only. The fence stays."""
    disk = erased()
    assert disk.handle(append(3, E0, repair=True)) == [CheckLedger(LEDGER, 3, ORIGIN)]
    assert disk.handle(read(4, 0, 1)) == [erased_answer(4)]
    disk.handle(LedgerChecked(LEDGER, 3, replace(ELSEWHERE, joining=A)))
    assert disk.sync() == [answer(3, AppendStatus.OK, 0)]
    if restarted:
        disk.start()
    assert disk.handle(read(5, 0, 2)) == [read_answer(5, [0], [1], last=0)]
    assert disk.handle(append(6, E1)) == [answer(6, AppendStatus.FENCED, 1)]


@pytest.mark.hazard("missing-record-is-no-deletion")
@pytest.mark.parametrize("restarted", [False, True])
def test_tombstone_of_a_copy_learns_that_its_ledger_was_deleted(restarted: bool) -> None:
    """By the same proof as entries. Then compaction drops the tombstone and the fence. A missing record is no proof."""
    disk = erased()
    if restarted:
        disk.start()
    disk.handle(review(5))
    check = 3 - 2 * restarted
    assert disk.handle(LedgerChecked(LEDGER, check, None)) == [reviewed(5, CopyState.ERASED)]
    assert disk.unsynced == []
    disk.handle(review(6))
    assert disk.handle(LedgerChecked(LEDGER, check + 1, None, deleted=True)) == []
    assert disk.handle(read(7, 0, 1)) == [erased_answer(7)]
    assert [(record.kind, record.entry_id) for record in disk.unsynced] == [(RecordKind.LEDGER_ERASED, DELETED)]
    assert disk.sync() == [LedgerErased(LEDGER, deleted=True), reviewed(6, CopyState.ERASED)]
    assert disk.handle(review(8)) == [reviewed(8, CopyState.ERASED)], "nothing is left to find out"
    assert not disk.node.ledgers
    disk.node.forget_deleted([LEDGER])
    assert not disk.node.ledgers.tombstones
    assert disk.handle(append(9, E1)) == [CheckLedger(LEDGER, check + 2)], "as for any unknown ledger"
    disk.node.forget_deleted([LEDGER])
    assert LEDGER in disk.node.ledgers, "the ledger is in use"


def test_repair_add_to_an_erased_ledger_that_does_not_name_the_node_is_refused() -> None:
    """A repairer that was paused goes on after its work was undone."""
    disk = erased()
    disk.handle(append(3, E0, repair=True))
    refused = LedgerChecked(LEDGER, 3, ELSEWHERE)
    assert disk.handle(refused) == [answer(3, AppendStatus.NOT_WRITABLE, 0)]
    assert disk.handle(read(4, 0, 1)) == [erased_answer(4)]
    assert not disk.node.ledgers


# --- repair adds ------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("copy-erased-before-joining")
@pytest.mark.parametrize("metadata", [CLOSED, replace(ELSEWHERE, joining=A)])
def test_repair_adds_of_a_member_or_a_joining_node_are_stored_up_to_the_end(metadata: LedgerMetadata) -> None:
    """One check is enough, because the end of a CLOSED ledger never changes."""
    disk = Disk()
    assert disk.handle(append(1, E0, E2, repair=True)) == [CheckLedger(LEDGER, 1)]
    above = answer(1, AppendStatus.NOT_WRITABLE, 2)
    assert disk.handle(LedgerChecked(LEDGER, 1, metadata)) == [above]
    assert disk.handle(append(2, E1, repair=True)) == []
    assert disk.sync() == [answer(1, AppendStatus.OK, 0), answer(2, AppendStatus.OK, 1)]
    assert {record.kind for record in disk.synced} == {RecordKind.REPAIR_ADD}
    disk.start()
    # A repaired copy takes no ordinary adds without a check.
    assert disk.handle(append(3, E2)) == [CheckLedger(LEDGER, 1, ORIGIN)]


@pytest.mark.hazard("copy-erased-before-joining")
@pytest.mark.parametrize("metadata", [None, OPEN, OPEN.in_recovery(), ELSEWHERE])
def test_repair_adds_are_refused_unless_the_record_names_the_node(metadata: LedgerMetadata | None) -> None:
    """The node must be in the record before the first byte (hazard copy-erased-before-joining)."""
    disk = Disk()
    disk.handle(append(1, E0, repair=True))
    assert disk.handle(LedgerChecked(LEDGER, 1, metadata)) == [answer(1, AppendStatus.NOT_WRITABLE, 0)]
    assert disk.unsynced == []


def test_review_without_the_node_in_the_record_ends_repair_adds() -> None:
    """Later repair adds need another check."""
    disk = Disk()
    disk.handle(append(1, E0, repair=True))
    disk.handle(LedgerChecked(LEDGER, 1, replace(ELSEWHERE, joining=A)))
    disk.sync()
    disk.handle(review(2))
    disk.handle(LedgerChecked(LEDGER, 2, replace(ELSEWHERE, verified=False)))
    assert disk.handle(append(3, E1, repair=True)) == [CheckLedger(LEDGER, 3, ORIGIN)]
