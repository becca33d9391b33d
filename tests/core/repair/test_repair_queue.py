"""The queue of repairs: immediate and delayed repairs, requests to owners, and the reports for operators."""

from dataclasses import replace

import pytest

from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import EntryRange, LedgerState
from oncelog.core.ledger.storage_nodes import NodeView, StorageNodes
from oncelog.core.repair.assessment import assess
from oncelog.core.repair.events import RepairJob, RepairResult
from oncelog.core.repair.queue_events import (
    AskOwnerToRoll,
    ChainRecorded,
    DamageReported,
    LedgerRecorded,
    LedgerRemoved,
    PlaceTopic,
    RepairAsked,
    StartRepair,
)
from tests.core.repair.queue_world import LOG, OWNER, SETTINGS, QueueWorld, record
from tests.core.repair.repair_world import TOPIC, A, B, C, D, E


def test_member_of_a_lost_directory_is_replaced_at_once() -> None:
    world = QueueWorld(record(1))
    assert world.tick() == []
    world.lose(C)
    assert world.tick() == [StartRepair(RepairJob(LedgerId(1), replace=C, target=D))]
    assert world.tick() == []  # one at a time


@pytest.mark.hazard("flapping-node")
def test_copies_of_an_absent_member_are_made_after_the_delay() -> None:
    world = QueueWorld(record(1))
    world.change(C, registered=False)
    assert world.queue.counts.under_replicated == 1
    assert world.tick(999) == []
    assert world.tick(1) == [StartRepair(RepairJob(LedgerId(1), replace=C, target=D, absent=True))]


@pytest.mark.hazard("flapping-node")
def test_absent_member_that_returns_in_time_causes_no_copies() -> None:
    """Its delay begins again with each absence."""
    world = QueueWorld(record(1))
    for _ in range(5):
        world.change(C, registered=False)
        assert world.tick(900) == []
        world.change(C, registered=True)
        assert world.tick(900) == []
    assert world.queue.counts.under_replicated == 0


@pytest.mark.hazard("flapping-node")
def test_fewest_copies_are_repaired_first() -> None:
    world = QueueWorld(record(1, A, B, C), record(2, B, C, E), record(3, A, B, C))
    world.lose(C)
    world.change(E, registered=False)
    assert world.job().ledger_id == LedgerId(2)


def test_member_that_leaves_is_replaced_while_it_serves() -> None:
    world = QueueWorld(record(1))
    world.change(B, draining=True)
    assert world.tick() == [StartRepair(RepairJob(LedgerId(1), replace=B, target=D))]
    assert world.queue.counts.under_replicated == 0


def test_damaged_member_is_filled_in_place() -> None:
    world = QueueWorld(record(1), record(2))
    world.queue.handle(DamageReported(B, (LedgerId(2),)))
    assert world.tick() == [StartRepair(RepairJob(LedgerId(2), damaged=(B,)))]
    world.queue.handle(DamageReported(B, ()))
    world.end(RepairJob(LedgerId(2)), RepairResult.WHOLE, record(2))
    assert world.tick(1000) == []


def test_closed_ledger_is_read_back_once_every_member_is_live() -> None:
    world = QueueWorld(record(1, verified=False))
    world.queue.handle(LedgerRecorded(record(1, verified=False)))
    world.change(C, registered=False)
    assert world.tick() == []
    world.change(C, registered=True)
    assert world.tick() == [StartRepair(RepairJob(LedgerId(1)))]


@pytest.mark.hazard("repair-of-an-open-ledger")
def test_owner_of_an_open_ledger_is_asked_to_roll() -> None:
    """Again after pauses that double, and never by a repair."""
    world = QueueWorld(record(1), record(2, state=LedgerState.OPEN, verified=False, end=NO_ENTRY))
    world.lose(C)
    asked = AskOwnerToRoll(TOPIC, OWNER, LOG, LedgerId(2))
    assert world.tick() == [asked, StartRepair(RepairJob(LedgerId(1), replace=C, target=D))]
    for pause_ms in (50, 100, 150, 150):
        assert world.tick(pause_ms - 1) == []
        assert world.tick(1) == [asked]


def test_ledger_that_is_closed_after_a_roll_is_repaired_at_once() -> None:
    world = QueueWorld(record(2, state=LedgerState.OPEN, verified=False, end=NO_ENTRY))
    world.lose(C)
    assert world.tick() == [AskOwnerToRoll(TOPIC, OWNER, LOG, LedgerId(2))]
    world.queue.handle(LedgerRecorded(record(2, verified=False), 1))
    assert world.job() == RepairJob(LedgerId(2), replace=C, target=D)


@pytest.mark.hazard("repair-of-an-open-ledger")
def test_ledger_that_was_rolled_is_repaired_at_once() -> None:
    """The pause between two requests to roll does not hold back the repair of the closed ledger."""
    world = QueueWorld(record(2, state=LedgerState.OPEN, verified=False, end=NO_ENTRY))
    world.lose(C)
    assert world.tick() == [AskOwnerToRoll(TOPIC, OWNER, LOG, LedgerId(2))]
    world.queue.handle(LedgerRecorded(record(2, verified=False), 1))
    assert world.tick(1) == [StartRepair(RepairJob(LedgerId(2), replace=C, target=D))]


@pytest.mark.hazard("repair-of-an-open-ledger")
def test_topic_of_an_open_ledger_without_a_live_owner_is_placed() -> None:
    world = QueueWorld(record(2, state=LedgerState.OPEN, verified=False, end=NO_ENTRY))
    world.owners = ()
    world.lose(C)
    assert world.tick() == [PlaceTopic(TOPIC)]


@pytest.mark.hazard("repair-of-an-open-ledger")
def test_nothing_is_rolled_without_a_live_node_that_is_no_member() -> None:
    world = QueueWorld(record(2, state=LedgerState.OPEN, verified=False, end=NO_ENTRY))
    world.change(D, read_only=True)
    world.lose(C)
    assert world.tick() == []
    world.change(D, read_only=False)
    assert world.tick() == [AskOwnerToRoll(TOPIC, OWNER, LOG, LedgerId(2))]


@pytest.mark.hazard("repair-of-an-open-ledger")
def test_unlisted_ledger_is_not_touched() -> None:
    world = QueueWorld(record(1))
    world.queue.handle(ChainRecorded(TOPIC, LOG, (), None))
    world.lose(C)
    assert world.tick() == []
    assert world.queue.counts.under_replicated == 0
    world.queue.handle(ChainRecorded(TopicId("1f" * 16), LOG, (LedgerId(1),), OWNER))
    assert world.job().ledger_id == LedgerId(1)


@pytest.mark.hazard("differing-copies")
def test_frozen_ledger_is_only_counted() -> None:
    world = QueueWorld(record(1, frozen=True))
    world.lose(C)
    assert world.tick() == []
    assert world.queue.counts.frozen == 1


@pytest.mark.parametrize("unfit", ["read_only", "joining", "draining", "retired"])
def test_unfit_node_gets_no_copies(unfit: str) -> None:
    world = QueueWorld(record(1))
    world.change(D, **{unfit: True})
    world.lose(C)
    assert world.tick() == []
    assert world.queue.counts.under_replicated == 1
    assert world.queue.debt(C) == 0
    world.change(D, **{unfit: False})
    assert world.queue.debt(C) == 1
    assert world.job().target == D


def test_read_only_member_gets_its_copy_once_its_ledger_is_closed() -> None:
    """It was listed for lack of writable nodes, and got no entries. No other node is needed to make the copy."""
    world = QueueWorld(record(1, state=LedgerState.OPEN, verified=False, end=NO_ENTRY))
    world.change(D, registered=False, retired=True)
    world.change(C, read_only=True)
    assert world.tick() == []
    world.queue.handle(LedgerRecorded(record(1, verified=False), 1))
    job = world.job()
    assert (job.ledger_id, job.replace, job.target) == (LedgerId(1), None, None)


def test_targets_spread_over_the_nodes() -> None:
    """The choice is a rendezvous of the ledger and the node, so every repairer chooses the same."""
    world = QueueWorld(*(record(n) for n in range(1, 41)), settings=replace(SETTINGS, jobs_max=40))
    world.change(E)
    world.lose(C)
    targets = [effect.job.target for effect in world.tick() if isinstance(effect, StartRepair)]
    assert len(targets) == 40
    assert targets.count(D) > 10 < targets.count(E)


def test_next_target_is_another_node_than_that_which_joins() -> None:
    """Each node has its turn, in a circle: those before it may all refuse the copies of this ledger."""
    other = Incarnation("f")
    nodes = StorageNodes(NodeView(node, registered=node != C, retired=node == C) for node in (A, B, C, D, E, other))
    joining, seen = D, []
    for _ in range(3):
        job = assess(record(1).join(joining), nodes, (), avoid={}).job
        assert job is not None
        assert job.target is not None
        joining = job.target
        seen.append(joining)
    assert seen[-1] == D
    assert sorted(seen) == [D, E, other]


def test_many_small_ledgers_are_repaired_together_and_few_large_ones() -> None:
    """What the running ones hold in memory is bounded, and so is their number."""
    settings = replace(SETTINGS, jobs_max=8, job_bytes_max=100, jobs_bytes_max=400)

    def running(length: int) -> int:
        world = QueueWorld(*(record(n, length=length) for n in range(1, 41)), settings=settings)
        world.lose(C)
        return len(world.tick())

    assert running(length=10) == 8
    assert running(length=90) == 5
    assert running(length=1 << 40) == 4


def test_ledger_whose_members_are_all_away_is_unavailable() -> None:
    """Retired members are not waited for."""
    world = QueueWorld(record(1))
    world.lose(A)
    world.change(B, registered=False)
    world.change(C, registered=False)
    assert world.queue.counts.unavailable == 1
    assessment = world.queue.assessment(LedgerId(1))
    assert assessment is not None
    assert (assessment.unavailable, assessment.waiting_for) == ((EntryRange(EntryId(0), EntryId(9)),), (B, C))


@pytest.mark.hazard("too-few-nodes")
def test_under_replicated_counts_against_the_write_quorum_of_the_record() -> None:
    world = QueueWorld(record(1, A), record(2, A, B))
    assert world.queue.counts.under_replicated == 0
    world.lose(B)
    assert world.queue.counts.under_replicated == 1


def test_debt_of_a_retired_directory_goes_down_as_its_ledgers_are_copied() -> None:
    world = QueueWorld(record(1), record(2))
    world.lose(C)
    assert world.queue.debt(C) == 2
    for ledger_id in (1, 2):
        world.end(world.job(), RepairResult.WHOLE, record(ledger_id, A, B, D))
    assert world.queue.debt(C) == 0


@pytest.mark.hazard("update-waits-for-copies")
def test_stuck_ledger_is_no_debt() -> None:
    """Live nodes cannot give its copy now, so that the new node at the address is ready without it."""
    world = QueueWorld(record(1))
    world.lose(C)
    assert world.queue.debt(C) == 1
    gap = (EntryRange(EntryId(4), EntryId(4)),)
    world.end(world.job(), RepairResult.STUCK, unavailable=gap, waiting_for=(E,))
    assert world.queue.debt(C) == 0
    world.change(E)
    world.end(world.job(), RepairResult.WHOLE, record(1, A, B, D))
    assert world.queue.debt(C) == 0


def test_operator_can_ask_for_a_ledger() -> None:
    """It comes first, and is read back even if nothing is known to be wrong."""
    world = QueueWorld(record(1), record(2))
    world.lose(C)
    world.queue.handle(LedgerRecorded(record(2, A, B, D), 1))
    world.queue.handle(RepairAsked(LedgerId(2)))
    assert world.job() == RepairJob(LedgerId(2))


def test_removed_and_older_records_are_ignored() -> None:
    world = QueueWorld(record(1))
    world.queue.handle(LedgerRecorded(record(1, A, B, D), 5))
    world.queue.handle(LedgerRecorded(record(1), 4))
    world.lose(C)
    assert world.tick() == []
    world.queue.handle(LedgerRemoved(LedgerId(1)))
    world.lose(D)
    assert world.tick() == []


def test_tick_looks_only_at_what_is_due() -> None:
    """With many ledgers in good order, a change of one ledger or one node concerns its own ledgers."""
    records = [record(n) if n else record(n, A, B, E) for n in range(2000)]
    world = QueueWorld(*records)
    assessed = 0
    before = world.queue._assess

    def counted(ledger_id: LedgerId) -> None:
        nonlocal assessed
        assessed += 1
        before(ledger_id)

    world.queue._assess = counted  # type: ignore[method-assign]
    for _ in range(10):
        world.tick(100)
        world.see()
    world.lose(E)
    world.tick()
    world.queue.handle(LedgerRecorded(record(7, verified=False), 1))
    assert assessed < 10
