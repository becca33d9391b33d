"""The consumer of whole entries, for gateways: over real gRPC, against the fake cluster."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import oncelog
from oncelog.client.gateways import (
    ConsumedEntry,
    ConsumerStart,
    EntryConsumer,
    EntryConsumerCallbacks,
    StartEdge,
    StartMessage,
    open_entry_consumer,
)
from oncelog.core import errors
from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.events import AckRequested, FlowReported, StoredEntry
from oncelog.core.formats.batch import PayloadFormat
from oncelog.core.formats.entry import EntryKind
from oncelog.core.ids import EntryId, Position, SeekEpoch
from oncelog.core.sdk.consumer.index_set import IndexSet
from oncelog.rpc.codecs.consumer_codec import OpenConsumer
from oncelog.wire.owner_pb2 import ReadChunkAnswer
from tests.cluster.until import until
from tests.contract.sdk.consuming.test_chunk_join import CHUNKS, VALUE, entry_of, log_of_chunked
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.fake_topic import LEDGER

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0
#: Whether something comes that must not: a slow machine finds less surely that it does.
MOMENT_S = 0.1
#: Messages of an entry. Entry 0 is the grant of the producer.
EACH = 4


async def fill(client: oncelog.AsyncClient, entries: int, *, key: bytes | None = None) -> None:
    """Entries of four messages each, b"0", b"1" …"""
    async with await client.create_producer("flights") as producer:
        for number in range(entries):
            values = [b"%d" % (number * EACH + at) for at in range(EACH)]
            await producer.send_many(values, keys=None if key is None else [key] * EACH)


async def opened(
    client: oncelog.AsyncClient, kind: Any = "exclusive", name: str = "c", *, permits: int = 0,
    start: ConsumerStart = StartEdge.EARLIEST, **more: Any,
) -> EntryConsumer:  # fmt: skip
    consumer = await open_entry_consumer(
        client, "flights", "billing", kind, name, start=start, window_bytes=1_000_000, timeout=DEADLINE_S, **more
    )
    consumer.permits(permits)
    return consumer


async def taken(consumer: EntryConsumer, count: int) -> list[ConsumedEntry]:
    """The next deliveries."""
    found: list[ConsumedEntry] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            entry = consumer.take()
            if entry is None:
                await consumer.arrival()
            else:
                found.append(entry)
    return found


def indexes(entries: Iterable[ConsumedEntry]) -> list[list[int]]:
    return [[i for first, last in each.ranges for i in range(first, last + 1)] for each in entries]


def four(*numbers: int) -> list[list[int]]:
    """The messages of whole entries."""
    return [list(range(number * EACH, number * EACH + EACH)) for number in numbers]


def ranges(*indexes: int) -> tuple[IndexRange, ...]:
    return tuple(IndexSet(IndexRange(index, index) for index in indexes))


async def comes_nothing(consumer: EntryConsumer) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(MOMENT_S):
            await taken(consumer, 1)


# --- entries and permits ----------------------------------------------------------------------------------------------


async def test_delivery_has_the_stored_entry_and_what_acknowledging_needs(client: oncelog.AsyncClient) -> None:
    """As a reader gives it, with the name of its producer."""
    producer = await client.create_producer("flights", producer_name="importer")
    await producer.send_many([b"a", b"b"])
    consumer = await opened(client, permits=1)
    assert (consumer.topic, consumer.subscription, consumer.name) == ("public/default/flights", "billing", "c")
    assert (consumer.created, consumer.active, consumer.failure) == (True, True, None)
    (entry,) = await taken(consumer, 1)
    stored = entry.whole.stored
    assert (stored.entry.position, stored.entry.count, stored.batch.count) == (Position(LEDGER, EntryId(1)), 2, 2)
    assert (entry.whole.producer_name, entry.ranges, entry.messages) == ("importer", ranges(0, 1), 2)
    assert (entry.delivery_count, entry.seek_epoch, entry.generation) == (1, 0, 1)


@pytest.mark.hazard("entry-above-the-permits")
async def test_entry_comes_whole_on_one_permit_and_none_comes_beyond_the_permits(client: oncelog.AsyncClient) -> None:
    """Also after acknowledgements, which give no permit. A lower sum changes nothing."""
    await fill(client, 6)
    consumer = await opened(client)
    await comes_nothing(consumer)
    consumer.permits(1)
    entries = await taken(consumer, 1)
    assert indexes(entries) == four(0)
    await consumer.ack(entries[0].ranges, entries[0].seek_epoch)
    consumer.permits(EACH)
    consumer.permits(0)
    await comes_nothing(consumer)
    consumer.permits(EACH + 1)
    assert indexes(await taken(consumer, 1)) == four(1)
    await comes_nothing(consumer)
    consumer.permits(4 * EACH)
    assert indexes(await taken(consumer, 2)) == four(2, 3)
    await comes_nothing(consumer)


@pytest.mark.hazard("entry-above-the-permits", "delivered-while-held")
async def test_permits_outlive_a_takeover(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """What was handed out has used them, what waits takes them, and what is held does not come again."""
    await fill(client, 8)
    consumer = await opened(client, permits=2 * EACH + 1)
    assert indexes(await taken(consumer, 1)) == four(0)
    await cluster.take_over()
    consumer.permits(4 * EACH)
    assert indexes(await taken(consumer, 3)) == four(1, 2, 3)
    await comes_nothing(consumer)
    consumer.permits(4 * EACH + 1)
    assert indexes(await taken(consumer, 1)) == four(4)


async def test_few_bytes_wait_in_the_consumer(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """However many permits there are; the next ones come as it takes them."""
    await fill(client, 6)
    consumer = await open_entry_consumer(
        client, "flights", "billing", "shared", "c", start=StartEdge.EARLIEST, window_bytes=1, timeout=DEADLINE_S
    )
    consumer.permits(1_000)
    assert indexes(await taken(consumer, 6)) == four(*range(6))
    flows = [each for each in cluster.consume.requests if isinstance(each, FlowReported)]
    assert {each.bytes_max for each in flows} == {1}


# --- acknowledging ----------------------------------------------------------------------------------------------------


async def test_acknowledgement_covers_exactly_its_messages(client: oncelog.AsyncClient) -> None:
    """Parts of entries, too; the next consumer gets the rest, entry by entry."""
    await fill(client, 3)
    consumer = await opened(client, "shared", permits=100)
    entries = await taken(consumer, 3)
    result = await consumer.ack(ranges(0, 1, 5, 7, 8, 9, 10, 11), entries[0].seek_epoch)
    assert result == oncelog.AckResult(durable=True)
    await consumer.close()
    again = await opened(client, "shared", permits=100)
    assert indexes(await taken(again, 2)) == [[2, 3], [4, 6]]
    await comes_nothing(again)


@pytest.mark.hazard("former-consumer-acks")
async def test_cumulative_acknowledgement_ends_before_a_negative_one(client: oncelog.AsyncClient) -> None:
    await fill(client, 3)
    consumer = await opened(client, permits=100)
    entries = await taken(consumer, 3)
    await consumer.nack(ranges(5), delay_ms=60_000)
    last = entries[-1]
    assert not (await consumer.ack_below(12, last.seek_epoch, last.generation)).complete
    await consumer.close()
    again = await opened(client, permits=100)
    assert indexes(await taken(again, 2)) == [[6, 7], [8, 9, 10, 11]], "and message 5 is delayed"


async def test_shared_subscription_has_no_cumulative_acknowledgement(client: oncelog.AsyncClient) -> None:
    await fill(client, 1)
    consumer = await opened(client, "shared", permits=1)
    (entry,) = await taken(consumer, 1)
    with pytest.raises(errors.InvalidArgument, match="cumulative"):
        await consumer.ack_below(4, entry.seek_epoch, entry.generation)


@pytest.mark.hazard("wrong-delivery-count")
async def test_negative_acknowledgement_counts_the_messages_that_are_held(client: oncelog.AsyncClient) -> None:
    """Each delivery of them, whatever part; others are ignored. The count is that of the worst one."""
    await fill(client, 2)
    consumer = await opened(client, "shared", permits=100)
    (_, second) = await taken(consumer, 2)
    await consumer.nack(ranges(1, 2, 77), delay_ms=0)
    (again,) = await taken(consumer, 1)
    assert (indexes([again]), again.delivery_count) == ([[1, 2]], 2)
    await consumer.nack(ranges(2), delay_ms=0)
    (again,) = await taken(consumer, 1)
    assert (indexes([again]), again.delivery_count) == ([[2]], 3)
    await consumer.ack(second.ranges, second.seek_epoch)
    await consumer.nack(second.ranges, delay_ms=0)
    await comes_nothing(consumer)


@pytest.mark.parametrize("kind", ["exclusive", "failover"])
async def test_redelivery_of_everything_is_in_order(client: oncelog.AsyncClient, kind: str) -> None:
    """Also of what has arrived here meanwhile, which counts nothing: nobody has taken it."""
    await fill(client, 5)
    consumer = await opened(client, kind, permits=100)
    entries = await taken(consumer, 3)
    await consumer.ack(entries[0].ranges, entries[0].seek_epoch)
    await consumer.redeliver()
    again = await taken(consumer, 4)
    assert indexes(again) == four(1, 2, 3, 4)
    assert [each.delivery_count for each in again] == [2, 2, 1, 1]
    assert {each.generation for each in again} == {1}, "and it has stayed the active consumer"
    assert (await consumer.ack_below(5 * EACH, again[-1].seek_epoch, again[-1].generation)).complete


async def test_redelivery_of_a_shared_subscription(client: oncelog.AsyncClient) -> None:
    await fill(client, 3)
    consumer = await opened(client, "shared", permits=100)
    await taken(consumer, 2)
    await consumer.redeliver()
    again = await taken(consumer, 3)
    assert sorted(indexes(again)) == four(0, 1, 2)
    assert sum(each.delivery_count for each in again) == 5


async def test_redelivery_of_nothing_changes_nothing(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    await fill(client, 1)
    consumer = await opened(client, permits=100)
    await consumer.redeliver()
    assert indexes(await taken(consumer, 1)) == four(0)
    assert sum(isinstance(each, OpenConsumer) for each in cluster.consume.requests) == 1


@pytest.mark.hazard("wrong-delivery-count")
@pytest.mark.parametrize("lost", [False, True])
async def test_oldest_message_of_a_client_that_is_lost_counts(client: oncelog.AsyncClient, lost: bool) -> None:
    """And none of one that has closed its consumer: what it works on is unknown."""
    await fill(client, 2)
    consumer = await opened(client, "shared", permits=100)
    (first, _) = await taken(consumer, 2)
    await consumer.ack(ranges(0, 1), first.seek_epoch)
    await consumer.close(client_lost=lost)
    assert isinstance(consumer.failure, errors.ConsumerClosed)
    again = await opened(client, "shared", permits=100)
    entries = await taken(again, 2)
    assert (indexes(entries), [each.delivery_count for each in entries]) == ([[2, 3], four(1)[0]], [1 + lost, 1])


async def test_close_sends_what_was_acknowledged_before(client: oncelog.AsyncClient) -> None:
    await fill(client, 2)
    consumer = await opened(client, permits=100)
    entries = await taken(consumer, 2)
    consumer.ack(entries[0].ranges, entries[0].seek_epoch)
    await consumer.close()
    await consumer.close()
    again = await opened(client, permits=100)
    assert indexes(await taken(again, 1)) == four(1)
    with pytest.raises(errors.ConsumerClosed):
        consumer.take()
    with pytest.raises(errors.ConsumerClosed):
        await consumer.arrival()


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


async def test_message_in_chunks_comes_joined(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """What is behind it waits."""
    await log_of_chunked(cluster, client, {1})
    cluster.knobs.chunk = partial(part, cluster)
    consumer = await opened(client, permits=100)
    entries = await taken(consumer, 3)
    assert indexes(entries) == [[0], [1], [2]]
    assert entries[1].whole.stored.batch.payload_format == PayloadFormat.COLUMNS
    assert VALUE in bytes(entries[1].whole.stored.body)


async def test_message_whose_chunks_are_gone_is_passed_over(client: oncelog.AsyncClient, cluster: FakeCluster) -> None:
    """It was trimmed. It has used no permit."""
    await log_of_chunked(cluster, client, {0})
    cluster.knobs.chunk = lambda _: ReadChunkAnswer(trimmed=True)
    consumer = await opened(client, permits=2)
    assert indexes(await taken(consumer, 2)) == [[1], [2]]


async def test_message_that_is_taken_back_while_it_is_joined_does_not_come(
    client: oncelog.AsyncClient, cluster: FakeCluster
) -> None:
    """Another consumer has it, or it comes again: here, because the client wants everything again."""
    await log_of_chunked(cluster, client, {1})
    joins: list[int] = []

    def answer(entry_id: int) -> ReadChunkAnswer:
        joins.append(entry_id)
        if len(joins) < 3:
            raise errors.ServiceUnavailable("later")
        return part(cluster, entry_id)

    cluster.knobs.chunk = answer
    consumer = await opened(client, permits=100)
    assert indexes(await taken(consumer, 1)) == [[0]]
    assert consumer.take() is None
    await consumer.redeliver()
    assert indexes(await taken(consumer, 3)) == [[0], [1], [2]]
