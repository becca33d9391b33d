"""Fetch: which batches a client gets, when, and what it is answered where there are none."""

from collections.abc import Sequence
from typing import Any

import pytest

from oncelog.core.errors import CorruptEntry, LedgerUnavailable, OncelogError, ServiceUnavailable, TopicNotFound
from oncelog.core.ids import TopicId
from oncelog_doors.core.kafka.error_codes import ErrorCode
from oncelog_doors.kafka.codec import Body
from oncelog_doors.kafka.fetching import IDLE_MS, PARTITIONS_MAX
from oncelog_doors.kafka.partition_reads import END_AGE_MS
from tests.cluster.until import until
from tests.doors.kafka.client_batches import batch_of, numbered
from tests.doors.kafka.fake_cluster import FakeCluster
from tests.doors.kafka.raw_client import RawClient, kafka_world, raw_client
from tests.doors.raw_connection import DEADLINE_S

pytestmark = pytest.mark.asyncio

BATCH = batch_of(numbered(3))
Partition = tuple[str, int, int]


def fetch(
    *partitions: Partition, wait_ms: int = 0, bytes_min: int = 1, bytes_max: int = 1_000_000, each_max: int = 1_000_000
) -> dict[str, Any]:
    """partitions: topic, number, offset."""
    topics = [
        {
            "topic": topic,
            "partitions": [{"partition": number, "fetch_offset": offset, "partition_max_bytes": each_max}],
        }
        for topic, number, offset in partitions or [("orders", 0, 0)]
    ]
    return {"max_wait_ms": wait_ms, "min_bytes": bytes_min, "max_bytes": bytes_max, "topics": topics}


def parts(answer: Body) -> list[Body]:
    return [partition for topic in answer["responses"] for partition in topic["partitions"]]


def offsets(partition: Body) -> list[int]:
    """The base offsets of its batches."""
    found, data = [], bytes(partition["records"])
    while data:
        found.append(int.from_bytes(data[:8], "big"))
        data = data[12 + int.from_bytes(data[8:12], "big") :]
    return found


async def read(client: RawClient, *partitions: Partition, **options: Any) -> Body:
    """The first partition of an answer that waits for something."""
    answer = await client.ask("Fetch", 11, fetch(*partitions, **{"wait_ms": 30_000, **options}))
    return parts(answer)[0]


async def test_batches_come_at_their_offsets_from_the_one_that_holds_the_offset_on() -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        log = world.cluster.log()
        for _ in range(3):
            log.append(BATCH, 3)
        found = await read(client, ("orders", 0, 4), bytes_min=2 * len(BATCH))
        assert offsets(found) == [3, 6]
        assert (found["high_watermark"], found["last_stable_offset"], found["log_start_offset"]) == (9, 9, 0)
        assert bytes(found["records"])[16 : len(BATCH)] == BATCH[16:]


async def test_a_request_without_partitions_is_answered_at_once() -> None:
    """Java's consumer sends one, to end a session of fetches, and waits for its answer before it ends itself."""
    async with kafka_world() as world, raw_client(world.port) as client:
        found = await client.ask("Fetch", 11, {**fetch(wait_ms=30_000), "session_epoch": -1, "topics": []})
        assert (found["error_code"], found["session_id"], found["responses"]) == (ErrorCode.NONE, 0, [])


async def test_a_client_that_goes_on_keeps_its_reader_and_one_that_jumps_gets_another() -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        log = world.cluster.log()
        log.append(BATCH, 3)
        assert offsets(await read(client)) == [0]
        log.append(BATCH, 3)
        assert offsets(await read(client, ("orders", 0, 3))) == [3]
        assert len(world.cluster.readers) == 1
        assert offsets(await read(client, ("orders", 0, 0), bytes_min=2 * len(BATCH))) == [0, 3]
        assert len(world.cluster.readers) == 2


@pytest.mark.hazard("fetch-without-an-answer")
async def test_an_answer_comes_when_the_time_is_over() -> None:
    """At the end of the log, the answer names the client's own offset as the end: nothing more is there."""
    async with kafka_world() as world, raw_client(world.port) as client:
        world.cluster.log().append(BATCH, 3)
        client.send("Fetch", 11, fetch(("orders", 0, 3), wait_ms=5_000))
        await until(lambda: len(world.cluster.readers) == 1, DEADLINE_S)
        world.timers.advance(5_000)
        [found] = parts((await client.read("Fetch", 11))[1])
        assert (found["error_code"], offsets(found), found["high_watermark"]) == (0, [], 3)


@pytest.mark.hazard("fetch-without-an-answer")
async def test_a_partition_that_cannot_be_read_yet_is_no_end() -> None:
    """A client concludes from its own offset as the end that it has read everything."""
    cluster = FakeCluster()
    cluster.log().owned.clear()
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        client.send("Fetch", 11, fetch(wait_ms=40_000))
        await until(lambda: world.home.budget.total > 0, DEADLINE_S)
        world.timers.advance(30_000)
        [found] = parts((await client.read("Fetch", 11))[1])
        assert (found["error_code"], found["high_watermark"]) == (0, -1)
        cluster.log().append(BATCH, 3)
        cluster.log().owned.set()
        assert offsets(await read(client)) == [0]


@pytest.mark.hazard("fetch-without-an-answer")
async def test_a_session_of_fetches_is_refused_and_none_is_begun() -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        found = await client.ask("Fetch", 11, fetch() | {"session_id": 5, "session_epoch": 1})
        assert (found["error_code"], found["responses"]) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        world.cluster.log().append(BATCH, 3)
        begun = await client.ask("Fetch", 11, fetch(wait_ms=30_000) | {"session_epoch": 0})
        assert (begun["session_id"], offsets(parts(begun)[0])) == (0, [0])


async def test_an_answer_waits_for_as_many_bytes_as_are_wanted() -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        log = world.cluster.log()
        log.append(BATCH, 3)
        client.send("Fetch", 11, fetch(wait_ms=30_000, bytes_min=len(BATCH) + 1))
        await until(lambda: len(world.cluster.readers) == 1, DEADLINE_S)
        assert world.home.counts.requests["Fetch"] == 0
        log.append(BATCH, 3)
        assert offsets(parts((await client.read("Fetch", 11))[1])[0]) == [0, 3]


@pytest.mark.hazard("first-batch-too-large")
async def test_the_first_batch_of_an_answer_comes_whole() -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        for _ in range(2):
            world.cluster.log().append(BATCH, 3)
        assert offsets(await read(client, bytes_max=10, each_max=10)) == [0]
        assert offsets(await read(client, ("orders", 0, 3), bytes_max=10, each_max=10)) == [3]


async def test_limits_of_an_answer_and_of_a_partition_are_kept() -> None:
    cluster = FakeCluster()
    cluster.partition_counts["public/default/orders"] = 2
    for number in range(2):
        for _ in range(4):
            cluster.log(f"orders-partition-{number}").append(BATCH, 3)
    size = len(BATCH)
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        both = ("orders", 0, 0), ("orders", 1, 0)
        options = {"wait_ms": 30_000, "bytes_min": 4 * size, "bytes_max": 3 * size, "each_max": 2 * size}
        assert [offsets(each) for each in parts(await client.ask("Fetch", 11, fetch(*both, **options)))] == [
            [0, 3],
            [0],
        ]


async def test_each_answer_begins_with_another_partition() -> None:
    """A busy one does not starve the others."""
    cluster = FakeCluster()
    cluster.partition_counts["public/default/orders"] = 2
    for number in range(2):
        for _ in range(4):
            cluster.log(f"orders-partition-{number}").append(BATCH, 3)
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        options = {"wait_ms": 30_000, "bytes_min": 2 * len(BATCH), "bytes_max": 1, "each_max": len(BATCH)}
        at, served = [0, 0], []
        for _ in range(4):
            asked = fetch(("orders", 0, at[0]), ("orders", 1, at[1]), **options)
            for number, each in enumerate(parts(await client.ask("Fetch", 11, asked))):
                if offsets(each):
                    served.append(number)
                    at[number] += 3
        assert served == [0, 1, 0, 1]


@pytest.mark.parametrize("offset", [-1, 2, 10])
async def test_an_offset_that_the_log_does_not_have_is_out_of_range(offset: int) -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        world.cluster.log().first = 3
        world.cluster.log().append(BATCH, 3)
        assert (await read(client, ("orders", 0, offset)))["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
        assert offsets(await read(client, ("orders", 0, 3))) == [3]


@pytest.mark.hazard("read-on-in-another-topic")
async def test_a_topic_that_is_made_again_is_out_of_range_once() -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        log = world.cluster.log()
        log.append(BATCH, 3)
        await read(client)
        log.topic_id = TopicId("1f" * 16)
        log.append(BATCH, 3)
        world.cluster.readers[0].error = TopicNotFound("it was deleted and created again")
        log.arrived.set()
        first = await read(client, ("orders", 0, 3))
        while offsets(first):  # what the former reader had read
            first = await read(client, ("orders", 0, 6))
        assert first["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await read(client, ("orders", 0, 3)))["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
        assert offsets(await read(client, ("orders", 0, 3))) == [3]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CorruptEntry("damaged"), ErrorCode.CORRUPT_MESSAGE),
        (TopicNotFound("deleted"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_what_ends_a_reader_is_told_after_what_it_has_read(error: OncelogError, code: ErrorCode) -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        log = world.cluster.log()
        log.append(BATCH, 3)
        client.send("Fetch", 11, fetch(wait_ms=30_000, bytes_min=100_000))
        await until(lambda: len(world.cluster.readers) == 1, DEADLINE_S)
        world.cluster.readers[0].error = error
        log.arrived.set()
        [found] = parts((await client.read("Fetch", 11))[1])
        assert (offsets(found), found["error_code"]) == ([0], 0)
        assert (await read(client, ("orders", 0, 3)))["error_code"] == code


async def test_entries_that_cannot_be_read_now_are_waited_for() -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        client.send("Fetch", 11, fetch(wait_ms=30_000))
        await until(lambda: len(world.cluster.readers) == 1, DEADLINE_S)
        reader, log = world.cluster.readers[0], world.cluster.log()
        reader.errors = [LedgerUnavailable("no storage node")]
        log.arrived.set()
        await until(lambda: not reader.errors, DEADLINE_S)
        log.append(BATCH, 3)
        assert offsets(parts((await client.read("Fetch", 11))[1])[0]) == [0]


@pytest.mark.parametrize(
    ("partition", "code"),
    [
        (("unknown", 0, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("orders", 1, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("a b", 0, 0), ErrorCode.INVALID_TOPIC),
    ],
)
async def test_partitions_that_are_not_there_are_named(partition: Partition, code: ErrorCode) -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        found = await read(client, partition)
        assert (found["error_code"], found["high_watermark"]) == (code, -1)


async def test_the_end_that_is_told_follows_the_log() -> None:
    """A client computes its lag from it."""
    async with kafka_world() as world, raw_client(world.port) as client:
        log = world.cluster.log()
        for _ in range(4):
            log.append(BATCH, 3)
        options = {"each_max": len(BATCH), "bytes_max": len(BATCH)}
        await read(client, **options)
        log.append(BATCH, 3)
        assert (await read(client, ("orders", 0, 3), **options))["high_watermark"] == 12
        world.timers.advance(END_AGE_MS)
        await read(client, ("orders", 0, 6), **options)
        assert (await read(client, ("orders", 0, 9), **options))["high_watermark"] == 15


async def test_partitions_that_are_not_asked_for_are_closed() -> None:
    cluster = FakeCluster()
    cluster.partition_counts["public/default/orders"] = 2
    for number in range(2):
        cluster.log(f"orders-partition-{number}").append(BATCH, 3)
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        await read(client, ("orders", 0, 0))
        world.timers.advance(IDLE_MS + 1)
        await read(client, ("orders", 1, 0))
        await until(lambda: cluster.readers[0].closed and not cluster.readers[1].closed, DEADLINE_S)
    await until(lambda: cluster.readers[1].closed, DEADLINE_S)


async def test_more_partitions_than_a_connection_may_read_are_answered_in_turns() -> None:
    cluster = FakeCluster()
    cluster.partition_counts["public/default/orders"] = PARTITIONS_MAX + 1
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        every: Sequence[Partition] = [("orders", number, 0) for number in range(PARTITIONS_MAX + 1)]
        client.send("Fetch", 11, fetch(*every, wait_ms=5_000))
        await until(lambda: len(cluster.readers) == PARTITIONS_MAX, DEADLINE_S)
        world.timers.advance(5_000)
        found = parts((await client.read("Fetch", 11))[1])
        assert {each["error_code"] for each in found} == {0}
        assert found[-1]["high_watermark"] == -1
        world.timers.advance(1)
        cluster.log(f"orders-partition-{PARTITIONS_MAX}").append(BATCH, 3)
        assert offsets(await read(client, every[-1])) == [0]


async def test_topics_and_places_are_told() -> None:
    cluster = FakeCluster()
    cluster.partition_counts |= {"public/default/wide": 3, "public/default/__oncelog_schemas": 0, "shop/web/x": 0}
    async with kafka_world(cluster) as world, raw_client(world.port) as client:
        for version, every in ((0, []), (1, None), (8, None)):
            found = await client.ask("Metadata", version, {"topics": every})
            assert [(each["name"], len(each["partitions"])) for each in found["topics"]] == [("orders", 1), ("wide", 3)]
        some = [{"name": name} for name in ("wide", "wide", "shop/web/x", "a b", "orders-partition-1", "later")]
        asked = {"topics": some, "allow_auto_topic_creation": False}
        found = await client.ask("Metadata", 8, asked)
        assert [(each["name"], each["error_code"]) for each in found["topics"]] == [
            ("wide", 0), ("shop/web/x", 0), ("a b", 17), ("orders-partition-1", 17), ("later", 3)
        ]  # fmt: skip
        assert not cluster.created
        [leader] = {each["leader_id"] for each in found["topics"][0]["partitions"]}
        assert leader == 0
        await client.ask("Metadata", 8, asked | {"allow_auto_topic_creation": True})
        assert cluster.created == ["public/default/later"]
        cluster.list_error = ServiceUnavailable("no service")
        client.send("Metadata", 8, {"topics": None})
        await client.closed()


async def test_offsets_are_found() -> None:
    async with kafka_world() as world, raw_client(world.port) as client:
        world.cluster.log().first = 3
        world.cluster.log().append(BATCH, 3)
        asked = [{"partition_index": 0, "timestamp": time} for time in (-2, -1, 1_000, 1_001, -3)]
        asked.append({"partition_index": 7, "timestamp": -1})
        found = await client.ask("ListOffsets", 5, {"topics": [{"name": "orders", "partitions": asked}]})
        [topic] = found["topics"]
        assert [(each["error_code"], each["offset"], each["timestamp"]) for each in topic["partitions"]] == [
            (0, 3, -1), (0, 6, -1), (0, 3, 1_000), (0, -1, -1), (ErrorCode.INVALID_REQUEST, -1, -1), (3, -1, -1)
        ]  # fmt: skip
