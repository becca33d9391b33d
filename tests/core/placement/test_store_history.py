"""What a process has seen in ZooKeeper is still there, or ZooKeeper has lost data."""

import pytest

from oncelog.core.placement.store_history import StoreHistory

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
