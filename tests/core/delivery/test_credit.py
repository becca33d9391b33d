"""Credit: a consumer's own limit of bytes."""

import pytest

from oncelog.core.delivery.credit import UNHANDED_BYTES_MAX, Credit


@pytest.mark.parametrize(("bytes_max", "takes"), [(None, True), (10_000, False), (10_001, True), (1 << 40, True)])
def test_consumer_takes_fewer_bytes_if_it_says_so(bytes_max: int | None, takes: bool) -> None:
    """One entry is always sent, and never more than the owner's own limit."""
    credit = Credit()
    credit.report(handed_out=0, window=100, bytes_max=bytes_max)
    assert credit.takes(1)
    credit.spend(1, 10_000)
    assert credit.takes(1) is takes
    credit.report(handed_out=1, window=100, bytes_max=bytes_max)
    assert credit.takes(1)
    credit.spend(1, UNHANDED_BYTES_MAX)
    assert not credit.takes(1)
