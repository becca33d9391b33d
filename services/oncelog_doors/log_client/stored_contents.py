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
from collections.abc import Callable, Sequence
from typing import NamedTuple

from oncelog.client.client import AsyncClient
from oncelog.client.gateways import EntryReader, PackedEntry, WholeEntry, open_entry_reader
from oncelog.client.network.backoff import persist
from oncelog.client.values.results import AnsweredRange
from oncelog.core.errors import OncelogError
from oncelog.core.formats.batch import payload_of
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


class _Waiting(NamedTuple):
    known: Known
    sent: PackedEntry
    ranges: Sequence[AnsweredRange]
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

    def compare(self, known: Known, sent: PackedEntry, ranges: Sequence[AnsweredRange], then: Compared) -> None:
        """known: OTHER_BATCHES or PARTLY_NEW, by the answer of the owner. It stays, or becomes SAME_BATCH with the
        place of the first copy, OTHER_CONTENT, or UNVERIFIED if the entries are not kept any more."""
        self._waiting.append(_Waiting(known, sent, ranges, then))
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
            found = await self._compared(first)
            self._waiting.popleft()
            first.then(found)
        self._close_reader()
        self._running = None

    async def _compared(self, waiting: _Waiting) -> tuple[Known, Position | None]:
        known, sent, ranges, _ = waiting
        first, same_batch = 0, None
        for each in ranges:
            stored = each.stored
            if stored is not None and each.is_unknown and stored.position is not None:
                entry = await self._entry_at(stored.position)
                if entry is None:
                    return Known.UNVERIFIED, None
                run = SentAgain(first, each.size, stored.offset)
                large = len(sent.payload) + len(entry.stored.body) > _COMPARED_HERE_BYTES_MAX
                same = await asyncio.to_thread(_same, sent, entry, run) if large else _same(sent, entry, run)
                if same is False:
                    return Known.OTHER_CONTENT, None
                if same and len(ranges) == 1 and _is_same_batch(sent, entry):
                    same_batch = stored.position
            first += each.size
        return (known, None) if same_batch is None else (Known.SAME_BATCH, same_batch)

    async def _entry_at(self, position: Position) -> WholeEntry | None:
        """None: it is not kept any more, or cannot be read. It waits while storage is away."""
        try:
            found = await persist(
                lambda _: self._read_to(position), timeout_ms=None, what=f"{position} of {self._topic}"
            )
        except OncelogError as error:
            _LOG.warning("%s: what is sent again cannot be compared with %s: %s", self._topic, position, error)
            self._close_reader()
            return None
        return found

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
        reader, self._reader, self._entry = self._reader, None, None
        if reader is not None:
            reader.close()


def _same(sent: PackedEntry, entry: WholeEntry, run: SentAgain) -> bool | None:
    stored = entry.stored
    return same_content(
        open_entry(sent.payload), shown_columns(stored.batch, payload_of(stored.batch, stored.body)), run
    )


def _is_same_batch(sent: PackedEntry, entry: WholeEntry) -> bool:
    """Whether a receipt may name the place of the entry."""
    first, last, _ = sent.ids
    batch = entry.stored.batch
    return (batch.first, batch.last, batch.count, entry.stored.entry.skip_first) == (first, last, sent.count, 0)
