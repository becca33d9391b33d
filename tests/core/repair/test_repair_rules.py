"""Rules of repair that matter only where a storage node, another repairer or the timing is unusual."""

from collections.abc import Iterator

import pytest

from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.ledger.metadata import EntryRange, LedgerState
from oncelog.core.ledger.storage_nodes import NodeView, StorageNodes
from oncelog.core.records.status import WriteStatus
from oncelog.core.repair.copies import RangeCopies
from oncelog.core.repair.events import (
    CopyEntries,
    CopyOutcome,
    CopyVerified,
    EntriesCopied,
    RepairEffect,
    RepairFinished,
    RepairJob,
    RepairNodesChanged,
    RepairResult,
    RepairStarted,
    VerifyCopy,
)
from oncelog.core.repair.ledger_repair import LedgerRepair
from oncelog.core.repair.node_removal import decommission_refusal
from oncelog.core.repair.queue_events import AskOwnerToRoll, DamageReported
from tests.core.repair.queue_world import LOG, OWNER, QueueWorld, record
from tests.core.repair.repair_world import LEDGER, TOPIC, A, B, C, Copies, D, E, RepairWorld, closed, held
from tests.core.repair.test_ledger_repair import SWAP, lost_disk


class Forgetful(RepairWorld):
    """Storage node D acknowledges copies that it does not store."""

    def _copy(self, effect: CopyEntries) -> EntriesCopied:
        return EntriesCopied(effect.source, effect.target, effect.ids)


class Unreadable(RepairWorld):
    """Storage node A reads its copies back, but every read of them by others fails."""

    def _copy(self, effect: CopyEntries) -> EntriesCopied:
        if effect.source == A:
            return EntriesCopied(A, effect.target, (), CopyOutcome.SOURCE_FAILED)
        return super()._copy(effect)


class Unreviewed(RepairWorld):
    """Storage nodes do not answer reviews."""

    def _review(self, name: Incarnation) -> CopyState | None:
        return None


def effects_of(world: RepairWorld, repair: LedgerRepair) -> Iterator[RepairEffect]:
    """Each effect before it is answered, up to the end of the repair."""
    effects = repair.handle(RepairStarted())
    while effects:
        effect = effects.pop(0)
        yield effect
        event = world.answer(effect)
        if event is not None:
            effects += repair.handle(event)


# --- one ledger -------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("late-repairer")
def test_repair_gives_up_after_many_conflicts() -> None:
    world = lost_disk()
    world.statuses = [WriteStatus.CONFLICT] * 20
    assert world.result(SWAP) is RepairResult.CONFLICT
    assert world.written == []


@pytest.mark.hazard("late-repairer")
def test_record_is_read_again_when_the_target_is_not_named_any_more() -> None:
    """Another repairer has finished the same repair with another node meanwhile."""
    world = lost_disk()
    world.nodes[E] = held(*range(10))
    repair, finished = world.repair(SWAP), None
    for effect in effects_of(world, repair):
        if isinstance(effect, CopyEntries) and world.record.joining == D:
            world.record = closed(members=(A, B, E), verified=True)
            world.version += 2
        if isinstance(effect, RepairFinished):
            finished = effect
    assert finished is not None
    assert finished.result is RepairResult.WHOLE
    assert world.record.members == (A, B, E)


@pytest.mark.hazard("replaced-member-erased-early")
def test_ledger_is_not_whole_while_a_filled_member_has_not_cleared_its_damage() -> None:
    world = Unreviewed(closed(), {A: held(*range(10)), B: held(*range(10)), C: Copies()})
    assert world.result() is RepairResult.WAITING
    assert not world.record.verified


@pytest.mark.parametrize("unfit", ["retired", "draining", "member", "absent"])
def test_unfit_target_never_joins(unfit: str) -> None:
    """The nodes have changed since the job was made."""
    world = lost_disk()
    job = RepairJob(LEDGER, replace=C, target=B if unfit == "member" else D)
    if unfit == "retired":
        world.retired = (C, D)
    elif unfit == "draining":
        world.draining = (D,)
    elif unfit == "absent":
        del world.nodes[D]
    assert world.result(job) is RepairResult.WAITING
    assert all(each.joining is None for each in world.written)
    assert world.record.members == (A, B, C)


@pytest.mark.hazard("replaced-member-erased-early")
def test_acknowledged_copy_that_cannot_be_read_back_does_not_count() -> None:
    world = Forgetful(closed(), {A: held(*range(10)), B: held(*range(10)), D: Copies()}, retired=(C,))
    assert world.result(SWAP) is RepairResult.TARGET_FAILED
    assert world.record.members == (A, B, C)


@pytest.mark.hazard("copy-of-one-source")
def test_source_that_cannot_be_read_is_replaced_by_another_one() -> None:
    world = Unreadable(closed(), {A: held(*range(10)), B: held(*range(10)), D: Copies()}, retired=(C,))
    assert world.result(SWAP) is RepairResult.WHOLE
    assert {source for source, _, _ in world.copied} == {B}


def test_nothing_is_copied_to_a_silent_target() -> None:
    world = lost_disk()
    world.nodes[D].silent = True
    effects = list(effects_of(world, world.repair(SWAP)))
    assert not [effect for effect in effects if isinstance(effect, CopyEntries)]


@pytest.mark.hazard("copy-of-one-source")
def test_joining_node_that_leaves_stays_listed_while_it_alone_holds_an_entry() -> None:
    world = lost_disk(joining=D)
    world.draining = (D,)
    world.nodes |= {D: held(4), E: Copies()}
    del world.nodes[A].sound[4], world.nodes[B].sound[4]
    assert world.result(RepairJob(LEDGER, replace=C, target=E)) is RepairResult.STUCK
    assert world.record.joining == D


@pytest.mark.hazard("lost-too-early")
def test_nothing_is_lost_when_no_storage_node_is_registered_any_more() -> None:
    """All three directories are retired, and D leaves while it is filled: no node is left that could deny an entry."""
    world = lost_disk()
    world.retired = (A, B, C)
    repair, finished = world.repair(SWAP), None
    for effect in effects_of(world, repair):
        if isinstance(effect, CopyEntries) and world.nodes:
            world.nodes.clear()
            repair.handle(RepairNodesChanged(world.view()))
        if isinstance(effect, RepairFinished):
            finished = effect
    assert finished is not None
    assert finished.result is RepairResult.WAITING
    assert world.record.lost == ()


def test_repair_of_an_empty_ledger_waits_until_a_storage_node_is_registered() -> None:
    """All nodes have left since the job was made."""
    world = RepairWorld(closed(end=-1), {})
    assert world.result() is RepairResult.WAITING
    assert world.written == []


@pytest.mark.hazard("lost-too-early")
def test_lost_entries_are_asked_for_twice_and_not_copied() -> None:
    lost = (EntryRange(EntryId(4), EntryId(4)),)
    world = RepairWorld(closed(lost=lost), {node: held(0, 1, 2, 3, 5, 6, 7, 8, 9) for node in (A, B, C)})
    asked = [
        effect.node
        for effect in effects_of(world, world.repair())
        if isinstance(effect, VerifyCopy) and effect.first <= 4 < effect.first + effect.count
    ]
    assert sorted(asked) == [A, A, B, B, C, C]
    assert world.record.lost == lost


def test_late_answer_of_a_storage_node_is_ignored() -> None:
    asked: list[VerifyCopy] = []
    copies = RangeCopies(closed(), EntryRange(EntryId(0), EntryId(3)), asked.append)
    copies.ask(A)
    copies.note(CopyVerified(A, EntryId(2), next_entry=EntryId(4), checksums=[1, 1], missing=[], unreadable=[]))
    assert copies.waiting()
    assert A not in copies.answered


# --- the queue --------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("repair-of-an-open-ledger", "damaged-fence")
def test_owner_of_an_open_ledger_with_a_damaged_member_is_asked_to_roll() -> None:
    """Limbo ends only when the ledger is CLOSED, and an idle owner does not notice it."""
    world = QueueWorld(record(1, state=LedgerState.OPEN, verified=False, end=NO_ENTRY))
    world.queue.handle(DamageReported(B, (LedgerId(1),)))
    assert world.tick() == [AskOwnerToRoll(TOPIC, OWNER, LOG, LedgerId(1))]


def test_damaged_copy_is_not_counted_as_a_copy() -> None:
    world = QueueWorld(record(1))
    world.queue.handle(DamageReported(B, (LedgerId(1),)))
    assert world.queue.counts.under_replicated == 1


@pytest.mark.hazard("open-ledger-without-quorum")
def test_open_ledger_that_no_recovery_can_close_is_unavailable() -> None:
    world = QueueWorld(record(1, state=LedgerState.OPEN, verified=False, end=NO_ENTRY))
    world.change(B, registered=False)
    assert world.queue.counts.unavailable == 0
    world.change(C, registered=False)
    assert world.queue.counts.unavailable == 1


def test_lost_member_is_replaced_before_one_that_still_serves() -> None:
    world = QueueWorld(record(1))
    world.change(A, draining=True)
    world.lose(B)
    assert world.job().replace == B


def test_absent_node_gets_no_copies() -> None:
    world = QueueWorld(record(1))
    world.change(D, registered=False)
    world.lose(C)
    assert world.tick() == []


@pytest.mark.hazard("update-waits-for-copies")
def test_retired_directory_that_is_served_again_is_no_debt() -> None:
    """No node waits for copies that its predecessor still gives."""
    world = QueueWorld(record(1))
    world.change(C, retired=True)
    assert world.queue.debt(C) == 0
    world.change(C, registered=False)
    assert world.queue.debt(C) == 1


@pytest.mark.hazard("update-waits-for-copies")
def test_absent_member_is_no_debt() -> None:
    """It may return with its copies, so no node waits for them."""
    world = QueueWorld(record(1))
    world.change(C, registered=False)
    world.tick(2000)
    assert world.queue.debt(C) == 0


@pytest.mark.hazard("flapping-node")
def test_absence_goes_on_while_other_nodes_change() -> None:
    world = QueueWorld(record(1))
    world.change(C, registered=False)
    world.tick(600)
    world.change(D, read_only=True)
    world.change(D, read_only=False)
    world.tick(400)
    assert world.queue.running[LedgerId(1)].replace == C


def test_node_without_a_cookie_may_return() -> None:
    world = QueueWorld(record(1, A, B, E))
    found = world.queue.assessment(LedgerId(1))
    assert found is not None
    assert found.waiting_for == (E,)


@pytest.mark.hazard("too-few-nodes")
def test_retired_directory_that_is_served_again_does_not_count_as_a_copy() -> None:
    world = QueueWorld(record(1))
    world.change(C, retired=True)
    assert world.queue.counts.under_replicated == 1


@pytest.mark.hazard("too-few-nodes")
def test_nodes_that_leave_do_not_count_for_a_decommission() -> None:
    views = [NodeView(A), NodeView(B), NodeView(C), NodeView(D, draining=True)]
    assert decommission_refusal(C, StorageNodes(views), write_quorum=3) is not None
    assert decommission_refusal(C, StorageNodes(views), write_quorum=2) is None
