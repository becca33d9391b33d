"""Reads the messages of a topic by their index, for its subscriptions.

    index -> entry (known, or where the last read ended, else searched) -> entries from the cache or from storage nodes

Only confirmed entries are read. Control entries are passed over: they hold no message. The indexes between two entries
of messages belong to no message, so the entries of one response are consecutive (hazard index-given-twice). A read ends
before an entry that no storage node can give any more; if that is the first, the error says which messages are
affected.
"""

from collections.abc import AsyncIterator

from oncelog.core.delivery.events import MessagesRead, ReadMessages, StoredEntry
from oncelog.core.errors import EntriesLost, LedgerUnavailable, LogHole, UnreadableEntry
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import EntryKind, peek_header
from oncelog.core.ids import EntryId, LedgerId, Position, SubscriptionNumber
from oncelog.topic_owner.shell.log_view import LogView, ReadableLog, ReadableRange

#: Subscriptions whose last read is remembered, the newest ones; another one searches the log for its place.
ENDS_MAX = 1_000


class MessageReads:
    """The reads of one topic's subscriptions."""

    def __init__(self, log: ReadableLog) -> None:
        self._log = log
        self._view = LogView(log)
        #: {subscription: (the index after its last read, the position at which that read ended)}
        self._ends: dict[SubscriptionNumber, tuple[int, Position]] = {}

    async def read(self, effect: ReadMessages) -> MessagesRead:
        """Raises the errors of `storage_client.reader`; UnreadableEntry and EntriesLost also with first_index and
        count, the messages from effect.first_index on that cannot be read."""
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
                self._log.progress.unavailable.failed(error)
                raise
            except (EntriesLost, UnreadableEntry) as error:
                if found:
                    break  # what comes before it is delivered first
                at = await self._behind(error, effect.first_index)
            except LogHole:
                if not self._view.is_trimmed(ledger_id):
                    raise
                at = Position(LedgerId(ledger_id + 1), EntryId(0))  # trimmed meanwhile
            else:
                self._log.progress.unavailable.answered(ledger_id)
        if found:
            self._ends.pop(effect.number, None)
            self._ends[effect.number] = found[-1].base_index + found[-1].count, at
            if len(self._ends) > ENDS_MAX:
                del self._ends[next(iter(self._ends))]
        return MessagesRead(effect.number, effect.first_index, tuple(found))

    async def _start(self, effect: ReadMessages) -> Position:
        if effect.position is not None:
            return effect.position
        known = self._ends.get(effect.number)
        if known is not None and known[0] == effect.first_index:
            return known[1]
        at, _ = await self._view.place_of_index(effect.first_index)
        return at

    async def _behind(self, error: EntriesLost | UnreadableEntry, index: int) -> Position:
        """The next entry behind these, if they hold no message from `index` on; otherwise raises the error."""
        last = error.details["last" if isinstance(error, EntriesLost) else "entry_id"]
        at = Position(LedgerId(int(error.details["ledger_id"] or 0)), EntryId(int(last or 0) + 1))
        at, next_index = await self._view.first_readable(at)
        if next_index <= index:
            return at
        messages = f"message {index}" if next_index == index + 1 else f"messages {index} to {next_index - 1}"
        details = {**error.details, "first_index": index, "count": next_index - index}
        raise type(error)(
            f"cannot read {messages}: {error.message}. To go on, acknowledge them: subscribe with on_corrupt='skip', "
            "or skip them as an administrator",
            **details,
        ) from error

    async def _pages(self, entries: ReadableRange, bytes_max: int) -> AsyncIterator[list[Buffer]]:
        """The entries of a range in order, from the cache as long as it has them."""
        ledger_id, first = entries.metadata.ledger_id, entries.first
        cached = self._log.cache.consecutive(ledger_id, first, entries.last, bytes_max=bytes_max)
        if cached:
            yield [b"".join(parts) for parts in cached]
            return
        async for page in self._view.pages(entries, first, call_bytes_max=bytes_max):
            yield [data for _, data in page]


def stored_entry(data: Buffer) -> StoredEntry | None:
    """An entry of messages as the subscriptions know it; None: it holds none."""
    header = peek_header(data)
    if header.kind != EntryKind.MESSAGES or not header.count:
        return None
    return StoredEntry(header.position, header.base_index, header.count, header.skip_first, data)
