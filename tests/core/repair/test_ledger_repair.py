"""Repair of one ledger, step by step: what is written, copied and proved, and what interrupts it."""

import random
from dataclasses import replace

import pytest

from oncelog.core.ids import EntryId
from oncelog.core.ledger.metadata import EntryRange, LedgerKey, LedgerState
from oncelog.core.records.records import ReadRecord, WriteRecord
from oncelog.core.records.status import WriteStatus
from oncelog.core.repair.events import (
    CopyEntries,
    RepairFinished,
    RepairJob,
    RepairNodesChanged,
    RepairRecordRead,
    RepairResult,
    RepairStarted,
    VerifyCopy,
)
from oncelog.core.repair.ledger_repair import LedgerRepair
from tests.core.repair.repair_world import LEDGER, LIMITS, TOPIC, A, B, C, Copies, D, E, RepairWorld, closed, held

SWAP = RepairJob(LEDGER, replace=C, target=D)


def span(first: int, last: int) -> EntryRange:
    return EntryRange(EntryId(first), EntryId(last))


def lost_disk(end: int = 9, **fields: object) -> RepairWorld:
    """A and B hold everything; the directory of C is gone, and D is empty."""
    nodes = {A: held(*range(end + 1)), B: held(*range(end + 1)), D: Copies()}
    return RepairWorld(closed(end, **fields), nodes, retired=(C,))


def test_retired_member_is_replaced() -> None:
    """The record takes the steps of the design: joining, the swap, whole."""
    world = lost_disk(verified=True)
    assert world.result(SWAP) is RepairResult.WHOLE
    assert [(r.members, r.joining, r.verified) for r in world.written] == [
        ((A, B, C), D, False),
        ((A, B, D), None, False),
        ((A, B, D), None, True),
    ]
    assert world.nodes[D].sound == held(*range(10)).sound


@pytest.mark.hazard("copy-erased-before-joining")
def test_nothing_is_copied_before_the_record_names_the_joining_node() -> None:
    """A copy that the record does not name could be erased while it is filled."""
    repair = LedgerRepair(SWAP, lost_disk().view(), LIMITS)
    assert repair.handle(RepairStarted()) == [ReadRecord(LedgerKey(LEDGER))]
    joining = WriteRecord(LedgerKey(LEDGER), closed().join(D), 5)
    assert repair.handle(RepairRecordRead(closed(), 5)) == [joining]
    assert repair.handle(joining.answered(WriteStatus.OK, 6)) == [
        VerifyCopy(node, LEDGER, EntryId(0), 4, TOPIC) for node in (A, B, D)
    ]


@pytest.mark.hazard("replaced-member-erased-early")
def test_whole_is_cleared_when_a_node_joins_and_set_when_every_member_has_read_its_copy() -> None:
    world = lost_disk(verified=True)
    world.nodes[B].silent = True
    assert world.result(SWAP) is RepairResult.WAITING
    assert (world.record.members, world.record.verified) == ((A, B, D), False)
    world.nodes[B].silent = False
    assert world.result() is RepairResult.WHOLE
    assert world.record.verified


@pytest.mark.hazard("copy-of-one-source")
def test_every_id_is_copied_each_from_any_sound_copy() -> None:
    """A and B both lack entries that acknowledged writes left out; together they hold all of them."""
    world = lost_disk()
    world.nodes[A] = held(0, 1, 2, 5, 6, 7, 9)
    world.nodes[B] = held(2, 3, 4, 5, 8)
    assert world.result(SWAP) is RepairResult.WHOLE
    assert all(world.nodes[node].sound == held(*range(10)).sound for node in (A, B, D))
    assert not [source for source, target, _ in world.copied if source == target]


@pytest.mark.hazard("copy-of-one-source")
def test_absent_member_stays_listed_while_an_entry_may_be_on_it_alone() -> None:
    world = lost_disk()
    world.retired = ()
    del world.nodes[A].sound[4], world.nodes[B].sound[4]
    finished = world.run(world.repair(RepairJob(LEDGER, replace=C, target=D, absent=True)))
    assert finished is not None
    assert (finished.result, finished.unavailable) == (RepairResult.STUCK, (span(4, 4),))
    assert finished.waiting_for == (C,)
    assert world.record.members == (A, B, C)
    assert world.record.lost == ()


@pytest.mark.hazard("flapping-node")
def test_swap_stops_when_the_absent_member_returns() -> None:
    """Its copies are read where they are, and the node that was being filled leaves the record with `whole`."""
    world = lost_disk()
    world.retired = ()
    repair = world.repair(RepairJob(LEDGER, replace=C, target=D, absent=True))
    assert world.run(repair, steps=8) is None
    world.nodes[C] = held(*range(10))
    repair = world.repair(repair.job)
    assert world.run(repair) == RepairFinished(LEDGER, RepairResult.WHOLE, world.record, world.version)
    assert (world.record.members, world.record.joining) == ((A, B, C), None)


@pytest.mark.hazard("flapping-node")
def test_running_swap_is_given_up_at_the_next_range_when_the_member_returns() -> None:
    world = lost_disk()
    world.retired = ()
    repair = world.repair(RepairJob(LEDGER, replace=C, target=D, absent=True))
    effects = repair.handle(RepairStarted())
    returned = False
    while not isinstance(effect := effects.pop(0), RepairFinished):
        if isinstance(effect, CopyEntries) and not returned:
            returned = True
            world.nodes[C] = held(*range(10))
            effects += repair.handle(RepairNodesChanged(world.view()))
        event = world.answer(effect)
        assert event is not None
        effects += repair.handle(event)
    assert effect.result is RepairResult.WHOLE
    assert world.record.members == (A, B, C)
    assert len(world.copied) <= LIMITS.entries_max


@pytest.mark.hazard("repair-of-an-open-ledger")
@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_ledger_that_is_not_closed_is_left_alone(state: LedgerState) -> None:
    world = lost_disk(state=state)
    assert world.result(SWAP) is RepairResult.GONE
    assert world.written == []
    assert world.copied == []


@pytest.mark.hazard("repair-of-an-open-ledger")
def test_unlisted_ledger_is_left_alone() -> None:
    world = lost_disk()
    world.listed = False
    assert world.result(SWAP) is RepairResult.GONE
    assert world.written == []
    assert world.copied == []


@pytest.mark.hazard("late-repairer")
def test_late_repairer_does_not_swap_what_another_has_swapped() -> None:
    """The first repairer is interrupted after every step; meanwhile the second one replaces C by E."""
    for steps in range(200):
        world = lost_disk()
        world.nodes[E] = Copies()
        late = world.repair(SWAP)
        effects = late.handle(RepairStarted())
        for _ in range(steps):
            if isinstance(effects[0], RepairFinished):
                return
            event = world.answer(effects.pop(0))
            assert event is not None
            effects += late.handle(event)
        already = C not in world.record.members
        assert world.result(RepairJob(LEDGER, replace=C, target=E)) is RepairResult.WHOLE
        while not isinstance(effect := effects.pop(0), RepairFinished):
            event = world.answer(effect)
            assert event is not None
            effects += late.handle(event)
        assert effect.result is RepairResult.WHOLE
        assert (world.record.verified, world.record.joining) == (True, None)
        assert already or set(world.record.members) <= {A, B, D, E}
        for member in world.record.members:
            assert world.nodes[member].sound == held(*range(10)).sound
    raise AssertionError("the repair has more steps than expected")


@pytest.mark.hazard("late-repairer")
def test_record_that_is_gone_is_not_created_again() -> None:
    world = lost_disk()
    repair = world.repair(SWAP)
    effects = repair.handle(RepairStarted())
    (write,) = repair.handle(RepairRecordRead(closed(), 1))
    assert isinstance(write, WriteRecord)
    effects.append(write)
    assert repair.handle(write.answered(WriteStatus.CONFLICT)) == [ReadRecord(LedgerKey(LEDGER))]
    assert repair.handle(RepairRecordRead(None, -1)) == [RepairFinished(LEDGER, RepairResult.GONE)]
    assert repair.handle(write.answered(WriteStatus.OK, 3)) == []


@pytest.mark.hazard("differing-copies")
def test_sound_copies_that_differ_freeze_the_ledger() -> None:
    world = lost_disk()
    world.nodes[B].sound[6] = 1
    assert world.result(SWAP) is RepairResult.FROZEN
    assert world.record.frozen
    assert world.record.members == (A, B, C)
    before = list(world.written)
    assert world.result(SWAP) is RepairResult.FROZEN
    assert world.written == before


@pytest.mark.hazard("differing-copies")
def test_entries_after_the_end_are_not_copied() -> None:
    world = lost_disk()
    world.nodes[A].sound[10] = 1010
    assert world.result(SWAP) is RepairResult.WHOLE
    assert 10 not in world.nodes[D].sound


def test_damaged_member_is_filled_in_place() -> None:
    """Only what it lacks is copied, and `whole` is taken back before that."""
    world = lost_disk(verified=True)
    world.nodes[C] = held(*range(10))
    for entry_id in (2, 3, 8):
        del world.nodes[C].sound[entry_id]
        world.nodes[C].damaged[entry_id] = None
    assert world.result(RepairJob(LEDGER, damaged=(C,))) is RepairResult.WHOLE
    assert [(r.verified, r.members) for r in world.written] == [(False, (A, B, C)), (True, (A, B, C))]
    assert sorted(entry_id for _, target, entry_id in world.copied if target == C) == [2, 3, 8]


def test_whole_ledger_without_work_is_read_only() -> None:
    world = lost_disk(verified=True)
    world.nodes[C] = held(*range(10))
    assert world.result() is RepairResult.WHOLE
    assert world.written == []
    assert world.copied == []


def test_empty_ledger_is_whole_at_once_after_the_swap() -> None:
    world = lost_disk(-1)
    assert world.result(SWAP) is RepairResult.WHOLE
    assert [(r.joining, r.members) for r in world.written] == [(D, (A, B, C)), (None, (A, B, D)), (None, (A, B, D))]


def test_retired_directory_that_is_served_again_is_a_source() -> None:
    world = lost_disk()
    del world.nodes[A].sound[4], world.nodes[B].sound[4]
    world.nodes[C] = held(4)
    assert world.result(SWAP) is RepairResult.WHOLE
    assert (C, D, 4) in world.copied


def test_copy_that_no_record_names_is_a_source() -> None:
    world = lost_disk()
    del world.nodes[A].sound[4], world.nodes[B].sound[4]
    world.nodes[E] = held(4)
    assert world.result(SWAP) is RepairResult.WHOLE
    assert (E, D, 4) in world.copied


@pytest.mark.parametrize("status", [WriteStatus.CONFLICT, WriteStatus.UNKNOWN])
@pytest.mark.parametrize("write", range(3))
def test_repair_begins_anew_after_each_failed_write(write: int, status: WriteStatus) -> None:
    """UNKNOWN: the write was applied, and its reply is lost."""
    world = lost_disk(verified=True)
    world.statuses = [WriteStatus.OK] * write + [status]
    assert world.result(SWAP) is RepairResult.WHOLE
    assert world.record == closed(members=(A, B, D), verified=True)


def test_another_repairer_finishes_a_repair_that_stopped_at_any_step() -> None:
    """What the target holds by then is not copied again."""
    for steps in range(200):
        world = lost_disk(verified=True)
        if world.run(world.repair(SWAP), steps=steps) is not None:
            return
        assert world.result(SWAP) is RepairResult.WHOLE
        assert world.record == closed(members=(A, B, D), verified=True)
        assert len(world.copied) == len(dict.fromkeys(world.copied)) == 10
    raise AssertionError("the repair has more steps than expected")


@pytest.mark.parametrize("seed", range(30))
def test_answers_in_any_order_lead_to_the_same_record(seed: int) -> None:
    rng = random.Random(seed)
    world = lost_disk()
    for node in (A, B):
        for entry_id in rng.sample(range(10), 3):
            if entry_id in world.nodes[A].sound and entry_id in world.nodes[B].sound:
                del world.nodes[node].sound[entry_id]
                world.nodes[node].damaged[entry_id] = None
    finished = world.run(world.repair(RepairJob(LEDGER, C, D, damaged=(A, B))), rng=rng)
    assert finished is not None
    assert finished.result is RepairResult.WHOLE
    assert world.record == closed(members=(A, B, D), verified=True)


def test_full_target_is_reported() -> None:
    world = lost_disk()
    world.nodes[D].full = True
    finished = world.run(world.repair(SWAP))
    assert finished is not None
    assert (finished.result, finished.waiting_for) == (RepairResult.TARGET_REFUSED, (D,))
    assert world.record.members == (A, B, C)


def test_silent_target_ends_the_repair_without_a_swap() -> None:
    world = lost_disk()
    world.nodes[D].silent = True
    assert world.result(SWAP) is RepairResult.TARGET_FAILED
    assert world.record.members == (A, B, C)


@pytest.mark.parametrize("kept", [True, False])
def test_absent_joining_node_is_exchanged_only_if_the_members_hold_everything(*, kept: bool) -> None:
    """It may hold the only copy of an entry."""
    world = lost_disk()
    world.record = closed().join(E)
    if kept:
        del world.nodes[A].sound[4], world.nodes[B].sound[4]
        assert world.result(SWAP) is RepairResult.STUCK
        assert world.record.joining == E
    else:
        assert world.result(SWAP) is RepairResult.WHOLE
        assert world.record.members == (A, B, D)


@pytest.mark.hazard("ledger-id-given-twice")
@pytest.mark.parametrize("kept", [True, False])
def test_joining_node_that_holds_another_ledger_is_exchanged(*, kept: bool) -> None:
    """It refuses every copy, for ever. Without another node to take its place it stays, as an absent one does."""
    world = lost_disk()
    world.record = closed().join(E)
    world.nodes[E] = Copies(other=True)
    if kept:
        assert world.result(replace(SWAP, target=None)) is RepairResult.TARGET_FAILED
        assert world.record.joining == E
    else:
        assert world.result(SWAP) is RepairResult.WHOLE
        assert world.record.members == (A, B, D)


@pytest.mark.hazard("ledger-id-given-twice")
def test_target_that_holds_another_ledger_is_no_member() -> None:
    """It joined before that was known. The next repair has another target."""
    world = lost_disk()
    world.nodes[D] = Copies(other=True)
    assert world.result(SWAP) is RepairResult.TARGET_FAILED
    assert (world.record.members, world.record.joining) == ((A, B, C), D)


def test_joining_node_of_the_record_is_filled_further() -> None:
    world = lost_disk()
    world.record = closed().join(E)
    world.nodes[E] = held(0, 1, 2)
    assert world.result(SWAP) is RepairResult.WHOLE
    assert world.record.members == (A, B, E)
    assert len(world.copied) == 7
