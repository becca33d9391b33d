"""Subscriptions of members, as consumers of Kafka write them."""

from contextlib import suppress
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidArgument
from oncelog_doors.core.kafka.subscribed_topics import topics_in


def subscription(*topics: str) -> bytes:
    names = b"".join(pack(">h", len(name)) + name.encode() for name in topics)
    return pack(">hi", 1, len(topics)) + names + pack(">ii", -1, 0)


def test_topics_are_read() -> None:
    """What follows them is another matter."""
    assert topics_in(subscription("orders", "payments")) == {"orders", "payments"}
    assert topics_in(subscription()) == topics_in(b"") == frozenset()


@given(data=st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Sizes beyond the bytes, negative ones, names that are no text."""
    with suppress(InvalidArgument):
        assert all(isinstance(each, str) for each in topics_in(data))


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_subscription_that_is_cut_is_refused(cut: int) -> None:
    with pytest.raises(InvalidArgument, match="cannot be read"):
        topics_in(subscription("orders")[:cut])
