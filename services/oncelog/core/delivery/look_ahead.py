"""The entries of one subscription that were read and not delivered entirely. Bounded in bytes; one read at a time.

While consumers take what is delivered, the next read begins before the last one is used up. What nobody takes is
dropped after a while, and read again when it is wanted: little at first, and twice as much each time.

A read takes its bytes in the outbox of the stream for which it begins (hazard unread-windows), until the entries
arrive. Entries that are kept, and those that are being read, count in the process. A subscription reads no more than
it leaves to the others (as streams do, `core.stream_budget`), or the one entry that is needed next. Otherwise it would
drop what it has read, and read the same entries again for each one that it delivers. Entries that are larger than the
read asked for may still be too many: then each step drops what is needed last.
"""

from bisect import bisect_right
from dataclasses import replace

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
#: The next read after that asks for so much: a consumer that takes a message now and then needs no more.
READ_AGAIN_BYTES = 16 * 1024


class LookAhead:
    """Entries by their first index."""

    __slots__ = (
        "_asked", "_bases", "_dropped", "_entries", "_number", "_outbox", "_size", "_step", "_used_ms", "bytes",
        "reading",
    )  # fmt: skip

    def __init__(self, step: SubscriptionStep, number: SubscriptionNumber) -> None:
        self._step = step
        self._number = number
        #: the entries, ascending, and the first index of each
        self._entries: list[StoredEntry] = []
        self._bases: list[int] = []
        self.bytes = 0
        #: the first index of the read in flight, and how many bytes it asks for
        self.reading: int | None = None
        self._asked = 0
        #: the lowest entry that was dropped last, without its data
        self._dropped: StoredEntry | None = None
        #: of the stream for which the last read began
        self._outbox: Outbox = NO_LIMIT
        #: when an entry was read, or a message of one was last taken
        self._used_ms = 0
        #: how much the next read asks for at most
        self._size = READ_BYTES

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
        self._outbox.keep(size)

    def _room(self, outbox: Outbox) -> int:
        """How many bytes more may be kept, so that no more is kept here than what is left to others."""
        return (outbox.keep(0) - self.bytes) // 2

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
        self._asked = max(1, min(self._size, self._room(outbox)))
        outbox.keep(self._asked)
        self._size = min(READ_BYTES, 2 * self._size)
        known = self._dropped
        found = known is not None and known.base_index <= index < known.base_index + known.count
        position = known.position if known is not None and found else None
        self._step.emit(ReadMessages(self._number, index, self._asked, position))

    def read_ahead(self, index: int, end: int, acks: AckSet, outbox: Outbox) -> None:
        """Read what follows the held entries, or `index` if none is held, when they are nearly used up; it lies below
        `end`, the end of the log. What is acknowledged is passed: it need not be readable. After nobody took what was
        read, nothing is read ahead at first."""
        if self._entries:
            index = self._entries[-1].base_index + self._entries[-1].count
        index = acks.next_unacked(index)
        may_keep = self._size == READ_BYTES and self.bytes < READ_AHEAD_BELOW_BYTES and self._room(outbox) > 0
        if index < end and may_keep:
            self.read(index, outbox)

    def used(self) -> None:
        """A consumer has taken a message."""
        self._used_ms = self._step.now_ms

    def drop_unused(self) -> None:
        """Called now and then."""
        if self._entries and self._step.now_ms - self._used_ms >= UNUSED_MS_MAX:
            while self._entries:
                self._drop_last()
            self._size = READ_AGAIN_BYTES

    def end_step(self) -> None:
        """What could be delivered was delivered."""
        while self._entries and self._outbox.keep(0) < 0:
            self._drop_last()

    def close(self) -> None:
        """Nothing more is read or kept."""
        self._entries.clear()
        self._bases.clear()
        self._kept(-self.bytes)
        if self.reading is not None:
            self._read_over()

    def _read_over(self) -> None:
        self.reading = None
        self._outbox.give_back(READ_BYTES)
        self._outbox.keep(-self._asked)

    def drop(self, entry: StoredEntry) -> None:
        """Everything of the entry is delivered."""
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
        self._read_over()
        self._used_ms = self._step.now_ms
        missing: list[IndexRange] = []
        expected = event.first_index
        for entry in event.entries:
            if entry.base_index > expected:
                missing.append(IndexRange(expected, entry.base_index - 1))
            expected = entry.base_index + entry.count
            self._keep(entry)
        while self.bytes > LOOK_AHEAD_BYTES_MAX and self._bases[-1] > event.first_index:
            self._drop_last()
        return missing

    def _drop_last(self) -> None:
        self._bases.pop()
        entry = self._entries.pop()
        self._kept(-len(entry.data))
        self._dropped = replace(entry, data=b"")

    def _keep(self, entry: StoredEntry) -> None:
        at = bisect_right(self._bases, entry.base_index)
        if at and self._bases[at - 1] == entry.base_index:
            return
        self._bases.insert(at, entry.base_index)
        self._entries.insert(at, entry)
        self._kept(len(entry.data))
