"""A topic's log as readers see it: the next ledger, how far each ledger may be read, and start positions.

A CLOSED ledger ends where its record says, the open one at last_add_confirmed. A trimmed ledger is skipped: the log
begins behind it.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from oncelog.core.errors import EntriesLost, LogHole, TopicLoading, UnreadableEntry
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import EntryHeader, EntryKind, peek_header
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.topic.topic import Topic
from oncelog.rpc.codecs.reader_codec import StartAt, StartEdge, StartIndex, StartMessage, StartTime
from oncelog.rpc.entry_reader import READ_BYTES_MAX
from oncelog.storage_client.client import StorageClient
from oncelog.storage_client.reader import (
    UNAVAILABLE_AFTER_MS,
    find_entry,
    read_entries,
    read_entry,
    side_of_index,
)
from oncelog.topic_owner.shell.entry_cache import EntryCache
from oncelog.topic_owner.shell.ledger_list import LedgerList
from oncelog.topic_owner.shell.progress import TopicProgress

#: Entries in a row that a search passes because no storage node can give them.
PASSED_MAX = 100


@dataclass(frozen=True, slots=True)
class ReadableRange:
    """Entries first..last of one ledger, all confirmed."""

    metadata: LedgerMetadata
    first: EntryId
    last: EntryId


@dataclass(frozen=True, slots=True)
class ReadableLog:
    """One topic's log: its state at this owner, and where its entries and records are read.

    ledger: reads the record of a ledger, raises LogHole, and CorruptEntry for a damaged one. record: the same after a
    sync, None: there is none.
    """

    core: Topic
    progress: TopicProgress
    cache: EntryCache
    ledgers: LedgerList
    links: StorageClient
    ledger: Callable[[LedgerId], Awaitable[LedgerMetadata]]
    record: Callable[[LedgerId], Awaitable[LedgerMetadata | None]]


class LogView:
    """The view of one reader. It caches the records of CLOSED ledgers: their end never changes, and `record` replaces
    the copy when a member that was swapped out does not give an entry."""

    def __init__(self, log: ReadableLog, *, timeout_ms: int = UNAVAILABLE_AFTER_MS) -> None:
        """timeout_ms: how long an entry is waited for that no storage node gives."""
        self._log = log
        self._list = log.ledgers
        self._timeout_ms = timeout_ms
        self._closed: dict[LedgerId, LedgerMetadata] = {}

    async def _metadata(self, ledger_id: LedgerId) -> LedgerMetadata:
        serving = self._log.core.serving
        writer = serving.log.ledgers.writer if serving is not None else None
        if writer is not None and writer.ledger_id == ledger_id:
            # Otherwise each reader at the end would ask ZooKeeper for every entry, and stop while ZooKeeper is away.
            return writer.metadata
        known = self._closed.get(ledger_id)
        if known is None:
            known = await self._log.ledger(ledger_id)
            if known.state is LedgerState.CLOSED:
                self._closed[ledger_id] = known
        return known

    async def record(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        """The ledger's record after a sync, for reads of entries; None: there is none. Raises StoreUnavailable."""
        found = await self._log.record(ledger_id)
        if found is not None and found.state is LedgerState.CLOSED:
            self._closed[ledger_id] = found
        return found

    def is_trimmed(self, ledger_id: LedgerId) -> bool:
        """Whether the log begins behind this ledger, so that its record may be deleted."""
        first = self._list.first
        return first is None or ledger_id < first.ledger_id

    async def _has_left(self, ledger_id: LedgerId) -> bool:
        """Whether the list does not name this ledger any more: it leaves the list before its record is deleted."""
        link = await self._list.at_or_behind(ledger_id)
        return link is None or link.ledger_id != ledger_id

    def trimmed_below(self, position: Position) -> int:
        """The index of the log's first message, if the ledger of `position` was trimmed; else 0."""
        first = self._list.first
        return first.base_index if first is not None and position.ledger_id < first.ledger_id else 0

    def known(self, metadata: LedgerMetadata) -> LedgerMetadata:
        """The newest record of this ledger that was read."""
        return self._closed.get(metadata.ledger_id, metadata)

    async def _last(self, ledger_id: LedgerId) -> tuple[LedgerMetadata, EntryId]:
        """The last entry of a ledger that may be read now; -1: none."""
        confirmed = self._log.progress.confirmed
        metadata = await self._metadata(ledger_id)
        if metadata.state is LedgerState.CLOSED:
            return metadata, metadata.end
        return metadata, confirmed.entry_id if confirmed.ledger_id == ledger_id else EntryId(-1)

    async def next_range(self, at: Position) -> tuple[Position, ReadableRange | None]:
        """Return (the next entry to read at or behind `at`, the entries there); None: there are no more now."""
        begin = at.ledger_id
        while (link := await self._list.at_or_behind(begin)) is not None:
            ledger_id = link.ledger_id
            first = at.entry_id if ledger_id == at.ledger_id else EntryId(0)
            if ledger_id > self._log.progress.confirmed.ledger_id:
                return Position(ledger_id, first), None
            try:
                metadata, last = await self._last(ledger_id)
            except LogHole:
                if await self._has_left(ledger_id):
                    continue
                raise
            if first <= last:
                return Position(ledger_id, first), ReadableRange(metadata, first, last)
            at, begin = Position(ledger_id, first), LedgerId(ledger_id + 1)
        return at, None

    async def start_of(self, start: StartAt) -> tuple[Position, int]:
        """Return (the first entry to read, batch index of the first message to deliver from it)."""
        match start:
            case StartEdge.EARLIEST:
                return Position(LedgerId(-1), EntryId(0)), 0
            case StartEdge.LATEST:
                return self._end, 0
            case StartMessage(position, batch_index, inclusive):
                first = batch_index + (0 if inclusive else 1)
                return await self._kept(position, position.entry_id + (first > 0)), first
            case StartTime(time_ms):
                return await self._first_at(time_ms), 0
            case StartIndex(number):
                return await self.entry_of_index(number)

    @property
    def _end(self) -> Position:
        """Behind the last entry that is confirmed."""
        confirmed = self._log.progress.confirmed
        return Position(confirmed.ledger_id, EntryId(confirmed.entry_id + 1))

    async def _kept(self, at: Position, known: int) -> Position:
        """Where to begin for a client that names `at`, and by that says that its ledger had `known` entries.

        A ledger that is in no list and not below the floor is lost, and so is what was behind the end of a CLOSED one:
        that is told, for it is neither the beginning of the log nor its future (hazard position-of-a-lost-part). An
        empty ledger leaves the list without a loss. Entry 0 is a head, so who names it knows no message
        of the ledger. Before it raises, the owner must have proved that it is current: a newer one may have linked
        more ledgers. The log goes on behind its last entry, not in a ledger that is still empty: a restore may leave
        that one out, and bring back entries before it (hazard tail-in-front-of-a-reader). Raises EntriesLost, also with
        next_ledger_id and next_entry_id: where the log goes on.
        """
        while at.ledger_id >= self._log.core.ownership.record.deleted_below:
            link, end = await self._list.at_or_behind(at.ledger_id), None
            if link is not None and link.ledger_id == at.ledger_id:
                try:
                    metadata, end = await self._last(at.ledger_id)
                except LogHole:
                    if await self._has_left(at.ledger_id):
                        continue
                    raise
                if metadata.state is not LedgerState.CLOSED or known <= end + 1:
                    return at
                link = await self._list.at_or_behind(LedgerId(at.ledger_id + 1))
            following = self._end if link is None else min(Position(link.ledger_id, EntryId(0)), self._end)
            if known == 0:
                return following
            why = "no ledger of the topic has this id" if end is None else f"the ledger ends at entry {end}"
            following = max(following, Position(LedgerId(0), EntryId(0)))
            raise EntriesLost(
                f"entry {at} is lost, and with it what came behind it in its ledger: {why}. The log goes on at "
                f"{following}",
                ledger_id=at.ledger_id, first=at.entry_id, last=at.entry_id,
                next_ledger_id=following.ledger_id, next_entry_id=following.entry_id,
            )  # fmt: skip
        return at  # it was trimmed

    async def _first_at(self, time_ms: int) -> Position:
        """The first entry appended at or after a time. Append times of a log almost always ascend.

        Entries that no storage node gives may be as young as the readable one behind them: then they are where the
        reader begins, which is told of them."""
        at = Position(await self._first_ledger_at(time_ms), EntryId(0))
        #: the first of the entries that cannot be read, right in front of `at`
        unreadable: Position | None = None
        while True:
            at, entries = await self.next_range(at)
            if entries is None:
                return unreadable or at
            metadata, first, end = entries.metadata, entries.first, EntryId(entries.last + 1)
            last, header = await self._readable_at_or_before(metadata, entries.last, first)
            if header is not None and header.append_time_ms >= time_ms:
                break
            at = Position(metadata.ledger_id, end)
            if header is not None:
                unreadable = None
            if last < entries.last:
                unreadable = unreadable or Position(metadata.ledger_id, EntryId(last + 1))
        entry_id = await find_entry(
            EntryId(last + 1),
            lambda header: -1 if header.append_time_ms < time_ms else 1,
            partial(self._readable, metadata),
            first=first,
        )
        found = Position(metadata.ledger_id, entry_id)
        return unreadable if unreadable is not None and entry_id == first else found

    async def _first_ledger_at(self, time_ms: int) -> LedgerId:
        """A ledger at or before the first one whose last entry was appended at or after a time."""
        paged = await self._list.ended_since(time_ms)
        if paged is not None:
            return paged
        ledgers = [link.ledger_id for link in self._log.core.ownership.record.ledgers]
        low, high = 0, len(ledgers) - 1
        while low < high:
            middle = (low + high) // 2
            _, entries = await self.next_range(Position(ledgers[middle], EntryId(0)))
            if entries is None:
                high = middle
                continue
            last, header = await self._readable_at_or_before(entries.metadata, entries.last, entries.first)
            if header is None or last < entries.last or header.append_time_ms >= time_ms:
                high = middle
            else:
                low = middle + 1
        return ledgers[low] if ledgers else LedgerId(-1)

    async def index_of(self, start: StartAt) -> int:
        """The index of the message at which a place begins; the topic's next index if that is its end. The log begins
        where its first ledger does, also if nothing can be read there. At any other place where nothing can be read, a
        subscription begins, too: its consumers are told which messages they miss."""
        first = self._list.first
        if start is StartEdge.EARLIEST and first is not None:
            return first.base_index
        if isinstance(start, StartEdge):
            return self._next_index
        try:
            wanted, batch_index = await self.start_of(start)
        except (UnreadableEntry, EntriesLost):
            if not isinstance(start, StartIndex):
                raise
            return start.number
        at, entries = await self.next_range(wanted)
        if entries is None:
            return self._next_index
        try:
            header = await self._header(entries.metadata, entries.first)
        except (UnreadableEntry, EntriesLost):
            return await self._index_behind_readable(at)
        if at != wanted:
            return header.base_index  # that entry was trimmed: the log begins behind it
        return min(header.base_index + max(0, batch_index - header.skip_first), header.next_index)

    async def _index_behind_readable(self, at: Position) -> int:
        """Of the first message that may be in an entry that no storage node gives."""
        link = await self._list.at_or_behind(at.ledger_id)
        metadata, _ = await self._last(at.ledger_id)
        _, header = await self._readable_at_or_before(metadata, EntryId(at.entry_id - 1), EntryId(0))
        if header is not None or link is None:
            return self._next_index if header is None else header.next_index
        return link.base_index

    @property
    def _next_index(self) -> int:
        """Raises TopicLoading."""
        serving = self._log.core.serving
        if serving is None:
            raise TopicLoading("the topic is moving to another owner: try again")
        return serving.log.table.state.next_index

    async def entry_of_index(self, number: int) -> tuple[Position, int]:
        """The entry that holds the message with this index, and the batch index; the end if the log is shorter."""
        at, metadata = await self.place_of_index(number)
        if metadata is None:
            return at, 0
        header = await self._header(metadata, at.entry_id)
        return at, header.skip_first + number - header.base_index

    async def place_of_index(self, number: int) -> tuple[Position, LedgerMetadata | None]:
        """The entry that holds the message with this index, or the first of those that may and that no storage node
        gives. None: the log is shorter, and this is its end."""
        while True:
            link = await self._list.with_index(number)
            if link is None:
                return Position(LedgerId(-1), EntryId(0)), None
            ledger_id = link.ledger_id
            try:
                metadata, last = await self._last(ledger_id)
            except LogHole:
                if await self._has_left(ledger_id):
                    continue
                raise
            entry_id = await find_entry(
                EntryId(last + 1), partial(side_of_index, number), partial(self._readable, metadata)
            )
            return Position(ledger_id, entry_id), metadata if entry_id <= last else None

    async def first_readable(self, at: Position) -> tuple[Position, int]:
        """(the first entry at or behind `at` that a storage node gives, the index of its first message); the end if
        there is none."""
        while True:
            next_index = self._next_index
            at, entries = await self.next_range(at)
            if entries is None:
                return at, next_index
            end = EntryId(entries.last + 1)
            readable, header = await self._readable(entries.metadata, entries.first, end)
            at = Position(entries.metadata.ledger_id, readable)
            if header is not None:
                return at, header.base_index

    async def _readable(
        self, metadata: LedgerMetadata, first: EntryId, end: EntryId
    ) -> tuple[EntryId, EntryHeader | None]:
        """The first entry of first .. end - 1 that a storage node gives; (end, None): there is none.

        Raises the error of `first` if there are too many others."""
        entry_id, failure = first, None
        for _ in range(PASSED_MAX):
            if entry_id >= end:
                return end, None
            try:
                return entry_id, await self._header(metadata, entry_id)
            except (UnreadableEntry, EntriesLost) as error:
                failure = failure or error
                lost = (last for low, last in self.known(metadata).lost if low <= entry_id <= last)
                entry_id = EntryId(next(lost, entry_id) + 1)
        assert failure is not None
        raise failure

    async def _readable_at_or_before(
        self, metadata: LedgerMetadata, entry_id: EntryId, first: EntryId
    ) -> tuple[EntryId, EntryHeader | None]:
        """The last entry of first .. entry_id that a storage node gives; (first - 1, None): there is none.

        Raises the error of `entry_id` if there are too many others."""
        failure = None
        for _ in range(PASSED_MAX):
            if entry_id < first:
                return EntryId(first - 1), None
            try:
                return entry_id, await self._header(metadata, entry_id)
            except (UnreadableEntry, EntriesLost) as error:
                failure = failure or error
                lost = (low for low, last in self.known(metadata).lost if low <= entry_id <= last)
                entry_id = EntryId(next(lost, entry_id) - 1)
        assert failure is not None
        raise failure

    async def _header(self, metadata: LedgerMetadata, entry_id: EntryId) -> EntryHeader:
        return peek_header(await self.entry(metadata, entry_id, headers_only=True))

    async def entry(self, metadata: LedgerMetadata, entry_id: EntryId, *, headers_only: bool) -> Buffer:
        """One entry, from the cache or a storage node. Raises the errors of `storage_client.reader`."""
        cached = self._log.cache.get(metadata.ledger_id, entry_id)
        if cached is not None:
            return b"".join(cached)
        return await read_entry(
            self._log.links, self.known(metadata), entry_id, headers_only=headers_only,
            timeout_ms=self._timeout_ms, record=self.record,
        )  # fmt: skip

    async def entry_at(self, position: Position, *, headers_only: bool) -> Buffer | None:
        """The entry at a place that the log names; None: it was trimmed.

        Raises TopicLoading if it is not confirmed here yet, and the errors of `storage_client.reader`. EntriesLost is
        final only once this owner has proved that it is current: see `_kept`.
        """
        await self._kept(position, position.entry_id + 1)
        if self.is_trimmed(position.ledger_id):
            return None
        at, entries = await self.next_range(position)
        if entries is None or at != position:
            if self.is_trimmed(position.ledger_id):
                return None
            raise TopicLoading(f"entry {position} is not confirmed at this owner yet: try again")
        try:
            return await self.entry(entries.metadata, position.entry_id, headers_only=headers_only)
        except LogHole:
            if self.is_trimmed(position.ledger_id):
                return None
            raise

    def pages(
        self, entries: ReadableRange, first: EntryId, *, call_bytes_max: int = READ_BYTES_MAX
    ) -> AsyncGenerator[list[tuple[EntryId, Buffer]], None]:
        """The entries of a range from `first` on, from storage nodes. See `storage_client.reader`."""
        return read_entries(
            self._log.links, self.known(entries.metadata), first, entries.last, record=self.record,
            call_bytes_max=call_bytes_max,
        )  # fmt: skip

    async def last_message(self) -> tuple[Position, EntryHeader] | None:
        """The last entry that holds a message; None: the log is empty."""
        below = LedgerId(self._log.progress.confirmed.ledger_id + 1)
        while (link := await self._list.before(below)) is not None:
            below = link.ledger_id
            metadata, last = await self._last(link.ledger_id)
            for entry_id in range(last, -1, -1):
                header = await self._header(metadata, EntryId(entry_id))
                if header.count and header.kind == EntryKind.MESSAGES:
                    return header.position, header
        return None
