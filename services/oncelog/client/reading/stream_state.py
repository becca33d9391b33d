"""The state of a reader that outlives its streams: gaps, names of producers, and what the owner is told next."""

import asyncio
from collections import deque
from typing import NamedTuple

from oncelog.client.values.corruption import Corruption
from oncelog.client.values.messages import StoredBatch
from oncelog.core.errors import LedgerUnavailable, OncelogError
from oncelog.core.ids import OwnerEpoch, Position, ProducerId
from oncelog.rpc.channel import Stream
from oncelog.rpc.codecs.reader_codec import ReadControl, ReceivedEntries, StorageResume

#: Gaps that a reader keeps; older ones are only counted.
GAPS_MAX = 1000


class Gap(NamedTuple):
    """Indexes of a topic without a message, between two messages that a reader received, or between the place at which
    it was to start and its first message. One gap may follow another at once.

    Attributes:
        first_index, last_index: the first and the last index that is missing. first_index is None when the reader was
            to start at a message id that was trimmed: how many messages behind it are gone is unknown, perhaps none.
        given_up: whether an operator has given up a ledger (`oncelog admin ledger end`) or storage nodes (`backup
            restore --absent`), so that acknowledged messages
            may be lost; otherwise the messages were trimmed.
    """

    first_index: int | None
    last_index: int
    given_up: bool

    def __str__(self) -> str:
        if self.first_index is None:
            first = self.last_index + 1
            return (
                f"the start was trimmed, and the first message kept is {first}: messages between them, if any, are gone"
            )
        if self.given_up:
            return (
                f"messages may be missing: an operator has given up a ledger or storage nodes, and the numbers "
                f"{self.first_index} to {self.last_index} are left out"
            )
        return f"messages {self.first_index} to {self.last_index} are gone: they were trimmed"


class Gaps(NamedTuple):
    """total: the number of gaps that a reader met. newest: the last 1000 of them, oldest first."""

    total: int
    newest: tuple[Gap, ...]


NO_GAPS = Gaps(0, ())


class Arrived(NamedTuple):
    """from_owner: it counts as permitted bytes."""

    stored: StoredBatch
    size_bytes: int
    first_batch_index: int
    from_owner: bool = True


class StreamState:
    """One per reader."""

    def __init__(self, corruption: Corruption, gaps: Gaps) -> None:
        self.corruption = corruption
        #: owner_epoch of the stream's owner
        self.serving_epoch = OwnerEpoch(0)
        self.names: dict[ProducerId, str] = {}
        self.received = asyncio.Event()
        self.trouble: OncelogError | None = None
        #: position of the last received entry
        self.last: Position | None = None
        #: reported by the owner, and not raised to the application yet
        self.unavailable: LedgerUnavailable | None = None
        self.gaps: deque[Gap] = deque(gaps.newest, maxlen=GAPS_MAX)
        self.gaps_count = gaps.total
        self.due_bytes = 0
        #: bytes of arrived entries that the owner did not send, and that the application has not taken
        self.stored_bytes = 0
        #: producers whose names the owner does not know
        self.nameless: set[ProducerId] = set()
        #: the answer to an offer that is not sent yet
        self.resume: StorageResume | None = None
        self._granted = asyncio.Event()
        self._taken = asyncio.Event()

    async def next_taken(self) -> None:
        """Return when the application has taken another entry."""
        self._taken.clear()
        await self._taken.wait()

    def taken(self, arrived: Arrived) -> None:
        """The application took an entry."""
        self._taken.set()
        if arrived.from_owner:
            self.grant(arrived.size_bytes)
        else:
            self.stored_bytes -= arrived.size_bytes

    async def room(self, window_bytes: int) -> int:
        """Wait until half of the window is free of entries that the owner did not send, and return its room."""
        while self.stored_bytes > window_bytes // 2:
            await self.next_taken()
        return max(window_bytes - self.stored_bytes, 1)

    def answer(self, resume: StorageResume) -> None:
        """Tell the owner where to go on after an offer."""
        self.resume = resume
        self._granted.set()

    def grant(self, size_bytes: int) -> None:
        self.due_bytes += size_bytes
        self._granted.set()

    async def grant_permits(self, stream: Stream[ReadControl, ReceivedEntries], at_least_bytes: int) -> None:
        """Permit the owner as many bytes as the application has taken, at least `at_least_bytes` at a time. Also sends
        the answers to offers."""
        while True:
            await self._granted.wait()
            self._granted.clear()
            if self.due_bytes >= at_least_bytes or self.resume is not None:
                due_bytes, self.due_bytes = self.due_bytes, 0
                resume, self.resume = self.resume, None
                try:
                    await stream.write(ReadControl(None, due_bytes, resume))
                except OncelogError:
                    return  # the reading side gets the reason
