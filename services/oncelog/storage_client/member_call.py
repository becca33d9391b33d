"""One streaming read of one member, with its next frame as a future, so that two members can be waited for at once."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from oncelog.core.ids import EntryId, Incarnation
from oncelog.rpc.storage_codec import ReceivedRead


class MemberCall:
    """first: the first entry that was requested. open_stream: may raise, for a node without an address."""

    def __init__(
        self, member: Incarnation, first: EntryId, open_stream: Callable[[], AsyncGenerator[ReceivedRead, None]]
    ) -> None:
        self.member = member
        self.first = first
        #: whether the stream has ended
        self.over = False
        #: when the next frame was requested, by the loop's clock; how long the last one took
        self.expected_s = 0.0
        self.waited_s = 0.0
        self._open_stream = open_stream
        self._frames: AsyncGenerator[ReceivedRead, None] | None = None
        self.arrival: asyncio.Task[ReceivedRead | None]
        self.expect()

    def expect(self) -> None:
        """Request the next frame."""
        loop = asyncio.get_running_loop()
        self.expected_s = loop.time()
        self.arrival = loop.create_task(self._next())

    async def _next(self) -> ReceivedRead | None:
        if self._frames is None:
            self._frames = self._open_stream()
        return await anext(self._frames, None)

    def take(self) -> ReceivedRead | None:
        """The frame that arrived; None: the stream has ended. Raises the error of the stream."""
        self.waited_s = asyncio.get_running_loop().time() - self.expected_s
        self.over = True
        frame = self.arrival.result()
        self.over = frame is None
        return frame

    async def close(self) -> None:
        """End the stream."""
        self.arrival.cancel()
        await asyncio.wait([self.arrival])
        if not self.arrival.cancelled():
            self.arrival.exception()  # it is of no interest any more
        if self._frames is not None:
            await self._frames.aclose()
