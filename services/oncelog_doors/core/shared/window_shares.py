"""How many bytes each reader of a door may fetch ahead, so that all of them together keep a limit.

A reader that is opened as the n-th gets a tenth of the n-th part of the limit, and at most 1 MiB: a few readers are
fast, and ten thousand still fit. The part of a reader stays as it is until it is closed. Of the readers that are open,
the n-th oldest was opened when at least n - 1 others were open. So the parts are at most a tenth of the limit times
1 + 1/2 + 1/3 + ..., whatever was opened and closed before: the limit for 12,000 readers, and half as much again for two
million. An entry is fetched whole, also if it is larger than the part.
"""

BYTES_MAX = 1024 * 1024
#: The sum of 1/n for 12,000 readers.
_READERS_PART = 10


class WindowShares:
    """Of one door."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._count = 0
        #: of the readers that are open
        self.total_bytes = 0

    def opened(self) -> int:
        """The bytes of a reader that is opened now; at least 1."""
        self._count += 1
        share = max(1, min(BYTES_MAX, self._limit_bytes // (_READERS_PART * self._count)))
        self.total_bytes += share
        return share

    def closed(self, share: int) -> None:
        """A reader with this share is closed."""
        self._count -= 1
        self.total_bytes -= share
