"""Rates of a topic are differences of what it counts, and only a backlog that grows for minutes is said to grow."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.ids import SeekEpoch, SubscriptionNumber
from oncelog.core.topic.topic_rates import Sampled, SubscriptionCounts, TopicRates

SAMPLE_MS = 10_000


def counts(number: int, acked: int, delivered: int = 0, seek_epoch: int = 0) -> SubscriptionCounts:
    return SubscriptionNumber(number), SeekEpoch(seek_epoch), acked, delivered


def test_first_sample_is_no_rate() -> None:
    """What was stored and acknowledged before, by whichever owner, is not of the last seconds."""
    rates = TopicRates()
    assert rates.sample(1_000, [counts(1, 900, delivered=50)], 0) == Sampled(0, 0, 0)
    assert (rates.rate_in, rates.rate_out, rates.backlog_change, rates.growing()) == (None, None, None, None)


def test_rates_are_differences_of_two_samples() -> None:
    """Over the time that passed, also where a sample comes late."""
    rates = TopicRates()
    rates.sample(1_000, [counts(1, 900, delivered=50), counts(2, 0, delivered=7)], 0)
    assert rates.sample(1_300, [counts(1, 950, delivered=150), counts(2, 10, delivered=7)], 20_000) == (300, 100, 60)
    assert (rates.rate_in, rates.rate_out) == (15.0, 5.0)
    assert rates.backlog_change == 0
    rates.sample(1_300, [counts(1, 950, delivered=150)], 30_000)
    assert (rates.rate_in, rates.rate_out) == (0.0, 0.0)


def test_seek_takes_nothing_back() -> None:
    """Messages that a seek makes unacknowledged were acknowledged; those that it skips were not."""
    rates = TopicRates()
    rates.sample(100, [counts(1, 90, delivered=90)], 0)
    assert rates.sample(100, [counts(1, 0, delivered=90, seek_epoch=1)], SAMPLE_MS) == (0, 0, 0)
    assert rates.sample(100, [counts(1, 100, delivered=120, seek_epoch=2)], 2 * SAMPLE_MS) == (0, 30, 0)
    assert rates.sample(110, [counts(1, 105, delivered=125, seek_epoch=2)], 3 * SAMPLE_MS) == (10, 5, 5)


def test_new_subscription_has_acknowledged_nothing_yet() -> None:
    """It begins at the end of the log, which is no acknowledgement of all before it; a deleted one is forgotten."""
    rates = TopicRates()
    rates.sample(1_000, [], 0)
    assert rates.sample(1_000, [counts(1, 1_000, delivered=3)], SAMPLE_MS) == (0, 3, 0)
    assert rates.sample(1_000, [], 2 * SAMPLE_MS) == (0, 0, 0)
    assert rates.backlog_change is None


def watched(backlogs: Sequence[Sequence[int]]) -> TopicRates:
    """A topic of two subscriptions, the second of which keeps up. backlogs: of the first, for each sample of a minute,
    for each minute."""
    rates = TopicRates()
    samples = [backlog for minute in backlogs for backlog in minute]
    for number, backlog in enumerate(samples):
        at_ms = 1_000_000 + number * SAMPLE_MS
        rates.sample(10_000, [counts(1, 10_000 - backlog), counts(2, 10_000)], at_ms)
    return rates


def test_backlog_that_grows_for_ten_minutes_grows() -> None:
    """With the number of its subscription, and by how much."""
    rates = watched([[minute * 10 + sample for sample in range(6)] for minute in range(11)])
    assert rates.growing() == (1, 100)
    assert rates.backlog_change == 100


@pytest.mark.parametrize(
    "backlogs",
    [
        [[minute * 10 + sample for sample in range(6)] for minute in range(9)],  # nine minutes
        [[0, 500, 900, 500, 900, 900] for _ in range(11)],  # a consumer that keeps up, with many messages in between
        [[1_000] * 6 for _ in range(11)],  # a consumer that is stuck, of a topic without messages
        [[minute * 10] * 6 for minute in range(6)] + [[45] * 6] + [[minute] * 6 for minute in range(4)],  # caught up
        [[0] * 6 for _ in range(10)] + [[5_000] * 6],  # a burst of the last minute
    ],
)
def test_other_backlogs_do_not_grow(backlogs: list[list[int]]) -> None:
    """Each of them is normal, or has another name."""
    assert watched(backlogs).growing() is None


@given(st.lists(st.lists(st.integers(0, 100), min_size=6, max_size=6), min_size=10, max_size=30))
def test_growth_means_that_the_backlog_never_fell_back(backlogs: list[list[int]]) -> None:
    """What is said to grow was higher in each of the last five minutes than at some moment of each of five before."""
    rates = watched(backlogs)
    if rates.growing() is not None:
        kept = backlogs[-11:]
        assert min(map(min, kept[-5:])) > max(map(min, kept[:5]))
