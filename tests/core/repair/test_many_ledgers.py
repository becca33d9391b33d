"""A queue with more ledgers than one event assesses."""

from dataclasses import replace

from oncelog.core.ids import LedgerId
from oncelog.core.repair.events import RepairJob
from oncelog.core.repair.queue_events import AssessmentsDue, DamageReported, QueueTicked, StartRepair
from tests.core.repair.queue_world import SETTINGS, QueueWorld, record
from tests.core.repair.repair_world import B, C, D

COUNT = 7
SOME = replace(SETTINGS, assessed_at_once=2)


def world_of_many() -> QueueWorld:
    return QueueWorld(*(record(number) for number in range(COUNT)), settings=SOME)


def steps_of(world: QueueWorld) -> list[int]:
    """The ledgers that are known to lack a copy after each event, until all are assessed."""
    found = [world.queue.counts.under_replicated]
    while world.queue.behind:
        assert world.tick() == [], "nothing begins before all are assessed"
        assert world.queue.handle(AssessmentsDue()) == []
        world.check_copies()
        found.append(world.queue.counts.under_replicated)
    return found


def test_ledgers_of_a_lost_node_are_assessed_some_at_a_time() -> None:
    world = world_of_many()
    world.lose(C)
    assert steps_of(world) == [2, 4, 6, 7]
    assert world.tick() == [StartRepair(RepairJob(LedgerId(0), replace=C, target=D))]


def test_ledgers_with_damage_are_assessed_some_at_a_time() -> None:
    """What the node reports counts at once where a single ledger or the removal of a node is judged."""
    world = world_of_many()
    world.queue.handle(DamageReported(B, tuple(map(LedgerId, range(COUNT)))))
    assert world.queue.damaged(LedgerId(COUNT - 1)) == (B,)
    assert steps_of(world) == [2, 4, 6, 7]
    world.queue.handle(DamageReported(B, ()))
    assert world.queue.damaged(LedgerId(0)) == ()
    assert steps_of(world) == [5, 3, 1, 0]


def test_ledgers_of_a_long_absent_node_are_assessed_some_at_a_time() -> None:
    world = world_of_many()
    world.change(C, registered=False)
    assert steps_of(world)[-1] == COUNT
    assert world.queue.handle(QueueTicked(SETTINGS.absent_delay_ms)) == []
    assert world.queue.counts.queued == 2
    steps_of(world)
    assert world.tick(SETTINGS.absent_delay_ms) == [
        StartRepair(RepairJob(LedgerId(0), replace=C, target=D, absent=True))
    ]
    assert world.queue.counts.queued == COUNT - 1


def test_node_that_returns_meanwhile_needs_no_copies() -> None:
    world = world_of_many()
    world.change(C, registered=False)
    assert world.queue.behind
    world.change(C, registered=True)
    assert steps_of(world)[-1] == 0
    assert world.tick(SETTINGS.absent_delay_ms) == []
