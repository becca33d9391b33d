"""The consumer of whole entries, when its owner, its subscription or its storage changes."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

import oncelog
from oncelog.client.gateways import (
    EntryChunks,
    EntryConsumerCallbacks,
    StartEdge,
    StartMessage,
    chunks_of,
    open_entry_consumer,
)
from oncelog.core import errors
from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.events import AckRequested, StoredEntry
from oncelog.core.formats.batch import PayloadFormat
from oncelog.core.formats.entry import EntryKind
from oncelog.core.ids import EntryId, Position, SeekEpoch
from oncelog.wire.owner_pb2 import ReadChunkAnswer
from tests.cluster.until import until
from tests.contract.sdk.consuming.entry_consumers import (
    DEADLINE_S,
    EACH,
    comes_nothing,
    fill,
    four,
    indexes,
    opened,
    ranges,
    taken,
)
from tests.contract.sdk.consuming.test_chunk_join import CHUNKS, VALUE, entry_of, log_of_chunked
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.fake_topic import LEDGER

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio


# --- life of the session ----------------------------------------------------------------------------------------------


@pytest.mark.hazard("delivered-while-held")
@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared", "key_shared"])
async def test_takeover_keeps_acknowledgements_and_what_is_held(
    client: oncelog.AsyncClient, cluster: FakeCluster, kind: str
) -> None:
    """Held entries come once, whether they were taken or wait here."""
    await fill(client, 5, key=b"k")
    recalled: list[IndexRange] = []
    callbacks = EntryConsumerCallbacks(recalled=recalled.extend)
    consumer = await opened(client, kind, permits=100, callbacks=callbacks)
    entries = await taken(consumer, 3)
    await consumer.ack(entries[0].ranges, entries[0].seek_epoch)
    await cluster.take_over()
    await fill(client, 1, key=b"k")
    rest = await taken(consumer, 3)
    assert indexes(rest) == four(3, 4, 5)
    for entry in (*entries[1:], *rest):
        assert (await consumer.ack(entry.ranges, entry.seek_epoch)).durable
    assert not recalled
    await consumer.close()
    await comes_nothing(await opened(client, kind, permits=100))


async def test_what_the_owner_takes_back_is_reported(client: oncelog.AsyncClient) -> None:
    """key_shared: the later messages of a key come back with the one that is rejected."""
    await fill(client, 2, key=b"k")
    recalled: list[IndexRange] = []
    callbacks = EntryConsumerCallbacks(recalled=recalled.extend)
    consumer = await opened(client, "key_shared", permits=100, callbacks=callbacks)
    await taken(consumer, 2)
    await consumer.nack(ranges(1), delay_ms=0)
    await until(lambda: recalled == [IndexRange(2, 7)], deadline_s=DEADLINE_S)
    again = await taken(consumer, 2)
    assert (indexes(again), again[0].delivery_count) == ([[1, 2, 3], four(1)[0]], 2)


async def test_active_consumer_changes(client: oncelog.AsyncClient) -> None:
    """Failover: the better consumer becomes active, and the former one learns it. Its cumulative acknowledgements
    are refused. What holds when a consumer is opened is no change."""
    await fill(client, 2)
    news: list[tuple[str, bool]] = []

    def callbacks(name: str) -> EntryConsumerCallbacks:
        return EntryConsumerCallbacks(active=lambda active: news.append((name, active)))

    second = await opened(client, "failover", "b", permits=1, callbacks=callbacks("b"))
    (entry,) = await taken(second, 1)
    assert second.active
    first = await opened(client, "failover", "a", permits=100, priority=-1, callbacks=callbacks("a"))
    await until(lambda: news == [("b", False)], deadline_s=DEADLINE_S)
    assert (first.active, second.active) == (True, False)
    assert indexes(await taken(first, 2)) == four(0, 1)
    with pytest.raises(errors.ConsumerFenced):
        await second.ack_below(4, entry.seek_epoch, entry.generation)
    await first.close()
    await until(lambda: news[-1] == ("b", True), deadline_s=DEADLINE_S)


@pytest.mark.hazard("late-ack-after-seek")
async def test_seek_voids_what_was_taken_at_each_consumer(client: oncelog.AsyncClient) -> None:
    """Each learns it, and gets the messages of the new place; acknowledgements of former deliveries are void."""
    await fill(client, 4)
    sought: dict[str, list[SeekEpoch]] = {"a": [], "b": []}
    consumers = [
        await opened(
            client, "shared", name, permits=1, callbacks=EntryConsumerCallbacks(sought=sought[name].append)
        )
        for name in sought
    ]  # fmt: skip
    entries = [(await taken(each, 1))[0] for each in consumers]
    assert await consumers[0].seek(Position(LEDGER, EntryId(3))) == 1
    await until(lambda: sought == {"a": [1], "b": [1]}, deadline_s=DEADLINE_S)
    for consumer, entry in zip(consumers, entries, strict=True):
        with pytest.raises(errors.StaleSeekEpoch):
            await consumer.ack(entry.ranges, entry.seek_epoch)
        consumer.permits(EACH + 1)
    again = [(await taken(each, 1))[0] for each in consumers]
    assert sorted(indexes(again)) == four(2, 3)
    assert {each.seek_epoch for each in again} == {1}
    await consumers[0].seek(StartMessage(Position(LEDGER, EntryId(4)), 2, inclusive=True))
    consumers[0].permits(100)
    assert indexes(await taken(consumers[0], 1)) == [[14, 15]]


async def test_subscription_begins_at_its_start(client: oncelog.AsyncClient) -> None:
    """If it is created; else it goes on where it is."""
    await fill(client, 3)
    consumer = await opened(client, permits=100, start=Position(LEDGER, EntryId(3)))
    (entry,) = await taken(consumer, 1)
    assert (consumer.created, indexes([entry])) == (True, four(2))
    await consumer.close()
    again = await opened(client, permits=100)
    assert (again.created, indexes(await taken(again, 1))) == (False, four(2))


async def test_nothing_is_created_unasked(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """Neither a topic nor a subscription."""
    with pytest.raises(errors.TopicNotFound):
        await opened(client, create=False)
    await fill(client, 1)
    with pytest.raises(errors.SubscriptionNotFound):
        await opened(client, create=False)
    await (await opened(client)).close()
    consumer = await opened(client, create=False, permits=1)
    assert indexes(await taken(consumer, 1)) == four(0)


async def test_second_consumer_of_an_exclusive_subscription_is_refused(client: oncelog.AsyncClient) -> None:
    """And one of another type."""
    await opened(client)
    with pytest.raises(errors.ConsumerBusy):
        await opened(client, name="d")
    with pytest.raises(errors.SubscriptionTypeMismatch):
        await opened(client, "shared", "d")


@pytest.mark.hazard("half-open-consumer")
async def test_exclusive_subscription_that_another_client_wants(client: oncelog.AsyncClient) -> None:
    """Its gateway asks the client. One that is there keeps it; one that is not is closed, and the other attaches."""
    asked = asyncio.Event()
    first = await opened(client, name="a", callbacks=EntryConsumerCallbacks(wanted=asked.set))
    opening = asyncio.ensure_future(opened(client, name="b"))
    async with asyncio.timeout(DEADLINE_S):
        await asked.wait()
    assert not opening.done()
    first.client_lives()
    with pytest.raises(errors.ConsumerBusy):
        await opening
    asked.clear()
    opening = asyncio.ensure_future(opened(client, name="c"))
    async with asyncio.timeout(DEADLINE_S):
        await asked.wait()
    await first.close(client_lost=True)
    assert (await opening).active


async def test_topic_with_partitions_is_refused(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    cluster.partitioned["public/default/flights"] = 2
    with pytest.raises(errors.InvalidArgument, match="partition"):
        await opened(client)
    consumer = await open_entry_consumer(
        client, "flights-partition-1", "billing", "shared", "c", start=StartEdge.EARLIEST, window_bytes=1,
        timeout=DEADLINE_S,
    )  # fmt: skip
    assert consumer.topic == "public/default/flights-partition-1"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"window_bytes": 0}, "window_bytes"),
        ({"start": oncelog.EARLIEST}, "start"),
        ({"create": 1}, "create"),
        ({"priority": 1 << 40}, "priority"),
        ({"callbacks": print}, "callbacks"),
    ],
)
async def test_bad_argument_is_named(client: oncelog.AsyncClient, wrong: dict[str, Any], field: str) -> None:
    given = {"start": StartEdge.EARLIEST, "window_bytes": 1, **wrong}
    with pytest.raises(errors.InvalidArgument) as refused:
        await open_entry_consumer(client, "flights", "billing", "shared", "c", **given)
    assert refused.value.details["field"] == field


async def test_damaged_entry_is_raised_once_and_uses_no_permit(
    client: oncelog.AsyncClient, cluster: FakeCluster
) -> None:
    """Its messages stay unacknowledged: the client never had them."""
    await fill(client, 3)

    def damage(entry: StoredEntry) -> StoredEntry:
        data = bytearray(entry.data)
        data[-1] ^= 1
        return replace(entry, data=bytes(data)) if entry.position.entry_id == 1 else entry

    cluster.consume.mangle = damage
    consumer = await opened(client, permits=EACH + 1)
    with pytest.raises(errors.CorruptEntry):
        await taken(consumer, 1)
    assert indexes(await taken(consumer, 2)) == four(1, 2)
    await consumer.nack(ranges(0, 1, 2, 3), delay_ms=0)
    cluster.consume.mangle = lambda entry: entry
    consumer.permits(100)
    (again,) = await taken(consumer, 1)
    assert (indexes([again]), again.delivery_count) == (four(0), 2)


async def test_owner_of_an_older_version_is_refused(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """It would cut entries at the permits."""
    cluster.consume.older = True
    with pytest.raises(errors.InvalidArgument, match="consumers for clients of gateways need level 9") as refused:
        await opened(client)
    assert refused.value.details["field"] == "client"


@pytest.mark.hazard("ack-state-at-its-limit")
async def test_result_says_what_is_only_in_memory(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    await fill(client, 1)
    consumer = await opened(client, permits=1)
    (entry,) = await taken(consumer, 1)
    cluster.consume.in_memory = True
    assert await consumer.ack(entry.ranges, entry.seek_epoch) == oncelog.AckResult(durable=False)
    acks = [each for each in cluster.consume.requests if isinstance(each, AckRequested) and each.ranges]
    assert [each.ranges for each in acks] == [ranges(0, 1, 2, 3)]


# --- storage and chunks -----------------------------------------------------------------------------------------------


async def test_storage_that_is_away_is_said_and_waited_for(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """The consumer goes on by itself."""
    await fill(client, 1)
    cluster.consume.read_errors = [errors.LedgerUnavailable("later")]
    consumer = await opened(client, permits=1)
    with pytest.raises(errors.LedgerUnavailable):
        await taken(consumer, 1)
    assert consumer.failure is None
    assert indexes(await taken(consumer, 1)) == four(0)


async def test_subscription_that_is_deleted_ends_the_consumer(
    client: oncelog.AsyncClient, cluster: FakeCluster
) -> None:
    """Also a call that waits, and what is acknowledged."""
    await fill(client, 1)
    consumer = await opened(client, permits=1)
    (entry,) = await taken(consumer, 1)
    waiting = asyncio.ensure_future(taken(consumer, 1))
    acked = consumer.ack(entry.ranges, entry.seek_epoch)
    assert cluster.owner is not None
    cluster.owner.consumers.of(cluster.topic("flights")).delete("billing")
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(errors.SubscriptionGone):
            await waiting
    with pytest.raises(errors.SubscriptionGone):
        consumer.ack(entry.ranges, entry.seek_epoch)
    await asyncio.wait([acked], timeout=DEADLINE_S)
    assert acked.done()


def part(cluster: FakeCluster, entry_id: int) -> ReadChunkAnswer:
    topic_id = cluster.topic("flights").topic_id
    return ReadChunkAnswer(entry=entry_of(EntryKind.CHUNK, entry_id, CHUNKS[entry_id], topic=topic_id))


async def in_chunks(client: oncelog.AsyncClient, cluster: FakeCluster) -> EntryChunks:
    """Of the second of three messages."""
    await log_of_chunked(cluster, client, {1})
    consumer = await opened(client, permits=100)
    entries = await taken(consumer, 3)
    assert indexes(entries) == [[0], [1], [2]]
    assert entries[1].whole.stored.batch.payload_format == PayloadFormat.CHUNKED
    return chunks_of(client, consumer.topic, entries[1].whole)


async def test_message_in_chunks_comes_without_its_value(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """Its chunks are read one by one, and again while storage does not answer."""
    asked: list[int] = []

    def answer(entry_id: int) -> ReadChunkAnswer:
        asked.append(entry_id)
        if len(asked) == 2:
            raise errors.ServiceUnavailable("later")
        return part(cluster, entry_id)

    cluster.knobs.chunk = answer
    chunks = await in_chunks(client, cluster)
    assert asked == []
    assert (chunks.count, chunks.value_bytes) == (len(CHUNKS), len(VALUE))
    found = [await chunks.read(number) for number in range(chunks.count)]
    assert b"".join(data for _, data in found) == VALUE
    assert [offset for offset, _ in found][:3] == [0, 4, 8]
    assert asked == [10, 11, 11, 12, 13, 14]


async def test_chunk_that_is_gone_is_no_damage(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    cluster.knobs.chunk = lambda _: ReadChunkAnswer(trimmed=True)
    chunks = await in_chunks(client, cluster)
    with pytest.raises(errors.EntriesLost, match="was trimmed"):
        await chunks.read(0)


async def test_another_chunk_than_the_named_one_is_damage(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    cluster.knobs.chunk = lambda _: part(cluster, 10)
    chunks = await in_chunks(client, cluster)
    with pytest.raises(errors.CorruptEntry, match="got the bytes of 3:10"):
        await chunks.read(1)
