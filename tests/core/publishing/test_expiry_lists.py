"""The lists of producers that may expire: one for each lifetime."""

import pytest

from oncelog.core.ids import ProducerId
from oncelog.core.policies.producer_lifetimes import lease_ms
from oncelog.core.publishing.expiry import ExpiryList


def test_expiry_list_finds_what_is_due_among_a_million() -> None:
    """Ids and times ascend, so it is found by bisection, and taken from the front."""
    found = ExpiryList()
    for pid in range(1_000_000):
        found.push(pid // 100, ProducerId(pid))
    assert found.take(10, 5_000) == list(range(1100))
    assert not found.take(10, 5_000)
    assert found.take(9_000, 500) == list(range(1100, 1600))
    found.push(3, ProducerId(7))
    assert found.take(1 << 40, 2_000_000)[-1] == 7
    assert not len(found)


@pytest.mark.parametrize("asked", [10_000, 12_345, 59_999, 86_400_000, 31_536_000_001])
def test_lifetimes_are_few_and_never_shorter_than_asked(asked: int) -> None:
    """Each has a list, so there are not as many as clients can think of."""
    assert asked <= lease_ms(asked) < asked * 9 / 8 + 1
    assert len({lease_ms(each) for each in range(asked, asked + 1000)}) <= 3
