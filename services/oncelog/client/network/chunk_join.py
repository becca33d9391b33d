"""Reads the chunks of a message that a reader or consumer has received, and joins them.

The message names its chunks with their checksums (`core.formats.chunks`). They are read from the topic's owner, some at
a time, into the one buffer that then holds the whole message, so a message takes its own size and a few chunks. The
clients of gateways join chunks themselves: for them chunks are read one by one.
"""

import asyncio
from collections.abc import Awaitable, Callable

from crc32c import crc32c

from oncelog.client.values.messages import StoredBatch
from oncelog.core.errors import CorruptEntry, EntriesLost, InvalidBatch, MessageTooLarge, UnreadableEntry
from oncelog.core.formats.batch import HEADER_BYTES, PayloadFormat, decode_batch, deltas_of, payload_of
from oncelog.core.formats.chunks import ChunkName, ChunkNames, decode_chunk, decode_chunk_names
from oncelog.core.formats.columns import COLUMN_HEADER_BYTES, LENGTH_BYTES, Column, column_head, split_columns
from oncelog.core.formats.entry import EntryKind, body_of, decode_entry
from oncelog.core.formats.message_id import NO_PARTITION, MessageId
from oncelog.core.ids import OwnerEpoch, Position, TopicId
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import READ_CHUNK
from oncelog.wire.owner_pb2 import ReadChunkAnswer, ReadChunkRequest

#: Chunks of one message that are read at a time.
_AT_ONCE = 4
_CHUNK_TIMEOUT_MS = 10_000

#: Reads one chunk.
Ask = Callable[[Position], Awaitable[ReadChunkAnswer]]


def chunk_reader(channel: Channel, topic: str, topic_id: TopicId, owner_epoch_seen: OwnerEpoch) -> Ask:
    """Reads chunks of a topic from its owner at the other end of the channel."""

    async def ask(position: Position) -> ReadChunkAnswer:
        request = ReadChunkRequest(
            topic=topic, topic_id=topic_id, ledger_id=position.ledger_id, entry_id=position.entry_id,
            owner_epoch_seen=owner_epoch_seen,
        )  # fmt: skip
        return await channel.call(READ_CHUNK, request, timeout_ms=_CHUNK_TIMEOUT_MS)

    return ask


class ChunksTrimmed(Exception):
    """The message was trimmed before it was joined."""


def is_chunked(stored: StoredBatch) -> bool:
    return stored.batch.payload_format == PayloadFormat.CHUNKED


def names_in(stored: StoredBatch) -> ChunkNames:
    """What a message in chunks says of them. Raises CorruptEntry."""
    try:
        return decode_chunk_names(payload_of(stored.batch, stored.body))
    except InvalidBatch as error:
        raise CorruptEntry(f"entry {stored.entry.position} cannot be read: {error}") from error


async def join_chunks(stored: StoredBatch, ask: Ask, *, topic: str, bytes_max: int) -> StoredBatch:
    """The message as if it had been sent in one batch. topic: for errors.

    Raises MessageTooLarge above bytes_max, CorruptEntry when a chunk is missing, damaged or another message's,
    ChunksTrimmed, and the retriable errors of `ask`.
    """
    entry, batch = stored.entry, stored.batch
    names = names_in(stored)
    columns = split_columns(payload_of(batch, stored.body), batch.count)
    if names.value_bytes > bytes_max:
        message = (
            f"message {entry.base_index} of {topic} has {names.value_bytes} bytes in chunks, above max_message_bytes "
            f"of this client ({bytes_max})"
        )
        raise MessageTooLarge(
            message, field="max_message_bytes", limit=bytes_max, topic=topic, index=entry.base_index,
            message_id=str(MessageId(TopicId(""), NO_PARTITION, *entry.position, 0)),
        )  # fmt: skip
    head = column_head(Column.VALUES, LENGTH_BYTES + names.value_bytes) + names.value_bytes.to_bytes(4, "little")
    kept = [
        part
        for number, content in columns.items()
        if number not in (Column.VALUES, Column.CHUNKS)
        for part in (column_head(number, len(content)), content)
    ]
    value_at = HEADER_BYTES + batch.ids_bytes + COLUMN_HEADER_BYTES + LENGTH_BYTES
    payload_bytes = len(head) + names.value_bytes + sum(map(len, kept))
    body = bytearray(HEADER_BYTES + batch.ids_bytes + payload_bytes)
    body[HEADER_BYTES : HEADER_BYTES + batch.ids_bytes] = deltas_of(batch, stored.body)
    body[value_at - len(head) : value_at] = head
    await _Joining(stored, names, memoryview(body)[value_at : value_at + names.value_bytes], ask).run()
    at = value_at + names.value_bytes
    for part in kept:
        body[at : at + len(part)] = part
        at += len(part)
    whole = batch._replace(
        payload_format=PayloadFormat.COLUMNS, payload_bytes=payload_bytes, payload_raw_bytes=payload_bytes
    )
    return StoredBatch(entry, whole, memoryview(body).toreadonly())


class _Joining:
    """One message. Chunks are taken in order by a few tasks, and all but the last have the size of the first."""

    def __init__(self, stored: StoredBatch, names: ChunkNames, value: memoryview, ask: Ask) -> None:
        self._chunks = ChunksOf(stored, names, ask)
        self._names = names
        self._value = value
        self._filled = 0

    async def run(self) -> None:
        """Raises the first error of a chunk."""
        waiting = iter(self._names.chunks)

        async def take() -> None:
            for name in waiting:
                await self._join(name)

        tasks = [asyncio.ensure_future(take()) for _ in range(_AT_ONCE)]
        try:
            for task in asyncio.as_completed(tasks):
                await task
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._filled != len(self._value):
            raise self._chunks.corrupt(f"its chunks have {self._filled} bytes, and it says {len(self._value)}")

    async def _join(self, name: ChunkName) -> None:
        offset, data = await self._chunks.read(name)
        if offset + len(data) > len(self._value):
            position = Position(self._names.ledger_id, name.entry_id)
            raise self._chunks.corrupt(f"its chunk {position} is beyond its end")
        self._value[offset : offset + len(data)] = data
        self._filled += len(data)


class ChunksOf:
    """The chunks of one message, read one by one and compared with what it names."""

    def __init__(self, stored: StoredBatch, names: ChunkNames, ask: Ask) -> None:
        self._stored = stored
        self._names = names
        self._ask = ask

    async def read(self, name: ChunkName) -> tuple[int, memoryview]:
        """(offset in the value, bytes) of one of them.

        Raises CorruptEntry when it is missing, damaged or another message's, ChunksTrimmed, and the retriable errors of
        `ask`.
        """
        position = Position(self._names.ledger_id, name.entry_id)
        try:
            answer = await self._ask(position)
        except (CorruptEntry, EntriesLost, UnreadableEntry) as error:
            raise self.corrupt(f"its chunk {position} cannot be read: {error.message}") from error
        if answer.trimmed:
            raise ChunksTrimmed
        return self._open(name, position, answer.entry)

    def _open(self, name: ChunkName, position: Position, data: bytes) -> tuple[int, memoryview]:
        whole = self._stored.batch
        try:
            entry = decode_entry(
                data, ledger_id=position.ledger_id, entry_id=position.entry_id, checksum=crc32c,
                topic_id=self._stored.entry.topic_id,
            )  # fmt: skip
            batch = decode_batch(body_of(data), crc32c)
            same = (batch.producer_id, batch.generation, batch.first) == (
                whole.producer_id, whole.generation, whole.first,
            )  # fmt: skip
            if entry.kind != EntryKind.CHUNK or not same or batch.checksum != name.checksum:
                raise self.corrupt(f"entry {position} is not the chunk that it names")
            return decode_chunk(payload_of(batch, body_of(data)))
        except InvalidBatch as error:
            raise self.corrupt(f"its chunk {position} cannot be read: {error.message}") from error

    def corrupt(self, why: str) -> CorruptEntry:
        entry = self._stored.entry
        message = f"message {entry.base_index} at {entry.position} cannot be joined: {why}"
        return CorruptEntry(message, ledger_id=entry.ledger_id, entry_id=entry.entry_id)
