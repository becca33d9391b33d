"""The shell of one topic: one queue of events, one core, and what the core's effects mean here.

Events are handled where they are posted, one after the other, on the process's event loop; an event posted by an effect
waits for its turn. Nothing is awaited between an event and its effects. Time is the wall clock in ms, for append times
are stored; it never decides what is safe.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from oncelog.core.access import Grants
from oncelog.core.dedup.cursor import SnapshotTaken
from oncelog.core.errors import (
    InvalidBatch,
    InvariantViolated,
    LogHole,
    OncelogError,
    TopicLoading,
    TopicNotFound,
    UnreadableEntry,
)
from oncelog.core.formats.batch import Checksum, decode_ids, deltas_of, peek_batch
from oncelog.core.formats.entry import body_of
from oncelog.core.formats.opening import Granted, ProducerOpening
from oncelog.core.ids import Incarnation, LedgerId, OwnerEpoch, Position, SessionNumber, TopicId
from oncelog.core.ledger.managed_ledger import SendAdds
from oncelog.core.ledger.members import StorageNodesUpdated
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.next_ledger import DeleteLedgers
from oncelog.core.ledger.recovery import ReadLedger
from oncelog.core.topic.events import (
    EntryIdsRead,
    NotifyDedupToggled,
    OpeningAbandoned,
    OpeningsToldToWait,
    Served,
    SessionClosed,
    TopicAssigned,
    TopicDeposed,
    TopicFailed,
)
from oncelog.core.topic.openings import AnswerOpen
from oncelog.core.topic.serving import LastAddConfirmed, LedgerFailed, TopicClosed, TopicSettings
from oncelog.core.topic.sessions import AnswerBatches, BatchAnswer, EndSession, ReadEntryIds
from oncelog.core.topic.takeover_events import CursorRecoveryTimedOut, Marked, StartTimer, TimerFired
from oncelog.core.topic.topic import Phase, Topic, TopicEffect, TopicEvent
from oncelog.ledgers.reader import read_entry
from oncelog.topic_owner.asks import ASKS, Asks, OwnerParts
from oncelog.topic_owner.currency import Proofs
from oncelog.topic_owner.entry_cache import CacheBudget, EntryCache
from oncelog.topic_owner.progress import TopicProgress
from oncelog.topic_owner.takeover_trace import TakeoverTrace

logger = logging.getLogger(__name__)

#: Openings kept while the topic does not serve; further ones are told to try again.
EARLY_OPENINGS_MAX = 10_000


class SessionSink(Protocol):
    """Where the answers of one client's sessions go."""

    def opened(self, call: int, runner: "TopicRunner", answer: AnswerOpen) -> None: ...
    def answered(self, answer: BatchAnswer) -> None: ...
    def ended(self, session: SessionNumber, error: OncelogError, owner_epoch: OwnerEpoch) -> None: ...
    def switched(self, session: SessionNumber, *, on: bool) -> None: ...


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
        finished: Callable[["TopicRunner"], None],
    ) -> None:
        self.core = Topic(topic_id, me, settings, checksum, first_session=first_session, nodes=nodes)
        self.cache = EntryCache(cache_budget)
        self.trace = TakeoverTrace(topic_id)
        #: {session: where its answers go}; {call: who asked}
        self.sinks: dict[SessionNumber, SessionSink] = {}
        self._calls: dict[int, SessionSink] = {}
        self.progress = TopicProgress(self.core)
        self._asks = Asks(topic_id, parts, self.post, self.progress.troubles)
        self._queue: deque[TopicEvent] | None = deque()
        self._finished = finished
        #: proofs that this owner is the current one
        self.currency = Proofs(self)

    # --- what others ask
    # -------------------------------------------------------------------------------------------------

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
    def parts(self) -> OwnerParts:
        return self._asks.parts

    @property
    def grants(self) -> Grants | None:
        """What the topic's namespace grants to roles; None: not known yet."""
        return self._asks.grants

    def open(self, opening: ProducerOpening, sink: SessionSink) -> None:
        """Answered by sink.opened, at once or when the topic serves."""
        self._calls[opening.call] = sink
        if len(self.core.early) >= EARLY_OPENINGS_MAX:
            error = TopicLoading("too many producers wait for the topic already: try again")
            sink.opened(opening.call, self, AnswerOpen(opening.call, error))
            del self._calls[opening.call]
            return
        self.post(opening)

    def abandon(self, call: int) -> None:
        """Nobody waits for the answer to this opening any more."""
        if self._calls.pop(call, None) is not None:
            self.post(OpeningAbandoned(call))

    async def record_shows_higher_epoch(self) -> bool:
        """Whether the topic record, read now, is of a newer epoch than this runner's, or gone."""
        stored = await self.parts.topics.read(self.topic_id)
        return stored is None or stored.value.owner_epoch > self.owner_epoch

    async def why(self, error: OncelogError) -> OncelogError:
        """What a reader is told that met `error`: a hole in the log of a topic that was deleted is no damage."""
        if not isinstance(error, LogHole | UnreadableEntry):
            return error
        try:
            stored = await self.parts.topics.read(self.topic_id)
        except OncelogError:
            return error  # it is not known whether the topic was deleted
        if stored is not None:
            return error
        return TopicNotFound(f"topic {self.name or self.topic_id} was deleted", topic_id=self.topic_id)

    async def ledger(self, ledger_id: LedgerId) -> LedgerMetadata:
        """The record of one of the topic's ledgers. Raises LogHole."""
        return await self._asks.ledger(ledger_id)

    # --- events and effects
    # ----------------------------------------------------------------------------------------------

    def post(self, event: TopicEvent) -> None:
        """Handle an event now, or after those before it. A broken invariant ends the process."""
        queue = self._queue
        if queue is None:
            raise InvariantViolated(f"topic {self.topic_id} goes on after a broken invariant")
        queue.append(event)
        if len(queue) > 1:
            return
        try:
            while queue:
                now_ns = self.progress.event_ns = time.time_ns()
                for effect in self.core.handle(queue[0], now_ms=now_ns // 1_000_000):
                    self._perform(effect)
                queue.popleft()
        except BaseException:
            self._queue = None
            raise

    def _perform(self, effect: TopicEffect) -> None:
        match effect:
            case SendAdds():
                self._send(effect)
            case AnswerBatches():
                for answer in effect.answers:
                    if (sink := self.sinks.get(answer.session)) is not None:
                        sink.answered(answer)
            case LastAddConfirmed():
                self.progress.moved(effect.position)
            case _ if isinstance(effect, ASKS):
                if isinstance(effect, ReadLedger):
                    self.trace.begin()  # a recovery of the owner's own accord: nobody has assigned anything
                self._asks.perform(effect)
            case AnswerOpen():
                if (sink := self._calls.pop(effect.call, None)) is not None:
                    sink.opened(effect.call, self, effect)
                elif isinstance(effect.result, Granted):
                    # Abandoned while this answer was on its way.
                    self.post(SessionClosed(effect.result.session))
            case EndSession():
                if (sink := self.sinks.pop(effect.session, None)) is not None:
                    sink.ended(effect.session, effect.error, self.owner_epoch)
            case NotifyDedupToggled(on):
                for session, sink in self.sinks.items():
                    sink.switched(session, on=on)
            case StartTimer(key, after_ms):
                asyncio.get_running_loop().call_later(after_ms / 1000, self._fire, key)
            case ReadEntryIds(position):
                self._asks.start(self._read_ids(position))
            case _:
                self._tell(effect)

    def _tell(self, effect: TopicEffect) -> None:
        """Effects that are news for people, and the ends."""
        name = self.name or self.topic_id
        match effect:
            case Marked():
                self._asks.step_over()
                # From the first mark on: known well before E, so that a topic without dedup never judges.
                self._asks.follow_policies(self.name)
                self.trace.mark(effect.mark, handled=effect.count)
            case CursorRecoveryTimedOut(ledger_id):
                logger.warning(
                    "topic %s: ledger %d of its dedup cursor is not recovered in time, an older snapshot is used",
                    name,
                    ledger_id,
                )
            case Served():
                self.progress.troubles.failure = None
                self.trace.mark("E", handled=0)
                self.parts.metrics.taken_over(self.trace.finish(name, self.owner_epoch), name)
                self.progress.moved(effect.log_end)
            case SnapshotTaken():
                self.parts.metrics.counts.event("snapshot")
                self.parts.metrics.counts.event("batch_forgotten", effect.evicted)
                logger.debug("topic %s: snapshot %d at %s", name, effect.number, effect.position)
            case LedgerFailed():
                self.parts.metrics.counts.event("ledger_failed")
                logger.warning("topic %s: ledger %d has lost its ack quorum and is closed", name, effect.ledger_id)
            case TopicFailed():
                # Nobody takes their answers any more, and each new attempt asks anew.
                self._asks.step_over()
                self.parts.metrics.counts.event("takeover_failed")
                self.progress.troubles.failure = effect.failure
                logger.error("topic %s cannot be taken over, trying again: %s", name, effect.failure.reason)
            case TopicDeposed():
                self.parts.metrics.counts.event("deposed")
                logger.info("topic %s is no longer owned here: %s", name, effect.reason)
                self._finish()
            case TopicClosed():
                self.parts.metrics.counts.event("closed")
                logger.info("topic %s is closed", name)
                self._finish()
            case DeleteLedgers():
                self._asks.start(self._delete_ledgers(effect))
            case _:
                raise InvariantViolated(f"nobody performs {type(effect).__name__}")

    def _send(self, effect: SendAdds) -> None:
        self.parts.routes.add(effect.ledger_id, self.post)
        serving = self.core.serving
        writer = serving.log.ledgers.writer if serving is not None else None
        if writer is not None and effect.ledger_id == writer.ledger_id:
            for add in effect.adds:
                self.cache.put(effect.ledger_id, add.entry_id, add.parts)
        self.parts.links.send(effect)

    def _fire(self, key: str) -> None:
        if not self.progress.ended:
            self.post(TimerFired(key))
            told = self.progress.troubles.to_tell(self.parts.links.reachability.unreachable)
            if told is not None:
                self.post(OpeningsToldToWait(told))

    def _finish(self) -> None:
        self._asks.cancel()
        self.cache.clear()
        self.parts.routes.remove(self.post)
        self.progress.changed()
        self._finished(self)

    def assigned(self, given_up: OwnerEpoch = OwnerEpoch(0)) -> None:
        """Told that the record may name this owner. Told again while it serves, that is no takeover yet.

        given_up: the epoch at which this owner has closed the topic a moment ago, 0: it has not.
        """
        if self.core.phase is not Phase.SERVING:
            self.trace.begin()
        self.post(TopicAssigned(given_up))

    # --- work that takes its time
    # -----------------------------------------------------------------------------------------

    async def _read_ids(self, position: Position) -> None:
        """The ids of a stored batch; None where it was trimmed. Unreadable: its session waits, loudly."""
        parts = self.cache.get(*position)
        if parts is not None:
            body = parts[1]
        else:
            try:
                stored = await self._asks.ledger(position.ledger_id)
                body = body_of(await read_entry(self.parts.links, stored, position.entry_id, headers_only=True))
            except UnreadableEntry as error:
                logger.error("the ids at %s cannot be read, its producer waits: %s", position, error.message)
                return
            except LogHole:
                self.post(EntryIdsRead(position, None, b""))
                return
        try:
            header = peek_batch(body)
            decode_ids(header, deltas_of(header, body))
        except InvalidBatch as error:
            logger.error("the ids at %s are damaged, its producer waits: %s", position, error.message)
            return
        self.post(EntryIdsRead(position, header, bytes(deltas_of(header, body))))

    async def _delete_ledgers(self, effect: DeleteLedgers) -> None:
        for ledger_id in effect.ledger_ids:
            await self._asks.delete_ledger(ledger_id)
