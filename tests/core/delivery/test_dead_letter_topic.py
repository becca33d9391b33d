"""Which topic gets the dead letters of a subscription."""

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog.core.names import dead_letter_topic, parse_topic


def topic_of(topic: str, dead_letters: str = "") -> str:
    return str(dead_letter_topic(parse_topic(topic), "billing", dead_letters))


def test_default_is_in_the_namespace_of_the_topic() -> None:
    """As in Pulsar."""
    assert topic_of("acme/shop/orders") == "acme/shop/orders-billing-DLQ"


def test_partitions_of_a_topic_share_one() -> None:
    """A partition for each of them would have a name that no reader looks for."""
    assert topic_of("acme/shop/orders-partition-3") == "acme/shop/orders-billing-DLQ"


def test_short_name_is_in_the_default_namespace() -> None:
    """As everywhere a topic is named."""
    assert topic_of("acme/shop/orders", "dead") == "public/default/dead"


@pytest.mark.hazard("pending-dead-letter-trimmed")
def test_topic_is_not_its_own_dead_letter_topic() -> None:
    """Its dead letters would be delivered and die again, without an end."""
    with pytest.raises(InvalidArgument):
        topic_of("acme/shop/orders", "acme/shop/orders")
