"""The budget of the streams of this owner, on the process's event loop, and the caller whose part each stream takes."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any

from oncelog.core.stream_budget import StreamBudget, StreamOutbox
from oncelog.rpc.options import FRAME_BYTES_TARGET as PAGE_BYTES
from oncelog.rpc.server import ServerStream
from oncelog.runtime.telemetry import Telemetry


class StreamRooms:
    """One for the process: consume and read streams share it."""

    def __init__(self, *, bytes_max: int, caller_streams_max: int) -> None:
        self.budget = StreamBudget(bytes_max, caller_streams_max=caller_streams_max, room_returned=self._wake_soon)
        self._waking = False

    def open(self, stream: ServerStream[Any, Any], *, woken: Callable[[Hashable], None]) -> StreamOutbox:
        """Raises TooManyRequests."""
        return self.budget.open(_caller_of(stream), woken=woken)

    def _wake_soon(self) -> None:
        if not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._waking = False
        self.budget.wake()

    def observe(self, telemetry: Telemetry) -> None:
        """Register the instruments."""
        budget = self.budget
        telemetry.observe_level(
            "stream_bytes", "Bytes that wait until consumers and readers read them", lambda: budget.bytes
        )
        telemetry.observe_level(
            "look_ahead_bytes",
            "Bytes of entries that were read for subscriptions and wait for credit",
            lambda: budget.kept_bytes,
        )
        telemetry.observe_level("streams", "Open streams of consumers and readers", lambda: budget.stream_count)
        telemetry.observe_level(
            "streams_waiting",
            "Streams of consumers and readers that hold nothing and wait for a part of the budget",
            lambda: budget.waiting_count,
        )


class ReadRoom:
    """The part of one read stream: a page at a time."""

    def __init__(self, rooms: StreamRooms, stream: ServerStream[Any, Any]) -> None:
        """Raises TooManyRequests."""
        self._outbox = rooms.open(stream, woken=self._woken)
        self._granted = asyncio.Event()

    async def reserve(self) -> None:
        """Wait until another page may be read, and take its room."""
        self._granted.clear()
        if not self.try_reserve():
            await self._granted.wait()

    def try_reserve(self) -> bool:
        """Take the room of another page if there is some; False: `reserve` waits for it."""
        if not self._outbox.bytes:  # else it has its room already
            if not self._outbox.ask(self):
                return False
            self._woken(self)
        return True

    def _woken(self, _waiter: Hashable) -> None:
        # Taken here, because others are woken before the stream's task goes on.
        self._outbox.take(PAGE_BYTES)
        self._granted.set()

    def hold(self, size: int) -> None:
        """A page of this size was read."""
        self._outbox.take(size)
        self._outbox.give_back(self._outbox.bytes - size)

    def clear(self) -> None:
        """Nothing is held any more."""
        self._outbox.give_back(self._outbox.bytes)

    def close(self) -> None:
        self._outbox.close()


def _caller_of(stream: ServerStream[Any, Any]) -> str:
    """The role, or without authentication the host: all connections of one host are one caller."""
    return f"role {stream.caller.role}" if stream.caller.role else f"host {stream.peer.rpartition(':')[0]}"
