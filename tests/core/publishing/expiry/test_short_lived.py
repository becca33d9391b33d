"""Many short-lived producers: what expired leaves nothing, and is found without a look at the others."""

import timeit

import pytest

from oncelog.core.ids import ProducerId
from oncelog.core.policies.producer_lifetimes import lease_ms
from oncelog.core.publishing.expiry import ExpiryList
from tests.core.publishing.expiry.short_lived import LIFETIME_MS, LIVING, YEAR_MS, Year, quarters, size_of

MANY = 200_000


def test_year_of_short_lived_producers_leaves_a_topic_as_small_as_its_living_ones() -> None:
    """What expired is in neither memory nor snapshots. With 10 million: `tests.core.publishing.expiry.short_lived`."""
    year, count = Year(), 40_000
    first, *_, last = quarters(year, count)
    assert 0.95 < last.producers / (count * LIVING) < 1.05
    assert last.snapshot_bytes < first.snapshot_bytes * 1.05
    assert last.batches_bytes < first.batches_bytes * 1.05
    assert sum(map(len, year._expiry._lists.values())) < count * LIVING * 1.05
    year.passes(YEAR_MS + 2 * LIFETIME_MS)
    assert size_of(year.state) == size_of(Year().state)


def test_bisection_looks_at_few_of_many() -> None:
    """The point of ids and times that ascend: what is due is found without a look at the others."""
    ascending, unordered = ExpiryList(), dict[ProducerId, int]()
    for pid in range(MANY):
        ascending.push(pid, ProducerId(pid))
        unordered[ProducerId(pid)] = pid

    def by_looking_at_all() -> list[ProducerId]:
        return [pid for pid, due_ms in unordered.items() if due_ms <= 10]

    assert ascending.take(10, 5_000) == by_looking_at_all()
    bisected = min(timeit.repeat(lambda: ascending.take(10, 5_000), number=1, repeat=20))
    looked = min(timeit.repeat(by_looking_at_all, number=1, repeat=3))
    assert bisected * 100 < looked


def test_expiry_list_finds_what_is_due_among_many() -> None:
    """Ids and times ascend, so it is found by bisection, and taken from the front."""
    found = ExpiryList()
    for pid in range(MANY):
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
