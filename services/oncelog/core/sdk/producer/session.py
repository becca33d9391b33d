"""The client's half of the write path: one producer on one topic.

    OPENING -> OPEN -> OPENING -> …      OPENING: see `opening`
       |         |
       +---------+--> FAILED | CLOSED    final

Rules
- An error answer is retriable (the session has ended: open again and resend all pending batches in order), final for
  its batch (the batch fails and is not resent; a producer continues, unless its ids now have a gap) or final for
  the producer (hazard endless-resend).
- Answers of another session number are ignored (hazard marks-of-a-failed-write). Answers with an owner_epoch below the
  highest one that this client has seen are rejected, and the owner is looked up again (hazard deposed-owner-refuses).
- ProducerExpired is final when any pending batch was ever sent (hazard forgotten-producer). Otherwise a new instance
  goes on. It does not fence: an instance that took the name meanwhile is newer, and ProducerBusy is then final.
- last_sequence_id is used only when final, or of the first grant of a lease, as what is stored at least. Resuming never
  lowers the counter of automatic ids (hazard deposed-owner-refuses).
- A grant with a mark below what this producer was told to be stored is final: the log went back (hazard
  log-went-back).
- A producer of a gateway never goes on as a new instance, because its client holds the token of this one; and every
  session that it closes keeps its name for the client, unless the client has closed its own producer.
- A gateway gives the chunks of its client's message one by one, and keeps none that is stored. If the session ends
  before the message that names them is decided, the producer ends: only the client can send all of them again.
- A send deadline fails the caller's result with DeadlineExceeded, which names the latest reason why there is no
  session: the outcome is unknown. The batch itself stays
  pending, unchanged and in its place, because a later id must not overtake it. It still counts towards
  pending_bytes_max, and its later answer is dropped.
- A Fail has `stored=False` only when that is certain: the batch was never sent; or its first and only sending was
  refused, or followed a refused batch of the same session; or its ids are stale. A batch that an earlier sending may
  have stored, or that is unanswered, has `stored=None`.
"""

from enum import Enum
from typing import assert_never

from oncelog.core import errors
from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.core.formats.batch import HEADER_BYTES, IN_CHUNKS, Checksum
from oncelog.core.formats.chunks import names_bytes
from oncelog.core.formats.client_token import needs_level
from oncelog.core.formats.outcome import Outcome, ResultKind, refuses
from oncelog.core.ids import InstanceId, OwnerEpoch, SessionNumber
from oncelog.core.names import is_reserved
from oncelog.core.sdk.owner_attempts import (
    AnswerProgress,
    CloseWanted,
    EpochSeen,
    FailSession,
    LookUpFailed,
    OpenWanted,
    OwnerFound,
    SessionTimerFired,
    StartSessionTimer,
    StreamLost,
    TimerKey,
    TimerKind,
)
from oncelog.core.sdk.producer.events import (
    BatchesAnswered,
    ClientIsThere,
    Complete,
    Fail,
    HoldName,
    NameIsWanted,
    ProducerEffect,
    ProducerEvent,
    ReportOpen,
    ReportWanted,
    SessionClosedByOwner,
    SessionDedupToggled,
)
from oncelog.core.sdk.producer.opening import (
    BATCH_OVERHEAD_BYTES,
    MESSAGE_BYTES_MAX,
    CloseSession,
    OpenRefused,
    ProducerGranted,
    ProducerSettings,
    SessionOpening,
)
from oncelog.core.sdk.producer.pending_batches import BatchReady, PendingBatch, PendingBatches, SendBatches
from oncelog.core.sdk.producer.sequence_assignment import SequenceAssignment, check_initial


class ProducerSessionState(Enum):
    OPENING = "opening"
    OPEN = "open"
    FAILED = "failed"
    CLOSED = "closed"


#: Errors that fail only their batch; every other fatal error ends the producer.
FINAL_FOR_BATCH = (errors.StaleSequence, errors.InvalidArgument)


class ProducerSession:
    """One producer on one topic, from its first open to its end."""

    def __init__(self, settings: ProducerSettings, checksum: Checksum, instance_id: InstanceId) -> None:
        check_initial(settings.initial_sequence_id)
        self.settings = settings
        self.state = ProducerSessionState.OPENING
        #: set while OPEN
        self.session: SessionNumber | None = None
        #: the error that ended the producer
        self.error: OncelogError | None = None
        #: the latest reason why there is no session; None while there is one
        self.trouble: OncelogError | None = None
        self.message_bytes_max = MESSAGE_BYTES_MAX
        #: whether deduplication is enabled for the topic, as the owner last reported, or the name is reserved
        self.deduplication = True
        self.numbers = SequenceAssignment(settings.mode, settings.initial_sequence_id)
        self.opening = SessionOpening(settings, instance_id)
        self.pending = PendingBatches(
            checksum,
            in_flight_count_max=settings.in_flight_count_max,
            in_flight_bytes_max=settings.in_flight_bytes_max,
        )
        self._progress = AnswerProgress(settings.answer_timeout_ms)
        #: chunks that a gateway gave are stored, and the message that names them is not decided
        self._has_stored_chunks = False
        #: the session whose name another client wants, until the gateway has answered
        self._wanted: SessionNumber | None = None
        #: whether the gateway's client has closed its producer
        self._gives_up = False

    def handle(self, event: ProducerEvent) -> list[ProducerEffect]:
        if isinstance(event, BatchReady):
            return self._batch_ready(event)
        if self.state in (ProducerSessionState.FAILED, ProducerSessionState.CLOSED):
            # A late grant: close its session, so that it does not stay open at the owner.
            return [self._closing(event.attempt, event.session)] if isinstance(event, ProducerGranted) else []
        match event:
            case BatchesAnswered():
                return self._batches_answered(event)
            case OpenWanted():
                return [*self.opening.begin(fresh=False)]
            case OwnerFound():
                return self._owner_found(event)
            case LookUpFailed():
                return self._refused(event.error) if self.opening.looks_up(event.attempt) else []
            case ProducerGranted():
                return self._granted(event)
            case OpenRefused():
                return self._open_refused(event)
            case SessionClosedByOwner():
                return self._session_ended(event)
            case StreamLost():
                return self._stream_lost(event)
            case SessionDedupToggled():
                if event.session == self.session:
                    self.deduplication = event.on or is_reserved(self.opening.name or "")
                return []
            case EpochSeen():
                return self._epoch_seen(event.owner_epoch)
            case SessionTimerFired():
                return self._timer_fired(event.key)
            case CloseWanted():
                error, self._gives_up = errors.ProducerClosed("the producer was closed"), event.gives_up_name
                return [*self.opening.withdraw(), *self._end(ProducerSessionState.CLOSED, error)]
            case NameIsWanted():
                if event.session != self.session:
                    return []
                self._wanted = event.session
                return [ReportWanted()]
            case ClientIsThere():
                wanted, self._wanted = self._wanted, None
                is_open = wanted is not None and wanted == self.session
                return [HoldName(self.opening.attempt, wanted)] if wanted is not None and is_open else []
            case _:
                assert_never(event)

    # --- opening ------------------------------------------------------------------------------------------------------

    @property
    def is_bound(self) -> bool:
        """Whether the producer belongs to one topic. A topic created anew under the same name is another log with other
        ids, so it must not be created or used."""
        return self.opening.instance is not None

    def _owner_found(self, event: OwnerFound) -> list[ProducerEffect]:
        if self.is_bound and event.another_topic and self.opening.looks_up(event.attempt):
            message = (
                "the topic was deleted and created again, and the messages of this producer are gone: create another "
                "producer to publish to the new topic"
            )
            return self._fail(errors.TopicNotFound(message))
        retry = self.opening.owner_found(event)
        return [self.opening.request()] if retry is None else [*retry]

    def _granted(self, event: ProducerGranted) -> list[ProducerEffect]:
        unwanted = self._closing(event.attempt, event.session)
        if not self.opening.asks(event.attempt):
            return [unwanted]
        if self.settings.client is not None and not event.for_client:
            error = needs_level("and this owner is of an older version")
            return [CloseSession(event.attempt, event.session), *self._fail(error)]
        instance = self.opening.instance
        believed = event.owner_epoch and self.opening.believes(event.owner_epoch)
        if not believed or (instance is None and not event.final):
            return [unwanted, *self.opening.again()]
        if instance is not None and instance.producer_id != event.producer_id:
            return [unwanted, *self._fail(errors.ProducerExpired("the owner has another producer id for this name"))]
        impossible = self.numbers.refuse_grant(event.last_sequence_id, resumed=instance is not None)
        if impossible is not None:
            return [unwanted, *self._fail(impossible)]
        self.opening.granted(event)
        self.state, self.session, self.trouble = ProducerSessionState.OPEN, event.session, None
        self.message_bytes_max = event.message_bytes_max
        self.deduplication = event.deduplication or is_reserved(event.name)
        self._progress.restart()
        effects: list[ProducerEffect] = []
        if self.numbers.learn(event.last_sequence_id, final=event.final):
            effects.append(ReportOpen(event.name, self.numbers.stored, event.message_bytes_max))
        return effects + self._send()

    def _open_refused(self, event: OpenRefused) -> list[ProducerEffect]:
        if not self.opening.asks(event.attempt):
            return []
        return self._refused(event.error) if self.opening.believes(event.owner_epoch) else [*self.opening.again()]

    def _refused(self, error: OncelogError) -> list[ProducerEffect]:
        """The owner refused the opening, or the look-up failed."""
        self.trouble = error
        renews = not self.numbers.contiguous and self.settings.client is None
        if isinstance(error, errors.ProducerExpired) and renews and not self.pending.any_sent:
            # No pending batch can be a duplicate: a new instance may send them.
            self.opening.start_anew()
            return [*self.opening.again()]
        is_new = not self.numbers.known or self.opening.expired
        if not error.retriable or (isinstance(error, errors.ProducerBusy) and is_new):
            return self._fail(error)
        if isinstance(error, errors.UnknownProducer):
            self.opening.id_unknown = True
        return [*self.opening.again()]

    def _stream_lost(self, event: StreamLost) -> list[ProducerEffect]:
        if event.attempt != self.opening.attempt:
            return []
        self.trouble = event.reason or self.trouble
        return self._reopen()

    def _reopen(self, *, fresh: bool = True) -> list[ProducerEffect]:
        """The session has ended; the next one gets all pending batches, oldest first."""
        self.state, self.session = ProducerSessionState.OPENING, None
        if self._has_stored_chunks:
            message = "the session has ended between the chunks of a message: open the producer again, and send all"
            return self._fail(errors.SessionEnded(message))
        self.pending.restart()
        return [*self.opening.again(fresh=fresh)]

    # --- sending ------------------------------------------------------------------------------------------------------

    def _batch_ready(self, event: BatchReady) -> list[ProducerEffect]:
        if self.error is not None:
            return [Fail(event.request, self.error, stored=False)]
        if not self.numbers.known:
            raise InvariantViolated("a batch before the producer was reported open")
        size_bytes = HEADER_BYTES + len(event.payload) + (len(event.ids.deltas) if event.ids is not None else 0)
        in_chunks = 0
        if event.chunked is not None:
            size_bytes += names_bytes(event.chunked.count)
            in_chunks = len(event.chunked.value)
        refused = self._too_much(size_bytes, in_chunks) or self.numbers.refuse(event.ids, event.count)
        if refused is not None:
            return [Fail(event.request, refused, stored=False)]
        self._has_stored_chunks = self._has_stored_chunks and event.payload_format in IN_CHUNKS
        own_above = self.numbers.own_above
        ids = self.numbers.assign(event.ids, event.count)
        raw_bytes = len(event.payload) if event.payload_raw_bytes is None else event.payload_raw_bytes
        self.pending.add(
            PendingBatch(
                event.request,
                ids,
                event.count,
                event.payload,
                raw_bytes,
                event.compression,
                event.now_ms,
                size_bytes + in_chunks,
                own_above,
                chunked=event.chunked,
                payload_format=event.payload_format,
                unit=event.unit,
            )
        )
        effects = self._send()
        if self.settings.send_timeout_ms is not None:
            effects.append(StartSessionTimer(TimerKey(TimerKind.SEND, event.request), self.settings.send_timeout_ms))
        return effects

    def _too_much(self, size_bytes: int, in_chunks: int) -> OncelogError | None:
        limit = self.message_bytes_max + BATCH_OVERHEAD_BYTES
        if size_bytes > limit:
            message = f"a batch of {size_bytes} bytes exceeds the limit of {limit}"
            return errors.MessageTooLarge(message, field="value", limit=limit)
        limit = self.settings.pending_bytes_max
        if len(self.pending) and self.pending.bytes_total + size_bytes + in_chunks > limit:
            return errors.TooManyRequests(
                f"pending_bytes_max ({limit}) is reached: wait for results of earlier messages",
                field="pending_bytes_max",
                limit=limit,
            )
        return None

    def _send(self) -> list[ProducerEffect]:
        """Send the batches that the window allows, and set a deadline for the owner's answers."""
        if self.session is None or self.opening.instance is None:
            return []
        effects: list[ProducerEffect] = []
        batches = self.pending.take(*self.opening.instance)
        if batches:
            effects.append(SendBatches(self.opening.attempt, self.session, batches))
            if self._progress.before is None:
                effects.append(self._progress.watch(self.opening.attempt))
        return effects

    # --- answers ------------------------------------------------------------------------------------------------------

    def _batches_answered(self, event: BatchesAnswered) -> list[ProducerEffect]:
        if event.session != self.session:
            return []
        if not self.opening.believes(event.owner_epoch):
            return [self._closing(self.opening.attempt, event.session), *self._reopen()]
        effects: list[ProducerEffect] = []
        over: OncelogError | None = None
        fatal: OncelogError | None = None
        refused: int | None = None
        for answered, result in event.answers:
            request = answered
            batch = self.pending.get(request)
            if batch is None and (batch := self.pending.of_chunk(request)) is not None:
                if not isinstance(result, OncelogError) and result[0].kind is ResultKind.CHUNK and result[0].position:
                    self.pending.chunk_stored(request, result[0].position)
                    continue
                if not isinstance(result, OncelogError) or isinstance(result, FINAL_FOR_BATCH):
                    self.pending.chunks_decided(batch)
                request = batch.request
            elif batch is None or not batch.in_flight:
                continue
            if not isinstance(result, OncelogError):
                if batch.count == (result[0].count if len(result) == 1 else sum(part.count for part in result)):
                    effects += self._complete(batch, result)
                else:
                    over = over or errors.ServiceUnavailable(
                        "the owner's answer has another number of messages than the batch"
                    )
            elif isinstance(result, FINAL_FOR_BATCH):
                effects += self._fail_batch(batch, result)
                over = over or errors.SessionEnded("a refused batch ended the session")
                fatal, refused = fatal or (result if self.numbers.leaves_gap(result) else None), request
            elif result.retriable:
                over = over or result
            else:
                fatal, refused = fatal or result, request
        self._progress.count += len(event.answers)
        if fatal is not None:
            return effects + self._fail(fatal, refused)
        return effects + (self._send() if over is None else self._over(over))

    def _complete(self, batch: PendingBatch, outcome: Outcome) -> list[ProducerEffect]:
        self.pending.answered(batch.request)
        self.opening.succeeded()
        if batch.payload_format in IN_CHUNKS:
            self._has_stored_chunks = outcome[-1].kind is ResultKind.CHUNK
        if outcome[-1].kind not in (ResultKind.STALE_SEQUENCE, ResultKind.CHUNK):
            self.numbers.stored = max(self.numbers.stored, batch.ids.last)
        if batch.given_up:
            return []
        if len(outcome) == 1 and outcome[0].kind is ResultKind.STORED:  # nearly every answer
            return [Complete(batch.request, batch.ids, outcome)]
        high_water = self.numbers.stored if refuses(outcome) else None
        repeated = batch.resent and any(part.kind is ResultKind.DUPLICATE for part in outcome)
        if batch.unit:  # all of it, or nothing
            repeated = repeated and batch.own_above < batch.ids.first
        own_above = batch.own_above if repeated else None
        return [Complete(batch.request, batch.ids, outcome, own_above, high_water)]

    def _fail_batch(self, batch: PendingBatch, error: OncelogError) -> list[ProducerEffect]:
        self.pending.answered(batch.request)
        self._has_stored_chunks = self._has_stored_chunks and batch.payload_format not in IN_CHUNKS
        # Other refusals do not exclude that an earlier sending was stored.
        stored = None if batch.resent and not self.numbers.never_stored(error) else False
        return [] if batch.given_up else [Fail(batch.request, error, stored)]

    def _epoch_seen(self, owner_epoch: OwnerEpoch) -> list[ProducerEffect]:
        """A higher epoch means that this session's owner was deposed: its answers are outdated."""
        if not self.opening.learn(owner_epoch) or self.session is None:
            return []
        return [self._closing(self.opening.attempt, self.session), *self._reopen()]

    def _session_ended(self, event: SessionClosedByOwner) -> list[ProducerEffect]:
        if event.session != self.session:
            return []
        if not self.opening.believes(event.owner_epoch):
            return self._reopen()
        return self._over(event.error) if event.error.retriable else self._fail(event.error)

    def _over(self, error: OncelogError) -> list[ProducerEffect]:
        """A retriable error ended the session."""
        self.trouble = error
        oldest, expected = self.pending.oldest, error.details.get("expected")
        if isinstance(error, errors.SequenceGap) and oldest is not None and isinstance(expected, int):
            if expected < oldest.ids.first and not self.numbers.begins_epoch(oldest.ids.first, after=expected - 1):
                # No pending batch closes this gap: resending would be refused for ever (hazard endless-resend).
                return self._fail(error)
        elif isinstance(error, errors.UnknownProducer):
            self.opening.id_unknown = True
        return self._reopen(fresh=isinstance(error, errors.NotOwner | errors.ServiceUnavailable))

    def _timer_fired(self, key: TimerKey) -> list[ProducerEffect]:
        if key.kind is TimerKind.SEND:
            batch = self.pending.get(key.number)
            if batch is None or batch.given_up:
                return []
            batch.given_up = True
            # Also for a batch that was never sent: it stays in its place and will be sent.
            return [Fail(key.number, self._late(), stored=None)]
        if key.kind is not TimerKind.ANSWER:
            withdrawn = self.opening.withdraw() if self.opening.is_over(key) else []
            return [*withdrawn, *self.opening.timer_fired(key)]
        if key.number != self.opening.attempt or self.session is None:
            return []
        again = self._progress.expired(key.number, waiting=self.pending.in_flight_count > 0)
        return [self._closing(key.number, self.session), *self._reopen()] if again is None else [*again]

    def _late(self) -> errors.DeadlineExceeded:
        """For a batch without an answer. It names what the producer waits for, such as a full disk."""
        trouble = self.trouble
        if trouble is None:
            return errors.DeadlineExceeded("no answer within send_timeout")
        late = errors.DeadlineExceeded(f"no answer within send_timeout: {trouble.message}", reason=trouble.code)
        late.__cause__ = trouble
        return late

    # --- the end ------------------------------------------------------------------------------------------------------

    def _closing(self, attempt: int, session: SessionNumber) -> CloseSession:
        return CloseSession(attempt, session, keeps_name=self.settings.client is not None and not self._gives_up)

    def _fail(self, error: OncelogError, refused: int | None = None) -> list[ProducerEffect]:
        return [FailSession(error), *self._end(ProducerSessionState.FAILED, error, refused)]

    def _end(
        self, state: ProducerSessionState, error: OncelogError, refused: int | None = None
    ) -> list[ProducerEffect]:
        """refused: the batch that the owner refused, if any; the owner dropped all later batches of the session."""
        effects: list[ProducerEffect] = []
        if self.session is not None:
            effects.append(self._closing(self.opening.attempt, self.session))
        self.state, self.session, self.error = state, None, error
        for batch in self.pending.drain():
            dropped = refused is not None and batch.request >= refused and not batch.resent
            if not batch.given_up:
                effects.append(Fail(batch.request, error, stored=None if batch.sent and not dropped else False))
        return effects

    def check_invariants(self) -> None:
        """Called after every step of the simulation."""
        self.pending.check_invariants()
        if (self.session is not None) != (self.state is ProducerSessionState.OPEN):
            raise InvariantViolated(f"{self.state.value} with session {self.session}")
        if (self.error is not None) != (self.state in (ProducerSessionState.FAILED, ProducerSessionState.CLOSED)):
            raise InvariantViolated(f"{self.state.value} with error {self.error!r}")
        if self.session is None and self.pending.in_flight_count:
            raise InvariantViolated("something is in flight without a session")
        if self.error is not None and len(self.pending):
            raise InvariantViolated("a producer that is over holds batches")
        if self.numbers.explicit is not None and not self.numbers.known:
            raise InvariantViolated("a batch was numbered before the end of the log was known")
