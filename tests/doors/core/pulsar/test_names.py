"""Names as clients of Pulsar write them."""

import pytest

from oncelog.core.names import TopicName
from oncelog_doors.core.pulsar.names import has_no_partitions, producer_name_of, topic_of
from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("persistent://acme/shop/orders", TopicName("acme", "shop", "orders")),
        ("persistent://acme/shop/orders-partition-3", TopicName("acme", "shop", "orders", 3)),
        ("persistent://acme/shop/orders-partition-03", TopicName("acme", "shop", "orders-partition-03")),
        ("acme/shop/orders", TopicName("acme", "shop", "orders")),
        ("orders", TopicName("public", "default", "orders")),
        ("orders-partition-0", TopicName("public", "default", "orders", 0)),
    ],
)
def test_topic_is_ours(text: str, topic: TopicName) -> None:
    """Full and short, whole and a partition."""
    assert topic_of(text) == topic


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("non-persistent://acme/shop/orders", 22, "non-persistent"),
        ("topic://acme/shop/orders", 17, "'topic'"),
        ("persistent://acme/us-west/shop/orders", 17, "tenant/namespace/name"),
        ("persistent://acme/shop/", 17, "empty"),
        ("persistent://acme/shop/a b", 17, "A-Z"),
        ("persistent://acme/shop/..", 17, "may not be"),
        ("persistent://acme/shop/__oncelog_schemas", 22, "__oncelog_"),
        ("__oncelog_schemas-partition-0", 22, "belong to the doors"),
        ("persistent://acme/shop/" + "x" * 256, 17, "at most 255"),
        ("://", 17, "persistent://"),
        ("", 17, "empty"),
    ],
)
def test_topic_is_refused(text: str, code: int, said: str) -> None:
    """The sentence says why."""
    refused = topic_of(text)
    assert isinstance(refused, Refusal)
    assert refused.code == code
    assert said in refused.sentence


@pytest.mark.hazard("transactions-retried-for-ever")
def test_transactions_find_no_coordinator() -> None:
    """A client that asks for them looks for partitions of this topic when it is built, and fails if there are none."""
    coordinators = topic_of("persistent://pulsar/system/transaction_coordinator_assign")
    assert isinstance(coordinators, TopicName)
    assert has_no_partitions(coordinators)
    assert not has_no_partitions(TopicName("pulsar", "system", "orders"))


def test_name_of_a_producer() -> None:
    """None is assigned, and Pulsar's replication has none here."""
    assert producer_name_of("importer") == "importer"
    assert producer_name_of("") is None
    for name, said in (("pulsar.repl.us-west", "replication"), ("a\nb", "unprintable"), ("x" * 256, "at most 255")):
        refused = producer_name_of(name)
        assert isinstance(refused, Refusal)
        assert refused.code is ServerError.NOT_ALLOWED_ERROR
        assert said in refused.sentence
