"""The publish stream of one client: frames become events of the topics, and effects become frames.

Reading stops (`client_stream`) while the received bytes without an answer exceed `unanswered_bytes_max`, while the
client does not read its answers, and while the rights of many of its openings are being looked up, because no right to
that memory is proved yet.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, groupby
from typing import TypeAlias, TypeVar

from oncelog.core.access import Caller, Right, caller_for
from oncelog.core.errors import InvariantViolated, OncelogError, PermissionDenied
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.batch_check import BatchLimits
from oncelog.core.formats.client_token import check_level
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import Leased, ProducerOpening
from oncelog.core.ids import OwnerEpoch, SessionNumber
from oncelog.core.names import KAFKA, check_producer_name, is_of_a_program, refuse_reserved_name
from oncelog.core.topic_events.effects import AnswerOpen, BatchAnswer
from oncelog.core.topic_events.events import BatchesReceived, NameHeld, ReceivedBatch, SessionClosed
from oncelog.rpc.codecs.owner_codec import (
    EndedSession,
    OpenDenied,
    OpenGranted,
    OpenRequest,
    PublishAnswers,
    ReceivedPublish,
    Switched,
)
from oncelog.rpc.server import ServerStream
from oncelog.topic_owner.shell.owner_metrics import OwnerMetrics
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.authorization import authorize, is_known_to_have
from oncelog.topic_owner.streams.batch_checks import BatchChecks, Checked
from oncelog.topic_owner.streams.client_stream import ClientStream
from oncelog.topic_owner.streams.write_trace import WriteTrace

#: Room for the batch header and the id deltas, besides one message of the largest size.
BATCH_OVERHEAD_BYTES = 64 * 1024
#: Answers in one frame. An answer with a name and an error message has a few KiB, and a frame at most 16 MiB.
FRAME_ITEMS_MAX = 4096

#: Reading stops while more answers than this wait; the frame being handled may add some.
OUTBOX_ITEMS_MAX = 8192
#: Openings of one stream whose rights are being looked up.
CHECKS_MAX = 1024

ItemT = TypeVar("ItemT")

#: Batches of several sessions of one topic.
_Runs: TypeAlias = list[tuple[SessionNumber, list[ReceivedBatch]]]


class PublishService:
    """Serves all publish streams of this owner."""

    def __init__(
        self,
        topics: TopicRegistry,
        checksum: Checksum,
        metrics: OwnerMetrics,
        *,
        message_bytes_max: int,
        unanswered_bytes_max: int,
        level: Callable[[], int],
    ) -> None:
        """level: of the cluster."""
        self.topics = topics
        self.checks = BatchChecks(checksum, BatchLimits(message_bytes_max + BATCH_OVERHEAD_BYTES), level=level)
        self.level = level
        self.metrics = metrics
        self.message_bytes_max = message_bytes_max
        self.unanswered_bytes_max = unanswered_bytes_max
        #: numbers calls across all streams, because a topic does not distinguish streams
        self.calls = count(1)
        self.streams: set[PublishStream] = set()
        self.trace = WriteTrace(metrics.telemetry)

    async def publish(self, stream: ServerStream[ReceivedPublish, PublishAnswers]) -> None:
        """The handler of one stream. Returns when the client has finished or disconnected."""
        client = PublishStream(self, stream)
        self.streams.add(client)
        try:
            await client.serve()
        finally:
            self.streams.discard(client)


@dataclass(slots=True)
class _AnswerOutbox:
    """What is to be sent."""

    answers: list[BatchAnswer] = field(default_factory=list)
    granted: list[OpenGranted] = field(default_factory=list)
    denied: list[OpenDenied] = field(default_factory=list)
    ended: list[EndedSession] = field(default_factory=list)
    switched: list[Switched] = field(default_factory=list)
    wanted: list[SessionNumber] = field(default_factory=list)

    def __len__(self) -> int:
        news = len(self.granted) + len(self.denied) + len(self.ended) + len(self.switched) + len(self.wanted)
        return len(self.answers) + news

    def take(self) -> PublishAnswers | None:
        """The next frame; None: there is nothing to send. What does not fit goes into later frames, in order."""
        rare = self.granted or self.denied or self.switched or self.wanted or self.ended
        if not rare and len(self.answers) <= FRAME_ITEMS_MAX:
            answers, self.answers = self.answers, []
            return PublishAnswers(answers) if answers else None
        room = FRAME_ITEMS_MAX
        granted, room = _cut(self.granted, room)
        denied, room = _cut(self.denied, room)
        answers, room = _cut(self.answers, room)
        switched, room = _cut(self.switched, room)
        wanted, room = _cut(self.wanted, room)
        ended, room = _cut(self.ended, room)
        return PublishAnswers(answers, granted, denied, ended, switched, wanted) if room < FRAME_ITEMS_MAX else None


def _cut(waiting: list[ItemT], room: int) -> tuple[list[ItemT], int]:
    """Remove the first `room` items. Returns them, and the room that is left."""
    taken = waiting[:room]
    del waiting[:room]
    return taken, room - len(taken)


class _Session:
    """One open session of this stream: its topic and producer, and the bytes of each request without an answer.

    timed: (first request of a frame, when it arrived in ns) of the one frame whose latency is being taken.
    """

    __slots__ = ("producer_name", "runner", "timed", "unanswered")

    def __init__(self, runner: TopicRunner, producer_name: str) -> None:
        self.runner = runner
        self.producer_name = producer_name
        self.unanswered: dict[int, int] = {}
        self.timed: tuple[int, int] | None = None


def _rights_for(opening: ProducerOpening) -> tuple[Right, ...]:
    if opening.name is not None and is_of_a_program(opening.name):
        return Right.PRODUCE, Right.CONSUME
    return (Right.PRODUCE,)


def _check_request(request: OpenRequest, caller: Caller, level: int) -> None:
    """caller: of the stream. level: of the cluster. Raises InvalidName for a name that no producer can have,
    PermissionDenied for one that the caller may not open, and InvalidArgument below the level that it needs."""
    name, epoched = request.producer_name, request.mode is SequenceMode.EPOCHED
    if name is not None:
        check_producer_name(name)
    if epoched and not (caller.superuser and request.client is not None and (name or "").startswith(KAFKA)):
        message = f"mode epoched is for gateways, which open producers for clients of Kafka under names {KAFKA}…"
        raise PermissionDenied(message, field="mode")
    stated = request.on_behalf_of is not None
    if name is not None and not epoched and (stated or not caller.superuser):
        refuse_reserved_name(name, stated=stated)
    if request.client is not None:
        check_level(level)


def _comes_back(opening: ProducerOpening) -> bool:
    """Whether it is of a gateway's client that may have a grant: with a token or, of Kafka, under the same instance id
    as ever. It is told what is stored, and no entry is written for it: an owner that does not know that it was deposed
    would tell it what was (hazard deposed-owner-refuses)."""
    client = opening.client
    return client is not None and (client.token is not None or opening.mode is SequenceMode.EPOCHED)


class OpenRequests:
    """The unanswered requests to open of one stream, by the topic's call and by the client's open id."""

    def __init__(self) -> None:
        #: {call: (open id, the topic that has the request; None: it is not sent to the topic yet)}
        self._of_call: dict[int, tuple[int, TopicRunner | None]] = {}
        self._calls: dict[int, int] = {}

    def add(self, call: int, open_id: int) -> None:
        self._of_call[call] = (open_id, None)
        self._calls[open_id] = call

    def asked(self, call: int, runner: TopicRunner) -> bool:
        """The topic gets the request now. Returns False if the client has withdrawn it."""
        open_id, _ = self._of_call.get(call, (None, None))
        if open_id is None:
            return False
        self._of_call[call] = (open_id, runner)
        return True

    def pop(self, call: int) -> int | None:
        """The open id of a request that has an answer. None: it was withdrawn."""
        open_id, _ = self._of_call.pop(call, (None, None))
        if open_id is not None and self._calls.get(open_id) == call:
            del self._calls[open_id]
        return open_id

    def cancel(self, open_id: int) -> None:
        """The client has withdrawn the request. Requests that have an answer, or never arrived, are ignored."""
        call = self._calls.pop(open_id, None)
        if call is None:
            return
        _, runner = self._of_call.pop(call)
        if runner is not None:
            runner.abandon(call)

    def cancel_all(self) -> None:
        for open_id in list(self._calls):
            self.cancel(open_id)


class PublishStream(ClientStream[ReceivedPublish, PublishAnswers]):
    """One client's stream. Receives the answers of all its sessions (the topics' SessionSink)."""

    def __init__(self, service: PublishService, stream: ServerStream[ReceivedPublish, PublishAnswers]) -> None:
        self._out = _AnswerOutbox()
        super().__init__(stream, self._out.take)
        self._service = service
        self._sessions: dict[SessionNumber, _Session] = {}
        self._opening = OpenRequests()
        self._unanswered_bytes = 0

    # --- from the client ----------------------------------------------------------------------------------------------

    async def take(self, frame: ReceivedPublish) -> None:
        """Give each topic the batches of its sessions, in order, as one event: a step of the topic costs as much as the
        check of a small batch."""
        for opening in frame.opens:
            self._open(opening)
        for open_id in frame.cancels:
            self._opening.cancel(open_id)
        for number in frame.closes_keeping:
            self._close_session(number, keeps_name=True)
        for number in frame.closes:
            self._close_session(number)
        for number in frame.held:
            if (session := self._sessions.get(number)) is not None:
                session.runner.post(NameHeld(number))
        if not frame.batches:
            return
        self._service.metrics.counts.frames_received += 1
        began_ns = time.time_ns()
        checked = await self._service.checks.check(frame, self._sessions)
        arrival = (began_ns, time.time_ns())
        taken: dict[TopicRunner, _Runs] = {}
        at = 0
        for number, run in groupby(frame.sessions):
            size = len(list(run))
            session = self._sessions.get(number)
            if session is not None:
                of_run = slice(at, at + size)
                received, refused = self._received(
                    session, zip(frame.requests[of_run], frame.batches[of_run], checked[of_run], strict=True), began_ns
                )
                if received:
                    taken.setdefault(session.runner, []).append((number, received))
                if refused is not None:
                    self._post(taken, arrival)
                    taken = {}
                    if number in self._sessions:
                        self._refuse(number, session, *refused)
            at += size
        self._post(taken, arrival)

    @property
    def is_full(self) -> bool:
        """Earlier requests wait for the storage nodes, the policies or the client."""
        return (
            self._unanswered_bytes > self._service.unanswered_bytes_max
            or len(self._out) > OUTBOX_ITEMS_MAX
            or len(self._checks) > CHECKS_MAX
        )

    def _open(self, request: OpenRequest) -> None:
        call = next(self._service.calls)
        self._opening.add(call, request.open_id)
        try:
            _check_request(request, self.stream.caller, self._service.level())
            caller = caller_for(self.stream.caller, request.on_behalf_of)
            runner = self._service.topics.runner(request.topic_id, request.topic)
        except OncelogError as error:
            self._deny(call, error, OwnerEpoch(0))
            return
        opening = ProducerOpening(
            call,
            request.producer_name,
            request.mode,
            request.on_conflict,
            request.resume,
            request.present,
            request.owner_epoch_seen,
            request.instance_id,
            caller.role,
            growths=request.growths,
            initial_mark=request.initial_mark,
            peer=self.stream.caller.address,
            client=request.client,
        )
        if not _comes_back(opening) and all(is_known_to_have(runner, caller, right) for right in _rights_for(opening)):
            self._ask(runner, opening, caller)
        else:
            self.check(
                partial(self._open_checked, runner, opening, caller),
                refused=lambda error: self._deny(call, error, runner.owner_epoch),
            )

    async def _open_checked(self, runner: TopicRunner, opening: ProducerOpening, caller: Caller) -> None:
        await authorize(runner, caller, Right.PRODUCE)
        for right in _rights_for(opening)[1:]:
            try:
                await authorize(runner, caller, right)
            except PermissionDenied as error:
                prefix = (opening.name or "").partition("/")[0]
                message = f"{error.message}; a producer with a name that begins with {prefix}/ needs it besides produce"
                raise PermissionDenied(message, field="producer_name") from error
        if _comes_back(opening):
            await runner.ownership_proofs.until_current(opening.owner_epoch_seen)
        self._ask(runner, opening, caller)

    def _ask(self, runner: TopicRunner, opening: ProducerOpening, caller: Caller) -> None:
        if self._opening.asked(opening.call, runner):
            any_name = is_known_to_have(runner, caller, Right.ADMIN)
            elsewhere = self._service.topics.producers.elsewhere(runner)
            runner.open(replace(opening, takes_any_name=any_name, producers_elsewhere=elsewhere), self)

    def _close_session(self, number: SessionNumber, *, keeps_name: bool = False) -> None:
        session = self._forget(number)
        if session is not None:
            session.runner.sinks.pop(number, None)
            session.runner.post(SessionClosed(number, keeps_name))
            self._out.ended.append(EndedSession(number, None, session.runner.owner_epoch))
            self._wake.set()

    def _received(
        self, session: _Session, batches: Iterable[tuple[int, memoryview, Checked]], began_ns: int
    ) -> tuple[list[ReceivedBatch], tuple[int, OncelogError] | None]:
        """Count consecutive batches of one session. Returns those before the first invalid one, and that one's request
        and error. began_ns: when the frame arrived."""
        received: list[ReceivedBatch] = []
        refused: tuple[int, OncelogError] | None = None
        received_bytes = 0
        for request, data, checked in batches:
            if checked is None:
                break  # the session began after the check, so the client cannot have known its number
            if isinstance(checked, OncelogError):
                refused = (request, checked)
                break
            received.append(ReceivedBatch(request, checked, data))
            session.unanswered[request] = len(data)
            received_bytes += len(data)
        self._unanswered_bytes += received_bytes
        self._service.metrics.counts.bytes_received += received_bytes
        if received and session.timed is None:
            session.timed = (received[0].request, began_ns)
        return received, refused

    def _post(self, taken: dict[TopicRunner, _Runs], arrival: tuple[int, int]) -> None:
        """arrival: when the frame arrived and when its batches were checked, ns."""
        began_ns, checked_ns = arrival
        for runner, runs in taken.items():
            runner.post(BatchesReceived(runs))
            if not self._service.metrics.telemetry.exports_spans:
                continue
            for number, received in runs:
                session, first = self._sessions.get(number), received[0].request
                self._service.trace.checked(
                    runner, number, first, began_ns=began_ns, validated_ns=checked_ns,
                    waits=session is not None and first in session.unanswered,
                )  # fmt: skip

    def _refuse(self, number: SessionNumber, session: _Session, request: int, error: OncelogError) -> None:
        """A batch that cannot be decoded ends its session, as every refused batch does."""
        session.runner.sinks.pop(number, None)
        session.runner.post(SessionClosed(number, keeps_name=True))
        self._forget(number)
        self._service.metrics.counts.answered(error)
        self._out.answers.append(BatchAnswer(number, request, error))
        self._out.ended.append(EndedSession(number, error, session.runner.owner_epoch))
        self._wake.set()

    # --- from the topics (SessionSink) --------------------------------------------------------------------------------

    def opened(self, call: int, runner: TopicRunner, answer: AnswerOpen) -> None:
        granted = answer.result
        if isinstance(granted, OncelogError):
            self._deny(call, granted, runner.owner_epoch)
            return
        if isinstance(granted, Leased):
            raise InvariantViolated("a stream asks for no leases")
        open_id = self._opening.pop(call)
        if open_id is None or self.finished:
            runner.post(SessionClosed(granted.session, keeps_name=True))
            return
        self._sessions[granted.session] = _Session(runner, granted.name)
        runner.sinks[granted.session] = self
        self._out.granted.append(
            OpenGranted(
                open_id,
                granted.session,
                granted.name,
                granted.instance.producer_id,
                granted.instance.generation,
                granted.last_sequence_id,
                granted.final,
                runner.owner_epoch,
                runner.topic_id,
                self._service.message_bytes_max,
                deduplication_off=not runner.core.dedup_enabled,
                growths=granted.growths,
                for_client=granted.for_client,
            )
        )
        self._wake.set()

    def _deny(self, call: int, error: OncelogError, owner_epoch: OwnerEpoch) -> None:
        open_id = self._opening.pop(call)
        if open_id is not None:
            self._out.denied.append(OpenDenied(open_id, error, owner_epoch))
            self._wake.set()

    def answered(self, answer: BatchAnswer) -> None:
        session = self._sessions.get(answer.session)
        if session is None:
            return
        self._service.metrics.counts.answered(answer.result)
        if self._service.metrics.telemetry.exports_spans:
            self._service.trace.answered(session.runner, answer.session, answer.request)
        if session.timed is not None and session.timed[0] == answer.request:
            self._service.metrics.published((time.time_ns() - session.timed[1]) / 1e9)
            session.timed = None
        self._unanswered_bytes -= session.unanswered.pop(answer.request, 0)
        self.give_room()
        self._out.answers.append(answer)
        self._wake.set()

    def ended(self, session: SessionNumber, error: OncelogError, owner_epoch: OwnerEpoch) -> None:
        if self._forget(session) is not None:
            self._out.ended.append(EndedSession(session, error, owner_epoch))
            self._wake.set()

    def switched(self, session: SessionNumber, *, on: bool) -> None:
        self._out.switched.append(Switched(session, off=not on))
        self._wake.set()

    def wanted(self, session: SessionNumber) -> None:
        self._out.wanted.append(session)
        self._wake.set()

    def _forget(self, number: SessionNumber) -> _Session | None:
        session = self._sessions.pop(number, None)
        if session is not None:
            self._unanswered_bytes -= sum(session.unanswered.values())
            self.give_room()
            self._service.trace.forget(number)
        return session

    def close(self) -> None:
        """End the client's sessions and withdraw its requests to open."""
        self._opening.cancel_all()
        for number, session in list(self._sessions.items()):
            self._forget(number)
            session.runner.sinks.pop(number, None)
            session.runner.post(SessionClosed(number, keeps_name=True))
