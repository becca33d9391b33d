"""Reads entries of one ledger from any of its members that has them, and waits for the members.

    async for page in read_entries(nodes, metadata, first, last, record=record):   # [(entry id, bytes)], ascending
    data = await read_entry(nodes, metadata, entry_id, record=record)

What the answers of the members prove is decided by `core.ledger.ledger_reading`. When a member is slower than usual, a
second one is asked for the same entries, and the first answer counts. `read_watch` limits these second reads. How long
a silent member is waited for follows its own recent answers.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from crc32c import crc32c

from oncelog.core.errors import InvariantViolated, LedgerUnavailable, OncelogError
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import EntryHeader
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.entry_reading import EntryReading
from oncelog.core.ledger.ledger_reading import LedgerReading
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.rpc.entry_reader import READ_BYTES_MAX, READ_TIMEOUT_MS, EntryReader, Frames
from oncelog.rpc.read_watch import SILENCE_MS_MAX, SILENCE_MS_MIN, ReadWatch
from oncelog.runtime.backoff import Backoff
from oncelog.storage_client.node_calls import NodeCalls

#: Entries that no member gives for this long are unavailable. Below a ZooKeeper session plus 5 s, and long enough for
#: the restart of a process.
UNAVAILABLE_AFTER_MS = 8_000
#: A failed round is logged once in this many, not each time.
_LOGGED_EVERY = 16

logger = logging.getLogger(__name__)

#: Reads a ledger's record after a sync; None: there is none. Raises OncelogError while that is unknown.
ReadRecord = Callable[[LedgerId], Awaitable[LedgerMetadata | None]]


async def read_entries(
    nodes: NodeCalls,
    metadata: LedgerMetadata,
    first: EntryId,
    last: EntryId,
    *,
    headers_only: bool = False,
    timeout_ms: int = UNAVAILABLE_AFTER_MS,
    record: ReadRecord | None = None,
    call_bytes_max: int = READ_BYTES_MAX,
) -> AsyncGenerator[list[tuple[EntryId, Buffer]], None]:
    """Entries first..last, both inclusive, in order, page by page. The bytes are slices of received frames.

    headers_only: entries of messages are cut after their id deltas. timeout_ms: how long to wait for members that do
    not answer, counted from the last progress. record: None: `metadata` is the newest record that the caller can get.
    call_bytes_max: limit of one call to a member. A caller that stops before `last` states how much it takes, because
    members read ahead. Raises UnreadableEntry (details: ledger_id, entry_id), LedgerUnavailable, EntriesLost, and
    LogHole if the record is gone.
    """
    reading = LedgerReading(metadata, first, last, checksum=crc32c, headers_only=headers_only)
    reader = _PatientReader(nodes, reading, record, timeout_ms, call_bytes_max)
    async with aclosing(reader.pages()) as pages:
        async for page in pages:
            yield [(header.entry_id, data) for header, data in page]
            reader.progressed()


async def read_entry(
    nodes: NodeCalls,
    metadata: LedgerMetadata,
    entry_id: EntryId,
    *,
    headers_only: bool = False,
    timeout_ms: int = UNAVAILABLE_AFTER_MS,
    record: ReadRecord | None = None,
) -> Buffer:
    """One entry. Raises the errors of `read_entries`."""
    found: list[tuple[EntryId, Buffer]] = []
    pages = read_entries(
        nodes, metadata, entry_id, entry_id, headers_only=headers_only, timeout_ms=timeout_ms, record=record
    )
    async for page in pages:
        found += page
    return found[0][1]


async def find_entry(
    end: EntryId,
    side: Callable[[EntryHeader], int],
    header_at: Callable[[EntryId, EntryId], Awaitable[tuple[EntryId, EntryHeader | None]]],
    *,
    first: EntryId = EntryId(0),
) -> EntryId:
    """The first of the entries first .. end - 1 that is not before a place; `end`: all are.

    side: -1 for the header of an entry before the place, 0: this is the entry, 1: it is this one or one before it.
    header_at(entry, end): the header of that entry or, where it cannot be had, of the next one; (end, None): of none.
    """
    low, high = first, end
    while low < high:
        middle = EntryId((low + high) // 2)
        readable, header = await header_at(middle, high)
        found = 1 if header is None else side(header)
        if found == 0:
            return readable
        if found < 0:
            low = EntryId(readable + 1)
        else:
            high = middle
    return low


def side_of_index(index: int, header: EntryHeader) -> int:
    """For `find_entry`: where an entry is, seen from the message with this index."""
    return -1 if header.next_index <= index else 0 if header.base_index <= index else 1


def missing_entries(error: LedgerUnavailable) -> tuple[EntryId, EntryId, tuple[str, ...]]:
    """(first, last, the storage nodes that are waited for) of an error of `read_entries`."""
    details = error.details
    first, last = int(details.get("first") or 0), int(details.get("last") or 0)
    return EntryId(first), EntryId(last), tuple(str(details.get("waiting_for") or "").split(","))


class NodeReader(EntryReader):
    """A reader that asks storage nodes by their incarnations."""

    def __init__(
        self,
        nodes: NodeCalls,
        reading: EntryReading,
        *,
        silence_ms: int,
        call_bytes_max: int = READ_BYTES_MAX,
        watch: ReadWatch | None = None,
    ) -> None:
        """call_bytes_max: limit of one call."""
        super().__init__(reading, silence_ms=silence_ms, watch=watch)
        self._nodes = nodes
        self.call_bytes_max = call_bytes_max

    async def ask(self, member: Incarnation) -> Frames | None:
        request = self.request(member, bytes_max=self.call_bytes_max)
        return self._nodes.read(member, request, timeout_ms=READ_TIMEOUT_MS)


class _PatientReader(NodeReader):
    """Asks all members again and again, as long as the record leaves hope and the timeout time."""

    reading: LedgerReading

    def __init__(
        self,
        nodes: NodeCalls,
        reading: LedgerReading,
        record: ReadRecord | None,
        timeout_ms: int,
        call_bytes_max: int,
    ) -> None:
        watch = nodes.watch
        super().__init__(nodes, reading, silence_ms=SILENCE_MS_MIN, call_bytes_max=call_bytes_max, watch=watch)
        self._watch = watch
        self._record = record
        self._timeout_s = timeout_ms / 1000
        self._backoff = Backoff()
        self._rounds = 0
        self.progressed()

    def progressed(self) -> None:
        """The caller took a page, or just began: members have the whole time again."""
        self._deadline_s = asyncio.get_running_loop().time() + self._timeout_s
        self._backoff.reset()
        self.silence_ms = SILENCE_MS_MIN

    def patience_s(self, member: Incarnation) -> float:
        longest_s = max(self.silence_ms, self._watch.silence_ms(member)) / 1000
        return max(min(longest_s, self._deadline_s - asyncio.get_running_loop().time()), SILENCE_MS_MIN / 1000)

    async def exhausted(self) -> bool:
        """Read the record again, or wait and ask the silent members again. Raises the errors of `read_entries`."""
        if await self._names_others():
            return True
        if asyncio.get_running_loop().time() >= self._deadline_s:
            raise self.reading.unavailable()
        if self._rounds % _LOGGED_EVERY == 0:
            logger.warning("cannot read an entry yet; will retry: %s", self.reading.description())
        self._rounds += 1
        self.reading.begin_round()
        # While all members are silent, they may just be slow.
        self.silence_ms = min(self.silence_ms * 2, SILENCE_MS_MAX)
        await self._backoff.pause()
        return True

    async def _names_others(self) -> bool:
        """Whether the ledger's record names other members by now."""
        found: LedgerMetadata | None = self.reading.metadata
        if self._record is not None:
            try:
                found = await self._record(self.reading.ledger_id)
            except InvariantViolated:
                raise
            except OncelogError as error:
                message = "cannot read the record of ledger %d again: %s"
                logger.warning(message, self.reading.ledger_id, error.message)
                return False
        return self.reading.record_read(found)
