"""What a process has seen in ZooKeeper is still there, or ZooKeeper has lost data."""

import pytest

from oncelog.core.ids import Incarnation
from oncelog.core.placement.store_history import NodeSaid, NodesHistory, StoreHistory

pytestmark = pytest.mark.hazard("emptied-zookeeper")


def test_history_that_goes_on_has_no_fault() -> None:
    """Nothing was claimed yet, the counter rises, or nothing changed."""
    history = StoreHistory("ours")
    assert [history.fault("ours", following) for following in (0, 0, 1, 7, 7, 900)] == [None] * 6


def test_missing_or_other_cluster_is_a_fault() -> None:
    """Also at the first look. The message names the clusters."""
    history = StoreHistory("ours")
    assert "has no record of cluster ours any more" in str(history.fault(None, 0))
    fault = str(history.fault("other", 0))
    assert "has cluster other" in fault
    assert "belongs to cluster ours" in fault


@pytest.mark.hazard("ledger-id-given-twice")
@pytest.mark.parametrize("following", [0, 6])
def test_counter_that_went_back_is_a_fault(following: int) -> None:
    """It only rises. A lower one does not become the one to compare with."""
    history = StoreHistory("ours")
    assert history.fault("ours", 7) is None
    for _ in range(2):
        assert f"its next ledger id is {following}, and was 7" in str(history.fault("ours", following))
    assert history.fault("ours", 7) is None


ONE, TWO, THREE = (Incarnation(letter * 32) for letter in "abc")
ALL = (ONE, TWO, THREE)


@pytest.mark.hazard("older-zookeeper-is-served")
@pytest.mark.parametrize(("version", "older"), [(8, False), (7, False), (6, True)])
def test_lower_version_than_one_node_has_written_proves_an_older_zookeeper(version: int, *, older: bool) -> None:
    """A node that has gone since has said it all the same. A record of another era proves nothing."""
    history = NodesHistory()
    history.hear(ONE, NodeSaid("one:1", era=1, written_era=1, written_version=7))
    history.hear(TWO, NodeSaid("two:1", era=1, written_era=0, written_version=0))
    assert history.to_compare(1) == [ONE]
    for _ in range(2):
        fault = history.fault(1, {ONE: version}, ALL)
        assert (fault is not None) == older
        assert not older or f"storage node {ONE} at one:1 has written version 7 of its record" in str(fault)
    assert history.to_compare(2) == []
    assert history.fault(2, {ONE: version}, ALL) is None


@pytest.mark.hazard("older-zookeeper-is-served")
def test_missing_record_of_one_node_that_zookeeper_names_may_have_been_deleted() -> None:
    """It must not end the cluster. Those of more than half of the nodes are a proof, and so is one of a node that
    ZooKeeper does not name."""
    history = NodesHistory()
    for node in ALL:
        history.hear(node, NodeSaid("some:1", era=1, written_era=1, written_version=7))
    assert history.fault(1, {ONE: -1, TWO: 7, THREE: 9}, ALL) is None
    assert "ZooKeeper has none" in str(history.fault(1, {ONE: -1, TWO: -1, THREE: 9}, ALL))
    assert "ZooKeeper has none" in str(history.fault(1, {ONE: -1}, (TWO, THREE)))
    assert "ZooKeeper has none" in str(history.fault(1, {ONE: -1}, (ONE,)))
    assert history.fault(1, {ONE: -1}, (TWO, THREE), named=ALL) is None, "a retired node is named, too"
    assert history.fault(1, {ONE: -1, TWO: -1}, (TWO, THREE), named=ALL) is None, "one of two that may return"
    assert f"storage node {TWO}" in str(history.fault(1, {ONE: -1, TWO: 6, THREE: 9}, ALL))


@pytest.mark.hazard("older-zookeeper-is-served")
def test_more_than_half_of_the_nodes_in_a_later_era_prove_it() -> None:
    """One alone may be left from a restore that was given up."""
    history = NodesHistory()
    history.hear(ONE, NodeSaid("one:1", era=3, written_era=1, written_version=7))
    assert history.fault(1, {}, ALL) is None
    history.hear(TWO, NodeSaid("two:1", era=2, written_era=1, written_version=7))
    assert "2 of 3 storage nodes are in era 3, among them one:1, and ZooKeeper is in era 1" in str(
        history.fault(1, {}, ALL)
    )
    history.hear(THREE, NodeSaid("three:1", era=1, written_era=1, written_version=7))
    assert history.fault(1, {}, [*ALL, Incarnation("d" * 32)]) is None
    assert history.fault(3, {}, ALL) is None
    assert history.fault(1, {}, [THREE]) is None, "the others are no members"


@pytest.mark.hazard("older-zookeeper-is-served")
def test_one_node_that_has_written_in_a_later_era_proves_it() -> None:
    """That era was committed. Also a node that ZooKeeper does not name, because it has come since; but not one that
    ZooKeeper names as retired."""
    history = NodesHistory()
    history.hear(ONE, NodeSaid("one:1", era=8, written_era=8, written_version=0))
    history.hear(TWO, NodeSaid("two:1", era=9, written_era=2, written_version=7))
    for members in (ALL, (TWO, THREE), (THREE,), ()):
        assert f"storage node {ONE} at one:1 has written its record in era 8, and ZooKeeper is in era 2" in str(
            history.fault(2, {}, members, named=members)
        )
    assert history.fault(2, {}, (TWO, THREE), named=ALL) is None, "it is retired"
    assert history.fault(8, {}, ALL, named=ALL) is None
