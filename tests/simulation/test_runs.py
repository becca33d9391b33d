"""A run depends only on its seed: neither on the order of sets nor on the process. Nothing of its world waits for ever.

It closes its topics when nothing more is on its way that takes them from their owner: metadata replicas are down then,
so nothing would place them again.
"""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from oncelog.core.ids import EntryId, Incarnation
from oncelog.core.ledger.metadata import LedgerState, encode_ledger
from tests.simulation import run
from tests.simulation.faults.faults import KINDS
from tests.simulation.histories.directed import Directed, steady
from tests.simulation.servers.nodes.storage_server import Reply
from tests.simulation.servers.store.decoding import decode_ledger
from tests.simulation.shapes import FAULTY_TICKS, Shape, restless_shape
from tests.simulation.sweep import outcome_of

SEEDS = 6


def traces(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.simulation", "--traces", str(SEEDS)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_hash_seed_does_not_change_a_run(hash_seed: str) -> None:
    """String hashes differ between processes by default, so an iteration over a set would change the run."""
    lines = traces(hash_seed).splitlines()
    assert [line.split()[:3] for line in lines] == [
        [str(o.seed), f"{o.trace:08x}", str(o.steps)] for o in (outcome_of(seed) for seed in range(SEEDS))
    ]


def test_different_seeds_give_different_runs() -> None:
    """Control: a trace that never changes would pass the test above, too."""
    assert len({outcome_of(seed).trace for seed in range(SEEDS)}) == SEEDS


def restorable() -> Directed:
    """A run that is complete when its faults end. Its store can be lost."""
    return Directed(4, shape=replace(steady(Shape(), count=40), questioners=0, restores=True))


def test_lost_ensemble_returns_before_topics_are_closed() -> None:
    """Processes start again with the address of the ensemble that was lost."""
    one = restorable()
    one.until(500)
    eras, former = one.cluster.eras, one.cluster.store
    eras.lose(lost=True, copied=None)
    eras.restore(performers=1)
    eras.return_later(former, FAULTY_TICKS + 20 - one.world.now)
    outcome = run.outcome_of(one)
    assert (outcome.problem, outcome.counts.get("lost store returned")) == (None, 1)


def test_what_an_abandoned_restore_has_sent_arrives_before_topics_are_closed() -> None:
    """Storage nodes are raised into its era after its operator has given it up. The other operator restores again, and
    the owners end with their era."""
    one = restorable()
    one.until(500)
    cluster, world = one.cluster, one.world
    cluster.eras.lose(lost=False, copied=None)
    _, abandoned = (cluster.eras.restore(performers=1) for _ in range(2))
    restorer = next(each for each in cluster.eras.restorers if each.parts is abandoned)

    def claimed(*_: object) -> None:
        for node in cluster.nodes.values():
            cluster.network.clogs[restorer.name, node.name] = world.now + 50
        world.after(20, "an operator gives up", lambda: cluster.eras.abandon(abandoned))

    abandoned.store.observers.append(claimed)
    for node in cluster.nodes.values():  # until faults end
        cluster.network.cuts[restorer.name, node.name] = FAULTY_TICKS + 1
    outcome = run.outcome_of(one)
    assert (outcome.problem, outcome.counts.get("restore for storage nodes that wait")) == (None, 1)


def test_fault_restarts_no_owner_while_topics_are_closed() -> None:
    """A snapshot is spoiled just before the faults end, and the fault restarts owners a little later."""
    rot = next(kind for kind in KINDS if kind.name == "rot")
    one = Directed(6, shape=replace(steady(restless_shape(), count=40), questioners=0))
    one.world.after(FAULTY_TICKS - 10, "a snapshot is spoiled", lambda: rot.inject(one.faults))
    outcome = run.outcome_of(one)
    assert (outcome.problem, outcome.counts["snapshot spoiled"]) == (None, 1)


@pytest.mark.parametrize("listed", [False, True])
def test_review_ends_although_the_store_is_lost_in_it(listed: bool) -> None:
    """If the record of a ledger is missing, the node reads a second one. If the record does not name the node any more,
    the node writes it before it erases its copy. The store is lost before it answers one of these calls."""
    for ticks in range(1, 30, 2):
        one = restorable()
        one.until(800)
        cluster = one.cluster
        for process in (*cluster.owners.values(), *cluster.metadata):
            cluster.crash(process)  # they stay down, so that only the node uses the record
        node, store = cluster.nodes[Incarnation("node0")], cluster.store
        ledger_id = next(iter(node.index.entries))
        path, states = f"ledgers/{ledger_id}", list[Reply]()
        record = decode_ledger(store.records.pop(path)[0])
        if listed:
            others = tuple(each for each in record.members if each != node.incarnation)
            whole = replace(record, state=LedgerState.CLOSED, end=EntryId(0), verified=True, members=others)
            store.records[path] = (encode_ledger(whole), 0)
        node.review(node.incarnation, ledger_id, states.append)
        one.until(800 + ticks)
        cluster.eras.lose(lost=True, copied=None)
        cluster.eras.restore(performers=1)
        one.until(3000)
        assert cluster.eras.is_over
        assert states, ticks
