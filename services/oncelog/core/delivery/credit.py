"""How many messages a consumer may be sent: absolute numbers of its stream (hazard relative-credit).

The consumer reports that `handed_out` messages of its stream have left its buffer and that its buffer takes `window`.
The owner has sent `sent` and may send up to handed_out + window. A report that is lost or repeated changes nothing that
the next one does not correct. A second limit in bytes bounds what waits for one consumer whose messages are large.

Consumers of whole entries get all messages of an entry that are meant for them while any credit is left, as clients of
Pulsar do. `sent` may then exceed the sum, and nothing more goes until the sum exceeds it (hazard
entry-above-the-permits).
"""

from collections import deque

#: Entries of this size may wait in a consumer's buffer, unless it takes less; one entry is always sent. Above the
#: largest batch.
UNHANDED_BYTES_MAX = 16 * 1024 * 1024


class Credit:
    """The credit of one stream."""

    __slots__ = ("_frames", "bytes_max", "handed_out", "sent", "unhanded_bytes", "whole_entries", "window")

    def __init__(self, *, whole_entries: bool = False) -> None:
        self.whole_entries = whole_entries
        self.handed_out = 0
        self.window = 0
        self.sent = 0
        self.bytes_max = UNHANDED_BYTES_MAX
        #: bytes of the entries that the consumer has not handed out entirely
        self.unhanded_bytes = 0
        #: (`sent` behind an entry, the entry's bytes), ascending
        self._frames: deque[tuple[int, int]] = deque()

    @property
    def left(self) -> int:
        """How many messages may be sent now."""
        if self.unhanded_bytes >= self.bytes_max:
            return 0
        return max(0, self.handed_out + self.window - self.sent)

    def takes(self, count: int) -> bool:
        """Whether the consumer is to be sent some of `count` messages of one entry now.

        An entry is cut only for a consumer whose whole window is smaller: below half a window the owner waits, so that
        an entry is not sent once for each message of it. Consumers report at half a window, and when their buffer is
        empty, so the credit always comes.
        """
        left = self.left
        return left >= count or (left > 0 and (self.whole_entries or left >= self.window // 2))

    def of(self, count: int) -> int:
        """How many of `count` messages of one entry the consumer is sent now."""
        left = self.left
        return count if left and self.whole_entries else min(count, left)

    def report(self, *, handed_out: int, window: int, bytes_max: int | None = None) -> None:
        """bytes_max: None: the largest."""
        self.bytes_max = UNHANDED_BYTES_MAX if bytes_max is None else min(bytes_max, UNHANDED_BYTES_MAX)
        self.handed_out = max(self.handed_out, min(handed_out, self.sent))
        self.window = window
        while self._frames and self._frames[0][0] <= self.handed_out:
            self.unhanded_bytes -= self._frames.popleft()[1]

    def spend(self, count: int, entry_bytes: int) -> None:
        """`count` messages of an entry are sent."""
        self.sent += count
        self.unhanded_bytes += entry_bytes
        self._frames.append((self.sent, entry_bytes))
