"""The comparison of a topic with its mirror, for the report of an audit.

Both sides are read from the first message on, at the same time, and one batch of each is kept.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from oncelog.client.client import AsyncClient
from oncelog.client.connecting import connect
from oncelog.client.rest_calls import owner_stats
from oncelog.client.stored import end_of
from oncelog.client.two_clusters import two_clusters
from oncelog.client.values.messages import MessageBatch
from oncelog.core.counted import counted
from oncelog.core.errors import TopicNotFound
from oncelog.core.formats.message_id import EARLIEST, MessageId
from oncelog.core.names import parse_topic
from oncelog.verify.mirrored import Content, MirrorComparison, Run
from oncelog_spark.audit.report import GOOD, INCOMPLETE, VIOLATIONS
from oncelog_spark.cluster import process_loop
from oncelog_spark.options import ConnectionOptions

Json = dict[str, Any]
_COUNTS = ("compared", "missing", "doubled", "order", "differs", "not_copied", "not_compared")
_ANSWER_S = 60.0


def compare_topics(
    source: ConnectionOptions, target: ConnectionOptions, topics: Sequence[str]
) -> dict[str, MirrorComparison | None]:
    """topics: without partitions, or partitions. None: the target does not have the topic. Raises OncelogError."""
    return process_loop().run_until_complete(_compared(source, target, topics))


async def _compared(
    source: ConnectionOptions, target: ConnectionOptions, topics: Sequence[str]
) -> dict[str, MirrorComparison | None]:
    async with await _client(source) as here, await _client(target) as there:
        cluster_id = (await two_clusters(here, there, int(_ANSWER_S * 1000))).source
        return {topic: await compare_log(here, there, cluster_id, topic) for topic in topics}


async def _client(options: ConnectionOptions) -> AsyncClient:
    return await connect(
        options.url, token=options.token, tls_ca_file=options.tls_ca_file,
        allow_plaintext_token=options.plaintext_token_allowed, operation_timeout=_ANSWER_S,
    )  # fmt: skip


async def compare_log(source: AsyncClient, target: AsyncClient, cluster_id: str, topic: str) -> MirrorComparison | None:
    """Up to the end of the source when it begins. cluster_id: of the source."""
    last = await source.last_message_id(topic)
    comparison = MirrorComparison()
    if last is None:
        return comparison
    end = await end_of(source, topic)
    try:
        target_last = await target.last_message_id(topic)
    except TopicNotFound:
        return None
    comparison.source_first = int((await owner_stats(source, parse_topic(topic)))["first_index"])
    originals = _originals(source, topic, last)
    if target_last is not None:
        comparison.target_trimmed = int((await owner_stats(target, parse_topic(topic)))["first_index"]) > 0
        async for copy in _copies(target, topic, target_last, (cluster_id, last.topic_id)):
            if copy.first >= end:
                continue  # copied since the comparison began
            while comparison.wants(copy):
                await _add_next(comparison, originals)
            comparison.add_copy(copy)
    comparison.end_copies()
    while not comparison.has_ended:
        await _add_next(comparison, originals)
    return comparison


async def _add_next(comparison: MirrorComparison, originals: AsyncIterator[Run]) -> None:
    try:
        comparison.add_original(await anext(originals))
    except StopAsyncIteration:
        comparison.end_originals()


async def _originals(client: AsyncClient, topic: str, last: MessageId) -> AsyncIterator[Run]:
    async for batch in _batches(client, topic, last):
        if batch.origin is None:
            yield Run(
                batch.first_index, batch.count, batch.message_id(0), batch.checksum, _content_of(batch),
                batch.first_index,
            )  # fmt: skip


async def _copies(client: AsyncClient, topic: str, last: MessageId, of: tuple[str, str]) -> AsyncIterator[Run]:
    """of: the ids of the source's cluster and topic."""
    async for batch in _batches(client, topic, last):
        origin = batch.origin_of(0)
        if origin is not None and (origin.cluster_id, origin.message_id.topic_id) == of:
            yield Run(
                origin.index, batch.count, origin.message_id, origin.checksum, _content_of(batch), batch.first_index
            )


async def _batches(client: AsyncClient, topic: str, last: MessageId) -> AsyncIterator[MessageBatch]:
    async with await client.create_reader(topic, start=EARLIEST) as reader:
        while (batch := await reader.batch_up_to(last, timeout=None)) is not None:
            yield batch


def _content_of(batch: MessageBatch) -> Content:
    def content(start: int, stop: int) -> object:
        rows = batch.part(start, stop)
        return [(message.value, message.key, message.event_time_ms, dict(message.properties)) for message in rows]

    return content


# --- the report -------------------------------------------------------------------------------------------------------


def add_comparisons(report: Json, found: Mapping[str, MirrorComparison | None]) -> None:
    """Give each topic of the report its comparison, as `mirror`, and change the verdicts."""
    for topic in report["topics"]:
        _add(topic, found[topic["topic"]])
    verdicts = {report["verdict"], *(topic["verdict"] for topic in report["topics"])}
    report["verdict"] = next((one for one in (VIOLATIONS, INCOMPLETE) if one in verdicts), GOOD)


def _add(topic: Json, found: MirrorComparison | None) -> None:
    if found is None:
        topic["mirror"] = None
        _judge(topic, [], 0, ["mirror: the target does not have the topic"])
        return
    counts = {name: getattr(found, name) for name in _COUNTS}
    topic["mirror"] = {**counts, "not_copied_from": found.not_copied_from}
    violations = [
        {"rule": f"mirror {each.rule}", "position": None, "message": f"index {each.first}: {each.message}"}
        for each in found.findings
    ]
    unchecked = []
    if found.not_copied:
        some = counted(found.not_copied, "message")
        unchecked.append(f"mirror: {some} from index {found.not_copied_from} on have no copy yet")
    if found.not_compared:
        some = counted(found.not_compared, "message")
        unchecked.append(f"mirror: {some} could not be compared, because one side has deleted them")
    topic["checks"].append(
        {
            "check": "mirror",
            "state": "violated" if not found.is_good else "incomplete" if unchecked else "good",
            "violations": found.missing + found.doubled + found.order + found.differs,
            "compared_with": counted(found.compared, "copy", "copies"),
        }
    )
    _judge(topic, violations, found.missing + found.doubled + found.order + found.differs, unchecked)


def _judge(topic: Json, violations: list[Json], count: int, unchecked: list[str]) -> None:
    topic["violations"] = topic["violations"] + violations
    topic["violations_count"] += count
    topic["not_checked"] = topic["not_checked"] + unchecked
    if topic["violations_count"]:
        topic["verdict"] = VIOLATIONS
    elif topic["not_checked"]:
        topic["verdict"] = INCOMPLETE
