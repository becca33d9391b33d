"""Names of topics and partitions."""

import pytest

from oncelog.core.errors import InvalidName, TopicNotFound
from oncelog.core.names import NamespaceName, TopicName
from oncelog_doors.core.kafka.topic_names import partition_of, topic_of

SHOP = NamespaceName("shop", "web")


def test_a_name_without_a_namespace_is_of_the_connection() -> None:
    assert topic_of("orders", SHOP) == TopicName("shop", "web", "orders")
    assert topic_of("a/b/orders", SHOP) == TopicName("a", "b", "orders")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "topic is empty"),
        ("b/orders", "topic must be `name` or `tenant/namespace/name`"),
        ("or ders", "has a character outside"),
        ("orders-partition-3", "orders-partition-3 is a partition: name the topic orders, and its partition 3"),
        ("a/b/orders-partition-3", "is a partition"),
        ("__oncelog_schemas", "belong to the doors"),
        ("x" * 300, "topic has 300 characters, at most 255 are allowed"),
    ],
)
def test_other_names_are_refused(name: str, sentence: str) -> None:
    with pytest.raises(InvalidName, match=sentence):
        topic_of(name, SHOP)


def test_a_topic_without_partitions_has_one() -> None:
    topic = topic_of("orders", SHOP)
    assert partition_of(topic, 0, 0) == topic
    assert partition_of(topic, 2, 3) == TopicName("shop", "web", "orders", 2)
    assert partition_of(topic, 0, 1) == TopicName("shop", "web", "orders", 0)
    for index, count in ((1, 0), (3, 3), (-1, 3)):
        with pytest.raises(TopicNotFound, match=f"has no partition {index}"):
            partition_of(topic, index, count)
