"""Joining the chunks of a message: the whole value, or an error; never a value that no producer has sent."""

from collections.abc import Callable

import pytest
from crc32c import crc32c

import oncelog
from oncelog.client.network.chunk_join import ChunksTrimmed, join_chunks
from oncelog.client.values.messages import StoredBatch, decode_stored, open_entry
from oncelog.core.errors import (
    ChunkedMessage,
    CorruptEntry,
    LedgerUnavailable,
    MessageTooLarge,
    ServiceUnavailable,
    UnreadableEntry,
)
from oncelog.core.formats.batch import PayloadFormat, encode_batch
from oncelog.core.formats.chunks import ChunkName, ChunkNames, encode_chunk, encode_chunk_names
from oncelog.core.formats.columns import encode_event_times, encode_keys, encode_properties, encode_values
from oncelog.core.formats.entry import EntryHeader, EntryKind, encode_header
from oncelog.core.formats.single_message import single_message
from oncelog.core.ids import EntryId, Generation, LedgerId, OwnerEpoch, Position, ProducerId, TopicId
from oncelog.wire.owner_pb2 import ReadChunkAnswer
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio
PARTS = [b"one ", b"two ", b"three ", b"four ", b"five"]
VALUE = b"".join(PARTS)
TOPIC = TopicId("0f" * 16)
DEADLINE_S = 30.0


def entry_of(kind: EntryKind, entry_id: int, body: bytes, *, topic: TopicId = TOPIC) -> bytes:
    count = int(kind == EntryKind.MESSAGES)
    header = EntryHeader(
        kind, LedgerId(3), EntryId(entry_id), EntryId(-1), 0, OwnerEpoch(1), 1, 7, 0, count, len(body), topic
    )
    return encode_header(header, body, crc32c) + body


def batch_of(payload: bytes, form: PayloadFormat, *, generation: int = 1, sequence: int = 5) -> bytes:
    return encode_batch(
        payload, producer_id=ProducerId(1), generation=Generation(generation), first=sequence, last=sequence, count=1,
        publish_time_ms=1, checksum=crc32c, payload_format=form,
    )  # fmt: skip


def chunk_of(number: int, **fields: int) -> bytes:
    payload = encode_chunk(sum(map(len, PARTS[:number])), PARTS[number])
    return batch_of(payload, PayloadFormat.CHUNK, **fields)


def checksum_of(batch: bytes) -> int:
    return int.from_bytes(batch[4:8], "little")


CHUNKS = {10 + number: chunk_of(number) for number in range(len(PARTS))}


def chunked_batch(*, value_bytes: int = len(VALUE), chunks: dict[int, bytes] = CHUNKS) -> bytes:
    names = tuple(ChunkName(EntryId(at), checksum_of(batch)) for at, batch in chunks.items())
    payload = (
        encode_values([b""])
        + encode_keys([b"key"])
        + encode_event_times([77])
        + encode_properties([{"a": "b"}])
        + encode_chunk_names(ChunkNames(LedgerId(3), value_bytes, names))
    )
    return batch_of(payload, PayloadFormat.CHUNKED)


def message(**fields: int) -> bytes:
    return entry_of(EntryKind.MESSAGES, 20, chunked_batch(**fields))  # type: ignore[arg-type]


def stored(**fields: int) -> StoredBatch:
    return open_entry(message(**fields), crc32c)


class Answers:
    """The owner. change: what it answers for a chunk instead."""

    def __init__(self, change: Callable[[bytes], bytes | Exception] | None = None, *, of: int = 12) -> None:
        self._change, self._of = change, of
        self.asked: list[int] = []

    async def __call__(self, position: Position) -> ReadChunkAnswer:
        self.asked.append(position.entry_id)
        data: bytes | Exception = entry_of(EntryKind.CHUNK, position.entry_id, CHUNKS[position.entry_id])
        if self._change is not None and position.entry_id == self._of:
            data = self._change(data)  # type: ignore[arg-type]
        if isinstance(data, Exception):
            raise data
        return ReadChunkAnswer(entry=data, trimmed=not data)


async def test_joined_message_is_as_if_it_had_been_sent_at_once() -> None:
    """Its key, event time and properties are its own; each chunk is read once."""
    answers = Answers()
    joined = await join_chunks(stored(), answers, topic="videos", bytes_max=len(VALUE))
    columns = decode_stored(joined)
    assert columns.values.to_list() == [VALUE]
    assert (columns.keys, columns.event_times_ms, columns.properties) == ([b"key"], [77], [{"a": "b"}])
    assert sorted(answers.asked) == sorted(CHUNKS)
    assert joined.entry == stored().entry


OTHER = entry_of(EntryKind.CHUNK, 12, chunk_of(2, sequence=6))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data[:-1] + b"X", "checksum mismatch"),
        (lambda data: data[:-1], "has 168 bytes|bytes, its header states"),
        (lambda _: OTHER, "not the chunk that it names"),
        (lambda _: entry_of(EntryKind.CHUNK, 12, chunk_of(2, generation=2)), "not the chunk that it names"),
        (lambda _: entry_of(EntryKind.CHUNK, 12, CHUNKS[13]), "not the chunk that it names"),
        (lambda _: entry_of(EntryKind.CHUNK, 13, CHUNKS[13]), "expected entry 3:12"),
        (lambda _: entry_of(EntryKind.MESSAGES, 12, CHUNKS[12]), "not the chunk that it names"),
        (lambda _: entry_of(EntryKind.CHUNK, 12, CHUNKS[12], topic=TopicId("0e" * 16)), "belongs to topic"),
        (lambda _: UnreadableEntry("no copy of entry 3:12 can be read"), "no copy of entry"),
        (lambda _: CorruptEntry("entry 3:12 is no chunk"), "is no chunk"),
    ],
)  # fmt: skip
async def test_message_with_a_wrong_chunk_is_corrupt(change: Callable[[bytes], bytes], says: str) -> None:
    """Whatever the owner or a storage node gives."""
    with pytest.raises(CorruptEntry, match=says):
        await join_chunks(stored(), Answers(change), topic="videos", bytes_max=1 << 20)


async def test_message_that_lies_about_its_size_is_corrupt() -> None:
    """The owner refuses such ones; a reader believes nobody."""
    for lie in (len(VALUE) - 1, len(VALUE) + 1):
        with pytest.raises(CorruptEntry, match=r"beyond its end|its chunks have"):
            await join_chunks(stored(value_bytes=lie), Answers(), topic="videos", bytes_max=1 << 20)


async def test_limit_is_checked_before_anything_is_read_or_allocated() -> None:
    """A message may claim 1 GiB."""
    answers = Answers()
    with pytest.raises(MessageTooLarge, match="max_message_bytes") as raised:
        await join_chunks(stored(value_bytes=1 << 30), answers, topic="videos", bytes_max=1000)
    assert raised.value.details | {"message_id": None} == {
        "field": "max_message_bytes", "limit": 1000, "topic": "videos", "index": stored().entry.base_index,
        "message_id": None,
    }  # fmt: skip
    assert raised.value.details["message_id"] == f"{stored().entry.ledger_id}:{stored().entry.entry_id}:0"
    assert answers.asked == []


async def test_trimmed_and_unavailable_chunks_are_no_damage() -> None:
    """A trimmed message is gone as a whole; an owner that cannot answer now is asked again by the caller."""
    with pytest.raises(ChunksTrimmed):
        await join_chunks(stored(), Answers(lambda _: b""), topic="videos", bytes_max=1000)
    with pytest.raises(LedgerUnavailable):
        await join_chunks(stored(), Answers(lambda _: LedgerUnavailable("later")), topic="videos", bytes_max=1000)


async def test_whoever_does_not_join_chunks_gets_an_error_and_no_empty_value() -> None:
    """The copy of a dead letter, and a peek; Spark's source has its own test."""
    with pytest.raises(ChunkedMessage, match="in chunks"):
        decode_stored(stored())
    with pytest.raises(ChunkedMessage, match="in chunks"):
        single_message(message(), 7, crc32c)


async def log_of_chunked(cluster: FakeCluster, client: oncelog.AsyncClient, numbers: set[int], **fields: int) -> None:
    """Messages b"0" to b"5", an entry each, from entry 1 on; those with these numbers are in chunks instead."""
    producer = await client.create_producer("flights", producer_name="p")
    for number in range(6):
        await producer.send(b"%d" % number)
    entries = cluster.topic("flights").entries
    for number in numbers:
        body = chunked_batch(**fields)  # type: ignore[arg-type]
        header = entries[1 + number][0]._replace(body_bytes=len(body))
        entries[1 + number] = (header, encode_header(header, body, crc32c) + body)


@pytest.mark.usefixtures("both_ways")
async def test_message_that_is_trimmed_after_it_was_received_is_a_gap(
    cluster: FakeCluster, client: oncelog.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Its neighbours may be here already, and there may be none behind it."""
    await log_of_chunked(cluster, client, {0, 2, 3, 5})
    last = await client.last_message_id("flights")
    assert last is not None
    reader = await client.create_reader("flights")
    read = [await reader.batch_up_to(last, timeout=DEADLINE_S) for _ in range(3)]
    assert [batch and batch.first_index for batch in read] == [1, 4, None]
    assert reader.gaps == (4, tuple(oncelog.Gap(number, number, False) for number in (0, 2, 3, 5)))
    assert "messages 5 to 5 are gone: they were trimmed" in caplog.text


@pytest.mark.usefixtures("both_ways")
async def test_gap_before_a_message_that_waits_for_its_chunks_is_counted_once(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """It is received again with the next stream; and in the end it is trimmed."""
    await log_of_chunked(cluster, client, {3, 5})
    topic = cluster.topic("flights")
    topic.entries[3] = (topic.entries[3][0]._replace(kind=EntryKind.PRODUCER_OPENED), b"")  # its message is gone
    asked: list[int] = []

    def answer(entry_id: int) -> ReadChunkAnswer:
        asked.append(entry_id)
        if len(asked) <= 8:
            raise LedgerUnavailable("later")
        return ReadChunkAnswer(trimmed=True)

    cluster.knobs.chunk = answer
    reader = await client.create_reader("flights")
    found: list[int] = []
    while len(found) < 3:
        try:
            found.append((await reader.read_next(timeout=DEADLINE_S)).index)
        except LedgerUnavailable:
            assert found == [0, 1]
    assert found == [0, 1, 4]
    assert reader.gaps.newest[:2] == (oncelog.Gap(2, 2, False), oncelog.Gap(3, 3, False))


@pytest.mark.usefixtures("both_ways")
async def test_first_message_that_is_trimmed_between_two_streams_is_a_gap(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """The first stream ended while the reader waited for its chunks, and the second one does not show it."""
    await log_of_chunked(cluster, client, {0})
    entries = cluster.topic("flights").entries

    def answer(_: int) -> ReadChunkAnswer:
        entries[1] = (entries[1][0]._replace(kind=EntryKind.PRODUCER_OPENED), b"")
        raise ServiceUnavailable("the owner stops")

    cluster.knobs.chunk = answer
    reader = await client.create_reader("flights")
    assert (await reader.read_next(timeout=DEADLINE_S)).index == 1
    assert reader.gaps == (1, (oncelog.Gap(0, 0, False),))


@pytest.mark.usefixtures("both_ways")
async def test_reader_seeks_away_from_a_message_that_it_cannot_hold(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """The error is raised at each call, and does not grow. A closed reader stays closed."""
    await log_of_chunked(cluster, client, {0, 3}, value_bytes=1 << 30)
    reader = await client.create_reader("flights")
    depths = set()
    for _ in range(5):
        with pytest.raises(MessageTooLarge, match="message 0 ") as raised:
            await reader.read_next(timeout=DEADLINE_S)
        depths.add(len(raised.traceback))
    assert len(depths) == 1
    await reader.seek(oncelog.Index(1))
    assert await reader.has_message_available()
    assert [(await reader.read_next(timeout=DEADLINE_S)).value for _ in range(2)] == [b"1", b"2"]
    with pytest.raises(MessageTooLarge, match="message 3 "):
        await reader.read_next(timeout=DEADLINE_S)
    await reader.seek(oncelog.MessageId.parse("3:4:0"))  # behind message 3, which is not joined for nothing
    assert [(await reader.read_next(timeout=DEADLINE_S)).value for _ in range(2)] == [b"4", b"5"]
    await reader.close()
    with pytest.raises(oncelog.errors.ReaderClosed):
        await reader.seek(oncelog.EARLIEST)


async def test_reader_that_seeks_back_meets_its_gaps_again(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """All that it met count. What it passed over before does not end what it reads now."""
    await log_of_chunked(cluster, client, {0, 5})
    last = await client.last_message_id("flights")
    assert last is not None
    reader = await client.create_reader("flights", on_corrupt="skip")
    for turn in (1, 2):
        read = [await reader.batch_up_to(last, timeout=DEADLINE_S) for _ in range(5)]
        assert [batch and batch.first_index for batch in read] == [1, 2, 3, 4, None]
        assert reader.gaps == (2 * turn, (oncelog.Gap(0, 0, False), oncelog.Gap(5, 5, False)) * turn)
        await reader.seek(oncelog.EARLIEST)
        assert await reader.has_message_available()
