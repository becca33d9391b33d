"""The SDK's reader over real gRPC, against the fake cluster: any start, any takeover, each message exactly once."""

import asyncio
from datetime import UTC, datetime

import pytest

import oncelog
from oncelog.core.errors import (
    ClientClosed,
    CorruptEntry,
    DeadlineExceeded,
    InvalidArgument,
    InvalidName,
    ReaderClosed,
    TopicNotFound,
)
from oncelog.rpc.codecs.reader_codec import StartEdge, StartMessage, StartTime
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("both_ways")]
DEADLINE_S = 30.0


async def filled(client: oncelog.AsyncClient, count: int = 10, *, batch: int = 4) -> oncelog.BatchResult:
    """Messages b"0", b"1" … with sequence ids 0, 10, 20 …, about `batch` in an entry."""
    producer = await client.create_producer("flights", producer_name="importer", batch_bytes_max=batch * 5)
    values = [b"%d" % i for i in range(count)]
    return await producer.send_many(values, sequence_ids=range(0, count * 10, 10))


async def rest(reader: oncelog.AsyncReader) -> list[bytes]:
    """Everything that is there now."""
    values = []
    while await reader.has_message_available():
        values.append((await reader.read_next(timeout=DEADLINE_S)).value)
    return values


async def test_messages_have_all_their_fields(client: oncelog.AsyncClient) -> None:
    """Field by field, and in columns."""
    sent = await filled(client)
    reader = await client.create_reader("flights")
    message = await reader.read_next(timeout=DEADLINE_S)
    assert (message.value, message.producer_name, message.sequence_id, message.index) == (b"0", "importer", 0, 0)
    assert (message.key, dict(message.properties), message.event_time_ms) == (None, {}, None)
    assert message.message_id == sent.message_ids[0]
    assert abs(message.publish_time_ms - datetime.now(UTC).timestamp() * 1000) < 3_600_000
    batch = await reader.read_batch(timeout=DEADLINE_S)
    assert [bytes(value) for value in batch.values] == [b"1", b"2", b"3"]
    assert (list(batch.sequence_ids), batch.first_index, batch.producer_name) == ([10, 20, 30], 1, "importer")
    assert [batch.message_id(i) for i in range(3)] == list(sent.message_ids)[1:4]
    assert [m.value for m in batch] == [b"1", b"2", b"3"]
    assert (batch[-1].value, batch[-1].index) == (b"3", 3)
    assert (await reader.read_batch(timeout=DEADLINE_S)).first_index == 4


@pytest.mark.parametrize("number", [0, 4, 9])
async def test_reader_starts_at_an_index(client: oncelog.AsyncClient, number: int) -> None:
    """The first message is the one with this index, wherever it is in its entry."""
    await filled(client, 10)
    reader = await client.create_reader("flights", start=oncelog.Index(number))
    assert await reader.has_message_available()
    messages = [await reader.read_next(timeout=DEADLINE_S) for _ in range(10 - number)]
    assert [(message.index, message.value) for message in messages] == [(i, b"%d" % i) for i in range(number, 10)]
    assert not await reader.has_message_available()


async def test_reader_waits_for_an_index_beyond_the_end(client: oncelog.AsyncClient) -> None:
    """Messages before the index are not returned, although the owner sends from its end."""
    await filled(client, 3)
    reader = await client.create_reader("flights", start=oncelog.Index(5))
    assert not await reader.has_message_available()
    producer = await client.create_producer("flights", producer_name="another")
    await producer.send_many([b"x"] * 4)
    messages = [await reader.read_next(timeout=DEADLINE_S) for _ in range(2)]
    assert [message.index for message in messages] == [5, 6]


async def test_iteration_ends_when_the_reader_is_closed(client: oncelog.AsyncClient) -> None:
    """`async for` follows the log until the reader is closed."""
    await filled(client, 7)
    seen = []
    async with await client.create_reader("flights") as reader:
        async for message in reader:
            seen.append(message.value)
            if len(seen) == 7:
                await reader.close()
    assert seen == [b"%d" % i for i in range(7)]
    with pytest.raises(ReaderClosed):
        await reader.read_next()


@pytest.mark.parametrize("at", range(10))
@pytest.mark.parametrize("inclusive", [True, False])
async def test_reader_starts_at_or_after_any_message(client: oncelog.AsyncClient, at: int, inclusive: bool) -> None:
    """Also at the ends of entries; a message id survives its conversion to bytes."""
    sent = await filled(client)
    stored = sent.message_ids[at]
    assert stored is not None
    start = oncelog.MessageId.from_bytes(stored.to_bytes())
    reader = await client.create_reader("flights", start=start, inclusive=inclusive)
    assert await rest(reader) == [b"%d" % i for i in range(at if inclusive else at + 1, 10)]


async def test_latest_is_fixed_when_the_reader_is_created(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """Messages stored after create_reader returned are seen, even when the owner changes before it was reached."""
    sent = await filled(client)
    late = await client.create_reader("flights", start=oncelog.LATEST)
    last = await client.create_reader("flights", start=oncelog.LATEST, inclusive=True)
    await cluster.take_over()
    assert not await late.has_message_available()
    assert (await last.read_next(timeout=DEADLINE_S)).message_id == sent.message_ids[-1]
    producer = await client.create_producer("flights", producer_name="importer")
    await producer.send(b"new", sequence_id=1_000)
    assert (await late.read_next(timeout=DEADLINE_S)).value == b"new"
    assert StartEdge.LATEST not in cluster.seen.starts


async def test_last_message_id_creates_no_topic(client: oncelog.AsyncClient) -> None:
    """A typing error in a name must not become a topic."""
    for _ in range(2):
        with pytest.raises(oncelog.errors.TopicNotFound):
            await client.last_message_id("flihgts")


async def test_latest_of_an_empty_topic_is_its_beginning(client: oncelog.AsyncClient) -> None:
    """The topic has no message yet, so every message is new."""
    await client.create_producer("flights")
    reader = await client.create_reader("flights", start=oncelog.LATEST)
    assert await client.last_message_id("flights") is None
    assert not await reader.has_message_available()
    await filled(client, 3)
    assert await rest(reader) == [b"0", b"1", b"2"]


async def test_reader_starts_at_a_time(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """At the first entry appended at or after the time; a future time is waited for."""
    await filled(client)
    times = [header.append_time_ms for header, _ in cluster.topic("flights").entries]
    reader = await client.create_reader("flights", start=datetime.fromtimestamp(times[2] / 1000, UTC))
    assert await rest(reader) == [b"%d" % i for i in range(4, 10)]
    assert cluster.seen.starts[-1] == StartTime(times[2])
    future = await client.create_reader("flights", start=datetime.fromtimestamp(10_000_000, UTC))
    assert not await future.has_message_available()


async def test_has_message_available_is_true_only_for_unread_messages(client: oncelog.AsyncClient) -> None:
    """An acknowledged message is available at once; after the last one was read, none is."""
    producer = await client.create_producer("flights")
    reader = await client.create_reader("flights")
    for i in range(20):
        assert not await reader.has_message_available()
        await producer.send(b"%d" % i)
        assert await reader.has_message_available()
        assert (await reader.read_next(timeout=DEADLINE_S)).value == b"%d" % i


async def test_reading_up_to_a_message_ends_behind_it(client: oncelog.AsyncClient) -> None:
    """Also if its batch was returned before, and if it is the last message."""
    sent = await filled(client)
    reader = await client.create_reader("flights")
    last = sent.message_ids[-1]
    assert last is not None
    read = 0
    while (batch := await reader.batch_up_to(last, timeout=DEADLINE_S)) is not None:
        read += len(batch)
    assert read == 10
    assert await reader.batch_up_to(last, timeout=DEADLINE_S) is None


async def test_read_with_a_timeout_raises_deadline_exceeded(client: oncelog.AsyncClient) -> None:
    """The timeout is in seconds; the reader stays usable."""
    reader = await client.create_reader("flights")
    with pytest.raises(DeadlineExceeded):
        await reader.read_next(timeout=0.01)
    with pytest.raises(DeadlineExceeded):
        await reader.read_batch(timeout=0.01)
    waiting = asyncio.ensure_future(reader.read_next())
    await filled(client, 2)
    assert (await waiting).value == b"0"
    assert await rest(reader) == [b"1"]


@pytest.mark.hazard("tail-in-front-of-a-reader")
async def test_reader_continues_through_takeovers(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """It continues behind the last received entry: no message twice or lost, producer names still known."""
    await filled(client, 200)
    reader = await client.create_reader("flights")
    seen = []
    for i in range(200):
        if i % 50 == 25:
            await cluster.take_over()
        message = await reader.read_next(timeout=DEADLINE_S)
        seen.append((message.value, message.producer_name))
    await cluster.take_over()
    producer = await client.create_producer("flights", producer_name="another")
    await producer.send(b"after")
    message = await reader.read_next(timeout=DEADLINE_S)
    assert (message.value, message.producer_name) == (b"after", "another")
    assert seen == [(b"%d" % i, "importer") for i in range(200)]
    resumed = cluster.seen.starts[-1]
    assert isinstance(resumed, StartMessage)
    assert not resumed.inclusive


async def test_unread_bytes_in_a_reader_are_bounded(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The owner sends only as much as the reader permits; reading permits more."""
    producer = await client.create_producer("flights")
    values = [bytes([i % 256]) * 200_000 for i in range(80)]
    await producer.send_many(values)
    reader = await client.create_reader("flights")
    assert (await reader.read_next(timeout=DEADLINE_S)).value == values[0]
    stream = reader._parts[0].stream
    waiting_bytes = sum(arrived.size_bytes for arrived in stream._arrived)
    assert waiting_bytes <= 4 * 1024 * 1024 + 300_000
    seen = [values[0]]
    while len(seen) < 80:
        seen += (await reader.read_batch(timeout=DEADLINE_S)).values.to_list()
    assert seen == values


async def test_skipped_messages_are_not_returned(client: oncelog.AsyncClient) -> None:
    """The stored head of a partly duplicate batch is in the entry, and no reader returns it."""
    producer = await client.create_producer("flights", producer_name="importer")
    await producer.send_many([b"a", b"b"], sequence_ids=[1, 2])
    await producer.send_many([b"a", b"b", b"c"], sequence_ids=[1, 2, 3])
    reader = await client.create_reader("flights")
    seen = [await reader.read_next(timeout=DEADLINE_S) for _ in range(3)]
    assert [(m.value, m.sequence_id, m.index) for m in seen] == [(b"a", 1, 0), (b"b", 2, 1), (b"c", 3, 2)]
    assert seen[-1].message_id.batch_index == 2
    assert not await reader.has_message_available()


async def test_message_id_of_another_topic_is_refused(client: oncelog.AsyncClient) -> None:
    """Also of an earlier topic of the same name; an id without a topic, as typed by hand, is accepted."""
    sent = await filled(client)
    foreign = sent.message_ids[3]
    assert foreign is not None
    with pytest.raises(InvalidArgument):
        await client.create_reader("others", start=foreign)
    typed = await client.create_reader("flights", start=oncelog.MessageId.parse(str(foreign)))
    assert (await typed.read_next(timeout=DEADLINE_S)).value == b"4"


@pytest.mark.hazard("recreated-topic")
async def test_reader_does_not_continue_in_a_topic_created_again(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """The reader of the old one ends with TopicNotFound instead of mixing two logs."""
    await filled(client, 3)
    reader = await client.create_reader("flights")
    assert await rest(reader) == [b"0", b"1", b"2"]
    old = cluster.topics.pop("public/default/flights")
    del cluster.by_id[old.topic_id]
    await cluster.take_over()
    with pytest.raises(TopicNotFound):
        await reader.read_next(timeout=DEADLINE_S)


async def test_damaged_entry_raises_corrupt_entry(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """The entry is never skipped or returned in part: CorruptEntry comes behind all earlier messages."""
    await filled(client)
    topic = cluster.topic("flights")
    header, data = topic.entries[2]
    topic.entries[2] = (header, data[:-1] + bytes([data[-1] ^ 1]))
    reader = await client.create_reader("flights")
    assert [(await reader.read_next(timeout=DEADLINE_S)).value for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    with pytest.raises(CorruptEntry, match="3:2"):
        await reader.read_next(timeout=DEADLINE_S)


async def test_invalid_input_and_a_closed_client_raise_their_errors(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """Each by its own error."""
    with pytest.raises(InvalidName):
        await client.create_reader("")
    cluster.knobs.may_create = False
    for start in (oncelog.EARLIEST, oncelog.LATEST, datetime.now(UTC)):
        with pytest.raises(TopicNotFound):
            await client.create_reader("missing", start=start)
    cluster.knobs.may_create = True
    reader = await client.create_reader("flights")
    waiting = asyncio.ensure_future(reader.read_next())
    await until(lambda: cluster.seen.starts, DEADLINE_S)
    await client.close()
    with pytest.raises(ReaderClosed):
        await waiting
    with pytest.raises(ClientClosed):
        await client.create_reader("flights")
