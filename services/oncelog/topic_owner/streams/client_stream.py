"""The skeleton of a client's stream: one task reads what the client sends, another one sends what waits for it.

    --frames--> receive: take(frame) --events--> topics --answers--> outbox, _wake --frames--> send

Rules
- Answers coalesce while a frame is being sent.
- Reading stops while `is_full`. The client's window, and gRPC's flow control behind it, then hold the rest back.
- Rights are looked up in tasks (`check`), so that the other topics of the stream do not wait for this one.
- When the client has finished or disconnected, `close` is called once, and the running checks end. What waits then is
  still sent where that is possible (`sends_rest`).
- An error in any task ends all of them, and the stream with it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import ClassVar, Generic, TypeVar

from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.rpc.server import ServerStream

ReceivedT = TypeVar("ReceivedT")
FrameT = TypeVar("FrameT")


class ClientStream(ABC, Generic[ReceivedT, FrameT]):
    """One client's stream."""

    #: whether what waits is sent after the client has finished; False: `send` is cancelled then
    sends_rest: ClassVar[bool] = True

    def __init__(
        self, stream: ServerStream[ReceivedT, FrameT], next_frame: Callable[[], FrameT | None] = lambda: None
    ) -> None:
        """next_frame: takes the next frame out of the outbox; None: nothing waits. It is called when the former one is
        with gRPC."""
        self.stream = stream
        #: whether the client has finished or disconnected
        self.finished = False
        self._next_frame = next_frame
        #: set when something waits to be sent
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._waits_for_room = False
        #: set while the stream is served
        self._tasks: asyncio.TaskGroup
        self._checks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Returns when the client has finished or disconnected, or when `send` has returned."""
        async with asyncio.TaskGroup() as self._tasks:
            # Not kept in `self`: a cancelled task refers to its frames, which refer to the stream.
            receiving, sending = self._tasks.create_task(self._receive()), self._tasks.create_task(self.send())
            try:
                await asyncio.wait((receiving, sending), return_when=asyncio.FIRST_COMPLETED)
            finally:
                self.finished = True
                for check in self._checks:
                    check.cancel()
                self.close()
                self._wake.set()
            receiving.cancel()
            if not self.sends_rest:
                sending.cancel()

    @abstractmethod
    async def take(self, frame: ReceivedT) -> None:
        """Handle one frame of the client."""

    @property
    def is_full(self) -> bool:
        """Whether to stop reading: earlier requests wait for the topics, for checks, or for the client."""
        return False

    def close(self) -> None:
        """The client has finished or disconnected."""
        return

    # --- from the client ----------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        async for frame in self.stream:
            await self.take(frame)
            while self.is_full:
                self._waits_for_room = True
                self._room.clear()
                await self._room.wait()
            self._waits_for_room = False

    def give_room(self) -> None:
        """Something does not wait any more: read on, if that was the reason to stop."""
        if self._waits_for_room and not self.is_full:
            self._room.set()

    def check(self, work: Callable[[], Coroutine[None, None, None]], refused: Callable[[OncelogError], None]) -> None:
        """Begin to look up rights, or what else a request needs. refused: gets the error of `work`."""
        task = self._tasks.create_task(_checked(work, refused))
        self._checks.add(task)
        task.add_done_callback(self._check_ended)

    def _check_ended(self, task: "asyncio.Task[None]") -> None:
        self._checks.discard(task)
        self.give_room()

    # --- to the client ------------------------------------------------------------------------------------------------

    async def send(self) -> None:
        """Send what waits, until the client has finished and nothing waits any more."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            frame = self._next_frame()
            while frame is not None:
                await self.stream.write(frame)
                frame = self._next_frame()
                if self._waits_for_room:
                    self.give_room()
            if self.finished:
                return


async def _checked(work: Callable[[], Coroutine[None, None, None]], refused: Callable[[OncelogError], None]) -> None:
    try:
        await work()
    except InvariantViolated:
        raise
    except OncelogError as error:
        refused(error)
