"""The messages that are with one consumer: delivered and not acknowledged, and since when.

Times are kept for groups of deliveries: a bitmap for each sixteenth of the ack time-out. A time-out is therefore up to
a sixteenth late and never early, and the memory does not depend on the number of messages.
"""

from collections import deque
from dataclasses import dataclass, field

from pyroaring import BitMap64

from oncelog.core.subscriptions.changes import IndexRange

#: The ack time-out of messages in holes while dispatch is paused, for consumers without one (hazard 39).
PAUSED_ACK_TIMEOUT_MS = 60_000
_GROUPS = 16
_GROUPS_MAX = 2 * _GROUPS
_GROUP_MIN_MS = 250


@dataclass(slots=True)
class _Group:
    """Messages that were delivered from `since_ms` to `until_ms`; acknowledged ones may still be among them."""

    since_ms: int
    until_ms: int
    bits: BitMap64 = field(default_factory=BitMap64)


class Outstanding:
    """What one consumer holds."""

    __slots__ = ("_groups", "_width_ms", "bits")

    def __init__(self, ack_timeout_ms: int) -> None:
        self.bits = BitMap64()
        self._groups: deque[_Group] = deque()
        self._width_ms = max(_GROUP_MIN_MS, (ack_timeout_ms or PAUSED_ACK_TIMEOUT_MS) // _GROUPS)

    def add(self, ranges: list[IndexRange], now_ms: int) -> None:
        groups = self._groups
        if not groups or now_ms - groups[-1].since_ms >= self._width_ms:
            groups.append(_Group(now_ms, now_ms))
            if len(groups) > _GROUPS_MAX:
                oldest = groups.popleft()
                groups[0].bits |= oldest.bits & self.bits
        group = groups[-1]
        group.until_ms = now_ms
        for first, last in ranges:
            self.bits.add_range(first, last + 1)
            group.bits.add_range(first, last + 1)

    def acknowledged(self, first: int, last: int) -> None:
        """The messages first..last are acknowledged. The groups need not learn it: an acknowledged message never
        comes back at its seek_epoch."""
        self.bits.remove_range(first, last + 1)

    def remove(self, bits: BitMap64) -> None:
        """These messages are not with this consumer any more; they may be delivered to it again."""
        self.bits -= bits
        for group in self._groups:
            group.bits -= bits

    def expired(self, *, before_ms: int) -> BitMap64:
        """The messages delivered up to `before_ms`. They are returned once, and stay outstanding."""
        expired = BitMap64()
        while self._groups and self._groups[0].until_ms <= before_ms:
            expired |= self._groups.popleft().bits
        expired &= self.bits
        return expired

    def expire_later(self, bits: BitMap64, before_ms: int) -> None:
        """`expired` returns these again."""
        if bits:
            self._groups.appendleft(_Group(before_ms, before_ms, bits))

    def restart(self, bits: BitMap64, now_ms: int) -> None:
        """The time of these messages begins again."""
        group = _Group(now_ms, now_ms, bits & self.bits)
        if group.bits:
            self._groups.append(group)

    def clear(self) -> BitMap64:
        """Take everything; returns it."""
        taken, self.bits = self.bits, BitMap64()
        self._groups.clear()
        return taken
