"""How much a consumer of Pulsar may still be sent, and the sum that its owner gets."""

import pytest

from oncelog_doors.core.pulsar.permits import Permits


@pytest.mark.hazard("entry-above-the-permits")
def test_an_entry_goes_while_any_permit_is_left() -> None:
    """Then none goes until the client has made up for it."""
    permits = Permits()
    seen = [permits.any]
    for more, sent in ((1, 0), (0, 500), (499, 0), (1, 0)):
        permits.flow(more)
        permits.sent(sent)
        seen.append(permits.any)
    assert seen == [False, True, False, False, True]


def test_the_sum_of_all_permits_never_falls() -> None:
    """It is absolute: a report that is lost or repeated changes nothing."""
    permits = Permits()
    for more in (10, 0, 5):
        permits.flow(more)
        permits.sent(7)
    assert permits.total == 15
