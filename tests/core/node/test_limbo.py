"""A node whose directory has lost records takes nothing for certain, until each ledger is whole again (hazard
damaged-fence)."""

from dataclasses import replace

import pytest

from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.member_status import AppendStatus, CopyState, FenceState, ReadStatus
from oncelog.core.ledger.metadata import EntryRange
from oncelog.core.node.answers import AnswerFence, AnswerRead, FenceReceived, LedgerErased, LimboCleared
from oncelog.core.node.node import DamageFound
from oncelog.core.node.node_ledger import RecordKind
from oncelog.core.node.review import (
    AllReviewed,
    CheckLedger,
    LedgerChecked,
    LedgerVerified,
    RecordTouched,
    VerifyLedger,
)
from oncelog.core.records.status import WriteStatus
from tests.core.ledger.recovery_world import LEDGER, OPEN, A, B, C, entry
from tests.core.node.storage_disk import (
    E0,
    E1,
    E2,
    NONE,
    Disk,
    answer,
    append,
    read,
    read_answer,
    review,
    reviewed,
    writable,
)
from tests.core.node.test_ledger_erasing import ORIGIN

CLOSED = OPEN.closed(end=EntryId(1), length=20)
#: the first ledger that is not in limbo
N = LedgerId(LEDGER + 1)


def in_limbo(*, restarted: bool = False) -> Disk:
    """A node that holds entry 0, written by the ledger's writer, and whose directory has a hole."""
    disk = writable()
    disk.find_hole(N)
    if restarted:
        disk.start()
    return disk


def cleared() -> Disk:
    """The same node after its limbo of the ledger ended."""
    disk = in_limbo()
    disk.handle(append(2, E1, recovery=True))
    disk.sync()
    assert disk.handle(review(3)) == [CheckLedger(LEDGER, 1, ORIGIN)]
    assert disk.handle(LedgerChecked(LEDGER, 1, CLOSED)) == [VerifyLedger(LEDGER, 1, EntryId(1))]
    assert disk.handle(LedgerVerified(LEDGER, 1)) == []
    return disk


# --- in limbo ---------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("damaged-fence")
@pytest.mark.parametrize("restarted", [False, True])
def test_ordinary_adds_are_read_only_though_entries_of_the_writer_are_held(restarted: bool) -> None:
    """The fence may have been in the hole; FENCED would depose a current owner (hazard damaged-fence)."""
    disk = in_limbo(restarted=restarted)
    assert disk.handle(append(2, E1)) == [answer(2, AppendStatus.READ_ONLY, 1)]
    unknown = entry(0, ledger_id=LedgerId(3))
    assert disk.handle(append(3, unknown)) == [answer(3, AppendStatus.READ_ONLY, 0, ledger_id=LedgerId(3))]
    assert disk.node.ledgers.fence_state(LEDGER) is FenceState.UNKNOWN
    assert list(disk.node.ledgers) == [LEDGER]


@pytest.mark.hazard("damaged-fence")
@pytest.mark.parametrize("fence", [False, True])
def test_entry_that_is_not_found_is_unreadable(fence: bool) -> None:
    """It may have been in the hole, so it is no negative: neither in a read nor in the read of a recovery."""
    disk = in_limbo()
    answers = disk.handle(read(2, 0, 3, fence=fence)) + disk.sync()
    assert answers == [read_answer(2, [0], [], last=0, unreadable=(1, 2))]


def test_fence_recovery_adds_and_repair_adds_are_accepted() -> None:
    """A recovery must be able to close the ledger, and a repair must be able to complete the copy."""
    disk = in_limbo()
    disk.handle(FenceReceived(2, A, LEDGER))
    assert disk.sync() == [AnswerFence(2, LEDGER, EntryId(0), NONE, ReadStatus.OK, OPEN.topic_id)]
    assert disk.handle(append(3, E1)) == [answer(3, AppendStatus.FENCED, 1)]
    disk.handle(append(4, E1, recovery=True))
    assert disk.sync() == [answer(4, AppendStatus.OK, 1)]
    disk.handle(append(5, E0, repair=True))
    assert disk.handle(LedgerChecked(LEDGER, 1, CLOSED)) == [answer(5, AppendStatus.OK, 0)]


def test_ledger_that_is_newer_than_the_hole_is_not_in_limbo() -> None:
    """Its records were written after the hole was found."""
    disk = in_limbo()
    newer = entry(0, ledger_id=N)
    assert disk.handle(append(2, newer)) == [CheckLedger(N, 1)]
    missing = AnswerRead(3, LedgerId(N + 1), (), (EntryId(0),), NONE, NONE, ReadStatus.OK)
    assert disk.handle(replace(read(3, 0, 1), ledger_id=LedgerId(N + 1))) == [missing]


@pytest.mark.hazard("damaged-fence")
def test_tombstone_does_not_answer_for_a_later_life_that_may_be_in_the_hole() -> None:
    """A repair may have filled the copy again; its entries are unknown, not erased."""
    disk = writable()
    disk.handle(review(2))
    disk.handle(LedgerChecked(LEDGER, 2, None, deleted=True))
    assert LedgerErased(LEDGER, deleted=True) in disk.sync()
    disk.find_hole(N)
    assert disk.handle(read(3, 0, 1)) == [read_answer(3, [], [], unreadable=(0,))]
    assert disk.handle(append(4, E1)) == [answer(4, AppendStatus.FENCED, 1)]


# --- the end of limbo -------------------------------------------------------------------------------------------------


@pytest.mark.hazard("damaged-fence")
def test_limbo_ends_when_the_closed_ledger_is_held_and_sound_and_that_is_synced() -> None:
    """Until the record is synced the ledger stays in limbo, because a crash could bring it back."""
    disk = cleared()
    assert disk.handle(append(4, E2)) == [answer(4, AppendStatus.FENCED, 2)]
    assert disk.handle(read(5, 0, 3)) == []
    assert disk.node.ledgers.in_limbo == [LEDGER]
    kinds = [record.kind for record in disk.unsynced]
    assert kinds == [RecordKind.FENCE, RecordKind.LIMBO_CLEARED]
    # The read was looked up before the limbo ended.
    unknown = read_answer(5, [0, 1], [], last=1, unreadable=(2,))
    assert disk.sync() == [LimboCleared(LEDGER), reviewed(3, CopyState.HELD), unknown]
    for _ in range(2):
        assert disk.node.ledgers.in_limbo == []
        assert disk.handle(read(6, 0, 3)) == [read_answer(6, [0, 1], [2], last=1)]
        disk.start()


@pytest.mark.hazard("damaged-fence")
def test_writer_that_was_fenced_cannot_add_after_the_limbo() -> None:
    """Its fence was in the hole, and entries of the writer are held here: the end of limbo fences the ledger."""
    disk = cleared()
    disk.sync()
    assert disk.handle(append(4, E2)) == [answer(4, AppendStatus.FENCED, 2)]
    disk.start()
    assert disk.handle(append(5, E2)) == [answer(5, AppendStatus.FENCED, 2)]


@pytest.mark.hazard("damaged-fence")
@pytest.mark.parametrize(
    "verified",
    [LedgerVerified(LEDGER, 1, missing=(EntryId(1),)), LedgerVerified(LEDGER, 1, unreadable=(EntryId(0),))],
)
def test_limbo_stays_while_an_entry_is_missing_or_unreadable(verified: LedgerVerified) -> None:
    """A repair brings the entry; the next review ends the limbo."""
    disk = in_limbo()
    disk.handle(review(2))
    disk.handle(LedgerChecked(LEDGER, 1, CLOSED))
    assert disk.handle(verified) == [reviewed(2, CopyState.LIMBO)]
    assert disk.unsynced == []
    assert disk.node.ledgers.in_limbo == [LEDGER]


def without_an_entry(*lost: EntryId, missing: int = 1, given_up_by: str = "", snapshot: bool = False) -> Disk:
    """The node in limbo reviews the ledger and finds one entry missing. These are lost. The ledger
    ends at entry 2, or at the missing one."""
    disk = in_limbo()
    disk.handle(append(2, E2, recovery=True))
    disk.sync()
    ranges = tuple(EntryRange(each, each) for each in lost)
    closed = OPEN.closed(end=EntryId(max(2, missing)), length=30)
    disk.handle(review(3))
    record = replace(closed, lost=ranges, given_up_by=given_up_by)
    disk.handle(LedgerChecked(LEDGER, 1, record, snapshot=snapshot))
    disk.handle(LedgerVerified(LEDGER, 1, missing=(EntryId(missing),)))
    disk.sync()
    return disk


@pytest.mark.hazard("older-disk-is-missing")
def test_limbo_ends_without_entries_that_are_proved_lost() -> None:
    """No repair can bring them. Otherwise such a node counts as missing in each restore of ZooKeeper's records."""
    disk = without_an_entry(EntryId(1))
    for _ in range(2):
        assert disk.node.ledgers.in_limbo == []
        assert disk.handle(read(4, 0, 3)) == [read_answer(4, [0, 2], [1], last=2, lac=0)]
        disk.start()


@pytest.mark.hazard("damaged-fence")
@pytest.mark.parametrize("lost", [(), (EntryId(0),), (EntryId(0), EntryId(2))])
def test_limbo_stays_while_an_entry_is_missing_that_is_not_lost(lost: tuple[EntryId, ...]) -> None:
    """Another node may give it, and nobody else may have it."""
    assert without_an_entry(*lost, given_up_by="operator").node.ledgers.in_limbo == [LEDGER]


@pytest.mark.hazard("lost-end-is-forgotten")
def test_limbo_stays_while_the_lost_end_of_a_ledger_is_not_given_up() -> None:
    """If the ledger's record is lost, too, no disk says that entry 3 existed. If every node said that it is missing, a
    recovery would end the ledger before it, and its indexes would be given again."""
    lost = (EntryId(1), EntryId(3))
    assert without_an_entry(*lost, missing=3).node.ledgers.in_limbo == [LEDGER]
    assert without_an_entry(*lost, missing=3, given_up_by="operator").node.ledgers.in_limbo == []
    assert without_an_entry(*lost, missing=3, snapshot=True).node.ledgers.in_limbo == []


@pytest.mark.hazard("damaged-fence")
@pytest.mark.parametrize("metadata", [None, OPEN, OPEN.in_recovery()])
def test_limbo_of_a_ledger_that_is_not_closed_stays(metadata: None) -> None:
    """Its end is not known yet, so nothing proves that all of it is held."""
    disk = in_limbo()
    disk.handle(review(2))
    disk.handle(LedgerChecked(LEDGER, 1, metadata))
    assert disk.unsynced == []
    assert disk.handle(append(3, E1)) == [answer(3, AppendStatus.READ_ONLY, 1)]


def test_ledger_of_which_everything_was_in_the_hole_is_owed_once_its_record_names_the_node() -> None:
    """The node knows no record of it, so only the review tells that something is missing here."""
    disk = in_limbo()
    lost = LedgerId(3)
    disk.handle(replace(review(2), ledger_id=lost))
    closed = replace(CLOSED, ledger_id=lost)
    assert disk.handle(LedgerChecked(lost, 1, closed)) == [VerifyLedger(lost, 1, EntryId(1))]
    assert disk.handle(LedgerVerified(lost, 1, missing=(EntryId(0), EntryId(1)))) == [
        replace(reviewed(2, CopyState.LIMBO), ledger_id=lost)
    ]
    assert disk.node.ledgers.in_limbo == [lost, LEDGER]
    disk.handle(replace(review(3), ledger_id=lost))
    disk.handle(LedgerChecked(lost, 2, replace(closed, members=(B, C))))
    assert disk.node.ledgers.in_limbo == [LEDGER]


def test_copy_in_limbo_that_is_not_needed_is_erased_and_leaves_limbo() -> None:
    """All records in the hole have lower numbers than the tombstone."""
    disk = in_limbo()
    elsewhere = replace(CLOSED, members=(B, C), verified=True)
    disk.handle(review(2))
    disk.handle(LedgerChecked(LEDGER, 1, elsewhere, version=1))
    disk.handle(RecordTouched(LEDGER, 1, WriteStatus.OK))
    assert disk.sync() == [LedgerErased(LEDGER), reviewed(2, CopyState.ERASED)]
    for _ in range(2):
        assert disk.handle(append(3, E1)) == [answer(3, AppendStatus.ERASED, 1)]
        assert disk.node.ledgers.in_limbo == []
        disk.start()


@pytest.mark.hazard("damaged-fence")
def test_another_hole_begins_limbo_anew() -> None:
    """The later hole may hold what the earlier one did not."""
    disk = cleared()
    disk.sync()
    disk.find_hole(N)
    assert disk.node.ledgers.in_limbo == [LEDGER]
    assert disk.handle(read(6, 0, 3)) == [read_answer(6, [0, 1], [], last=1, unreadable=(2,))]
    disk.start()
    assert disk.node.ledgers.in_limbo == [LEDGER]


# --- damaged entries --------------------------------------------------------------------------------------------------


def damaged() -> Disk:
    disk = writable()
    assert disk.handle(DamageFound(LEDGER, (EntryId(0), EntryId(5)))) == []
    return disk


def test_damaged_entry_is_unreadable_and_listed() -> None:
    """The entry is held, so it is never missing. An entry that is not held cannot be damaged."""
    disk = damaged()
    assert disk.handle(read(2, 0, 2)) == [read_answer(2, [], [1], last=0, unreadable=(0,))]
    assert disk.node.ledgers.damaged == [LEDGER]
    # Only this entry is damaged: its kind and its ledger are known, so no fence is in doubt.
    assert disk.handle(append(3, E1)) == []
    assert disk.sync() == [answer(3, AppendStatus.OK, 1)]


@pytest.mark.parametrize("how", ["recovery", "repair"])
def test_damaged_entry_is_healed_by_another_copy(how: str) -> None:
    """It counts as sound when the new copy is synced."""
    disk = damaged()
    if how == "repair":
        disk.handle(append(2, E0, repair=True))
        disk.handle(LedgerChecked(LEDGER, 2, CLOSED))
    else:
        disk.handle(append(2, E0, recovery=True))
    assert disk.node.ledgers.damaged == [LEDGER]
    assert disk.sync() == [answer(2, AppendStatus.OK, 0)]
    assert disk.node.ledgers.damaged == []
    assert disk.handle(read(3, 0, 1)) == [read_answer(3, [0], [], last=0)]


def test_review_of_a_damaged_ledger_reads_it_again() -> None:
    """A disk may fail to read for a while only. What is still damaged stays listed."""
    disk = damaged()
    disk.handle(review(2))
    assert disk.handle(LedgerChecked(LEDGER, 2, CLOSED)) == [VerifyLedger(LEDGER, 2, EntryId(1))]
    assert disk.handle(LedgerVerified(LEDGER, 2, unreadable=(EntryId(0),))) == [reviewed(2, CopyState.DAMAGED)]
    disk.handle(review(3))
    disk.handle(LedgerChecked(LEDGER, 3, CLOSED))
    assert disk.handle(LedgerVerified(LEDGER, 3, missing=(EntryId(1),))) == [reviewed(3, CopyState.HELD)]
    assert disk.node.ledgers.damaged == []


@pytest.mark.hazard("lost-too-early")
def test_recovery_reads_a_damaged_entry_again() -> None:
    """A restore may open a ledger again, and no review ends the damage of one that is not CLOSED: a copy that can be
    read again, perhaps the only one, would be refused for ever. What is not held is not missing."""
    disk = damaged()
    disk.handle(review(2))
    disk.handle(LedgerChecked(LEDGER, 2, replace(CLOSED, verified=True)))
    disk.handle(LedgerVerified(LEDGER, 2, missing=(EntryId(1),), unreadable=(EntryId(0),)))
    assert disk.handle(read(3, 0, 3, fence=True)) == []
    assert disk.sync() == [read_answer(3, [0], [2], last=0, unreadable=(1,))]


@pytest.mark.hazard("damaged-fence")
def test_damage_found_during_the_review_keeps_the_ledger_in_limbo() -> None:
    """The entry may have been read before it was damaged."""
    disk = in_limbo()
    disk.handle(review(2))
    disk.handle(LedgerChecked(LEDGER, 1, CLOSED))
    disk.handle(DamageFound(LEDGER, (EntryId(0),)))
    assert disk.handle(LedgerVerified(LEDGER, 1)) == [reviewed(2, CopyState.LIMBO)]
    assert disk.node.ledgers.damaged == [LEDGER]


# --- what a node has attested before ---------------------------------------------------------------------------------


@pytest.mark.hazard("verified-copy-is-missing")
def test_what_a_whole_ledger_lacks_here_is_damage() -> None:
    """This node has read everything back, or the record would not be whole. A repair add heals it."""
    disk = writable()
    whole = replace(CLOSED, verified=True)
    disk.handle(review(2))
    assert disk.handle(LedgerChecked(LEDGER, 2, whole)) == [VerifyLedger(LEDGER, 2, EntryId(1))]
    assert disk.handle(LedgerVerified(LEDGER, 2, missing=(EntryId(1),))) == [reviewed(2, CopyState.DAMAGED)]
    assert disk.node.ledgers.damaged == [LEDGER]
    disk.handle(append(3, E1, repair=True))
    assert disk.sync() == [answer(3, AppendStatus.OK, 1)]
    assert disk.node.ledgers.damaged == []
    disk.handle(review(4))
    assert disk.handle(LedgerChecked(LEDGER, 3, whole)) == [reviewed(4, CopyState.HELD)]


@pytest.mark.hazard("verified-copy-is-missing")
def test_an_entry_above_the_end_makes_up_for_none_that_is_missing() -> None:
    """The writer's last entries may have reached this node alone, and the ledger was closed below them."""
    disk = writable()  # it has entry 0
    disk.handle(append(2, E2))
    disk.sync()
    disk.handle(review(3))
    whole = replace(CLOSED, verified=True)
    assert disk.handle(LedgerChecked(LEDGER, 2, whole)) == [VerifyLedger(LEDGER, 2, EntryId(1))]
    assert disk.handle(LedgerVerified(LEDGER, 2, missing=(EntryId(1),))) == [reviewed(3, CopyState.DAMAGED)]


@pytest.mark.hazard("verified-copy-is-missing")
def test_whole_ledger_of_which_nothing_is_here_is_damaged() -> None:
    """The damage is kept although nothing else of the ledger is. A copy that is being made has attested nothing."""
    disk = Disk()
    disk.handle(review(2))
    disk.handle(LedgerChecked(LEDGER, 1, replace(CLOSED, verified=True)))
    both = (EntryId(0), EntryId(1))
    assert disk.handle(LedgerVerified(LEDGER, 1, missing=both)) == [reviewed(2, CopyState.DAMAGED)]
    assert disk.node.ledgers.damaged == [LEDGER]
    disk = Disk()
    disk.handle(review(2))
    assert disk.handle(LedgerChecked(LEDGER, 1, CLOSED)) == [reviewed(2, CopyState.ABSENT)]


# --- the end of limbo for the whole directory -------------------------------------------------------------------------


@pytest.mark.hazard("older-disk-is-missing")
def test_limbo_is_over_when_all_ledgers_were_reviewed_and_none_is_in_limbo() -> None:
    """Otherwise a node that was repaired long ago counts as missing in each restore of ZooKeeper's records. What it
    does not have, it never had or does not need: an entry that is not found is missing again."""
    disk = cleared()
    disk.sync()
    assert disk.node.ledgers.limbo.below == N
    assert disk.handle(AllReviewed(b"holes")) == []
    assert (disk.unsynced[-1].kind, disk.unsynced[-1].ledger_id, disk.unsynced[-1].data) == (
        RecordKind.LIMBO,
        0,
        b"holes",
    )
    disk.sync()
    for _ in range(2):
        assert disk.node.ledgers.limbo.below == 0
        assert disk.handle(read(9, 0, 3)) == [read_answer(9, [0, 1], [2], last=1)]
        disk.start()
    written = len(disk.synced)
    disk.handle(AllReviewed(b"holes"))
    disk.sync()
    assert len(disk.synced) == written
    disk.find_hole(N)
    assert disk.node.ledgers.limbo.covers(LEDGER)


@pytest.mark.hazard("older-disk-is-missing")
def test_limbo_is_not_over_while_a_ledger_is_in_limbo_or_damaged() -> None:
    disk = in_limbo()
    disk.handle(AllReviewed(b""))
    assert disk.node.ledgers.limbo.covers(LEDGER)
    disk = cleared()
    disk.sync()
    disk.handle(DamageFound(LEDGER, (EntryId(0),)))
    disk.handle(AllReviewed(b""))
    assert disk.node.ledgers.limbo.below == N
