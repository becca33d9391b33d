"""A restore counts a replaced disk among the missing nodes until it is emptied, and gives it no vote."""

import pytest

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.rebuild.restore_events import ClusterSeen, JoinRecords, RestoreEnded, RestoreRequest
from oncelog.core.rebuild.restore_plan import Restore
from tests.core.rebuild.plan_world import CLUSTER, R1, R2, A, B, C, D, World, ended, run, serving, world_of


def _with_replaced_disk() -> World:
    """D is at the place of B, whose ledgers repair has not copied yet."""
    world = world_of(A, C, D)
    for node in world.nodes.values():
        node.knows = (A, B, C, D)
    world.replaced = (B,)
    return world


@pytest.mark.hazard("replaced-disk-is-missing")
def test_replaced_disk_is_missing_until_it_is_emptied() -> None:
    """A ledger that only it and a silent node have would be left out, and nobody would be told."""
    world = _with_replaced_disk()
    assert ended(world) == ""
    assert world.joined == [JoinRecords((B,), False)]
    world = _with_replaced_disk()
    world.nodes[C].silent = True
    refusal = ended(world)
    assert "2 of 4 storage nodes can be used, and at least 3 are needed. Missing, or with a directory" in refusal
    assert f"{B} (replaced or given up, and repair had not yet copied" in refusal
    assert f"{C} (" not in refusal
    assert world.tree is None
    world.replaced, world.retired = (), (B,)
    restore = Restore(RestoreRequest(R1))
    assert run(world, restore) == RestoreEnded()
    assert world.joined == [JoinRecords((C,), False)]
    assert restore.emptied == {B}


@pytest.mark.hazard("replaced-disk-is-missing")
def test_replaced_disk_is_given_up_like_another_node() -> None:
    """With a silent node it is beyond the bound, so what both may have had is told."""
    world = _with_replaced_disk()
    world.nodes[C].silent = True
    assert ended(world, absent=(B,)) == ""
    assert world.joined == [JoinRecords((B, C), True)]


@pytest.mark.hazard("two-restores")
def test_replaced_disk_has_no_vote() -> None:
    """It stores no era, so it must not make more than half of the nodes out of fewer, nor block those that are."""
    world = _with_replaced_disk()
    world.nodes[C].silent, world.ack_quorum = True, 3
    assert ended(world) == ""
    assert world.joined == [JoinRecords((B, C), False)]
    world = _with_replaced_disk()
    world.nodes[C].silent = world.nodes[D].silent = True
    world.ack_quorum = 4
    assert "1 of 4 storage nodes can be used, and at least 2 are needed" in ended(world)


def test_cluster_with_a_replaced_disk_is_sound() -> None:
    """While ZooKeeper serves, its records say where everything is."""
    world = serving(FIRST_ERA)
    world.ack_quorum, world.replaced = 1, (D,)
    for node in world.nodes.values():
        node.knows = (A, B, C, D)
    restore = Restore(RestoreRequest(R1))
    effect = run(world, restore)
    assert isinstance(effect, RestoreEnded)
    assert "this cluster is sound" in effect.remark
    world.tree, world.owners = ClusterSeen(CLUSTER, Era(3, R2), False, 4, 1), ()
    for node in world.nodes.values():
        node.era, node.joined = Era(3, R2), False
    assert "era 3 serves, and no storage node says" in ended(world), "its nodes start yet"


@pytest.mark.hazard("note-of-a-former-era")
def test_node_that_only_a_note_of_a_former_era_calls_emptied_counts() -> None:
    """The survey has read no copy yet. What this node and a silent one have is nowhere else."""
    world = world_of(A, B, C, D)
    world.wrongly_retired = (D,)
    world.nodes[C].silent = world.nodes[D].silent = True
    assert "2 of 4 storage nodes can be used, and at least 3 are needed" in ended(world)
    assert world.joined == []
    world.nodes[C].silent = False
    restore = Restore(RestoreRequest(R2))
    assert run(world, restore) == RestoreEnded()
    assert world.joined == [JoinRecords((D,), False)]
    assert restore.emptied == frozenset()
