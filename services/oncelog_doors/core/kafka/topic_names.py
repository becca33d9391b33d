"""Names of topics, as clients of Kafka have them.

    orders                     of the namespace of the connection
    tenant/namespace/orders    of any namespace; Kafka itself allows no slashes

A topic without partitions has one here, number 0. The partitions of a topic are no topics of their own here.
"""

from oncelog.core.errors import InvalidName, TopicNotFound
from oncelog.core.names import DOORS_PREFIX, NamespaceName, TopicName, check_part, is_of_doors, parse_topic


def topic_of(text: str, namespace: NamespaceName) -> TopicName:
    """Raises InvalidName, also for the name of one partition."""
    topic = parse_topic(text if "/" in text else f"{namespace}/{check_part(text, field='topic')}")
    if topic.partition is not None:
        message = f"{text[:100]} is a partition: name the topic {topic.local}, and its partition {topic.partition}"
        raise InvalidName(message, field="topic")
    if is_of_doors(topic.local):
        message = f"topics whose names begin with {DOORS_PREFIX} belong to the doors: choose another name"
        raise InvalidName(message, field="topic")
    return topic


def partition_of(topic: TopicName, index: int, count: int) -> TopicName:
    """The log of one partition. count: of the topic; 0: it is not partitioned. Raises TopicNotFound."""
    if not 0 <= index < max(1, count):
        raise TopicNotFound(f"{topic} has no partition {index}: it has {max(1, count)}")
    return topic if not count else TopicName(topic.tenant, topic.namespace, topic.local, index)


def logs_of(topic: TopicName, count: int) -> list[TopicName]:
    """Of all its partitions. count: of the topic; 0: it is not partitioned."""
    return [partition_of(topic, index, count) for index in range(max(1, count))]
