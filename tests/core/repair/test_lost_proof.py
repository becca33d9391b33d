"""Entries are lost only by proof: what a repair asks before it writes that no node has an entry, and what ends it."""

import pytest

from oncelog.core.ids import Incarnation
from oncelog.core.records.records import ReadRecord, WriteRecord
from oncelog.core.records.status import WriteStatus
from oncelog.core.repair.events import (
    RepairFinished,
    RepairJob,
    RepairNodesChanged,
    RepairResult,
    RepairStarted,
    VerifyCopy,
)
from tests.core.repair.repair_world import LEDGER, OWNER, A, B, C, Copies, D, E, RepairWorld, closed, held
from tests.core.repair.test_ledger_repair import SWAP, lost_disk, span


def lossy() -> RepairWorld:
    world = lost_disk()
    del world.nodes[A].sound[4], world.nodes[B].sound[4]
    world.nodes[B].damaged[4] = None
    return world


@pytest.mark.hazard("lost-too-early")
def test_entry_is_lost_when_every_holder_lacks_it() -> None:
    """The other entries get all their copies; the ledger is never whole."""
    world = lossy()
    assert world.result(SWAP) is RepairResult.LOST
    assert world.record == closed(members=(A, B, D), lost=(span(4, 4),))
    assert world.nodes[D].sound == held(*(e for e in range(10) if e != 4)).sound


@pytest.mark.hazard("lost-too-early")
@pytest.mark.parametrize("who", ["absent member", "silent node", "member that erased its copy"])
def test_entry_is_not_lost_while_a_node_may_hold_it(who: str) -> None:
    world = lossy()
    if who == "absent member":
        world.retired = ()
    elif who == "silent node":
        world.nodes[E] = Copies(silent=True)
    else:
        world.nodes[C] = Copies(erased=True)
    finished = world.run(world.repair(SWAP))
    assert finished is not None
    assert finished.result is RepairResult.STUCK
    assert finished.unavailable == (span(4, 4),)
    assert finished.waiting_for == (E if who == "silent node" else C,)
    assert world.record.lost == ()


@pytest.mark.hazard("lost-too-early")
def test_entry_that_the_owner_has_in_memory_is_stored_again() -> None:
    """The owner is asked before the entry is called lost."""
    world = lossy()
    world.memory = {4: held(4).sound[4]}
    assert world.result(SWAP) is RepairResult.WHOLE
    assert world.record == closed(members=(A, B, D), verified=True)


@pytest.mark.hazard("lost-too-early")
def test_entry_is_not_lost_while_the_owner_does_not_answer() -> None:
    world = lossy()
    world.memory = None
    finished = world.run(world.repair(SWAP))
    assert finished is not None
    assert (finished.result, finished.waiting_for) == (RepairResult.STUCK, (OWNER,))
    assert world.record.lost == ()


@pytest.mark.hazard("lost-too-early")
def test_other_node_that_erased_its_copy_does_not_prevent_the_proof() -> None:
    world = lossy()
    world.nodes[E] = Copies(erased=True)
    assert world.result(SWAP) is RepairResult.LOST


@pytest.mark.hazard("lost-too-early")
def test_proof_counts_only_under_an_unchanged_record() -> None:
    """The write of `lost` conflicts. The proof is made again under the new version; a holder is back by then."""
    world = lossy()
    world.statuses = [WriteStatus.OK, WriteStatus.CONFLICT]
    repair = world.repair(SWAP)
    effects = repair.handle(RepairStarted())
    while not isinstance(effect := effects.pop(0), RepairFinished):
        if isinstance(effect, WriteRecord) and effect.value.lost:
            world.nodes[E] = held(4)
            effects += repair.handle(RepairNodesChanged(world.view()))
        event = world.answer(effect)
        assert event is not None
        effects += repair.handle(event)
    assert effect.result is RepairResult.WHOLE
    assert world.record.lost == ()


@pytest.mark.hazard("lost-too-early")
def test_node_that_registers_during_the_proof_is_asked_too() -> None:
    world = lossy()
    repair = world.repair(SWAP)
    effects = repair.handle(RepairStarted())
    asked = 0
    while not isinstance(effect := effects.pop(0), RepairFinished):
        asked += isinstance(effect, VerifyCopy) and effect.first == 4 and effect.count == 1
        if asked == 1 and E not in world.nodes:
            world.nodes[E] = held(4)
            effects += repair.handle(RepairNodesChanged(world.view()))
        event = world.answer(effect)
        assert event is not None
        effects += repair.handle(event)
    assert effect.result is RepairResult.WHOLE
    assert world.record.lost == ()


@pytest.mark.hazard("lost-too-early")
def test_entry_that_another_repairer_copies_during_the_proof_is_not_lost() -> None:
    """C was asked before it got the entry, and its source A lost the entry before it was asked."""
    everything, rest = held(*range(10)), [entry_id for entry_id in range(10) if entry_id != 4]
    world = RepairWorld(closed(), {C: held(*rest), A: everything, B: held(*rest)})
    world.nodes[A].silent = True
    repair = world.repair()
    effects = repair.handle(RepairStarted())
    while not isinstance(effect := effects.pop(0), RepairFinished):
        if isinstance(effect, VerifyCopy) and effect.count == 1 and effect.node == A and world.nodes[A].silent:
            world.nodes[C].sound[4] = world.nodes[A].sound.pop(4)
            world.nodes[A].damaged[4] = None
            world.nodes[A].silent = False
        event = world.answer(effect)
        assert event is not None
        effects += repair.handle(event)
    assert not [record for record in world.written if record.lost]
    assert effect.result is RepairResult.WHOLE
    assert world.nodes[A].sound[4] == world.nodes[C].sound[4]


@pytest.mark.hazard("lost-too-early")
@pytest.mark.parametrize("silent_again", [False, True])
def test_proof_needs_two_complete_rounds(*, silent_again: bool) -> None:
    """A node that answers the first question and not the second one may have got the entry in between."""
    world = lossy()
    world.nodes[E] = Copies()
    repair = world.repair(SWAP)
    effects = repair.handle(RepairStarted())
    asked: list[Incarnation] = []
    while not isinstance(effect := effects.pop(0), RepairFinished):
        if isinstance(effect, VerifyCopy) and effect.first == 4 and effect.count == 1:
            asked.append(effect.node)
            world.nodes[E].silent = silent_again and asked.count(E) == 2
        event = world.answer(effect)
        assert event is not None
        effects += repair.handle(event)
    assert asked == [A, B, D, E] * 2
    assert effect.result is (RepairResult.STUCK if silent_again else RepairResult.LOST)
    assert world.record.lost == (() if silent_again else (span(4, 4),))


@pytest.mark.hazard("lost-too-early")
@pytest.mark.parametrize("returns", [False, True])
def test_proof_begins_anew_when_a_node_leaves(*, returns: bool) -> None:
    """Also when it is registered again before the proof ends."""
    world = lossy()
    world.nodes[E] = Copies()
    repair = world.repair(SWAP)
    effects = repair.handle(RepairStarted())
    asked, reads = 0, 0
    while not isinstance(effect := effects.pop(0), RepairFinished):
        reads += isinstance(effect, ReadRecord)
        asked += isinstance(effect, VerifyCopy) and effect.first == 4 and effect.count == 1
        if asked == 5 and E in world.nodes and reads == 1:
            left = world.nodes.pop(E)
            effects += repair.handle(RepairNodesChanged(world.view()))
            if returns:
                world.nodes[E] = left
                effects += repair.handle(RepairNodesChanged(world.view()))
        assert reads == 2 or not (isinstance(effect, WriteRecord) and effect.value.lost)
        event = world.answer(effect)
        assert event is not None
        effects += repair.handle(event)
    assert effect.result is RepairResult.LOST
    assert reads == 2


@pytest.mark.hazard("lost-too-early")
@pytest.mark.parametrize("holder", [C, E])
def test_holder_that_returns_takes_lost_entries_back(holder: Incarnation) -> None:
    world = lossy()
    assert world.result(SWAP) is RepairResult.LOST
    world.nodes[holder] = held(4)
    assert world.result() is RepairResult.WHOLE
    assert world.record == closed(members=(A, B, D), verified=True)


def test_lost_entries_stay_lost_in_further_repairs() -> None:
    world = lossy()
    assert world.result(SWAP) is RepairResult.LOST
    del world.nodes[B]
    world.retired = (B, C)
    world.nodes[E] = Copies()
    assert world.result(RepairJob(LEDGER, replace=B, target=E)) is RepairResult.LOST
    assert world.record == closed(members=(A, E, D), lost=(span(4, 4),))


def test_ledger_without_any_copy_is_lost_as_a_whole() -> None:
    world = RepairWorld(closed(), {D: Copies(), E: Copies()}, retired=(A, B, C))
    assert world.result(RepairJob(LEDGER, replace=A, target=D)) is RepairResult.WAITING
    assert (world.record.lost, world.record.members) == ((span(0, 9),), (D, B, C))


def test_without_a_registered_node_nothing_is_proved() -> None:
    world = RepairWorld(closed(), {}, retired=(A, B, C))
    assert world.result() is RepairResult.WAITING
    assert world.written == []
