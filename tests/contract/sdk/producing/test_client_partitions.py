"""Producers and readers of partitioned topics: one object over all partitions, and replays that go where they went."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

import oncelog
from oncelog.core.errors import DeadlineExceeded, InvalidArgument, ProducerFenced, ReaderClosed, SequenceIdRequired
from oncelog.core.sdk.producer.routing import partition_of
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0
PARTITIONS = 4
#: A read is cancelled at any moment: each is right.
READ_BEGINS_S = 0.001


@pytest.fixture(autouse=True)
def partitioned(cluster: FakeCluster) -> None:
    cluster.partitioned["public/default/orders"] = PARTITIONS


def stored(cluster: FakeCluster) -> list[list[bytes]]:
    """The values of each partition."""
    return [cluster.topic(f"orders-partition-{number}").values() for number in range(PARTITIONS)]


async def rest(reader: oncelog.AsyncReader) -> list[oncelog.Message]:
    messages = []
    while await reader.has_message_available():
        messages.append(await reader.read_next(timeout=DEADLINE_S))
    return messages


# --- producers --------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("resent-to-another-partition")
async def test_replay_goes_to_the_same_partitions(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """By sequence id, single or in a list, from another instance: nothing is stored twice."""
    values = [b"%d" % number for number in range(20)]
    producer = await client.create_producer("orders", producer_name="importer")
    await asyncio.gather(*(producer.send(v, sequence_id=n) for n, v in enumerate(values[:10])))
    before = stored(cluster)
    assert [len(each) for each in before] == [3, 3, 2, 2]
    again = await client.create_producer("orders", producer_name="importer")
    assert again.last_sequence_ids == (8, 9, 6, 7)
    assert again.resume_sequence_id == 6
    result = await again.send_many(values, sequence_ids=range(20))
    assert result.duplicate_ranges == [range(10)]
    assert [each.sequence_id for each in result.results if isinstance(each, oncelog.SendResult)] == list(range(20))
    assert [i.partition if i else None for i in result.message_ids] == [n % 4 for n in range(20)]
    assert stored(cluster) == [values[number::4] for number in range(PARTITIONS)]


@pytest.mark.hazard("resent-to-another-partition")
async def test_keys_decide_before_sequence_ids(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """All messages of a key are in one partition, in order; text and its UTF-8 are the same key."""
    producer = await client.create_producer("orders", producer_name="importer")
    keys = [f"customer {number % 7}" for number in range(50)]
    values = [b"%d" % number for number in range(50)]
    await producer.send_many(values[:40], sequence_ids=range(40), keys=keys[:40])
    for number in range(40, 50):
        await producer.send(values[number], sequence_id=number, key=keys[number].encode())
    expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for key, value in zip(keys, values, strict=True):
        expected[partition_of(key.encode(), PARTITIONS)].append(value)
    assert stored(cluster) == expected
    assert sum(map(bool, expected)) > 1


async def test_messages_without_key_and_id_take_turns(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """One message, one turn; a list stays together."""
    producer = await client.create_producer("orders")
    for number in range(4):
        await producer.send(b"%d" % number)
    result = await producer.send_many([b"a", b"b", b"c"])
    assert result.count == 3
    assert stored(cluster) == [[b"0", b"a", b"b", b"c"], [b"1"], [b"2"], [b"3"]]
    assert producer.producer_name
    assert producer.message_bytes_max == 5 * 1024 * 1024
    await producer.close()


async def test_partition_without_messages_holds_the_resume_point_back(client: oncelog.AsyncClient) -> None:
    """What another partition has is no proof for this one: the highest id of all would lose messages."""
    producer = await client.create_producer("orders", producer_name="importer")
    await producer.send(b"1", sequence_id=5)
    assert producer.resume_sequence_id == -1
    with pytest.raises(InvalidArgument, match="resume_sequence_id"):
        producer.last_sequence_id  # noqa: B018


async def test_error_of_one_partition_carries_the_result_of_the_list(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """A stale id fails alone; the others of the list are stored, in every partition."""
    producer = await client.create_producer("orders", producer_name="importer")
    await producer.send(b"late", sequence_id=41)
    with pytest.raises(oncelog.errors.StaleSequence) as caught:
        await producer.send_many([b"a", b"b", b"c"], sequence_ids=[20, 21, 22])
    assert caught.value.result.failed_ranges == [range(1, 2)]
    assert stored(cluster) == [[b"a"], [b"late"], [b"c"], []]


async def test_fenced_in_one_partition_is_fenced_in_all(client: oncelog.AsyncClient) -> None:
    """Another instance takes the partitions one after the other: after the first, nothing is sent any more."""
    older = await client.create_producer("orders", producer_name="importer")
    await client.create_producer("orders-partition-2", producer_name="importer")
    with pytest.raises(ProducerFenced):
        await older.send(b"x", sequence_id=2)
    with pytest.raises(ProducerFenced):
        await older.send(b"y", sequence_id=3)
    assert isinstance(older.failure, ProducerFenced)


async def test_options_of_a_single_log_are_refused(client: oncelog.AsyncClient) -> None:
    """Counting without gaps needs one log. The name of the argument is in the error."""
    with pytest.raises(InvalidArgument) as caught:
        await client.create_producer("orders", sequence_mode="contiguous")
    assert caught.value.details["field"] == "sequence_mode"
    with pytest.raises(InvalidArgument) as caught:
        await client.create_producer("orders", initial_sequence_id=7)
    assert caught.value.details["field"] == "initial_sequence_id"


async def test_bad_lists_store_nothing(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """Checked before any partition gets its share."""
    producer = await client.create_producer("orders", producer_name="importer")
    for arguments in ({"sequence_ids": [1, 0]}, {"sequence_ids": [1]}, {"keys": [b"k", 5]}, {"keys": [b"k"]}):
        with pytest.raises((InvalidArgument, oncelog.errors.InvalidSequenceId)):
            await producer.send_many([b"a", b"b"], **arguments)
    await producer.send(b"c", sequence_id=0)
    turns = [await asyncio.gather(producer.send_many([b"a"]), return_exceptions=True) for _ in range(PARTITIONS)]
    # Automatic ids after explicit ones, when it is the turn of the partition that has them.
    assert [type(turn[0]) for turn in turns].count(SequenceIdRequired) == 1


# --- readers ----------------------------------------------------------------------------------------------------------


async def test_reader_reads_all_partitions(client: oncelog.AsyncClient) -> None:
    """Everything once, each partition in its order, and what arrives later."""
    producer = await client.create_producer("orders", producer_name="importer")
    await producer.send_many([b"%d" % n for n in range(40)], sequence_ids=range(40))
    async with await client.create_reader("orders") as reader:
        messages = await rest(reader)
        assert sorted(m.sequence_id or 0 for m in messages) == list(range(40))
        for number in range(PARTITIONS):
            ids = [m.sequence_id for m in messages if m.message_id.partition == number]
            assert ids == list(range(number, 40, PARTITIONS))
        waiting = asyncio.ensure_future(reader.read_next(timeout=DEADLINE_S))
        await producer.send(b"late", sequence_id=41)
        assert (await waiting).value == b"late"
        with pytest.raises(DeadlineExceeded):
            await reader.read_batch(timeout=0)
        last = {m.message_id.partition: m.message_id for m in messages}
    async with await client.create_reader("orders", start=list(last.values())) as resumed:
        assert [m.value for m in await rest(resumed)] == [b"late"]


async def test_cancelled_read_loses_nothing(client: oncelog.AsyncClient) -> None:
    """A read that is cancelled while it waits has taken nothing."""
    producer = await client.create_producer("orders")
    async with await client.create_reader("orders") as reader:
        values: list[bytes] = []
        for number in range(20):
            waiting = asyncio.ensure_future(reader.read_next())
            await asyncio.wait([waiting], timeout=READ_BEGINS_S)
            waiting.cancel()
            done = await asyncio.gather(waiting, return_exceptions=True)
            values += [each.value for each in done if isinstance(each, oncelog.Message)]
            await producer.send(b"%d" % number)
        values += [m.value for m in await rest(reader)]
        assert sorted(values) == sorted(b"%d" % n for n in range(20))


async def test_seek_goes_on_elsewhere(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """One log and several; after a start that is refused the reader goes on where it was."""
    for topic in ("orders", "flights"):
        producer = await client.create_producer(topic, producer_name="importer")
        await producer.send_many([b"%d" % n for n in range(8)], sequence_ids=range(8))
        async with await client.create_reader(topic) as reader:
            assert len(await rest(reader)) == 8
            await reader.seek(oncelog.EARLIEST)
            first = await reader.read_next(timeout=DEADLINE_S)
            with pytest.raises(InvalidArgument):
                await reader.seek([replace(first.message_id, partition=77)])
            assert len(await rest(reader)) == 7
            await reader.seek(datetime(1970, 1, 1, tzinfo=UTC))
            assert len(await rest(reader)) == 8
            await reader.seek(oncelog.LATEST)
            assert await rest(reader) == []
        with pytest.raises(ReaderClosed):
            await reader.seek(oncelog.EARLIEST)


async def test_sync_wrappers_reach_all_partitions(cluster: FakeCluster) -> None:
    """The blocking API dispatches to the object that it wraps."""

    def use() -> tuple[tuple[int, ...], int, int]:
        with oncelog.Client(cluster.url) as client:
            producer = client.create_producer("orders", producer_name="importer")
            producer.send_many([b"%d" % n for n in range(8)], sequence_ids=range(8))
            producer.send(b"8", sequence_id=8)
            with client.create_reader("orders") as reader:
                count = 0
                while reader.has_message_available():
                    reader.read_next(timeout=DEADLINE_S)
                    count += 1
                reader.seek(oncelog.EARLIEST)
                assert reader.read_next(timeout=DEADLINE_S).value in {b"0", b"1", b"2", b"3"}
            return producer.last_sequence_ids, producer.resume_sequence_id, count

    assert await asyncio.to_thread(use) == ((8, 5, 6, 7), 5, 9)
