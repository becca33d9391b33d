"""The entries of one subscription that were read and not delivered entirely. Bounded in bytes; one read at a time.

While consumers take what is delivered, the next read begins before the last one is used up. What nobody takes is
dropped after a while, and read again when it is wanted.

A read takes its bytes in the outbox of the stream for which it begins (hazard unread-windows), until the entries
arrive. Entries that are kept count in the process: while those of all subscriptions are too many, each step drops what
it leaves.
"""

from bisect import bisect_right

from oncelog.core.acks.ack_set import AckSet
from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.events import MessagesRead, ReadMessages, StoredEntry, SubscriptionStep
from oncelog.core.ids import SubscriptionNumber
from oncelog.core.stream_budget import NO_LIMIT, Outbox

#: How much one read asks for; a frame is about as large.
READ_BYTES = 1024 * 1024
#: Entries of more bytes are not kept; the entry that is needed next always is.
LOOK_AHEAD_BYTES_MAX = 2 * READ_BYTES
#: Below this the next read begins: when the first entries of the last one are delivered. A consumer may take all of
#: them at once, and would wait for the read. What is kept stays within LOOK_AHEAD_BYTES_MAX.
READ_AHEAD_BELOW_BYTES = READ_BYTES
#: Entries of which no consumer has taken a message for this long are dropped.
UNUSED_MS_MAX = 5_000


class LookAhead:
    """Entries by their first index."""

    __slots__ = ("_bases", "_entries", "_number", "_outbox", "_over", "_step", "_used_ms", "bytes", "reading")

    def __init__(self, step: SubscriptionStep, number: SubscriptionNumber) -> None:
        self._step = step
        self._number = number
        #: the entries, ascending, and the first index of each
        self._entries: list[StoredEntry] = []
        self._bases: list[int] = []
        self.bytes = 0
        #: the first index of the read in flight
        self.reading: int | None = None
        #: of the stream for which the last read began
        self._outbox: Outbox = NO_LIMIT
        #: when an entry was last read or used up
        self._used_ms = 0
        #: whether all subscriptions keep too much
        self._over = False

    def holding(self, index: int) -> StoredEntry | None:
        """The entry that holds this message, if it was read."""
        at = bisect_right(self._bases, index) - 1
        if at < 0:
            return None
        entry = self._entries[at]
        return entry if index < entry.base_index + entry.count else None

    def _kept(self, size: int) -> None:
        """So many bytes more are kept, or less."""
        self.bytes += size
        self._over = not self._outbox.keep(size)

    def read(self, index: int, outbox: Outbox) -> None:
        """Read from `index` on, the lowest message that is to be delivered: entries below it are not needed. outbox:
        has room."""
        if self.reading is not None:
            return
        self.reading = index
        kept = self.bytes
        self._kept(-kept)
        self._outbox = outbox
        self._kept(kept)
        outbox.take(READ_BYTES)
        self._step.emit(ReadMessages(self._number, index, READ_BYTES))

    def read_ahead(self, index: int, end: int, acks: AckSet, outbox: Outbox) -> None:
        """Read what follows the held entries, or `index` if none is held, when they are nearly used up; it lies below
        `end`, the end of the log. What is acknowledged is passed: it need not be readable."""
        if self._entries:
            index = self._entries[-1].base_index + self._entries[-1].count
        index = acks.next_unacked(index)
        if index < end and self.bytes < READ_AHEAD_BELOW_BYTES:
            self.read(index, outbox)

    def drop_unused(self) -> None:
        """Called now and then."""
        if self._entries and self._step.now_ms - self._used_ms >= UNUSED_MS_MAX:
            self._clear()

    def end_step(self) -> None:
        """What could be delivered was delivered."""
        if self._over:
            self._clear()

    def close(self) -> None:
        """Nothing more is read or kept."""
        self._clear()
        if self.reading is not None:
            self.reading = None
            self._outbox.give_back(READ_BYTES)

    def _clear(self) -> None:
        self._entries.clear()
        self._bases.clear()
        self._kept(-self.bytes)

    def drop(self, entry: StoredEntry) -> None:
        """Everything of the entry is delivered."""
        self._used_ms = self._step.now_ms
        at = bisect_right(self._bases, entry.base_index) - 1
        if at >= 0 and self._entries[at] is entry:
            del self._bases[at], self._entries[at]
            self._kept(-len(entry.data))

    def drop_below(self, index: int) -> None:
        """Messages below `index` are not needed."""
        count = 0
        for entry in self._entries:
            if entry.base_index + entry.count > index:
                break
            self._kept(-len(entry.data))
            count += 1
        del self._bases[:count], self._entries[:count]

    def make_room(self, index: int) -> None:
        """Before a read of `index`: entries below it go where they take the place that the read needs."""
        while self._bases and self.bytes > READ_BYTES and self._entries[0].base_index + self._entries[0].count <= index:
            self._bases.pop(0)
            self._kept(-len(self._entries.pop(0).data))

    def arrived(self, event: MessagesRead) -> list[IndexRange] | None:
        """Keep what was read; returns the indexes between entries that no entry holds. None: another read's response.

        A read returns consecutive entries, so no message has the indexes between them: they were given up with a lost
        ledger (hazard index-given-twice).
        """
        if event.first_index != self.reading:
            return None
        self.reading = None
        self._outbox.give_back(READ_BYTES)
        self._used_ms = self._step.now_ms
        missing: list[IndexRange] = []
        expected = event.first_index
        for entry in event.entries:
            if entry.base_index > expected:
                missing.append(IndexRange(expected, entry.base_index - 1))
            expected = entry.base_index + entry.count
            self._keep(entry)
        while self.bytes > LOOK_AHEAD_BYTES_MAX and self._bases[-1] > event.first_index:
            self._bases.pop()
            self._kept(-len(self._entries.pop().data))
        return missing

    def _keep(self, entry: StoredEntry) -> None:
        at = bisect_right(self._bases, entry.base_index)
        if at and self._bases[at - 1] == entry.base_index:
            return
        self._bases.insert(at, entry.base_index)
        self._entries.insert(at, entry)
        self._kept(len(entry.data))
