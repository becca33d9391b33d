"""A connection of a client that is cheaper than any client library: what it sends is built before the run, and of what
it receives little is read.

A client library would be the bottleneck of some rows: it packs batches and makes an object of each message.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from struct import Struct
from typing import cast

from oncelog_lab.bench.baseline import DRAIN_S
from oncelog_lab.failures import LabFailed

#: In front of each frame: the bytes behind it.
SIZE = Struct(">I")


class BareConnection(asyncio.Protocol):
    """receipts, messages: received so far."""

    def __init__(self) -> None:
        self.receipts = self.messages = 0
        self._failed: str | None = None
        self._buffer = bytearray()
        self._changed = asyncio.Event()

    def _take(self, at: int, end: int) -> None:
        """A whole frame of `_buffer` was received, from its size on."""
        raise NotImplementedError

    async def publish(self, frames: Sequence[bytes], window: int) -> float:
        """Send these frames, `window` of them at a time. Returns seconds, until the last receipt. Raises LabFailed."""
        began, sent, before = time.perf_counter(), 0, self.receipts
        while (answered := self.receipts - before) < len(frames):
            ends = min(len(frames), answered + window)
            self._transport.writelines(frames[sent:ends])
            sent = ends
            await self._until(lambda seen=before + answered: self.receipts > seen)  # type: ignore[misc]
        return time.perf_counter() - began

    def close(self) -> None:
        self._transport.close()

    def check(self) -> None:
        """Raises LabFailed if the connection is lost."""
        if self._failed is not None:
            raise LabFailed(self._failed)

    async def _until(self, done: Callable[[], bool]) -> None:
        """Raises LabFailed if nothing is received for DRAIN_S."""
        try:
            while not done():
                self.check()
                self._changed.clear()
                async with asyncio.timeout(DRAIN_S):
                    await self._changed.wait()
        except TimeoutError as late:
            raise LabFailed(f"the door has sent nothing for {DRAIN_S:.0f} s") from late

    # --- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        buffer, at = self._buffer, 0
        buffer += data
        while len(buffer) - at >= SIZE.size:
            end = at + SIZE.size + SIZE.unpack_from(buffer, at)[0]
            if end > len(buffer):
                break
            self._take(at, end)
            at = end
        del buffer[:at]
        self._changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._failed = self._failed or f"the door has closed the connection: {error or 'without an error'}"
        self._changed.set()
