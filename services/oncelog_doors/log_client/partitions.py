"""Whether a topic is there, as clients of Pulsar see it: a partition is, before its first use creates it."""

from dataclasses import replace

from oncelog.client.network.lookup import OwnerLookup
from oncelog.core.errors import TopicNotFound
from oncelog.core.names import TopicName


async def partitions_of(lookup: OwnerLookup, topic: TopicName) -> int:
    """As `OwnerLookup.partitions`; 0 also for a partition that was never used."""
    try:
        return await lookup.partitions(topic)
    except TopicNotFound:
        if topic.partition is None or topic.partition >= await lookup.partitions(replace(topic, partition=None)):
            raise
        return 0
