"""The frames of a read: entries are fetched from the disk off the event loop, one frame ahead of the client.

Rules
- An entry with a wrong checksum is reported as unreadable, never as missing. The other entries are sent.
- With headers_only, an entry of messages is cut after the owner's header, the batch header and the id deltas. Entries
  of other kinds are sent whole, because they are small and replay needs all of them. The whole record is verified
  first.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import Executor
from typing import NamedTuple

from oncelog.core.errors import CorruptEntry, InvalidBatch
from oncelog.core.format_errors import UnknownFormat
from oncelog.core.formats.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from oncelog.core.formats.batch import Buffer, peek_batch
from oncelog.core.formats.entry import HEADER_BYTES, EntryKind
from oncelog.core.ids import EntryId
from oncelog.core.node.answers import AnswerRead
from oncelog.log_storage.directory.segment_reader import RangePlan, SegmentReader
from oncelog.log_storage.serve.journal import Journal
from oncelog.rpc.codecs.storage_codec import ReadFrame
from oncelog.rpc.options import FRAME_BYTES_TARGET

#: Bytes read at a time with headers_only, of which little is sent.
HEADS_BYTES = 4 * 1024 * 1024


class Fetched(NamedTuple):
    """The result of reading some consecutive entries from the disk."""

    entry_ids: list[EntryId]
    entries: list[Buffer]
    unreadable: list[EntryId]


class EntryFrames:
    """Makes the frames for one answer of the core."""

    def __init__(self, journal: Journal, executor: Executor, *, headers_only: bool) -> None:
        self._journal = journal
        self._executor = executor
        self._heads_only = headers_only

    async def frames(self, answer: AnswerRead, bytes_max: int | None) -> AsyncGenerator[ReadFrame, None]:
        """At least one frame, with ascending ids. bytes_max: stop after at least one entry and this many bytes."""
        absent = _Absent(answer)
        sent = 0
        runs = _runs(answer.present)
        first, beyond = next(runs, (0, 0))
        pending = self._fetch(answer, first, beyond, bytes_max)
        while pending is not None:
            fetched = await pending
            sent += sum(map(len, fetched.entries))
            left = None if bytes_max is None else bytes_max - sent
            enough = left is not None and left <= 0
            first += len(fetched.entry_ids) + len(fetched.unreadable)
            before = absent.take(first)
            if first == beyond:
                first, beyond = next(runs, (0, 0))
            pending = None if enough else self._fetch(answer, first, beyond, left)
            yield _frame(answer, fetched, *before)
            if enough:
                return
        if absent or not answer.present:
            yield _frame(answer, Fetched([], [], []), *absent.take(None))

    def _fetch(self, answer: AnswerRead, first: int, beyond: int, left: int | None) -> "asyncio.Future[Fetched] | None":
        """Start to fetch the first of these entries; None if there are none. left: bytes that are still wanted."""
        if first == beyond:
            return None
        plan = self._journal.plan_range(
            ledger_id=answer.ledger_id,
            first=first,
            entries_max=beyond - first,
            bytes_max=HEADS_BYTES if self._heads_only else min(FRAME_BYTES_TARGET, left or FRAME_BYTES_TARGET),
        )
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._executor, _fetch, self._journal.reader, plan, self._heads_only)


def _runs(present: Sequence[EntryId]) -> Iterator[tuple[int, int]]:
    """(first, beyond) of each range of consecutive ids."""
    at = 0
    while at < len(present):
        behind = len(present)
        if present[-1] - present[at] != behind - 1 - at:
            behind = at + 1
            while present[behind] == present[behind - 1] + 1:
                behind += 1
        yield present[at], present[behind - 1] + 1
        at = behind


class _Absent:
    """The ids of an answer without an entry to fetch, ascending: missing ones and unreadable ones."""

    def __init__(self, answer: AnswerRead) -> None:
        self._missing = list(answer.missing)
        self._unreadable = list(answer.unreadable)

    def __bool__(self) -> bool:
        return bool(self._missing or self._unreadable)

    def take(self, beyond: int | None) -> tuple[list[EntryId], list[EntryId]]:
        """Remove and return those below `beyond`; None: all."""
        taken: list[list[EntryId]] = []
        for ids in (self._missing, self._unreadable):
            count = len(ids) if beyond is None else bisect_left(ids, beyond)
            taken.append(ids[:count])
            del ids[:count]
        return taken[0], taken[1]


def _frame(
    answer: AnswerRead, fetched: Fetched, missing: Sequence[EntryId], unreadable: Sequence[EntryId]
) -> ReadFrame:
    return ReadFrame(
        answer.status,
        fetched.entry_ids,
        missing,
        sorted([*unreadable, *fetched.unreadable]) if unreadable else fetched.unreadable,
        answer.last_entry,
        answer.last_add_confirmed,
        fetched.entries,
    )


def _fetch(reader: SegmentReader, plan: RangePlan, headers_only: bool) -> Fetched:
    """On a thread. A plan without pieces: the entry was deleted with its ledger since it was looked up."""
    if not plan.pieces:
        return Fetched([], [], [EntryId(plan.first)])
    try:
        found = reader.fetch(plan)
    except CorruptEntry:
        return _one_by_one(reader, plan, headers_only)
    entries: list[Buffer] = [head_of(data) for _, data in found] if headers_only else [data for _, data in found]
    return Fetched([EntryId(entry_id) for entry_id, _ in found], entries, [])


def _one_by_one(reader: SegmentReader, plan: RangePlan, headers_only: bool) -> Fetched:
    """Something in the range is damaged: read entry by entry to find out what is not."""
    fetched = Fetched([], [], [])
    for entry_id, piece in enumerate(plan.pieces, plan.first):
        try:
            ((_, data),) = reader.fetch(RangePlan(plan.ledger_id, entry_id, [piece]))
        except CorruptEntry:
            fetched.unreadable.append(EntryId(entry_id))
        else:
            fetched.entry_ids.append(EntryId(entry_id))
            fetched.entries.append(head_of(data) if headers_only else data)
    return fetched


#: Kinds of entries that hold a producer's batch.
_OF_PRODUCERS = (EntryKind.MESSAGES, EntryKind.CHUNK)


def head_of(data: bytes) -> Buffer:
    """The beginning of one entry, see the module; the whole entry if there is nothing to cut."""
    if len(data) <= HEADER_BYTES + BATCH_HEADER_BYTES or data[2] not in _OF_PRODUCERS:
        return data
    view = memoryview(data)
    try:
        batch = peek_batch(view[HEADER_BYTES:])
    except (InvalidBatch, UnknownFormat):
        return data
    return view[: HEADER_BYTES + BATCH_HEADER_BYTES + batch.ids_bytes]
