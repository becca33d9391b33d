"""One topic at its owner: gives each event to the part that handles it, and moves between the phases.

    IDLE --assigned--> READING --record names me--> RECOVERING --> OPENING --linked--> SERVING
    SERVING --ledger failed or rolled--> (the managed ledger closes it and opens the next one) --> SERVING
    OPENING | SERVING --suspicion, the record read again still names me--> RECOVERING, else DEPOSED
    RECOVERING --failed, the record read again still names me--> WAITING (TopicFailed) --timer--> READING
    SERVING --drain: last snapshot, last answers, all ledgers closed--> CLOSED

Rules: the owner acknowledges only what the ack quorum of a ledger holds unfenced, so a suspicion makes no
acknowledgement wrong: it stops the writes to the record. There is one path for every failure of a write: close, roll
back to the fold, end every session, open the next ledger, let clients resend. `handle` is called on the one task of the
topic; `now_ms` is that event's time. All parts emit their effects into one list (`effects.Step`).
"""

from enum import Enum
from hashlib import blake2b
from typing import get_args

from oncelog.core.chain.next_ledger import DeleteLedgers, LedgerPurpose, ManagedLedgerSettings, NextLedger
from oncelog.core.chain.ownership import (
    AcksLinked,
    Deposed,
    Linked,
    Owned,
    Ownership,
    OwnershipConfirmed,
    Paged,
    Trimmed,
)
from oncelog.core.chain.replay import TakeoverFailed
from oncelog.core.delivery.events import (
    AdminRequest,
    AnswerAdmin,
    AnswerSeek,
    AnswerSubscribe,
    ConsumerOpening,
    SeekRequested,
)
from oncelog.core.errors import OncelogError, SessionEnded, TopicLoading
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.opening import ProducerOpening
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import ConsumerNumber, Incarnation, LedgerId, SessionNumber, TopicId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.publishing.expiry import EXPIRY_TIMER
from oncelog.core.publishing.held_names import NAME_TIMER
from oncelog.core.publishing.opening_queue import OpeningQueue, superseded
from oncelog.core.publishing.reconnect_grace import RETURN_TIMER
from oncelog.core.records.records import RecordRead, RecordWritten, TopicKey, kind_of
from oncelog.core.snapshots.taken_over import TakenOver
from oncelog.core.topic.serving import Serving, TopicSettings
from oncelog.core.topic.takeover import CURSOR_TIMER, Handlers, Takeover
from oncelog.core.topic.ticks import Ticks
from oncelog.core.topic_events.effects import (
    AnswerOpen,
    AnswerTruncate,
    DeletePages,
    ExplainDelay,
    NotifyDedupToggled,
    Served,
    StartTopicTimer,
    Step,
    TakeoverPhase,
    TakeoverPhaseEnded,
    TopicClosed,
    TopicDeposed,
    TopicEffect,
    TopicFailed,
)
from oncelog.core.topic_events.events import (
    DedupToggled,
    DrainRequested,
    HigherEpochReported,
    OpeningAbandoned,
    OpeningsDelayed,
    PoliciesChanged,
    ProducerRemovalRequested,
    SnapshotRequested,
    TopicAssigned,
    TopicEvent,
    TopicTimerFired,
    TrimBelowRequested,
    TruncateRequested,
)

RETRY_TIMER = "retry"

#: Requests that need a topic that serves.
_Refused = (
    ConsumerOpening | AdminRequest | TruncateRequested | TrimBelowRequested | SnapshotRequested
    | ProducerRemovalRequested
)  # fmt: skip


class Phase(Enum):
    IDLE = "idle"
    READING = "reading"
    RECOVERING = "recovering"
    OPENING = "opening"
    SERVING = "serving"
    WAITING = "waiting"
    CLOSED = "closed"
    DEPOSED = "deposed"


class Topic:
    """Takes one event at a time and returns the effects to perform."""

    def __init__(
        self,
        topic_id: TopicId,
        me: Incarnation,
        settings: TopicSettings,
        checksum: Checksum,
        *,
        first_session: SessionNumber,
        nodes: StorageNodesUpdated,
        dedup_enabled: bool = True,
    ) -> None:
        self._step = step = Step()
        self.phase = Phase.IDLE
        self.ownership = Ownership(topic_id, me, step.emit)
        self.settings = settings
        self._ticks = Ticks(step, settings.tick_ms, settings.idle_tick_ms)
        self._checksum = checksum
        self.nodes = nodes
        self.dedup_enabled = dedup_enabled
        self.policies = TopicPolicies()
        self.takeover: Takeover | None = None
        self._attempts = 0
        #: why the last takeover failed, until TopicFailed
        self._failure = TakeoverFailed("")
        self.serving: Serving | None = None
        #: openings that came before the topic serves
        self.early = OpeningQueue()
        self._next_session = first_session
        #: consumers are numbered apart from sessions, from the same number on
        self._next_consumer = ConsumerNumber(first_session)
        #: and so are the subscriptions that are created here
        self._next_subscription = int(first_session)
        #: the first tick at which the topic did not serve; None while it serves
        self._not_serving_since_ms: int | None = None
        #: of every phase but the ends
        self._always: Handlers = {
            TopicAssigned: self._assigned,
            (RecordRead, TopicKey): self._record_read,
            (RecordWritten, TopicKey): self._record_written,
            StorageNodesUpdated: self._nodes_updated,
            HigherEpochReported: self._higher_epoch_reported,
            DedupToggled: self._dedup_toggled,
            PoliciesChanged: self._policies_changed,
            DrainRequested: self._drain,
            TopicTimerFired: self._timer_fired,
            OpeningsDelayed: self._delay_openings,
            ProducerOpening: self._open_early,
            OpeningAbandoned: self._abandon_early,
            **dict.fromkeys(get_args(_Refused), self._refuse_consumer),
        }
        #: of the present phase
        self._handlers: Handlers = self._always

    def handle(self, event: TopicEvent, *, now_ms: int) -> list[TopicEffect]:
        """Take one event and return what to do; an event that came too late is ignored."""
        step = self._step
        step.now_ms = now_ms
        handler = self._handlers.get(kind_of(event))
        if handler is not None:
            if not isinstance(event, TopicTimerFired):
                self._ticks.wake()
            handler(event)
            if self.serving is not None:
                self.serving.end_step()
            if step.reads_ownership:
                self._read_ownership()
        return step.take()

    # --- ownership ----------------------------------------------------------------------------------------------------

    def _assigned(self, event: TopicAssigned) -> None:
        """Read the record. A repeated assignment matters only if the record has a newer epoch."""
        if self.phase is Phase.IDLE:
            self._step.emit(TakeoverPhaseEnded(TakeoverPhase.ACQUIRE))
            self.ownership.gave_up(event.given_up)
            self.phase = Phase.READING
            self._ticks.begin()
        self.ownership.read()

    def _record_read(self, event: RecordRead[TopicKey, TopicRecord]) -> None:
        match self.ownership.record_read(event):
            case Owned():
                self._owned()
            case OwnershipConfirmed():
                if self.serving is not None:
                    self.serving.openings.ownership_confirmed()
            case Deposed(reason):
                self._end(Phase.DEPOSED, reason)

    def _record_written(self, event: RecordWritten[TopicKey, TopicRecord]) -> None:
        match self.ownership.record_written(event):
            case Linked(_, instead) if self.serving is not None:
                self._linked(self.serving, instead)
            case AcksLinked(_, instead) if self.serving is not None:
                self.serving.acks.linked()
                if instead is not None:
                    self.serving.unlisted(instead)
            case Paged(page) if self.serving is not None:
                self.serving.space.paging.paged(page)
            case Trimmed(ledger_ids):
                if ledger_ids:
                    self._step.emit(DeleteLedgers(ledger_ids))
                # Also those of an earlier trim, whose owner has ended before it had deleted them.
                self._step.emit(DeletePages(self.ownership.record.deleted_below))
                if self.serving is not None:
                    self.serving.trimmed()

    def _higher_epoch_reported(self, _event: HigherEpochReported) -> None:
        if self.serving is not None:
            self.ownership.suspect()

    def _read_ownership(self) -> None:
        """Read the record for the requests that wait for it now. Later requests need the next read."""
        self._step.reads_ownership = False
        if self.ownership.read() and self.serving is not None:
            self.serving.openings.ownership_read_begun()

    # --- taking over --------------------------------------------------------------------------------------------------

    def _owned(self) -> None:
        """The record names this owner: recover, whatever was going on before."""
        if self.phase is Phase.WAITING:
            self._step.emit(TopicFailed(self._failure))
            self._step.emit(StartTopicTimer(RETRY_TIMER, self.settings.retry_ms))
            return
        if self.serving is not None and self.serving.draining:
            self._end(Phase.CLOSED, "the process is draining")
            return
        self._leave(SessionEnded("the topic is being recovered: open again and resend what is pending"))
        self._give_up()
        if self.phase is Phase.SERVING:
            self._step.emit(TakeoverPhaseEnded(TakeoverPhase.ACQUIRE))
        self.phase = Phase.RECOVERING
        self._attempts += 1
        takeover = self.takeover = self._new_takeover()
        self._handlers = {**self._always, **takeover.handlers}
        takeover.start()
        takeover.next_ledger.prepare()

    def _new_takeover(self) -> Takeover:
        record, settings = self.ownership.record, self.settings
        last = record.ledgers[-1].ledger_id if record.ledgers else LedgerId(-1)
        of_log = ManagedLedgerSettings(
            LedgerPurpose.LOG, record.topic_id, record.owner_epoch, settings.write_quorum, settings.ack_quorum,
            self._checksum, settings.rule_of(LedgerPurpose.LOG),
        )  # fmt: skip
        next_ledger = NextLedger(of_log, last_ledger=last, nodes=self.nodes, emit=self._step.emit)
        return Takeover(
            self._step, record, next_ledger, checksum=self._checksum, done=self._takeover_done,
            recent_bytes_max=settings.snapshot.recent_bytes_max, cursor_timeout_ms=settings.cursor_timeout_ms,
            cursor_timeout_ms_max=settings.cursor_timeout_ms_max, number=self._attempts,
        )  # fmt: skip

    def _give_up(self) -> None:
        """End an attempt at a takeover, if there is one."""
        takeover, self.takeover = self.takeover, None
        self._handlers = self._always
        if takeover is not None:
            takeover.next_ledger.drop()

    def _takeover_done(self, result: TakenOver | TakeoverFailed) -> None:
        if isinstance(result, TakeoverFailed):
            self.phase, self._failure = Phase.WAITING, result
            self._give_up()
            self.ownership.suspect()
            return
        takeover, self.takeover = self.takeover, None
        assert takeover is not None, "a takeover ends that never began"
        self.phase = Phase.OPENING
        serving = self.serving = Serving(
            self._step, self.ownership, result, self.settings, self._checksum, next_ledger=takeover.next_ledger,
            first_session=self._next_session, first_consumer=self._next_consumer, new_id=self._new_subscription_id,
            dedup_enabled=self.dedup_enabled, policies=self.policies, drained=self._drained,
        )  # fmt: skip
        self._handlers = {**self._always, **serving.handlers()}
        serving.start()
        # From here on they wait where their repeats and withdrawals find them.
        for opening in self.early.take_all():
            serving.openings.open(opening)

    def _new_subscription_id(self) -> str:
        """An id that no other subscription ever has: an owner epoch belongs to one process, which never counts from the
        beginning again, also when it takes the topic over once more at the same epoch."""
        record = self.ownership.record
        identity = f"{record.topic_id}/{record.owner_epoch}/{self._next_subscription}"
        self._next_subscription += 1
        return blake2b(identity.encode(), digest_size=16).hexdigest()

    def _linked(self, serving: Serving, instead: LedgerId | None) -> None:
        if instead is not None:
            serving.unlisted(instead)
        if self.phase is Phase.OPENING:
            self.phase = Phase.SERVING
            self._step.emit(Served(serving.log.table.state.position))
        serving.linked()

    # --- openings that wait for the takeover --------------------------------------------------------------------------

    def _open_early(self, event: ProducerOpening) -> None:
        if len(self.early) >= self.settings.early_openings_max:
            error = TopicLoading("too many producers wait for the topic already: try again")
            self._step.emit(AnswerOpen(event.call, error))
            return
        _, former = self.early.add(event)
        if former is not None:
            self._step.emit(AnswerOpen(former, superseded()))

    def _abandon_early(self, event: OpeningAbandoned) -> None:
        self.early.remove(event.call)

    def _check_delay(self) -> None:
        """Requests to open wait for a while; then their clients learn why."""
        serving, now_ms = self.serving, self._step.now_ms
        if serving is not None and serving.log.open:
            self._not_serving_since_ms = None
        elif self._not_serving_since_ms is None:
            self._not_serving_since_ms = now_ms
        elif now_ms - self._not_serving_since_ms >= self.settings.openings_wait_max_ms and len(
            self.early if serving is None else serving.openings.waiting
        ):
            self._step.emit(ExplainDelay())

    def _delay_openings(self, event: OpeningsDelayed) -> None:
        """Answer the openings that a topic which cannot serve keeps waiting; their clients retry."""
        if self.serving is None:
            self._refuse_early(event.error)
        elif not self.serving.log.open:
            self.serving.openings.refuse_all(event.error)

    def _refuse_early(self, error: OncelogError) -> None:
        for opening in self.early.take_all():
            self._step.emit(AnswerOpen(opening.call, error))

    # --- while it serves ----------------------------------------------------------------------------------------------

    def _nodes_updated(self, nodes: StorageNodesUpdated) -> None:
        self.nodes = nodes
        if self.serving is not None:
            self.serving.update_nodes(nodes)
        elif self.takeover is not None:
            self.takeover.next_ledger.update_nodes(nodes)

    def _dedup_toggled(self, event: DedupToggled) -> None:
        changed, self.dedup_enabled = event.enabled is not self.dedup_enabled, event.enabled
        if self.serving is not None:
            self.serving.log.table.dedup_enabled = event.enabled
            if changed:
                self._step.emit(NotifyDedupToggled(event.enabled))

    def _policies_changed(self, event: PoliciesChanged) -> None:
        self.policies = event.policies
        if self.serving is not None:
            self.serving.follow(event.policies)

    def _timer_fired(self, event: TopicTimerFired) -> None:
        key = event.key
        if self._ticks.awaits(key):
            self._tick()
        elif key == RETRY_TIMER:
            if self.phase is Phase.WAITING:
                self.phase = Phase.READING
                self.ownership.suspect()
        elif key.startswith(CURSOR_TIMER):
            if self.takeover is not None:
                self.takeover.handle(event)
        elif key.startswith(RETURN_TIMER) and self.serving is not None:
            self.serving.return_over(key)
        elif key.startswith(NAME_TIMER) and self.serving is not None:
            self.serving.openings.names.time_over(key)
        elif key.startswith(EXPIRY_TIMER) and self.serving is not None:
            self.serving.openings.expiry.period_ended(key)

    def _tick(self) -> None:
        idle = False
        if self.serving is not None and self.phase is Phase.SERVING:
            self.serving.tick()
            idle = self.serving.idle
        elif self.takeover is not None:
            self.takeover.tick()
        self._ticks.again(idle=idle)
        self._check_delay()

    # --- ends ---------------------------------------------------------------------------------------------------------

    def _drain(self, _event: DrainRequested) -> None:
        if self.phase is Phase.SERVING and self.serving is not None:
            self.serving.drain()
        else:
            self._end(Phase.CLOSED, "the process is draining")

    def _drained(self) -> None:
        self._end(Phase.CLOSED, "it was closed")

    def _end(self, phase: Phase, reason: str) -> None:
        self.phase = phase
        error = self.ownership.lost(reason)
        self._leave(error)
        self._give_up()
        self._refuse_early(error)
        self._handlers = {ProducerOpening: self._refuse}
        self._handlers |= dict.fromkeys(get_args(_Refused), self._refuse_consumer)
        self._step.emit(TopicClosed() if phase is Phase.CLOSED else TopicDeposed(reason))

    def _leave(self, error: OncelogError) -> None:
        """End what was served here; the numbers of sessions and consumers go on upwards."""
        serving, self.serving = self.serving, None
        if serving is not None:
            self._next_session = serving.sessions.next_session
            self._next_consumer = serving.subscriptions.next_consumer
            serving.end(error)

    def _refuse(self, event: ProducerOpening) -> None:
        self._step.emit(AnswerOpen(event.call, self.ownership.lost("look it up again")))

    def _refuse_consumer(self, event: _Refused) -> None:
        """The topic does not serve yet, or not any more. Clients ask again."""
        error: OncelogError = TopicLoading("the topic is being taken over: try again")
        if self.phase in (Phase.CLOSED, Phase.DEPOSED):
            error = self.ownership.lost("look it up again")
        match event:
            case ConsumerOpening():
                self._step.emit(AnswerSubscribe(event.call, error))
            case SeekRequested():
                self._step.emit(AnswerSeek(event.call, error))
            case TruncateRequested() | TrimBelowRequested():
                self._step.emit(AnswerTruncate(event.call, 0, error))
            case _:
                self._step.emit(AnswerAdmin(event.call, error))

    def check_invariants(self) -> None:
        if self.serving is not None:
            self.serving.check_invariants()


def open_ledger(topic: Topic) -> LedgerMetadata | None:
    """The ledger whose members can prove that this owner is the current one; None while there is none.

    A caller that gets the same object again later knows that the ledger was open in between.
    """
    if topic.phase is not Phase.SERVING or topic.serving is None or not topic.serving.log.ledgers.open:
        return None
    writer = topic.serving.log.ledgers.writer
    return None if writer is None else writer.metadata
