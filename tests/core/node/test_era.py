"""The era of a storage node: which one it stores, and what it takes from whom afterwards."""

from dataclasses import replace

import pytest

from oncelog.core.era import ERA_JUMP_MAX, FIRST_ERA, Era
from oncelog.core.errors import InvalidArgument, ServiceUnavailable, StaleEra
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.member_status import AppendStatus, CopyState, FenceState, ReadStatus
from oncelog.core.node.answers import FenceReceived
from oncelog.core.node.era import AnswerEra, EraRaised, EraReceived, EraState, StoredEra
from oncelog.core.node.node import AppendReceived, RecordsOpened
from oncelog.core.node.node_ledger import RecordKind
from oncelog.core.node.review import (
    AnswerReview,
    CheckLedger,
    LedgerChecked,
    LedgerVerified,
    RecordTouched,
    TouchRecord,
    VerifyLedger,
)
from oncelog.core.records.status import WriteStatus
from tests.core.ledger.recovery_world import LEDGER, OPEN, A, B, C, entry
from tests.core.node.storage_disk import E1, E2, Disk, answer, append, read, read_answer, review, reviewed, writable
from tests.core.node.test_ledger_erasing import ORIGIN

TWO, OTHER_TWO, THREE = Era(2, "a" * 32), Era(2, "b" * 32), Era(3, "c" * 32)
#: the first ledger of era 2
NEW = LedgerId(TWO.first_id)
NEW_ENTRY = entry(0, ledger_id=NEW)


def raised(call: int, era: Era, *, committed: bool = False) -> EraReceived:
    return EraReceived(call, A, era, committed)


def of(era: Era, add: AppendReceived) -> AppendReceived:
    return replace(add, era=era)


def in_era(era: Era, *, committed: bool = False) -> Disk:
    """A node that holds entry 0 of a ledger of the first era, and has stored a later era since."""
    disk = writable()
    assert disk.handle(raised(2, era, committed=committed)) == [EraRaised(era)]
    assert disk.sync() == [AnswerEra(2, era, ReadStatus.OK)]
    return disk


# --- which one is stored ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "era", "committed", "then"),
    [
        (StoredEra(), TWO, False, StoredEra(TWO, EraState.CLAIMED)),
        (StoredEra(), TWO, True, StoredEra(TWO, EraState.JOINED_LATE)),
        (StoredEra(), FIRST_ERA, True, StoredEra()),
        (StoredEra(TWO, EraState.CLAIMED), TWO, False, StoredEra(TWO, EraState.CLAIMED)),
        (StoredEra(TWO, EraState.CLAIMED), TWO, True, StoredEra(TWO, EraState.COMMITTED)),
        (StoredEra(TWO, EraState.CLAIMED), THREE, False, StoredEra(THREE, EraState.CLAIMED)),
        (StoredEra(THREE, EraState.CLAIMED), TWO, True, StoredEra(THREE, EraState.CLAIMED)),
        (StoredEra(TWO, EraState.JOINED_LATE), FIRST_ERA, True, StoredEra(TWO, EraState.JOINED_LATE)),
    ],
)
def test_an_era_is_stored_if_it_is_higher(stored: StoredEra, era: Era, committed: bool, then: StoredEra) -> None:
    assert stored.raised(era, committed=committed) == then


@pytest.mark.hazard("two-restores")
def test_of_two_restores_of_one_era_the_first_is_stored() -> None:
    """Two operators restore at once, and both choose era 2. Each asks this node, and only one may count it among the
    more than half that it needs."""
    disk = in_era(TWO)
    assert disk.handle(raised(3, OTHER_TWO)) == [AnswerEra(3, TWO, ReadStatus.OK)]
    disk.start()
    assert disk.handle(raised(4, OTHER_TWO)) == [AnswerEra(4, TWO, ReadStatus.OK)]


@pytest.mark.hazard("two-restores")
def test_the_restore_that_the_clusters_record_names_replaces_the_other_one() -> None:
    """It had more than half of the nodes without this one, so what this node was asked by the other one counts for
    nothing: it is a node that comes late."""
    disk = in_era(TWO)
    assert disk.handle(raised(3, OTHER_TWO, committed=True)) == [EraRaised(OTHER_TWO)]
    assert disk.sync() == [AnswerEra(3, OTHER_TWO, ReadStatus.OK)]
    assert disk.node.ledgers.limbo.covers(LEDGER)
    assert disk.handle(raised(4, TWO, committed=True)) == [AnswerEra(4, OTHER_TWO, ReadStatus.OK)], "one is committed"


def test_the_answer_waits_until_the_era_is_durable() -> None:
    """A repeated request waits for the first one's record, too."""
    disk = writable()
    assert disk.handle(raised(2, TWO)) == [EraRaised(TWO)]
    assert disk.handle(raised(3, TWO)) == []
    assert disk.node.durable_era == FIRST_ERA, "what an inventory states"
    assert disk.sync() == [AnswerEra(2, TWO, ReadStatus.OK), AnswerEra(3, TWO, ReadStatus.OK)]
    assert disk.node.durable_era == TWO
    assert [record.kind for record in disk.synced].count(RecordKind.ERA) == 1


def test_an_era_for_another_incarnation_is_refused() -> None:
    disk = Disk()
    assert disk.handle(EraReceived(1, B, TWO, committed=False)) == [
        AnswerEra(1, FIRST_ERA, ReadStatus.WRONG_INCARNATION)
    ]


@pytest.mark.hazard("era-of-a-liar")
@pytest.mark.parametrize("committed", [False, True])
def test_a_jump_that_no_restore_takes_is_refused(committed: bool) -> None:
    """One such call would use up the eras, and each node of the cluster would have to be raised by hand."""
    highest = Era(1 + ERA_JUMP_MAX, "a" * 32)
    above = Era(2 + ERA_JUMP_MAX, "a" * 32)
    StoredEra().refuse_jump(highest)
    with pytest.raises(InvalidArgument, match="more than 1000 above era 1"):
        StoredEra().refuse_jump(above)
    assert StoredEra().raised(above, committed=committed) == StoredEra()
    assert StoredEra().raised(highest, committed=committed).era == highest


# --- who is served ----------------------------------------------------------------------------------------------------


@pytest.mark.hazard("era-at-one-node")
def test_calls_of_a_former_era_are_stale_and_those_of_a_newer_one_are_not_believed() -> None:
    """A newer era is taken from a restore or from the cluster's record, never from a caller."""
    stored = StoredEra(TWO)
    stored.refuse(TWO)
    for former in (FIRST_ERA, OTHER_TWO):
        with pytest.raises(StaleEra, match=f"is in era {TWO}, and the call is of era {former}") as caught:
            stored.refuse(former)
        assert caught.value.details == {"era": str(TWO)}
    with pytest.raises(ServiceUnavailable, match="retry"):
        stored.refuse(THREE)
    with pytest.raises(ServiceUnavailable, match="retry"):
        StoredEra(TWO, EraState.CLAIMED).refuse(OTHER_TWO)  # the other restore may have won


@pytest.mark.hazard("era-at-one-node")
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("kind", ["ordinary", "recovery", "repair"])
def test_nothing_of_a_former_era_is_added_behind_the_new_one(restarted: bool, kind: str) -> None:
    """The former owner has the ledger open here; its ack quorum must not be complete with this node."""
    disk = in_era(TWO)
    if restarted:
        disk.start()
    add = append(3, E1, recovery=kind == "recovery", repair=kind == "repair")
    assert disk.handle(add) == [answer(3, AppendStatus.NOT_WRITABLE, 1)]
    assert disk.handle(of(OTHER_TWO, add)) == [answer(3, AppendStatus.NOT_WRITABLE, 1)]
    assert disk.unsynced == []


def test_ledgers_of_former_eras_take_recovery_and_no_ordinary_adds() -> None:
    """The takeover in the new era recovers the last ledger of each list."""
    disk = in_era(TWO)
    assert disk.handle(of(TWO, append(3, E1))) == [answer(3, AppendStatus.NOT_WRITABLE, 1)]
    assert disk.handle(of(TWO, append(4, E1, recovery=True))) == []
    assert disk.sync() == [answer(4, AppendStatus.OK, 1)]


def test_ledgers_of_the_new_era_are_written_once_its_records_are_read() -> None:
    """Until then the node's checks read the records of the former era, which name no such ledger."""
    disk = in_era(TWO)
    add = of(TWO, append(3, NEW_ENTRY))
    assert disk.handle(add) == [answer(3, AppendStatus.NOT_WRITABLE, 0, ledger_id=NEW)]
    disk.handle(RecordsOpened(TWO))
    assert disk.handle(add) == [CheckLedger(NEW, 2)]
    assert disk.handle(LedgerChecked(NEW, 2, replace(OPEN, ledger_id=NEW))) == []
    assert disk.sync() == [answer(3, AppendStatus.OK, 0, ledger_id=NEW)]
    assert disk.node.ledgers.fence_state(NEW) is FenceState.HELD


@pytest.mark.hazard("inventory-before-the-era")
def test_what_lies_before_the_era_in_the_journal_stands() -> None:
    """The add was on its way to the disk when the era came: it is durable before the era is, and an inventory that is
    taken behind the era has it. What was answered to its owner is in there."""
    disk = writable()
    assert disk.handle(append(2, E1)) == []
    assert disk.handle(raised(3, TWO)) == [EraRaised(TWO)]
    assert disk.handle(append(4, E2)) == [answer(4, AppendStatus.NOT_WRITABLE, 2)]
    assert disk.sync() == [answer(2, AppendStatus.OK, 1), AnswerEra(3, TWO, ReadStatus.OK)]
    assert disk.node.ledgers.fence_state(LEDGER) is FenceState.FENCED
    disk.start()
    assert disk.handle(read(5, 0, 3)) == [read_answer(5, [0, 1], [2], last=1)]
    assert disk.node.era == TWO


@pytest.mark.hazard("inventory-before-the-era")
def test_adds_that_wait_for_their_ledgers_record_are_refused_by_the_era() -> None:
    """They came before the era, and would be stored behind it when the record has been read."""
    disk = Disk()
    assert disk.handle(append(1, entry(0))) == [CheckLedger(LEDGER, 1)]
    assert disk.handle(raised(2, TWO)) == [answer(1, AppendStatus.NOT_WRITABLE, 0), EraRaised(TWO)]
    assert disk.handle(LedgerChecked(LEDGER, 1, OPEN)) == []
    assert disk.sync() == [AnswerEra(2, TWO, ReadStatus.OK)]
    assert [record.kind for record in disk.synced] == [RecordKind.ERA]


# --- records of another era -------------------------------------------------------------------------------------------


@pytest.mark.hazard("the-lost-ensemble-returns")
def test_a_review_by_records_of_a_former_era_erases_nothing() -> None:
    """The old ZooKeeper is back, and its repairer has moved the copy away, or has deleted the topic."""
    moved = replace(OPEN, members=(B, C)).closed(end=EntryId(0), length=10)
    disk = writable()
    assert disk.handle(review(2)) == [CheckLedger(LEDGER, 2, ORIGIN)]
    checked = disk.handle(LedgerChecked(LEDGER, 2, replace(moved, verified=True), 3))
    assert [type(effect) for effect in checked] == [TouchRecord]
    disk.handle(raised(3, TWO))
    assert disk.handle(RecordTouched(LEDGER, 2, WriteStatus.OK)) == [reviewed(2, CopyState.HELD)]
    disk.sync()
    assert disk.handle(review(4)) == [reviewed(4, CopyState.HELD)], "and no other one begins"
    assert RecordKind.LEDGER_ERASED not in [record.kind for record in disk.synced]
    assert disk.handle(read(5, 0, 1)) == [read_answer(5, [0], [], last=0)]


@pytest.mark.hazard("the-lost-ensemble-returns")
def test_a_review_that_was_reading_when_the_era_came_decides_nothing() -> None:
    disk = writable()
    assert disk.handle(review(2)) == [CheckLedger(LEDGER, 2, ORIGIN)]
    assert disk.handle(review(3)) == []
    disk.handle(raised(4, TWO))
    answers = disk.handle(LedgerChecked(LEDGER, 2, None, deleted=True))
    assert answers == [reviewed(2, CopyState.HELD), reviewed(3, CopyState.HELD)]
    disk.sync()
    assert [record.kind for record in disk.synced] == [RecordKind.ADD, RecordKind.ERA]


# --- a node that comes late -------------------------------------------------------------------------------------------


def test_a_node_that_comes_late_is_in_limbo_for_all_ledgers_of_former_eras() -> None:
    """The restore did not ask it. What it lacks may be lacking because it was away, so it proves nothing, until each
    ledger is whole again."""
    disk = in_era(TWO, committed=True)
    disk.start()
    disk.handle(RecordsOpened(TWO))
    assert disk.node.era == TWO
    assert disk.handle(read(3, 0, 2)) == [read_answer(3, [0], [], last=0, unreadable=(1,))]
    assert not disk.node.ledgers.limbo.covers(NEW)
    assert disk.node.copy_state(LEDGER) is CopyState.LIMBO

    assert disk.handle(review(4)) == [CheckLedger(LEDGER, 1, ORIGIN)]
    assert disk.handle(LedgerChecked(LEDGER, 1, OPEN.closed(end=EntryId(0), length=10))) == [
        VerifyLedger(LEDGER, 1, EntryId(0))
    ]
    disk.handle(LedgerVerified(LEDGER, 1))
    assert AnswerReview(4, LEDGER, CopyState.HELD, ReadStatus.OK) in disk.sync()
    disk.start()
    assert not disk.node.ledgers.limbo.covers(LEDGER)


def test_a_new_node_in_a_later_era_lacks_nothing() -> None:
    """Its directory was formatted after the restore. In limbo it would count as missing in the next one."""
    disk = Disk()
    assert disk.handle(raised(1, TWO, committed=True)) == [EraRaised(TWO)]
    assert disk.sync() == [AnswerEra(1, TWO, ReadStatus.OK)]
    disk.start()
    assert (disk.node.era, disk.node.ledgers.limbo.below) == (TWO, 0)


def test_a_node_that_the_restore_has_asked_is_not_in_limbo() -> None:
    disk = in_era(TWO)
    assert disk.handle(raised(3, TWO, committed=True)) == []
    assert disk.sync() == [AnswerEra(3, TWO, ReadStatus.OK)]
    assert not disk.node.ledgers.limbo.covers(LEDGER)
    assert disk.handle(FenceReceived(4, A, LEDGER)) == []


@pytest.mark.hazard("the-lost-ensemble-returns")
def test_a_node_does_not_join_a_cluster_of_a_former_era() -> None:
    """What it would register in is the ZooKeeper that was lost, or one of a restore that has lost."""
    committed, claimed = StoredEra(TWO), StoredEra(TWO, EraState.CLAIMED)
    for stored, era in [(committed, TWO), (committed, THREE), (claimed, TWO), (claimed, OTHER_TWO), (StoredEra(), TWO)]:
        assert stored.why_newer(era) == ""
    for era in (FIRST_ERA, OTHER_TWO):
        why = committed.why_newer(era)
        assert f"ZooKeeper is older than the data: this storage node is in era {TWO}, and ZooKeeper in era {era}" in why
    assert "a restore has raised the node and has not ended" in claimed.why_newer(FIRST_ERA)
