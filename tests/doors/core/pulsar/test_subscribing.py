"""What SUBSCRIBE asks for."""

from dataclasses import replace

import pytest

from oncelog.core.names import PART_CHARACTERS_MAX, check_part
from oncelog_doors.core.pulsar.message_ids import FromEnd, FromEntry, FromFirst, FromTime, Start
from oncelog_doors.core.pulsar.server_errors import Refusal
from oncelog_doors.core.pulsar.subscribing import (
    ReaderRequest,
    Subscription,
    SubscriptionRequest,
    consumer_name_of,
    reader_start,
    subscription_of,
)
from tests.core.builders import at

READER = ReaderRequest(exclusive=True, start=FromEntry(at(3)), from_first=False)
NOW_MS = 1_764_000_000_000
WANTED = SubscriptionRequest("shared", sticky=False, from_first=False)

# --- readers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "start"),
    [
        (READER, FromEntry(at(3))),
        (ReaderRequest(True, None, from_first=False), FromEnd()),
        (ReaderRequest(True, FromEnd(), from_first=False), FromEnd()),
        (ReaderRequest(True, FromEnd(), from_first=True), FromFirst()),
        (ReaderRequest(True, FromFirst(), from_first=False, rollback_s=60), FromTime(NOW_MS - 60_000)),
        (ReaderRequest(True, FromFirst(), from_first=False, rollback_s=2**63), FromTime(0)),
    ],
)
def test_start_of_a_reader(request_: ReaderRequest, start: Start) -> None:
    """Its id; a duration before now goes before it, as at a broker."""
    assert reader_start(request_, None, NOW_MS) == start


@pytest.mark.hazard("seek-behind-old-messages")
def test_sought_place_counts_and_not_the_start() -> None:
    """After a seek by time clients name the first message."""
    assert reader_start(READER, FromTime(5), NOW_MS) == FromTime(5)


def test_reader_that_shares_its_subscription_is_refused() -> None:
    """With a code that does not look like a fault, and what to do instead. Where it was sought does not matter."""
    refused = reader_start(ReaderRequest(False, None, from_first=True), FromFirst(), NOW_MS)
    assert isinstance(refused, Refusal)
    assert refused.code == 22
    assert "exclusive" in refused.sentence
    assert "reader" in refused.sentence


# --- subscriptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "start"),
    [
        (WANTED, FromEnd()),
        (replace(WANTED, from_first=True), FromFirst()),
        (replace(WANTED, from_first=True, rollback_s=60), FromTime(NOW_MS - 60_000)),
        (replace(WANTED, rollback_s=2**63), FromTime(0)),
    ],
)
def test_start_of_a_subscription(request_: SubscriptionRequest, start: Start) -> None:
    """If it is made."""
    assert subscription_of(request_, NOW_MS) == Subscription("shared", start, 0, {})


def test_priority_and_properties_are_kept() -> None:
    """As the client has sent them."""
    wanted = subscription_of(replace(WANTED, priority=3, properties={"team": "payments"}), NOW_MS)
    assert wanted == Subscription("shared", FromEnd(), 3, {"team": "payments"})


def test_chosen_hash_ranges_are_refused() -> None:
    """With what to use instead."""
    refused = subscription_of(replace(WANTED, type="key_shared", sticky=True), NOW_MS)
    assert isinstance(refused, Refusal)
    assert refused.code == 22
    assert "auto split" in refused.sentence


@pytest.mark.parametrize(
    ("given", "name"),
    [("worker", "worker:3f"), ("", "consumer:3f"), ("a b/c\u00e4\n", "a-b-c--:3f"), ("a=b_c.d:e-9", "a=b_c.d:e-9:3f")],
)
def test_consumer_has_a_name_that_the_log_accepts(given: str, name: str) -> None:
    """Pulsar accepts any, and the same one twice."""
    assert consumer_name_of(given, "3f") == name
    assert check_part(name, field="consumer_name") == name


def test_long_name_of_a_consumer_is_cut() -> None:
    """So that its end is still there."""
    name = consumer_name_of("x" * 5000, "3f")
    assert len(name) == PART_CHARACTERS_MAX
    assert name.endswith("x:3f")
