"""One stream of adds to one storage node, for every ledger of this process.

    put --> queue --writer: queued adds, in frames of about 256 KiB--> node --reader--> on_answer
    broken, refused, or too many unanswered bytes --> over: on_over names the ledgers with unanswered adds

Rules
- Adds are sent once. Adds that are unanswered when the stream ends are never sent again: the writer of the ledger
  continues without this member (`core.chain.managed_ledger`).
- A stalled peer delays no caller: `put` never blocks, and `unanswered_bytes_max` limits the queue.
- A stream that is over cannot be reopened; the next one is another object.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from oncelog.core.errors import OncelogError, ServiceUnavailable
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import HEADER_BYTES
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.ledger.writer import Add
from oncelog.rpc.channel import Channel, Stream
from oncelog.rpc.codecs.storage_codec import APPEND, AppendAnswer, AppendFrame
from oncelog.rpc.options import FRAME_BYTES_TARGET
from oncelog.runtime.tasks import start

logger = logging.getLogger(__name__)

#: (member, ledger, entries, their status)
OnAnswer = Callable[[Incarnation, LedgerId, list[EntryId], AppendStatus], None]
OnOver = Callable[["AppendStream", list[LedgerId]], None]


class AppendStream:
    """Open from its creation. `on_over` is called once, on the event loop, and nothing is called after it."""

    def __init__(
        self,
        channel: Channel,
        member: Incarnation,
        *,
        on_answer: OnAnswer,
        on_over: OnOver,
        unanswered_bytes_max: int,
    ) -> None:
        self.member = member
        self.over = False
        self._stream: Stream[AppendFrame, list[AppendAnswer]] = channel.stream(APPEND)
        self._on_answer = on_answer
        self._on_over = on_over
        self._unanswered_bytes_max = unanswered_bytes_max
        self._queue: deque[tuple[Buffer, Buffer]] = deque()
        self._queued = asyncio.Event()
        #: {ledger: {entry: its bytes}} of queued and sent adds without an answer; no empty inner dicts
        self._unanswered: dict[LedgerId, dict[EntryId, int]] = {}
        self._unanswered_bytes = 0
        self._tasks = {
            start(work, what="the stream of adds to a storage node") for work in (self._write(), self._read())
        }

    @property
    def unanswered_bytes(self) -> int:
        return self._unanswered_bytes

    def put(self, ledger_id: LedgerId, adds: Sequence[Add]) -> None:
        """Queue the entries. If too many bytes are unanswered, end the stream instead."""
        assert not self.over
        unanswered = self._unanswered.setdefault(ledger_id, {})
        for add in adds:
            size = HEADER_BYTES + len(add.parts[1])
            unanswered[add.entry_id] = size
            self._unanswered_bytes += size
            self._queue.append(add.parts)
        if self._unanswered_bytes > self._unanswered_bytes_max:
            error = f"storage node stalled: {self._unanswered_bytes} bytes are unanswered"
            self.end(ServiceUnavailable(error))
        else:
            self._queued.set()

    def end(self, error: OncelogError) -> None:
        """End the stream. May be called again."""
        if self.over:
            return
        self.over = True
        self._stream.cancel()
        self._queue.clear()
        self._queued.set()
        lost = list(self._unanswered)
        self._unanswered.clear()
        if lost:
            logger.warning("adds to storage node %s failed for ledgers %s: %s", self.member, lost, error.message)
        self._on_over(self, lost)

    async def join(self) -> None:
        """After `end`: return when its tasks have ended."""
        await asyncio.wait(self._tasks)

    async def _write(self) -> None:
        queue = self._queue
        try:
            while True:
                while not queue and not self.over:
                    self._queued.clear()
                    await self._queued.wait()
                if self.over:
                    return
                await self._stream.write(AppendFrame(self.member, False, self._next_frame()))
        except OncelogError as error:
            self.end(error)

    def _next_frame(self) -> list[tuple[Buffer, Buffer]]:
        queue = self._queue
        entries: list[tuple[Buffer, Buffer]] = []
        size = 0
        while queue and size < FRAME_BYTES_TARGET:
            parts = queue.popleft()
            entries.append(parts)
            size += HEADER_BYTES + len(parts[1])
        return entries

    async def _read(self) -> None:
        try:
            async for answers in self._stream:
                if self.over:
                    return
                for ledger_id, entry_ids, status in answers:
                    self._settle(ledger_id, entry_ids)
                    self._on_answer(self.member, ledger_id, list(entry_ids), status)
            self.end(ServiceUnavailable("the storage node ended the stream"))
        except OncelogError as error:
            self.end(error)

    def _settle(self, ledger_id: LedgerId, entry_ids: Sequence[EntryId]) -> None:
        unanswered = self._unanswered.get(ledger_id)
        if unanswered is None:
            return
        for entry_id in entry_ids:
            self._unanswered_bytes -= unanswered.pop(entry_id, 0)
        if not unanswered:
            del self._unanswered[ledger_id]
