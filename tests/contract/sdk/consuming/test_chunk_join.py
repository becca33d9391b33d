"""Joining the chunks of a message: the whole value, or an error; never a value that no producer has sent."""

from collections.abc import Callable

import pytest
from crc32c import crc32c

from oncelog.client.network.chunk_join import ChunksTrimmed, join_chunks
from oncelog.client.values.messages import StoredBatch, decode_stored, open_entry
from oncelog.core.errors import ChunkedMessage, CorruptEntry, LedgerUnavailable, MessageTooLarge, UnreadableEntry
from oncelog.core.formats.batch import PayloadFormat, encode_batch
from oncelog.core.formats.chunks import ChunkName, ChunkNames, encode_chunk, encode_chunk_names
from oncelog.core.formats.columns import encode_event_times, encode_keys, encode_properties, encode_values
from oncelog.core.formats.entry import EntryHeader, EntryKind, encode_header
from oncelog.core.formats.single_message import single_message
from oncelog.core.ids import EntryId, Generation, LedgerId, OwnerEpoch, Position, ProducerId, TopicId
from oncelog.pipeline.source.arrow_columns import FoundEntry, entry_slice
from oncelog.wire.owner_pb2 import ReadChunkAnswer

pytestmark = pytest.mark.asyncio
PARTS = [b"one ", b"two ", b"three ", b"four ", b"five"]
VALUE = b"".join(PARTS)
TOPIC = TopicId("0f" * 16)


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


def message(*, value_bytes: int = len(VALUE), chunks: dict[int, bytes] = CHUNKS) -> bytes:
    names = tuple(ChunkName(EntryId(at), checksum_of(batch)) for at, batch in chunks.items())
    payload = (
        encode_values([b""])
        + encode_keys([b"key"])
        + encode_event_times([77])
        + encode_properties([{"a": "b"}])
        + encode_chunk_names(ChunkNames(LedgerId(3), value_bytes, names))
    )
    return entry_of(EntryKind.MESSAGES, 20, batch_of(payload, PayloadFormat.CHUNKED))


def stored(**fields: int) -> StoredBatch:
    return open_entry(message(**fields), crc32c)  # type: ignore[arg-type]


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
    """Spark's source, the copy of a dead letter, and a peek."""
    with pytest.raises(ChunkedMessage, match="in chunks"):
        decode_stored(stored())
    with pytest.raises(ChunkedMessage, match="in chunks"):
        single_message(message(), 7, crc32c)
    with pytest.raises(ChunkedMessage, match="in chunks"):
        entry_slice(FoundEntry(stored(), "p"), first=0, end=100)
