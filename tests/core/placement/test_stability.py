"""The stability wait: what counts as present, and when the wait ends."""

from dataclasses import replace

from oncelog.core.ids import Incarnation
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.placement.stability import ClusterStability, StabilityWait

A, B, C = Incarnation("a" * 32), Incarnation("b" * 32), Incarnation("c" * 32)


def test_storage_node_that_is_absent_for_long_is_ignored() -> None:
    """It is not restarting: its return cannot be predicted, and the owner must be able to end."""
    seen = ClusterStability(100.0, restart_s=60.0)
    nodes = StorageNodesUpdated((A, B), (C,), ())
    seen.update(nodes, now_s=100.0)
    assert seen.stable_for_s(160.0) == 0
    assert seen.stable_for_s(163.0) == 3.0
    seen.update(replace(nodes, live=(A,), read_only=(B,)), now_s=164.0)
    assert seen.stable_for_s(164.0) == 4.0
    seen.update(replace(nodes, live=(A,), absent=(B, C)), now_s=165.0)
    assert seen.stable_for_s(225.0) == 0


def test_stable_time_counts_from_the_last_return() -> None:
    """Of a storage node, and of the session."""
    seen = ClusterStability(0.0)
    seen.update(StorageNodesUpdated((A, B)), now_s=1.0)
    assert seen.stable_for_s(5.0) == 4.0
    seen.update(StorageNodesUpdated((A,), (B,)), now_s=5.0)
    assert seen.stable_for_s(6.0) == 0
    seen.update(StorageNodesUpdated((A, B)), now_s=7.0)
    assert seen.stable_for_s(9.0) == 2.0
    seen.update(StorageNodesUpdated((A, B), store_reachable=False), now_s=10.0)
    assert seen.stable_for_s(11.0) == 0
    seen.update(StorageNodesUpdated((A, B)), now_s=12.0)
    assert seen.stable_for_s(12.5) == 0.5


def test_owner_is_isolated_when_read_only_nodes_are_unreachable() -> None:
    """A read-only node still answers."""
    seen = ClusterStability(0.0)
    nodes = StorageNodesUpdated((), (A, B), (), read_only=(C,))
    seen.update(nodes, now_s=0.0)
    assert not seen.isolated
    seen.update(nodes, now_s=0.0, unreachable={C})
    assert seen.isolated


def test_servers_must_answer_for_the_whole_stable_time() -> None:
    """One that was absent may be the first of several restarts; a cluster without any process is given up at once."""
    seen = ClusterStability(0.0)
    seen.update(StorageNodesUpdated((A,)), now_s=0.0)
    wait = StabilityWait(seen, now_s=100.0, stable_s=8.0)
    assert wait.looked([True, True], now_s=107.9) is None
    assert wait.looked([True, False], now_s=108.0) is None
    assert wait.looked([True, True], now_s=115.9) is None
    assert wait.looked([False, False], now_s=115.95) is None
    assert wait.looked([True, True], now_s=124.0) is True
    seen.update(StorageNodesUpdated(()), now_s=125.0)
    assert wait.looked([True, False], now_s=126.0) is None
    assert wait.looked([False, False], now_s=127.0) is False
