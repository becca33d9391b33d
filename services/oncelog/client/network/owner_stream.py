"""One stream to one topic owner: it carries all producers, or all consumers, of this client whose topics it serves.

The writer sends all that waits, up to a limit for each frame. What is added while a frame is being written goes into
the next one, so frames grow with the load and no timer delays anything. A stream that ends is not reopened: every
session on it gets StreamLost and looks its owner up again.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

from oncelog.core.errors import OncelogError
from oncelog.core.ids import OwnerEpoch
from oncelog.core.sdk.owner_attempts import StreamLost
from oncelog.rpc.channel import Channel, Stream
from oncelog.runtime.tasks import BackgroundTasks

EventT = TypeVar("EventT")
FrameT = TypeVar("FrameT")
FrameT_co = TypeVar("FrameT_co", covariant=True)
AnswerT = TypeVar("AnswerT")


class Outbox(Protocol[FrameT_co]):
    """What waits to be written, in order."""

    def take(self) -> FrameT_co | None:
        """The next frame, or None when nothing waits."""

    def clear(self) -> None: ...


class Attempt(NamedTuple, Generic[EventT]):
    """A session on the stream, or one that has asked for it. feed: handles an event of the session.

    owner_epoch: as of the answer; 0: unanswered.
    """

    feed: Callable[[EventT | StreamLost], None]
    attempt: int
    owner_epoch: OwnerEpoch = OwnerEpoch(0)


class OwnerStream(ABC, Generic[EventT, FrameT, AnswerT]):
    """The stream, the sessions on it, and what waits to be written."""

    #: for the names of its tasks
    _kind: ClassVar[str]
    #: whether the writer waits for what is added at the end of the event loop's turn
    _gathers: ClassVar[bool] = False

    def __init__(
        self,
        channel: Channel,
        stream: Stream[FrameT, AnswerT],
        outbox: Outbox[FrameT],
        background: BackgroundTasks,
    ) -> None:
        self.alive = True
        self._channel = channel
        self._stream = stream
        self._outbox = outbox
        self._wake = asyncio.Event()
        self._last_call = 0
        #: {call: the session that asked to be opened}
        self._openings: dict[int, Attempt[EventT]] = {}
        #: {its number on this stream: the open session}
        self._sessions: dict[int, Attempt[EventT]] = {}
        #: {session that has ended: done when the owner has answered that}, in the order of their ends
        self._parting: dict[int, asyncio.Future[None]] = {}
        background.start(self._run(background), what=f"{self._kind} stream to {channel.address}")

    @property
    def failure(self) -> OncelogError | None:
        """Why the stream ended; None while it is open, or when the owner ended it without an error."""
        return self._stream.closed

    def close(self) -> None:
        """End the stream, and with it every session on it."""
        self._stream.cancel()

    def _ask(self, feed: Callable[[EventT | StreamLost], None], attempt: int) -> int:
        """The call of a new request to open a session. When the stream is lost, StreamLost follows."""
        self._last_call += 1
        if self.alive:
            self._openings[self._last_call] = Attempt(feed, attempt)
        else:
            asyncio.get_running_loop().call_soon(feed, StreamLost(attempt, self.failure))
        return self._last_call

    def _part(self, session: int) -> None:
        """The client ends this session, and the owner will answer that."""
        self._parting[session] = asyncio.get_running_loop().create_future()

    def _has_parted(self, session: int) -> None:
        """The owner has answered that the session is over."""
        if (parted := self._parting.pop(session, None)) is not None:
            parted.set_result(None)

    async def parted(self) -> None:
        """Return when the owner has answered that the sessions that have ended are over, or the stream is lost."""
        if self._parting:
            await asyncio.wait([next(reversed(self._parting.values()))])

    @abstractmethod
    def _dispatch(self, answer: AnswerT) -> None:
        """Feed the sessions what the owner has sent."""

    def _progressed(self) -> None:
        """A frame was written, or the stream is lost."""
        return

    async def _run(self, background: BackgroundTasks) -> None:
        writing = background.start(self._write(), what=f"{self._kind} writer to {self._channel.address}")
        try:
            async for answer in self._stream:
                self._dispatch(answer)
        except OncelogError:
            # Whatever the reason, every session looks its owner up again; `failure` keeps it for errors.
            pass
        finally:
            writing.cancel()
            self._lost()
            await self._channel.close()

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                if self._gathers:
                    await asyncio.sleep(0)
                self._wake.clear()
                while (frame := self._outbox.take()) is not None:
                    await self._stream.write(frame)
                    self._progressed()
        except OncelogError:
            pass  # the stream has ended
        finally:
            self._stream.cancel()  # whatever happened: the reading side ends, too, and informs the sessions

    def _lost(self) -> None:
        self.alive = False
        self._outbox.clear()  # everything is sent again elsewhere; do not keep its bytes
        for session in list(self._parting):
            self._has_parted(session)
        lost = [*self._openings.values(), *self._sessions.values()]
        self._openings.clear()
        self._sessions.clear()
        for each in lost:
            each.feed(StreamLost(each.attempt, self.failure))
        self._progressed()
