"""When a repair that did not make its ledger whole is tried again, and what ends the pause before it."""

import pytest

from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.metadata import EntryRange
from oncelog.core.repair.events import RepairJob, RepairResult
from oncelog.core.repair.queue_events import (
    LedgerRecorded,
    StartRepair,
)
from tests.core.repair.queue_world import QueueWorld, record
from tests.core.repair.repair_world import A, B, C, D, E


def test_target_that_refuses_is_avoided_for_a_while() -> None:
    world = QueueWorld(record(1), record(2))
    world.lose(C)
    job = world.job()
    world.end(job, RepairResult.TARGET_REFUSED, waiting_for=(D,))
    assert world.tick(50) == []
    world.change(E)
    assert world.job().target == E
    world.change(E, read_only=True)
    assert [effect.job.target for effect in world.tick(60) if isinstance(effect, StartRepair)] == []
    world.end(RepairJob(job.ledger_id), RepairResult.CONFLICT)
    world.end(RepairJob(LedgerId(3 - job.ledger_id)), RepairResult.CONFLICT)
    assert [effect.job.target for effect in world.tick(100) if isinstance(effect, StartRepair)] == [D]


def test_repair_that_fails_is_tried_again_later() -> None:
    """The pause doubles, and ends when the storage nodes change."""
    world = QueueWorld(record(1))
    world.lose(C)
    for pause in (10, 20, 40, 80, 100, 100):
        world.end(world.job(), RepairResult.TARGET_FAILED, waiting_for=(D,))
        assert world.tick(pause - 1) == []
        world.now += 1
    world.end(world.job(), RepairResult.TARGET_FAILED, waiting_for=(D,))
    assert world.tick() == []
    world.change(B, registered=False)
    assert world.job().ledger_id == LedgerId(1)


@pytest.mark.hazard("lost-too-early")
def test_stuck_ledger_is_told_as_unavailable_until_a_node_registers() -> None:
    world = QueueWorld(record(1))
    world.lose(C)
    gap = (EntryRange(EntryId(4), EntryId(4)),)
    world.end(world.job(), RepairResult.STUCK, unavailable=gap, waiting_for=(E,))
    counts = world.queue.counts
    assert (counts.stuck, counts.unavailable, counts.lost) == (1, 1, 0)
    assessment = world.queue.assessment(LedgerId(1))
    assert assessment is not None
    assert (assessment.unavailable, assessment.waiting_for) == (gap, (E,))
    assert world.tick(9) == []
    world.change(E)
    job = world.job()
    world.end(job, RepairResult.WHOLE, record(1, A, B, D))
    assert (world.queue.counts.stuck, world.queue.counts.unavailable) == (0, 0)


@pytest.mark.hazard("lost-too-early")
def test_stuck_repair_is_tried_again_with_short_pauses() -> None:
    """Its source may be back although the queue saw no change: a node can restart within its session."""
    world = QueueWorld(record(1))
    world.lose(C)
    for pause in (10, 20, 40, 80, 100, 100):
        world.end(world.job(), RepairResult.STUCK, waiting_for=(A, B))
        assert world.queue.retry_in_ms(LedgerId(1)) == pause
        assert world.tick(pause - 1) == []
        world.now += 1


@pytest.mark.parametrize("result", [RepairResult.STUCK, RepairResult.WAITING, RepairResult.TARGET_FAILED])
def test_repair_is_tried_again_at_once_when_the_node_that_it_waits_for_answers(result: RepairResult) -> None:
    """The node was registered all the time: its process was stopped, or started again within its session."""
    world = QueueWorld(record(1), record(2))
    world.lose(C)
    for _ in range(2):
        each = world.job()
        world.end(each, result if each.ledger_id == LedgerId(1) else RepairResult.FROZEN, waiting_for=(B,))
    world.change(B, silent=True)
    assert world.tick(5) == []
    world.change(B, silent=False)
    assert world.job().ledger_id == LedgerId(1)


def test_repair_is_tried_again_at_once_when_another_writer_changes_the_record() -> None:
    """The records that a repair wrote are no change for it."""
    world = QueueWorld(record(1))
    world.lose(C)
    world.end(world.job(), RepairResult.TARGET_FAILED, record(1, verified=False, joining=D), waiting_for=(D,))
    world.queue.handle(LedgerRecorded(record(1, verified=False, joining=D), 1))
    assert world.tick(5) == []
    world.queue.handle(LedgerRecorded(record(1, verified=False), 2))
    assert world.job().ledger_id == LedgerId(1)


def test_change_during_a_repair_shortens_the_pause_after_it() -> None:
    """The repair may have looked before the change. Without the first pause it could run again and again."""
    world = QueueWorld(record(1))
    world.lose(C)
    for _ in range(4):
        world.end(world.job(), RepairResult.STUCK, waiting_for=(A, B))
        world.now += 100
    job = world.job()
    world.change(B, registered=False)
    world.change(B, registered=True)
    world.end(job, RepairResult.STUCK, waiting_for=(A, B))
    assert world.queue.retry_in_ms(LedgerId(1)) == 10


@pytest.mark.hazard("flapping-node")
def test_stuck_repair_is_tried_again_after_the_others() -> None:
    """It has the fewest copies, and would hold up those that can be made whole."""
    world = QueueWorld(record(1, A, C, E), record(2), record(3))
    world.change(E, registered=False)
    world.lose(C)
    first = world.job()
    assert first.ledger_id == LedgerId(1)
    world.end(first, RepairResult.STUCK, waiting_for=(E,))
    world.now += 100
    second, third = world.job(), world.tick()
    assert (second.ledger_id, third) == (LedgerId(2), [])
    world.end(second, RepairResult.WHOLE, record(2, A, B, D))
    third_job = world.job()
    assert third_job.ledger_id == LedgerId(3)
    world.end(third_job, RepairResult.WHOLE, record(3, A, B, D))
    assert world.job().ledger_id == LedgerId(1)


@pytest.mark.hazard("lost-too-early")
def test_lost_ledger_is_looked_at_again_when_a_node_registers() -> None:
    world = QueueWorld(record(1, A, B, D, verified=False, lost=(EntryRange(EntryId(4), EntryId(4)),)))
    assert world.queue.counts.lost == 1
    assert world.tick() == []
    world.change(E)
    assert world.tick() == [StartRepair(RepairJob(LedgerId(1)))]
