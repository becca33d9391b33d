"""DescribeLogDirs and DescribeProducers: what is stored of partitions, and who writes to them."""

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial

from oncelog.core.errors import TopicNotFound
from oncelog.core.formats.epoched_ids import epoch_of, number_of
from oncelog.core.ids import NO_SEQUENCE
from oncelog.core.names import KAFKA, NamespaceName, TopicName, is_of_doors
from oncelog_doors.core.kafka.administration_codes import Refused
from oncelog_doors.core.kafka.topic_names import partition_of, topic_of
from oncelog_doors.kafka.administration_ports import KnownProducer
from oncelog_doors.kafka.asking import Asking
from oncelog_doors.kafka.changes import Changes, accepted, each_topic, first_of_each, outcome_of
from oncelog_doors.kafka.codec import Body

#: The only directory that clients are shown.
LOG_DIR = "/oncelog"
_INT32_MAX = 2**31 - 1
_NUMBERS = 2**31


async def describe_log_dirs(around: Asking, asked: Body) -> Body:
    """Partitions whose sizes are not known now are left out, as those that a broker of Kafka does not have."""
    changes = Changes()
    wanted = asked["topics"]
    result = await changes.result(lambda: _all_sizes(around) if wanted is None else _sizes_of(around, wanted))
    if isinstance(result, Refused):
        return {"results": [{"log_dir": LOG_DIR, "error_code": result.code}]}
    return {"results": [{"log_dir": LOG_DIR, "topics": result}]}


async def _all_sizes(around: Asking) -> list[Body]:
    namespace = around.namespace
    sizes, topics = await asyncio.gather(
        around.administration.sizes(namespace, None), around.cluster.topics_of(namespace, around.caller)
    )
    found = []
    for each in topics:
        if not is_of_doors(each.local):
            topic = TopicName(namespace.tenant, namespace.namespace, each.local)
            found.append(_measured(each.local, topic, range(max(1, each.partitions)), each.partitions, sizes))
    return found


async def _sizes_of(around: Asking, wanted: list[Body]) -> list[Body]:
    named = first_of_each(wanted, "topic")
    topics = {name: topic_of(name, around.namespace) for name in named}
    namespaces: dict[NamespaceName, list[TopicName]] = {}
    for topic in topics.values():
        namespaces.setdefault(topic.namespace_name, []).append(topic)
    sizes: dict[str, int] = {}
    for namespace, of in namespaces.items():
        sizes |= await around.administration.sizes(namespace, str(of[0]) if len(of) == 1 else None)
    counting = Changes()
    counts = await asyncio.gather(*(counting.result(partial(_count, around, each)) for each in topics.values()))
    found = []
    for name, count in zip(named, counts, strict=True):
        if isinstance(count, Refused):
            raise count
        if count is not None:
            found.append(_measured(name, topics[name], dict.fromkeys(named[name]["partitions"]), count, sizes))
    return found


async def _count(around: Asking, topic: TopicName) -> int | None:
    """None: there is no such topic."""
    try:
        return await around.administration.partitions(topic)
    except TopicNotFound:
        return None


def _measured(name: str, topic: TopicName, indexes: Iterable[int], count: int, sizes: Mapping[str, int]) -> Body:
    parts = []
    for index in indexes:
        if not 0 <= index < max(1, count):
            continue
        size = sizes.get(str(partition_of(topic, index, count)))
        if size is not None:
            parts.append({"partition_index": index, "partition_size": size, "offset_lag": 0, "is_future_key": False})
    return {"name": name, "partitions": parts}


async def describe_producers(around: Asking, asked: Body) -> Body:
    changes, wanted = Changes(), first_of_each(asked["topics"])

    async def known(topic: TopicName, index: int) -> list[Body]:
        admin = around.administration
        log = partition_of(topic, index, await admin.partitions(topic))
        return [_state(each) for each in await admin.producers(log)]

    async def of_partition(topic: TopicName | Refused, index: int) -> Body:
        found = await changes.result(lambda: known(accepted(topic), index))
        states = [] if isinstance(found, Refused) else found
        return {"partition_index": index, "active_producers": states, **outcome_of(found)}

    async def one(name: str, topic: TopicName | Refused) -> Body:
        indexes = dict.fromkeys(wanted[name]["partition_indexes"])
        return {"name": name, "partitions": await asyncio.gather(*(of_partition(topic, each) for each in indexes))}

    return {"topics": await each_topic([each["name"] for each in asked["topics"]], around.namespace, one)}


def _state(producer: KnownProducer) -> Body:
    """A client of Kafka has the id and the epoch that it sends; any other producer those of the log."""
    own = producer.name.removeprefix(KAFKA)
    is_client = own != producer.name and own.isdecimal()
    epoch = epoch_of(producer.persisted) if is_client else producer.generation
    number = number_of(producer.persisted) if is_client else producer.persisted
    return {
        "producer_id": int(own) if is_client else producer.producer_id,
        "producer_epoch": min(max(epoch, 0), _INT32_MAX),
        "last_sequence": NO_SEQUENCE if producer.persisted == NO_SEQUENCE else number % _NUMBERS,
        "last_timestamp": producer.last_activity_ms,
        "coordinator_epoch": -1,
        "current_txn_start_offset": -1,
    }
