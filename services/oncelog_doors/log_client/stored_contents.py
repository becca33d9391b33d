"""Reads back what the log holds under ids that a client sends again, and compares it.

An owner compares bytes, of batches that are the same. Where a client has packed its messages into other batches, or has
written the same ones in other bytes, only their contents say whether they are the same. If they are not, the client has
used an id twice, and a receipt would lose the second message (hazard generator-goes-back).

One task for each producer, which ends when nothing waits. A client sends again in the order of the log, so the reader
of entries goes on forward.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from oncelog.client.client import AsyncClient
from oncelog.client.gateways import (
    EntryChunks,
    EntryReader,
    PackedEntry,
    WholeEntry,
    chunks_of,
    open_entry_reader,
)
from oncelog.client.network.backoff import persist
from oncelog.client.values.results import AnsweredRange
from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import PayloadFormat, payload_of
from oncelog.core.formats.payload import shown_columns
from oncelog.core.formats.pulsar import open_entry
from oncelog.core.ids import Position
from oncelog.runtime.tasks import BackgroundTasks
from oncelog_doors.core.pulsar.contents import SentAgain, same_content
from oncelog_doors.core.pulsar.verdicts import Known

_LOG = logging.getLogger(__name__)
_WINDOW_BYTES = 1024 * 1024
#: A place so many entries ahead is reached by reading on; one further ahead by a new reader.
_READ_ON_MAX = 64
#: Above it messages are compared in another thread.
_COMPARED_HERE_BYTES_MAX = 64 * 1024

#: Called once. None: the producer has ended, and nothing is known.
Compared = Callable[[tuple[Known, Position | None] | None], None]


class ChunkAgain(NamedTuple):
    """A chunk of a message that is stored at this place. index: of the message in that entry. offset: of the chunk in
    the value, which has total_bytes in all."""

    position: Position
    index: int  # type: ignore[assignment]  # hides tuple.index, which has no use here
    offset: int
    data: memoryview
    total_bytes: int
    key: bytes | None


class _Waiting(NamedTuple):
    compared: Callable[[], Awaitable[tuple[Known, Position | None]]]
    then: Compared


class StoredContents:
    """Of one producer of one topic without partitions."""

    def __init__(self, client: AsyncClient, topic: str, tasks: BackgroundTasks) -> None:
        self._client, self._topic, self._tasks = client, topic, tasks
        self._waiting: deque[_Waiting] = deque()
        self._running: asyncio.Task[None] | None = None
        self._reader: EntryReader | None = None
        #: the entry that was read last
        self._entry: WholeEntry | None = None
        #: the place and the value of the message in chunks that was compared last
        self._chunks: tuple[Position, _StoredValue] | None = None

    def compare(self, known: Known, sent: PackedEntry, ranges: Sequence[AnsweredRange], then: Compared) -> None:
        """known: OTHER_BATCHES or PARTLY_NEW, by the answer of the owner. It stays, or becomes SAME_BATCH with the
        place of the first copy, OTHER_CONTENT, or UNVERIFIED if the entries are not kept any more."""
        self._wait(partial(self._compared, known, sent, ranges), then)

    def compare_chunk(self, chunk: ChunkAgain, then: Compared) -> None:
        """Chunks of a message come in order. Of each it is known then that the log has the same bytes there: SAME_BATCH
        with the place of the message, or OTHER_BATCHES if its entry holds others, too, or it is not known. Else it is
        OTHER_CONTENT, or UNVERIFIED if the entry is not kept any more."""
        self._wait(partial(self._chunk_compared, chunk), then)

    def _wait(self, compared: Callable[[], Awaitable[tuple[Known, Position | None]]], then: Compared) -> None:
        self._waiting.append(_Waiting(compared, then))
        if self._running is None:
            self._running = self._tasks.start(self._run(), what=f"contents of {self._topic} that are sent again")

    def close(self) -> None:
        """Each `then` that is open gets None."""
        if self._running is not None:
            self._running.cancel()
        self._close_reader()
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.then(None)

    async def _run(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            found = await first.compared()
            self._waiting.popleft()
            first.then(found)
        self._close_reader()
        self._running = None

    async def _compared(
        self, known: Known, sent: PackedEntry, ranges: Sequence[AnsweredRange]
    ) -> tuple[Known, Position | None]:
        first, same_batch = 0, None
        for each in ranges:
            stored = each.stored
            if stored is not None and each.is_unknown and stored.position is not None:
                entry = await self._entry_at(stored.position)
                if entry is None:
                    return Known.UNVERIFIED, None
                run = SentAgain(first, each.size, stored.offset)
                try:
                    same = await self._same(sent, entry, run)
                except OncelogError as error:
                    self._not_comparable(stored.position, error)
                    return Known.UNVERIFIED, None
                if same is False:
                    return Known.OTHER_CONTENT, None
                if same and len(ranges) == 1 and _is_same_batch(sent, entry):
                    same_batch = stored.position
            first += each.size
        return (known, None) if same_batch is None else (Known.SAME_BATCH, same_batch)

    async def _same(self, sent: PackedEntry, entry: WholeEntry, run: SentAgain) -> bool | None:
        if _is_in_chunks(entry):
            messages = await asyncio.to_thread(open_entry, sent.payload)
            if messages.encryption is not None:
                return None
            value = memoryview(messages.values[run.first])
            key = None if messages.keys is None else messages.keys[run.first]
            whole = ChunkAgain(entry.stored.entry.position, 0, 0, value, len(value), key)
            return run.first not in messages.nulls and run.count == 1 and await self._same_chunk(entry, whole)
        large = len(sent.payload) + len(entry.stored.body) > _COMPARED_HERE_BYTES_MAX
        return await asyncio.to_thread(_same, sent, entry, run) if large else _same(sent, entry, run)

    async def _chunk_compared(self, chunk: ChunkAgain) -> tuple[Known, Position | None]:
        entry = await self._entry_at(chunk.position)
        if entry is None:
            return Known.UNVERIFIED, None
        try:
            same = await self._same_chunk(entry, chunk)
        except OncelogError as error:
            self._not_comparable(chunk.position, error)
            return Known.UNVERIFIED, None
        if same is False:
            return Known.OTHER_CONTENT, None
        alone = entry.stored.batch.count == 1
        return (Known.SAME_BATCH, chunk.position) if same and alone else (Known.OTHER_BATCHES, None)

    async def _same_chunk(self, entry: WholeEntry, chunk: ChunkAgain) -> bool | None:
        """None: the stored message is encrypted."""
        batch, body = entry.stored.batch, entry.stored.body
        columns = shown_columns(batch, payload_of(batch, body))
        if columns.encryption is not None:
            return None
        key = None if columns.keys is None else columns.keys[chunk.index]
        if key != chunk.key:
            return False
        if not _is_in_chunks(entry):
            value = columns.values[chunk.index]
            end = chunk.offset + len(chunk.data)
            return len(value) == chunk.total_bytes and value[chunk.offset : end] == chunk.data
        if self._chunks is None or self._chunks[0] != chunk.position:
            self._chunks = chunk.position, _StoredValue(chunks_of(self._client, self._topic, entry))
        value_of = self._chunks[1]
        return value_of.value_bytes == chunk.total_bytes and await value_of.has(chunk.offset, chunk.data)

    async def _entry_at(self, position: Position) -> WholeEntry | None:
        """None: it is not kept any more, or cannot be read. It waits while storage is away."""
        try:
            found = await persist(
                lambda _: self._read_to(position), timeout_ms=None, what=f"{position} of {self._topic}"
            )
        except OncelogError as error:
            self._not_comparable(position, error)
            self._close_reader()
            return None
        return found

    def _not_comparable(self, position: Position, error: OncelogError) -> None:
        _LOG.warning("%s: what is sent again cannot be compared with %s: %s", self._topic, position, error)

    async def _read_to(self, position: Position) -> WholeEntry | None:
        at = self._at
        if self._reader is not None and at is not None and at < position:
            for _ in range(_READ_ON_MAX):
                self._entry = await self._next(self._reader)
                at = self._entry.stored.entry.position
                if at >= position:
                    break
        if at == position:
            return self._entry
        self._close_reader()
        self._reader = await open_entry_reader(
            self._client, self._topic, position, create=False, window_bytes=_WINDOW_BYTES
        )
        self._entry = self._reader.take()
        return self._entry if self._at == position else None

    @property
    def _at(self) -> Position | None:
        """Of the entry that was read last."""
        return None if self._entry is None else self._entry.stored.entry.position

    @staticmethod
    async def _next(reader: EntryReader) -> WholeEntry:
        while (found := reader.take()) is None:
            await reader.arrival()
        return found

    def _close_reader(self) -> None:
        reader, self._reader, self._entry, self._chunks = self._reader, None, None, None
        if reader is not None:
            reader.close()


def _same(sent: PackedEntry, entry: WholeEntry, run: SentAgain) -> bool | None:
    stored = entry.stored
    return same_content(
        open_entry(sent.payload), shown_columns(stored.batch, payload_of(stored.batch, stored.body)), run
    )


def _is_in_chunks(entry: WholeEntry) -> bool:
    return entry.stored.batch.payload_format == PayloadFormat.CHUNKED


def _is_same_batch(sent: PackedEntry, entry: WholeEntry) -> bool:
    """Whether a receipt may name the place of the entry."""
    first, last, _ = sent.ids
    batch = entry.stored.batch
    return (batch.first, batch.last, batch.count, entry.stored.entry.skip_first) == (first, last, sent.count, 0)


class _StoredValue:
    """The value of a message in chunks, of which one chunk is kept at a time."""

    def __init__(self, chunks: EntryChunks) -> None:
        self.value_bytes = chunks.value_bytes
        self._chunks = chunks
        self._next = 0
        self._at, self._data = 0, memoryview(b"")

    async def has(self, offset: int, data: memoryview) -> bool:
        """Whether the value has these bytes there. Raises OncelogError. It is fast while offsets ascend."""
        if offset < self._at:
            self._next, self._at, self._data = 0, 0, memoryview(b"")
        while len(data):
            end = self._at + len(self._data)
            if offset >= end:
                if self._next == self._chunks.count:
                    return False
                self._at, self._data = await self._chunks.read(self._next)
                self._next += 1
                continue
            size = min(len(data), end - offset)
            if self._data[offset - self._at : offset - self._at + size] != data[:size]:
                return False
            offset, data = offset + size, data[size:]
        return True
