"""CreateTopics, CreatePartitions, DeleteTopics and DeleteRecords."""

import asyncio

from oncelog.core.errors import TopicNotFound
from oncelog.core.names import TopicName
from oncelog_doors.core.kafka.administration_codes import Refused
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.core.kafka.operations import may_create_topics
from oncelog_doors.core.kafka.partition_counts import check_growth, count_of_new
from oncelog_doors.core.kafka.topic_configs import AppliedConfigs, OwnConfigs, changed
from oncelog_doors.core.kafka.topic_names import partition_of
from oncelog_doors.kafka.asking import Asking
from oncelog_doors.kafka.changes import Changes, accepted, each_topic, first_of_each, outcome_of
from oncelog_doors.kafka.codec import Body

#: In the place of an offset: the present end of the partition.
_END = -1
_NO_OFFSET = -1


async def create_topics(around: Asking, asked: Body) -> Body:
    changes, wanted = Changes(asked["timeout_ms"]), first_of_each(asked["topics"])
    is_trial = asked.get("validate_only", False)

    async def one(name: str, topic: TopicName | Refused) -> Body:
        return {"name": name, **await changes.outcome(lambda: _create(around, accepted(topic), wanted[name], is_trial))}

    names = [each["name"] for each in asked["topics"]]
    return {"topics": await each_topic(names, around.namespace, one)}


async def _create(around: Asking, topic: TopicName, wanted: Body, is_trial: bool) -> None:
    admin = around.administration
    assigned = [each["partition_index"] for each in wanted["assignments"]]
    default = around.cluster.partitions_default
    count = count_of_new(wanted["num_partitions"], wanted["replication_factor"], assigned, default)
    configs = _configs(wanted["configs"])
    own = OwnConfigs()
    if configs:
        # It needs the right to administer, as setting them does: so nothing is created whose configurations would fail.
        applied = await admin.configs_of_namespace(topic.namespace_name)
        own = changed(own, applied, configs, around.cluster.batch_bytes_max)
    if is_trial:
        await _check_creation(around, topic)
        return
    await admin.create(topic, count)
    if own == OwnConfigs():
        return

    def set_all(_own: OwnConfigs, _applied: AppliedConfigs) -> OwnConfigs:
        return own

    failure = await Changes().result(lambda: admin.change_configs(topic, set_all))
    if isinstance(failure, Refused):
        sentence = f"the topic was created, and its configurations were not set: {failure.sentence}: alter them"
        raise Refused(failure.code, sentence)


def _configs(given: list[Body]) -> dict[str, str | None]:
    """Raises Refused."""
    found = {each["name"]: each["value"] for each in given}
    if len(found) < len(given):
        raise Refused(ErrorCode.INVALID_REQUEST, "a configuration is named twice: give each of them one value")
    return found


async def _check_creation(around: Asking, topic: TopicName) -> None:
    """What would be in the way of a creation. Raises Refused and OncelogError."""
    if not may_create_topics(await around.cluster.rights_of(topic.namespace_name, around.caller)):
        sentence = f"role {around.caller.role} has no right to create topics in namespace {topic.namespace_name}"
        raise Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, sentence)
    try:
        await around.administration.partitions(topic)
    except TopicNotFound:
        return
    raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic} already exists")


async def create_partitions(around: Asking, asked: Body) -> Body:
    changes, wanted = Changes(asked["timeout_ms"]), first_of_each(asked["topics"])

    async def grow(topic: TopicName, count: int, assigned: int | None) -> None:
        admin = around.administration
        present = await admin.partitions(topic)
        if not asked["validate_only"] and present == count:
            # It completes a growth whose request had no answer; the client is answered as by Kafka.
            await admin.grow(topic, count, changes.left_ms)
        check_growth(present, count, assigned)
        if not asked["validate_only"]:
            await admin.grow(topic, count, changes.left_ms)

    async def one(name: str, topic: TopicName | Refused) -> Body:
        count, assignments = wanted[name]["count"], wanted[name]["assignments"]
        assigned = None if assignments is None else len(assignments)
        return {"name": name, **await changes.outcome(lambda: grow(accepted(topic), count, assigned))}

    names = [each["name"] for each in asked["topics"]]
    return {"results": await each_topic(names, around.namespace, one)}


async def delete_topics(around: Asking, asked: Body) -> Body:
    changes = Changes(asked["timeout_ms"])

    async def one(name: str, topic: TopicName | Refused) -> Body:
        admin = around.administration
        return {"name": name, **await changes.outcome(lambda: admin.delete(accepted(topic), changes.left_ms))}

    return {"responses": await each_topic(asked["topic_names"], around.namespace, one)}


async def delete_records(around: Asking, asked: Body) -> Body:
    changes, wanted = Changes(asked["timeout_ms"]), first_of_each(asked["topics"])

    async def trim(topic: TopicName, index: int, offset: int) -> int:
        admin = around.administration
        log = partition_of(topic, index, await admin.partitions(topic))
        if offset < _END:
            sentence = f"offset {offset} is neither -1, the end, nor the first offset that is to be kept"
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, sentence)
        return await admin.trim(log, None if offset == _END else offset, changes.left_ms)

    async def of_partition(topic: TopicName | Refused, part: Body) -> Body:
        index, offset = part["partition_index"], part["offset"]
        result = await changes.result(lambda: trim(accepted(topic), index, offset))
        found = _NO_OFFSET if isinstance(result, Refused) else result
        return {"partition_index": index, "low_watermark": found, **outcome_of(result)}

    async def one(name: str, topic: TopicName | Refused) -> Body:
        parts = first_of_each(wanted[name]["partitions"], "partition_index").values()
        return {"name": name, "partitions": await asyncio.gather(*(of_partition(topic, each) for each in parts))}

    names = [each["name"] for each in asked["topics"]]
    return {"topics": await each_topic(names, around.namespace, one)}
