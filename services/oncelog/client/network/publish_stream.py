"""The publish stream to one topic owner: openings and batches of producers, and their answers."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from oncelog.client.network.epochs import OwnerEpochs
from oncelog.client.network.owner_stream import OwnerStream
from oncelog.core.errors import SessionEnded
from oncelog.core.ids import SessionNumber
from oncelog.core.sdk.producer.events import (
    BatchesAnswered,
    NameIsWanted,
    ProducerEvent,
    SessionClosedByOwner,
    SessionDedupToggled,
)
from oncelog.core.sdk.producer.opening import OpenRefused, ProducerGranted
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import (
    CLOSES_MAX,
    OPENS_MAX,
    PUBLISH,
    EndedSession,
    OpenGranted,
    OpenRequest,
    PublishFrame,
    ReceivedAnswers,
)
from oncelog.rpc.options import FRAME_BYTES_TARGET
from oncelog.runtime.tasks import BackgroundTasks

#: Batches of one frame. While the owner checks them, the client packs the next ones: with 1,000 producers that wait for
#: their answers, larger frames would make the client, the owner and the storage nodes take turns.
FRAME_BATCHES_MAX = 256


@dataclass(slots=True)
class _Outbox:
    """Batches of a frame are up to about 1 MiB."""

    opens: list[OpenRequest] = field(default_factory=list)
    closes: list[SessionNumber] = field(default_factory=list)
    closes_keeping: list[SessionNumber] = field(default_factory=list)
    held: list[SessionNumber] = field(default_factory=list)
    cancels: list[int] = field(default_factory=list)
    batches: deque[tuple[SessionNumber, int, bytes]] = field(default_factory=deque)
    batches_bytes: int = 0

    def clear(self) -> None:
        self.opens, self.closes, self.cancels, self.batches_bytes = [], [], [], 0
        self.closes_keeping, self.held = [], []
        self.batches.clear()

    def take(self) -> PublishFrame | None:
        """The next frame, or None when nothing waits."""
        if not (self.batches or self.opens or self.closes or self.cancels or self.closes_keeping or self.held):
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
        frame = PublishFrame(
            sessions, requests, blobs, self.opens[:OPENS_MAX], self.closes[:CLOSES_MAX], cancels,
            self.closes_keeping[:CLOSES_MAX], self.held[:CLOSES_MAX],
        )  # fmt: skip
        self.opens, self.closes = self.opens[OPENS_MAX:], self.closes[CLOSES_MAX:]
        self.cancels = self.cancels[CLOSES_MAX:]
        self.closes_keeping, self.held = self.closes_keeping[CLOSES_MAX:], self.held[CLOSES_MAX:]
        return frame


class PublishStream(OwnerStream[ProducerEvent, PublishFrame, ReceivedAnswers]):
    """Sessions are producers."""

    _kind = "publish"
    _outbox: _Outbox

    def __init__(self, channel: Channel, background: BackgroundTasks, epochs: OwnerEpochs) -> None:
        super().__init__(channel, channel.stream(PUBLISH), _Outbox(), background)
        self._epochs = epochs
        #: each is called once, when the writer has room again
        self._room_wanted: list[Callable[[], None]] = []

    # --- for producers ------------------------------------------------------------------------------------------------

    def open(self, request: OpenRequest, feed: Callable[[ProducerEvent], None], attempt: int) -> int:
        """Ask for a session; ProducerGranted, OpenRefused or StreamLost follows. Returns the request's open id."""
        open_id = self._ask(feed, attempt)
        if self.alive:
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

    def end_session(self, session: SessionNumber, *, keeps_name: bool) -> None:
        if self.alive and self._sessions.pop(session, None) is not None:
            (self._outbox.closes_keeping if keeps_name else self._outbox.closes).append(session)
            self._part(session)
            self._wake.set()

    def hold_name(self, session: SessionNumber) -> None:
        """Tell the owner that the client of this session is there."""
        if self.alive and session in self._sessions:
            self._outbox.held.append(session)
            self._wake.set()

    @property
    def has_room(self) -> bool:
        """Whether less than one frame waits, besides the frame that is being written."""
        return self._outbox.batches_bytes < FRAME_BYTES_TARGET

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when less than a frame waits or the stream is lost."""
        self._room_wanted.append(callback)

    # --- the owner ----------------------------------------------------------------------------------------------------

    def _progressed(self) -> None:
        if self._room_wanted and self.has_room:
            wanted, self._room_wanted = self._room_wanted, []
            for callback in wanted:
                callback()

    def _dispatch(self, answer: ReceivedAnswers) -> None:
        """In the frame's order: granted, denied, answers, switched, wanted, ended."""
        for granted in answer.granted:
            self._granted(granted)
        for denied in answer.denied:
            asked = self._openings.pop(denied.open_id, None)
            if asked is not None:
                asked.feed(OpenRefused(asked.attempt, denied.error, denied.owner_epoch))
        for session, answers in answer.answers.items():
            holder = self._sessions.get(session)
            if holder is not None:
                holder.feed(BatchesAnswered(session, answers, holder.owner_epoch))
        for switched in answer.switched:
            holder = self._sessions.get(switched.session)
            if holder is not None:
                holder.feed(SessionDedupToggled(switched.session, not switched.off))
        for wanted in answer.wanted:
            if (holder := self._sessions.get(wanted)) is not None:
                holder.feed(NameIsWanted(wanted))
        for ended in answer.ended:
            self._ended(ended)

    def _granted(self, granted: OpenGranted) -> None:
        self._epochs.learn(granted.topic_id, granted.owner_epoch)
        asked = self._openings.pop(granted.open_id, None)
        if asked is None:
            # It may be of a client of a gateway that comes back. Of others the owner keeps no name, and an owner of an
            # older version knows `closes` only.
            self._outbox.closes_keeping.append(granted.session)
            self._outbox.closes.append(granted.session)
            self._wake.set()
            return
        self._sessions[granted.session] = asked._replace(owner_epoch=granted.owner_epoch)
        asked.feed(
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
                for_client=granted.for_client,
            )
        )

    def _ended(self, ended: EndedSession) -> None:
        self._has_parted(ended.session)
        holder = self._sessions.pop(ended.session, None)
        if holder is not None:
            error = ended.error or SessionEnded("the owner ended the session")
            holder.feed(SessionClosedByOwner(ended.session, error, ended.owner_epoch))
