"""The shell of one topic: one queue of events, one core, and the execution of the core's effects.

Events are handled one after the other on the process's event loop, in the call that posts them. An event that an effect
posts waits until the earlier ones are handled. Nothing is awaited between an event and its effects. Time is the wall
clock in ms, because append times are stored; no safety decision depends on it.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from oncelog.core.access import Permissions
from oncelog.core.chain.managed_ledger import AckQuorumLost, SendAdds
from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.errors import (
    EntriesLost,
    InvalidBatch,
    InvariantViolated,
    LedgerUnavailable,
    LogHole,
    OncelogError,
    TopicNotFound,
    UnreadableEntry,
)
from oncelog.core.formats.batch import Checksum, decode_ids, deltas_of, peek_batch
from oncelog.core.formats.entry import body_of
from oncelog.core.formats.opening import Granted, ProducerOpening
from oncelog.core.ids import Incarnation, OwnerEpoch, Position, SessionNumber, TopicId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.topic.serving import TopicSettings
from oncelog.core.topic.topic import RETRY_TIMER, Topic
from oncelog.core.topic.wait_reasons import WaitReason
from oncelog.core.topic_events.effects import (
    AnswerBatches,
    AnswerOpen,
    BatchAnswer,
    CursorRecoveryTimedOut,
    EndSession,
    ExplainDelay,
    LastAddConfirmed,
    NameWanted,
    NotifyDedupToggled,
    ReadEntryIds,
    Served,
    SessionFenced,
    SnapshotTaken,
    StartTopicTimer,
    TakeoverPhase,
    TakeoverPhaseEnded,
    TopicClosed,
    TopicDeposed,
    TopicFailed,
)
from oncelog.core.topic_events.events import (
    EntryIdsRead,
    OpeningAbandoned,
    OpeningsDelayed,
    SessionClosed,
    TopicAssigned,
    TopicEvent,
    TopicTimerFired,
)
from oncelog.runtime.observing.events import EventKind
from oncelog.storage_client.reader import read_entry
from oncelog.topic_owner.shell.delivery_shell import DeliveryShell
from oncelog.topic_owner.shell.effect_executor import EffectExecutor, OwnerParts
from oncelog.topic_owner.shell.entry_cache import CacheBudget, EntryCache
from oncelog.topic_owner.shell.ledger_list import LedgerList
from oncelog.topic_owner.shell.log_view import ReadableLog
from oncelog.topic_owner.shell.ownership_proofs import OwnershipProofs
from oncelog.topic_owner.shell.progress import TopicProgress
from oncelog.topic_owner.shell.retention_shell import RetentionShell
from oncelog.topic_owner.shell.takeover_trace import TakeoverTrace
from oncelog.topic_owner.shell.verification_job import VerificationJob

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Timers of at least this length fire up to COARSE_S later, those of all topics together: a wake-up of the process for
#: each of thousands of idle topics would cost more than what they then do.
COARSE_AFTER_MS = 1_000
COARSE_S = 0.25
#: Until a record of a ledger that is missing is looked for again.
NO_RECORD_RETRY_S = 1.0


class SessionSink(Protocol):
    """The receiver of the answers of one client's sessions."""

    def opened(self, call: int, runner: "TopicRunner", answer: AnswerOpen) -> None: ...
    def answered(self, answer: BatchAnswer) -> None: ...
    def ended(self, session: SessionNumber, error: OncelogError, owner_epoch: OwnerEpoch) -> None: ...
    def switched(self, session: SessionNumber, *, on: bool) -> None: ...
    def wanted(self, session: SessionNumber) -> None: ...


class TopicRunner:
    """Runs one topic for as long as this process may own it."""

    def __init__(
        self,
        topic_id: TopicId,
        me: Incarnation,
        settings: TopicSettings,
        checksum: Checksum,
        parts: OwnerParts,
        *,
        nodes: StorageNodesUpdated,
        first_session: SessionNumber,
        cache_budget: CacheBudget,
        finished: Callable[["TopicRunner", bool], None],
    ) -> None:
        """finished: called at the end with the runner, and whether it has closed the topic on request."""
        self.core = Topic(topic_id, me, settings, checksum, first_session=first_session, nodes=nodes)
        self._checksum = checksum
        #: the newest one of this owner
        self.verification: VerificationJob | None = None
        self.cache = EntryCache(cache_budget)
        self.trace = TakeoverTrace()
        #: {session: where its answers go}; {call: where the answer to this opening goes}
        self.sinks: dict[SessionNumber, SessionSink] = {}
        self._calls: dict[int, SessionSink] = {}
        self.progress = TopicProgress(self.core)
        self.parts = parts
        #: proofs that this owner is the current one
        self.ownership_proofs = OwnershipProofs(
            self.core, self.progress, topics=parts.topics, links=parts.links, post=self.post
        )
        self._executor = EffectExecutor(
            topic_id, parts, self.post, self.progress.wait_reasons, era_is_proved=self.ownership_proofs.era_is_proved
        )
        self.log = ReadableLog(
            self.core, self.progress, self.cache, LedgerList(self.core.ownership, self._executor.page_for_reader),
            parts.links, self._executor.ledger_for_reader, parts.ledgers.record,
        )  # fmt: skip
        counts, start = parts.metrics.counts, self._executor.start
        self.consumers = DeliveryShell(
            self.log, self.ownership_proofs, metadata=parts.metadata, counts=counts, why=self.why, post=self.post,
            start=start,
        )  # fmt: skip
        self.retention = RetentionShell(
            self.log, clock=parts.clock, metrics=parts.metrics, timing=parts.timing, post=self.post, start=start
        )
        #: {type of an effect: what performs it}
        self._performers: dict[type, Callable[[Any], None]] = {
            **self._executor.performers,
            SendAdds: self._send_adds,
            AnswerBatches: self._answer_batches,
            LastAddConfirmed: self._last_add_confirmed,
            AnswerOpen: self._answer_open,
            EndSession: self._end_session,
            NameWanted: self._name_wanted,
            SessionFenced: self._session_fenced,
            ExplainDelay: self._explain_delay,
            NotifyDedupToggled: self._notify_dedup_toggled,
            StartTopicTimer: self._start_timer,
            ReadEntryIds: self._read_entry_ids,
            TakeoverPhaseEnded: self._phase_ended,
            Served: self._served,
            CursorRecoveryTimedOut: self._cursor_recovery_timed_out,
            SnapshotTaken: self._snapshot_taken,
            AckQuorumLost: self._ack_quorum_lost,
            TopicFailed: self._failed,
            TopicDeposed: self._deposed,
            TopicClosed: self._closed,
            **self.consumers.performers,
            **self.retention.performers,
        }
        self._queue: deque[TopicEvent] | None = deque()
        self._finished = finished
        #: called when a takeover has ended: the topic serves, the takeover failed, or the topic has left
        self.takeover_ended: Callable[[], None] = lambda: None
        #: called at the end, when the topic is not served any more
        self.left: list[Callable[[], None]] = []
        #: called when a failed takeover is due again
        self.turn_wanted: Callable[[], None] = self.retry

    # --- requests -----------------------------------------------------------------------------------------------------

    @property
    def topic_id(self) -> TopicId:
        return self.core.ownership.topic_id

    @property
    def name(self) -> str:
        return self.core.ownership.record.name

    @property
    def owner_epoch(self) -> OwnerEpoch:
        return self.core.ownership.epoch

    @property
    def grants(self) -> Permissions | None:
        """What the topic's namespace grants to roles; None: not known yet."""
        return self._executor.grants

    def open(self, opening: ProducerOpening, sink: SessionSink) -> None:
        """Open a producer. The answer comes by sink.opened, at once or when the topic serves."""
        self._calls[opening.call] = sink
        self.post(opening)

    def abandon(self, call: int) -> None:
        """The client has withdrawn this request to open a producer."""
        if self._calls.pop(call, None) is not None:
            self.post(OpeningAbandoned(call))

    async def why(self, error: OncelogError) -> OncelogError:
        """The error for a reader that met `error`: TopicNotFound if a hole in the log is due to a deletion."""
        if not isinstance(error, LogHole | UnreadableEntry):
            return error
        try:
            stored = await self.parts.topics.read(self.topic_id)
        except OncelogError:
            return error  # whether the topic was deleted is unknown
        if stored is not None or not await self.ownership_proofs.era_is_proved():
            return error
        return TopicNotFound(f"topic {self.name or self.topic_id} was deleted", topic_id=self.topic_id)

    async def explained(self, read: Awaitable[T]) -> T:
        """The result of a read of the log. Its errors are those of `why`, and the statistics show what no storage node
        gives."""
        try:
            return await read
        except LedgerUnavailable as error:
            self.progress.unavailable.failed(error)
            raise
        except (LogHole, UnreadableEntry) as error:
            raise await self.why(error) from error

    def verify(self, *, bytes_per_s: int) -> VerificationJob:
        """Begin to verify the fold in the background, or join the verification that goes on."""
        job = self.verification
        if job is None or not job.running:
            job = self.verification = VerificationJob(self.core, self.parts, self._checksum, bytes_per_s=bytes_per_s)
            self._executor.start(job.run())
        return job

    def wait_reason(self) -> WaitReason | None:
        """What the topic waits for now; None: it is served."""
        now_ms = time.time_ns() // 1_000_000
        return self.progress.wait_reasons.current(now_ms, self.parts.links.reachability.unreachable)

    # --- events -------------------------------------------------------------------------------------------------------

    def post(self, event: TopicEvent) -> None:
        """Handle an event now, or after those that are queued. A broken invariant ends the process."""
        queue = self._queue
        if queue is None:
            raise InvariantViolated(f"topic {self.topic_id}: an event was posted after a broken invariant")
        queue.append(event)
        if len(queue) > 1:
            return
        performers, progress = self._performers, self.progress
        try:
            while queue:
                now_ns = progress.event_ns = time.time_ns()
                for effect in self.core.handle(queue[0], now_ms=now_ns // 1_000_000):
                    performers[type(effect)](effect)
                queue.popleft()
        except BaseException:
            self._queue = None
            raise

    # --- effects: clients ---------------------------------------------------------------------------------------------

    def _send_adds(self, effect: SendAdds) -> None:
        parts = self.parts
        parts.routes.add(effect.ledger_id, self.post)
        if effect.purpose is LedgerPurpose.LOG:
            for add in effect.adds:
                self.cache.put(effect.ledger_id, add.entry_id, add.parts)
        parts.links.send(effect)

    def _answer_batches(self, effect: AnswerBatches) -> None:
        sinks = self.sinks
        for answer in effect.answers:
            if (sink := sinks.get(answer.session)) is not None:
                sink.answered(answer)

    def _last_add_confirmed(self, effect: LastAddConfirmed) -> None:
        self.progress.moved(effect.position)

    def _answer_open(self, effect: AnswerOpen) -> None:
        if (sink := self._calls.pop(effect.call, None)) is not None:
            sink.opened(effect.call, self, effect)
        elif isinstance(effect.result, Granted):
            # The client withdrew its request while this answer was on its way.
            self.post(SessionClosed(effect.result.session, keeps_name=True))

    def _end_session(self, effect: EndSession) -> None:
        if (sink := self.sinks.pop(effect.session, None)) is not None:
            sink.ended(effect.session, effect.error, self.owner_epoch)

    def _name_wanted(self, effect: NameWanted) -> None:
        if (sink := self.sinks.get(effect.session)) is not None:
            sink.wanted(effect.session)

    def _session_fenced(self, effect: SessionFenced) -> None:
        self._note(
            EventKind.FENCING, "a newer instance fenced a connected producer", producer=effect.name,
            producer_id=effect.former.producer_id, generation=effect.generation, role=effect.role, peer=effect.peer,
            former_generation=effect.former.generation, former_peer=effect.former_peer,
        )  # fmt: skip

    def _explain_delay(self, _effect: ExplainDelay) -> None:
        reason = self.wait_reason()
        if reason is not None:
            self.post(OpeningsDelayed(reason.error()))

    def _notify_dedup_toggled(self, effect: NotifyDedupToggled) -> None:
        for session, sink in self.sinks.items():
            sink.switched(session, on=effect.enabled)

    def _start_timer(self, effect: StartTopicTimer) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time() + effect.after_ms / 1000
        if effect.after_ms >= COARSE_AFTER_MS:
            due_s = math.ceil(due_s / COARSE_S) * COARSE_S
        loop.call_at(due_s, self._fire, effect.key)

    def _read_entry_ids(self, effect: ReadEntryIds) -> None:
        self._executor.start(self._read_ids(effect.position))

    # --- effects: logs, counters, and the ends ------------------------------------------------------------------------

    def _phase_ended(self, effect: TakeoverPhaseEnded) -> None:
        if effect.phase is TakeoverPhase.ACQUIRE:
            self.trace.begin()
            return
        self._executor.cancel_member_requests()
        # Followed long before the topic serves, so that a topic without deduplication never checks a batch.
        self._executor.follow_policies(self.name)
        self.trace.ended(effect.phase, handled=effect.count, last_append_ms=effect.last_append_ms)

    def _served(self, effect: Served) -> None:
        name = self.name or self.topic_id
        self.progress.wait_reasons.failure = None
        self.trace.ended(TakeoverPhase.OPEN, handled=0)
        self.parts.metrics.taken_over(self.trace.finish(self.owner_epoch), name)
        self.progress.moved(effect.log_end)
        self.takeover_ended()

    def _cursor_recovery_timed_out(self, effect: CursorRecoveryTimedOut) -> None:
        message = "topic %s: ledger %d of its dedup cursor was not recovered in time; an older snapshot is used"
        logger.warning(message, self.name, effect.ledger_id)

    def _snapshot_taken(self, effect: SnapshotTaken) -> None:
        self.parts.metrics.counts.event("snapshot")
        self.parts.metrics.counts.event("batch_evicted", effect.evicted)
        logger.debug("topic %s: snapshot %d at %s", self.name, effect.number, effect.position)

    def _ack_quorum_lost(self, effect: AckQuorumLost) -> None:
        self.parts.metrics.counts.event("ledger_failed")
        self._note(
            EventKind.LEDGER_FAILED, "a ledger has lost its ack quorum and is closed", level="warning",
            ledger_id=effect.ledger_id,
        )  # fmt: skip

    def _failed(self, effect: TopicFailed) -> None:
        # The answers of members are not needed any more; each new attempt sends its own requests.
        self._executor.cancel_member_requests()
        self.parts.metrics.counts.event("takeover_failed")
        self.progress.wait_reasons.failure = effect.failure
        self._note(
            EventKind.TAKEOVER_FAILED, "topic cannot be taken over; will retry", level="error",
            reason=effect.failure.reason,
        )  # fmt: skip
        self.takeover_ended()

    def _deposed(self, effect: TopicDeposed) -> None:
        self.parts.metrics.counts.event("deposed")
        self._note(EventKind.TOPIC_LEFT, "topic is no longer owned here", reason=effect.reason)
        self._finish(closed=False)

    def _closed(self, _effect: TopicClosed) -> None:
        self.parts.metrics.counts.event("closed")
        self._note(EventKind.TOPIC_LEFT, "topic is closed")
        self._finish(closed=True)

    def _note(self, kind: EventKind, message: str, *, level: str = "info", **fields: Any) -> None:
        self.parts.metrics.events.note(
            kind, logger, message, level=level, topic=self.name or self.topic_id, owner_epoch=self.owner_epoch, **fields
        )

    # --- time, and the end --------------------------------------------------------------------------------------------

    def _fire(self, key: str) -> None:
        if self.progress.ended:
            return
        if key == RETRY_TIMER:
            self.turn_wanted()
        else:
            self.post(TopicTimerFired(key))
            self.wait_reason()  # notes since when it holds

    def retry(self) -> None:
        """Begin a failed takeover again."""
        self.post(TopicTimerFired(RETRY_TIMER))

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Begin work that ends with the topic."""
        self._executor.start(work)

    def _finish(self, *, closed: bool) -> None:
        self._executor.cancel()
        for call in self.left:
            call()
        self.consumers.close()
        self.cache.clear()
        self.parts.routes.remove(self.post)
        self.progress.changed()
        self._finished(self, closed)
        self.takeover_ended()

    def assigned(self, given_up: OwnerEpoch = OwnerEpoch(0)) -> None:
        """The topic record may name this owner.

        given_up: the epoch at which this owner has closed the topic a moment ago, 0: it has not.
        """
        self.post(TopicAssigned(given_up))

    # --- work in the background ---------------------------------------------------------------------------------------

    async def _read_ids(self, position: Position) -> None:
        """Read the ids of a stored batch. If the entry is unreadable, log that; its session keeps waiting.

        If no storage node gives it now, or its ledger has no record, the core says whether to look again.
        """
        parts = self.cache.get(*position)
        if parts is not None:
            body = parts[1]
        else:
            try:
                stored = await self._executor.ledger(position.ledger_id)
                entry = await read_entry(
                    self.parts.links, stored, position.entry_id, headers_only=True, record=self.parts.ledgers.record
                )
                body = body_of(entry)
            except LedgerUnavailable as error:
                logger.warning("the ids at %s are waited for, and so is its producer: %s", position, error.message)
                self.post(EntryIdsRead(position, None, b""))
                return
            except (EntriesLost, UnreadableEntry) as error:
                logger.error("cannot read the ids at %s; its producer waits: %s", position, error.message)
                return
            except LogHole as error:
                logger.warning("the ids at %s are waited for, and so is its producer: %s", position, error.message)
                await asyncio.sleep(NO_RECORD_RETRY_S)
                self.post(EntryIdsRead(position, None, b"", has_record=False))
                return
        try:
            header = peek_batch(body)
            decode_ids(header, deltas_of(header, body))
        except InvalidBatch as error:
            logger.error("the ids at %s are damaged; its producer waits: %s", position, error.message)
            return
        self.post(EntryIdsRead(position, header, bytes(deltas_of(header, body))))
