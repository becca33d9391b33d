"""How much a consumer of Pulsar may still be sent, and what its owner is told of that."""

import pytest

from oncelog_doors.core.pulsar.permits import Permits


@pytest.mark.hazard("entry-above-the-permits")
def test_an_entry_goes_while_any_permit_is_left() -> None:
    """Then none goes until the client has made up for it."""
    permits = Permits()
    assert not permits.any
    permits.flow(1)
    assert permits.any
    permits.sent(500)
    assert (permits.any, permits.left) == (False, -499)
    permits.flow(499)
    assert not permits.any
    permits.flow(1)
    assert permits.any


def test_the_sum_of_all_permits_never_falls() -> None:
    """It is absolute: a report that is lost or repeated changes nothing."""
    permits = Permits()
    for more in (10, 0, 5):
        permits.flow(more)
        permits.sent(7)
    assert permits.total == 15
