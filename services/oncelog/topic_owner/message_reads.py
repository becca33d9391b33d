"""Reads the messages of a topic by their index, for its subscriptions.

    index -> entry (remembered for each subscription, else searched) -> entries from the cache or from storage nodes

Only confirmed entries are read. Control entries are passed over: they hold no message. What is between two entries of
messages is nobody's, so the entries of one response are consecutive (hazard 72).
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from oncelog.core.errors import LedgerUnavailable, LogHole
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import EntryKind, peek_header
from oncelog.core.ids import EntryId, LedgerId, Position, SubscriptionNumber
from oncelog.core.subscriptions.events import MessagesRead, ReadMessages, StoredEntry
from oncelog.ledgers.reader import read_entries
from oncelog.topic_owner.log_view import LogView, ReadableRange

if TYPE_CHECKING:
    from oncelog.topic_owner.topic_runner import TopicRunner

#: Subscriptions whose last read is remembered, the newest ones; another one searches the log for its place.
ENDS_MAX = 1_000


class MessageReads:
    """The reads of one topic's subscriptions."""

    def __init__(self, runner: "TopicRunner") -> None:
        self._runner = runner
        self._view = LogView(runner)
        #: {subscription: (the index after its last read, the position at which that read ended)}
        self._ends: dict[SubscriptionNumber, tuple[int, Position]] = {}

    async def read(self, effect: ReadMessages) -> MessagesRead:
        """Raises the errors of `ledgers.reader`."""
        at = await self._start(effect)
        found: list[StoredEntry] = []
        size = 0
        while size < effect.bytes_max:
            at, entries = await self._view.next_range(at)
            if entries is None:
                break
            ledger_id = entries.metadata.ledger_id
            try:
                async for page in self._pages(entries, effect.bytes_max - size):
                    for data in page:
                        entry = stored_entry(data)
                        header = peek_header(data)
                        at = Position(header.ledger_id, EntryId(header.entry_id + 1))
                        if entry is not None:
                            found.append(entry)
                            size += len(data)
                    if size >= effect.bytes_max:
                        break
            except LedgerUnavailable as error:
                self._runner.progress.unavailable.failed(error)
                raise
            except LogHole:
                if self._view.is_listed(ledger_id):
                    raise
                at = Position(LedgerId(ledger_id + 1), EntryId(0))  # trimmed meanwhile
            else:
                self._runner.progress.unavailable.answered(ledger_id)
        if found:
            self._ends.pop(effect.number, None)
            self._ends[effect.number] = found[-1].base_index + found[-1].count, at
            if len(self._ends) > ENDS_MAX:
                del self._ends[next(iter(self._ends))]
        return MessagesRead(effect.number, effect.first_index, tuple(found))

    async def _start(self, effect: ReadMessages) -> Position:
        known = self._ends.get(effect.number)
        if known is not None and known[0] == effect.first_index:
            return known[1]
        at, _ = await self._view.entry_of_index(effect.first_index)
        return at

    async def _pages(self, entries: ReadableRange, bytes_max: int) -> AsyncIterator[list[Buffer]]:
        """The entries of a range in order, from the cache as long as it has them."""
        ledger_id, first = entries.metadata.ledger_id, entries.first
        cached = self._runner.cache.consecutive(ledger_id, first, entries.last, bytes_max=bytes_max)
        if cached:
            yield [b"".join(parts) for parts in cached]
            return
        metadata, view = self._view.known(entries.metadata), self._view
        pages = read_entries(
            self._runner.parts.links, metadata, first, entries.last, record=view.record, call_bytes_max=bytes_max
        )
        async for page in pages:
            yield [data for _, data in page]


def stored_entry(data: Buffer) -> StoredEntry | None:
    """An entry of messages as the subscriptions know it; None: it holds none."""
    header = peek_header(data)
    if header.kind != EntryKind.MESSAGES or not header.count:
        return None
    return StoredEntry(header.position, header.base_index, header.count, header.skip_first, data)
