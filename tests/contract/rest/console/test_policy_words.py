"""Policies in words and units, and what their forms send."""

from typing import Any

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog.metadata.console.policies import POLICIES, duration_words, size_words

HOLD = {"policy": "producer_request_hold"}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}, "keep for ever"),
        ("retention", {"retentionTimeInMinutes": 10_080, "retentionSizeInMB": -1}, "keep 7 days"),
        ("retention", {"retentionTimeInMinutes": 90, "retentionSizeInMB": 10_240}, "keep 90 minutes, at most 10 GiB"),
        ("retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": 1}, "keep at most 1 MiB"),
        ("retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
         "delete as soon as all subscriptions have acknowledged"),
        ("messageTTL", 0, "never"),
        ("messageTTL", 604_800, "after 7 days"),
        ("backlogQuota", {"limitSize": -1, "limitTime": -1, **HOLD}, "no limit"),
        ("backlogQuota", {"limitSize": 1 << 30, "limitTime": 3_600, **HOLD},
         "above 1 GiB or if its oldest message is older than 1 hour: publishing waits"),
        ("producerLeaseExpiry", 60, "after 1 minute"),
        ("maxKnownProducersPerTopic", 0, "no cap"),
        ("maxKnownProducersPerTopic", 100_000, "at most 100\u202f000 producers"),
        ("maxUnackedRangesToPersist", 0, "at most 0 ranges"),
        ("ackStateBytesMax", 4 << 20, "at most 4 MiB"),
    ],
)  # fmt: skip
def test_value_is_words_and_its_form_sends_it_again(name: str, value: Any, words: str) -> None:
    """A form that nobody has changed changes nothing."""
    policy = POLICIES[name]
    assert policy.words(value) == words
    query: dict[str, str] = {}
    for field, typed, unit in policy.shown(value):
        query |= {field.name: typed, f"{field.name}_unit": unit}
    assert policy.body(query) == value


@pytest.mark.parametrize("name", ["deduplicationEnabled", "dispatcherPauseOnAckStatePersistent", "pulsarAcceptStale"])
def test_switch_is_on_or_off(name: str) -> None:
    policy = POLICIES[name]
    for value, typed in ((True, "on"), (False, "off")):
        assert policy.words(value).startswith(f"{typed}: ")
        ((field, shown, _),) = policy.shown(value)
        assert (shown, policy.body({field.name: typed})) == (typed, value)


def test_number_is_typed_with_a_unit_and_may_have_blanks() -> None:
    """As it is copied from a page. What does not fit the unit of REST is refused by its field."""
    body = POLICIES["retention"].body
    given = {"time": "1\u202f000", "time_unit": "hours", "size": "", "size_unit": "GiB"}
    assert body(given) == {"retentionTimeInMinutes": 60_000, "retentionSizeInMB": -1}
    for wrong, field in (({"time_unit": "seconds", "time": "90"}, "time"), ({"size": "1", "size_unit": "KiB"}, "size")):
        with pytest.raises(InvalidArgument, match=f"{field}: give whole"):
            body(given | wrong)
    for text in ("-1", "1.5", "x", "\u0661"):
        with pytest.raises(InvalidArgument, match="time: give a whole number"):
            body(given | {"time": text})


def test_units_are_the_largest_that_are_exact() -> None:
    assert [duration_words(each) for each in (0, 1, 90, 120, 86_400, 90_000)] == [
        "0 seconds", "1 second", "90 seconds", "2 minutes", "1 day", "25 hours",
    ]  # fmt: skip
    assert [size_words(each) for each in (1, 1_536, 1 << 40)] == ["1 byte", "1\u202f536 bytes", "1 TiB"]
