"""The messages that are with one consumer: delivered and not acknowledged, and since when its application has them.

The ack time-out runs from the report that the application has received a message. One that only waits in the consumer's
window has no time-out: no application has seen it, so it must not count as delivered (hazard timeout-in-the-window).

A report that the consumer wrote before a repeated delivery reached it means the former delivery. So it is believed
about a message that was delivered again only if the consumer says that so many messages of its stream have arrived.

Times are kept for groups of messages: a bitmap for each sixteenth of the ack time-out. A time-out is therefore up to
a sixteenth late and never early, and the memory does not depend on the number of messages.
"""

from collections import deque
from dataclasses import dataclass, field

from pyroaring import BitMap64

from oncelog.core.acks.changes import IndexRange

#: The ack time-out of messages in holes while dispatch is paused, for consumers without one (hazard
#: dispatch-paused-for-ever).
PAUSED_ACK_TIMEOUT_MS = 60_000
_GROUPS = 16
_GROUPS_MAX = 2 * _GROUPS
_GROUP_MIN_MS = 250


@dataclass(slots=True)
class _Group:
    """Messages whose time began from `since_ms` to `until_ms`; others may still be among them."""

    since_ms: int
    until_ms: int
    bits: BitMap64 = field(default_factory=BitMap64)


class _Times:
    """When the times of messages began."""

    __slots__ = ("_groups", "_width_ms")

    def __init__(self, timeout_ms: int) -> None:
        self._groups: deque[_Group] = deque()
        self._width_ms = max(_GROUP_MIN_MS, timeout_ms // _GROUPS)

    def now(self, now_ms: int, held: BitMap64) -> BitMap64:
        """The messages whose time begins now, to which the caller adds. held: all that the consumer holds."""
        groups = self._groups
        if not groups or now_ms - groups[-1].since_ms >= self._width_ms:
            groups.append(_Group(now_ms, now_ms))
            if len(groups) > _GROUPS_MAX:
                oldest = groups.popleft()
                groups[0].bits |= oldest.bits & held
        groups[-1].until_ms = now_ms
        return groups[-1].bits

    def expired(self, before_ms: int) -> BitMap64:
        """The messages whose time began up to `before_ms`, once."""
        expired = BitMap64()
        while self._groups and self._groups[0].until_ms <= before_ms:
            expired |= self._groups.popleft().bits
        return expired

    def oldest_ms(self, held: BitMap64) -> int | None:
        """When the time of the oldest of these messages began: not later than this."""
        return next((group.until_ms for group in self._groups if group.bits.intersect(held)), None)

    def put_back(self, bits: BitMap64, before_ms: int) -> None:
        """`expired` returns these again."""
        self._groups.appendleft(_Group(before_ms, before_ms, bits))

    def discard(self, bits: BitMap64) -> None:
        for group in self._groups:
            group.bits -= bits

    def clear(self) -> None:
        self._groups.clear()


class Outstanding:
    """What one consumer holds."""

    __slots__ = ("_delivered", "_received", "_timed", "_unseen", "begun", "bits", "counted")

    def __init__(self, ack_timeout_ms: int) -> None:
        self.bits = BitMap64()
        #: of these, what the application has received, as last reported; acknowledged ones may still be among them
        self.begun = BitMap64()
        #: of `bits`, those whose delivery to the consumer counts already: a former stream of it was lost meanwhile
        self.counted = BitMap64()
        #: since when messages are with the consumer: only while dispatch is paused a time-out runs from there
        self._delivered = _Times(PAUSED_ACK_TIMEOUT_MS)
        #: since when the application has them; and those whose time runs, or has run out
        self._received = _Times(ack_timeout_ms or PAUSED_ACK_TIMEOUT_MS)
        self._timed = BitMap64()
        #: (messages of the stream so far, messages that came again with the last of them), ascending
        self._unseen: deque[tuple[int, BitMap64]] = deque()

    def add(self, ranges: list[IndexRange], now_ms: int) -> None:
        group = self._delivered.now(now_ms, self.bits)
        for first, last in ranges:
            self.bits.add_range(first, last + 1)
            group.add_range(first, last + 1)

    def came_again(self, bits: BitMap64, sent: int) -> None:
        """These were delivered before. sent: messages of the consumer's stream so far, these included."""
        self._unseen.append((sent, bits))

    def begin(self, begun: BitMap64, now_ms: int, *, arrived: int | None = None) -> None:
        """The consumer reports what its application has received, of `bits`. arrived: how many messages of the stream
        had reached the consumer; None: an older client, which does not say."""
        while self._unseen and (arrived is None or self._unseen[0][0] <= arrived):
            self._unseen.popleft()
        for _, bits in self._unseen:
            begun = begun - bits
        self.begun = begun
        new = begun - self._timed
        if new:
            self._timed |= new
            group = self._received.now(now_ms, self.bits)
            group |= new

    def acknowledged(self, first: int, last: int) -> None:
        """The messages first..last are acknowledged. The groups need not learn it: an acknowledged message never
        comes back at its seek_epoch."""
        self.bits.remove_range(first, last + 1)
        if self._timed:
            self._timed.remove_range(first, last + 1)

    def remove(self, bits: BitMap64) -> None:
        """These messages are not with this consumer any more; they may be delivered to it again."""
        self.bits -= bits
        self.begun -= bits
        self.counted -= bits
        self._timed -= bits
        self._delivered.discard(bits)
        self._received.discard(bits)

    def held_since_ms(self, held: BitMap64) -> int | None:
        """The running time since which the consumer has had the oldest of these messages, at the latest. None: it has
        none of them, or this is not known any more, because dispatch was paused."""
        return self._delivered.oldest_ms(held & self.bits)

    def expired(self, *, before_ms: int) -> BitMap64:
        """The messages that the application has since `before_ms`. They are returned once, and stay outstanding."""
        return self._received.expired(before_ms) & self.bits

    def waiting(self, *, before_ms: int) -> BitMap64:
        """The messages delivered up to `before_ms` that the application has not received. They are returned once."""
        return (self._delivered.expired(before_ms) & self.bits) - self.begun

    def expire_later(self, bits: BitMap64, before_ms: int) -> None:
        """`expired` returns these again."""
        if bits:
            self._received.put_back(bits, before_ms)

    def restart(self, bits: BitMap64, now_ms: int) -> None:
        """The time of these messages begins again."""
        bits = bits & self.bits
        if bits:
            group = self._received.now(now_ms, self.bits)
            group |= bits

    def restart_waiting(self, bits: BitMap64, now_ms: int) -> None:
        """`waiting` returns these again, after their time."""
        if bits:
            group = self._delivered.now(now_ms, self.bits)
            group |= bits

    def clear(self) -> BitMap64:
        """Take everything; returns it."""
        taken, self.bits = self.bits, BitMap64()
        self.begun, self.counted, self._timed = BitMap64(), BitMap64(), BitMap64()
        self._delivered.clear()
        self._received.clear()
        return taken
