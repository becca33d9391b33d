"""One publish stream to one topic owner: it carries all producers of this client whose topics that owner serves.

The writer sends all waiting batches, up to about 1 MiB a frame. Batches that arrive while a frame is being written go
into the next one, so frames grow with the load and no timer delays a batch. A stream that ends is not reopened: every
producer on it gets StreamLost and looks its owner up again.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from oncelog.client.network.epochs import OwnerEpochs
from oncelog.core.errors import OncelogError, SessionEnded
from oncelog.core.ids import OwnerEpoch, SessionNumber
from oncelog.core.sdk.owner_attempts import StreamLost
from oncelog.core.sdk.producer.events import BatchesAnswered, ProducerEvent, SessionClosedByOwner, SessionDedupToggled
from oncelog.core.sdk.producer.opening import OpenRefused, ProducerGranted
from oncelog.rpc.channel import Channel, Stream
from oncelog.rpc.options import FRAME_BYTES_TARGET
from oncelog.rpc.owner_codec import (
    CLOSES_MAX,
    OPENS_MAX,
    PUBLISH,
    EndedSession,
    OpenGranted,
    OpenRequest,
    PublishFrame,
    ReceivedAnswers,
)
from oncelog.runtime.tasks import BackgroundTasks

#: Batches of one frame. While the owner checks them, the client packs the next ones: with 1,000 producers that wait for
#: their answers, larger frames would make the client, the owner and the storage nodes take turns.
FRAME_BATCHES_MAX = 256


class SessionUser(Protocol):
    """The connection's view of a producer."""

    def feed(self, event: ProducerEvent) -> None: ...


class _Opening(NamedTuple):
    user: SessionUser
    attempt: int


class _Granted(NamedTuple):
    user: SessionUser
    attempt: int
    owner_epoch: OwnerEpoch


class _Outbox:
    """Everything that waits to be written, in order."""

    def __init__(self) -> None:
        self.opens: list[OpenRequest] = []
        self.closes: list[SessionNumber] = []
        self.cancels: list[int] = []
        self.batches: deque[tuple[SessionNumber, int, bytes]] = deque()
        self.batches_bytes = 0

    def take(self) -> PublishFrame | None:
        """The next frame, or None when nothing waits."""
        if not (self.batches or self.opens or self.closes or self.cancels):
            return None
        sessions: list[SessionNumber] = []
        requests: list[int] = []
        blobs: list[bytes] = []
        size_bytes = 0
        while self.batches and len(blobs) < FRAME_BATCHES_MAX:
            session, request, data = self.batches[0]
            if blobs and (size_bytes >= FRAME_BYTES_TARGET or len(data) > FRAME_BYTES_TARGET):
                break
            self.batches.popleft()
            size_bytes += len(data)
            sessions.append(session)
            requests.append(request)
            blobs.append(data)
        self.batches_bytes -= size_bytes
        cancels = self.cancels[:CLOSES_MAX]
        frame = PublishFrame(sessions, requests, blobs, self.opens[:OPENS_MAX], self.closes[:CLOSES_MAX], cancels)
        self.opens, self.closes = self.opens[OPENS_MAX:], self.closes[CLOSES_MAX:]
        self.cancels = self.cancels[CLOSES_MAX:]
        return frame


class OwnerConnection:
    """The stream, the sessions on it, and what waits to be written."""

    def __init__(self, channel: Channel, background: BackgroundTasks, epochs: OwnerEpochs) -> None:
        self.alive = True
        self._epochs = epochs
        self._channel = channel
        self._stream: Stream[PublishFrame, ReceivedAnswers] = channel.stream(PUBLISH)
        self._outbox = _Outbox()
        self._wake = asyncio.Event()
        #: {open id: the producer that asked}
        self._openings: dict[int, _Opening] = {}
        self._sessions: dict[SessionNumber, _Granted] = {}
        #: each is called once, when the writer has room again
        self._room_wanted: list[Callable[[], None]] = []
        self._last_open_id = 0
        background.start(self._run(background), what=f"publish stream to {self.address}")

    @property
    def address(self) -> str:
        return self._channel.address

    @property
    def failure(self) -> OncelogError | None:
        """Why the stream ended; None while it is open, or when the owner ended it without an error."""
        return self._stream.closed

    # --- for producers ------------------------------------------------------------------------------------------------

    def open(self, request: OpenRequest, user: SessionUser, attempt: int) -> int:
        """Ask for a session; ProducerGranted, OpenRefused or StreamLost follows. Returns the request's open id."""
        self._last_open_id += 1
        open_id = self._last_open_id
        if not self.alive:
            asyncio.get_running_loop().call_soon(user.feed, StreamLost(attempt, self.failure))
            return open_id
        self._openings[open_id] = _Opening(user, attempt)
        self._outbox.opens.append(request._replace(open_id=open_id))
        self._wake.set()
        return open_id

    def withdraw(self, open_id: int) -> None:
        """Give up a request. If its session was granted meanwhile, the session is closed when the grant arrives."""
        if self._openings.pop(open_id, None) is None or not self.alive:
            return
        waiting = len(self._outbox.opens)
        self._outbox.opens = [request for request in self._outbox.opens if request.open_id != open_id]
        if len(self._outbox.opens) == waiting:
            self._outbox.cancels.append(open_id)
            self._wake.set()

    def send(self, session: SessionNumber, batches: tuple[tuple[int, bytes], ...]) -> None:
        if self.alive:
            outbox = self._outbox
            for request, data in batches:
                outbox.batches.append((session, request, data))
                outbox.batches_bytes += len(data)
            self._wake.set()

    def end_session(self, session: SessionNumber) -> None:
        if self.alive and self._sessions.pop(session, None) is not None:
            self._outbox.closes.append(session)
            self._wake.set()

    @property
    def has_room(self) -> bool:
        """Whether less than one frame waits, besides the frame that is being written."""
        return self._outbox.batches_bytes < FRAME_BYTES_TARGET

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when less than a frame waits or the stream is lost."""
        self._room_wanted.append(callback)

    # --- the stream ---------------------------------------------------------------------------------------------------

    async def _run(self, background: BackgroundTasks) -> None:
        writing = background.start(self._write(), what=f"publish writer to {self.address}")
        try:
            async for answers in self._stream:
                self._dispatch(answers)
        except OncelogError:
            # Whatever the reason, every producer looks its owner up again and resends; `failure` keeps it for errors.
            pass
        finally:
            writing.cancel()
            self._lost()
            await self._channel.close()

    async def _write(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while (frame := self._outbox.take()) is not None:
                    await self._stream.write(frame)
                    if self._room_wanted and self.has_room:
                        self._call_room_wanted()
        except OncelogError:
            pass  # the stream has ended
        finally:
            self._stream.cancel()  # whatever happened: the reading side ends, too, and informs the producers

    def _call_room_wanted(self) -> None:
        wanted, self._room_wanted = self._room_wanted, []
        for callback in wanted:
            callback()

    def _dispatch(self, frame: ReceivedAnswers) -> None:
        """In the frame's order: granted, denied, answers, switched, ended."""
        for granted in frame.granted:
            self._granted(granted)
        for denied in frame.denied:
            asked = self._openings.pop(denied.open_id, None)
            if asked is not None:
                asked.user.feed(OpenRefused(asked.attempt, denied.error, denied.owner_epoch))
        for session, answers in frame.answers.items():
            holder = self._sessions.get(session)
            if holder is not None:
                holder.user.feed(BatchesAnswered(session, answers, holder.owner_epoch))
        for switched in frame.switched:
            holder = self._sessions.get(switched.session)
            if holder is not None:
                holder.user.feed(SessionDedupToggled(switched.session, not switched.off))
        for ended in frame.ended:
            self._ended(ended)

    def _granted(self, granted: OpenGranted) -> None:
        self._epochs.learn(granted.topic_id, granted.owner_epoch)
        asked = self._openings.pop(granted.open_id, None)
        if asked is None:
            self._outbox.closes.append(granted.session)
            self._wake.set()
            return
        self._sessions[granted.session] = _Granted(asked.user, asked.attempt, granted.owner_epoch)
        asked.user.feed(
            ProducerGranted(
                asked.attempt,
                granted.session,
                granted.producer_name,
                granted.producer_id,
                granted.generation,
                granted.last_sequence_id,
                granted.final,
                granted.owner_epoch,
                granted.message_bytes_max,
                deduplication=not granted.deduplication_off,
                growths=granted.growths,
            )
        )

    def _ended(self, ended: EndedSession) -> None:
        holder = self._sessions.pop(ended.session, None)
        if holder is not None:
            error = ended.error or SessionEnded("the owner ended the session")
            holder.user.feed(SessionClosedByOwner(ended.session, error, ended.owner_epoch))

    def close(self) -> None:
        """End the stream, and with it every session on it."""
        self._stream.cancel()

    def _lost(self) -> None:
        self.alive = False
        self._outbox = _Outbox()  # the batches are resent elsewhere; do not keep their bytes
        holders = [(asked.user, asked.attempt) for asked in self._openings.values()]
        holders += [(granted.user, granted.attempt) for granted in self._sessions.values()]
        self._openings.clear()
        self._sessions.clear()
        for user, attempt in holders:
            user.feed(StreamLost(attempt, self.failure))
        self._call_room_wanted()
