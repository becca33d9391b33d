"""One topic at its owner: routes each event to the core it belongs to, and moves between the phases.

    IDLE --assigned--> READING --record names me--> RECOVERING (B, C, D) --> OPENING (E) --linked--> SERVING
    SERVING --ledger failed or rolled--> (the managed ledger closes and opens the next one) --> SERVING
    OPENING | SERVING --suspicion, the record read again still names me--> RECOVERING, else DEPOSED
    RECOVERING --failed, the record read again still names me--> WAITING (said loudly) --timer--> READING
    SERVING --drain: last snapshot, last answers, both ledgers closed--> CLOSED

Rules: the owner acknowledges only what the ack quorum of a ledger holds unfenced, so a suspicion makes no
acknowledgement wrong: it stops the writes to the record. There is one path for every failure of a write: close, roll
back to the fold, end every session, open the next ledger, let clients resend. `handle` is called on the one task of the
topic; `now_ms` is that event's time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import cast

from oncelog.core.coordination.ownership import (
    Deposed,
    Linked,
    Owned,
    Ownership,
    OwnershipConfirmed,
    OwnershipEffect,
    OwnershipNews,
    TopicRecordRead,
    TopicRecordWritten,
    Trimmed,
)
from oncelog.core.errors import NotOwner, SessionEnded, TopicNotFound
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.opening import ProducerOpening
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import Incarnation, LedgerId, SessionNumber, TopicId
from oncelog.core.ledger.managed_ledger import LedgerEvent
from oncelog.core.ledger.members import StorageNodesUpdated
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.next_ledger import (
    DeleteLedgers,
    LedgerCreated,
    LedgerIdClaimed,
    LedgerPurpose,
    ManagedLedgerSettings,
    NextLedger,
)
from oncelog.core.topic.events import (
    BatchesReceived,
    DedupToggled,
    DrainWanted,
    EntryIdsRead,
    HigherEpochSeen,
    NotifyDedupToggled,
    OpeningAbandoned,
    OpeningsToldToWait,
    ProducerIdAllocated,
    ProducerIdRefused,
    Served,
    SessionClosed,
    TopicAssigned,
    TopicDeposed,
    TopicFailed,
    TrimWanted,
)
from oncelog.core.topic.opening_queue import OpeningQueue, superseded
from oncelog.core.topic.openings import AnswerOpen
from oncelog.core.topic.returning import RETURN_TIMER
from oncelog.core.topic.serving import LinkWanted, Serving, ServingOut, Suspicion, TopicClosed, TopicSettings
from oncelog.core.topic.sessions import ConfirmOwnership
from oncelog.core.topic.takeover import CURSOR_TIMER, Takeover
from oncelog.core.topic.takeover_events import (
    CursorRecordWritten,
    Marked,
    StartTimer,
    TakenOver,
    TakeoverEffect,
    TakeoverEvent,
    TakeoverFailed,
    TakeoverNews,
    TimerFired,
)

TopicEvent = (
    TopicAssigned | TopicRecordRead | TopicRecordWritten | ProducerOpening | OpeningAbandoned | BatchesReceived
    | SessionClosed | ProducerIdAllocated | ProducerIdRefused | OpeningsToldToWait | EntryIdsRead | HigherEpochSeen
    | DedupToggled | TrimWanted | DrainWanted | TimerFired | StorageNodesUpdated | LedgerEvent | TakeoverEvent
)  # fmt: skip

TopicEffect = (
    NotifyDedupToggled | Served | TopicFailed | TopicDeposed | OwnershipEffect | ServingOut | TakeoverEffect | Marked
)
_News = TopicEffect | OwnershipNews | TakeoverNews
_Out = list[TopicEffect]


class Phase(Enum):
    IDLE = "idle"
    READING = "reading"
    RECOVERING = "recovering"
    OPENING = "opening"
    SERVING = "serving"
    WAITING = "waiting"
    CLOSED = "closed"
    DEPOSED = "deposed"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A takeover, and the log's next ledger beside it: E needs one, whatever B, C and D find."""

    takeover: Takeover
    next_ledger: NextLedger


def _attempt(
    record: TopicRecord, settings: TopicSettings, checksum: Checksum, nodes: StorageNodesUpdated, number: int
) -> Attempt:
    quorums = (settings.write_quorum, settings.ack_quorum)
    who = ManagedLedgerSettings(LedgerPurpose.LOG, record.topic_id, record.owner_epoch, *quorums, checksum)
    last = record.ledgers[-1].ledger_id if record.ledgers else LedgerId(-1)
    return Attempt(
        Takeover(
            record,
            checksum=checksum,
            recent_bytes_max=settings.snapshot.recent_bytes_max,
            cursor_timeout_ms=settings.cursor_timeout_ms,
            number=number,
        ),
        NextLedger(who, last_ledger=last, nodes=nodes),
    )


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
        self.phase = Phase.IDLE
        self.ownership = Ownership(topic_id, me)
        self._kept: tuple[TopicSettings, Checksum] = (settings, checksum)
        self.nodes = nodes
        self.dedup_enabled = dedup_enabled
        self.attempt: Attempt | None = None
        self._attempts = 0
        #: why the last takeover failed, until that is said
        self._failure = TakeoverFailed("")
        self.serving: Serving | None = None
        #: openings that came before the topic serves
        self.early = OpeningQueue()
        self._next_session = first_session

    def handle(self, event: TopicEvent, *, now_ms: int) -> _Out:
        """Take one event and return what to do; an event that came too late is ignored."""
        if self.phase in (Phase.DEPOSED, Phase.CLOSED):
            return self._refuse(event)
        match event:
            case TopicAssigned():
                return self._assigned(event)
            case TopicRecordRead():
                return self._route(self.ownership.record_read(event), now_ms)
            case TopicRecordWritten():
                return self._route(self.ownership.record_written(event), now_ms)
            case StorageNodesUpdated():
                return self._see(event, now_ms)
            case HigherEpochSeen():
                return self._route(self.ownership.suspect(), now_ms) if self.serving else []
            case DedupToggled():
                return self._switch(event.on)
            case DrainWanted():
                return self._drain(now_ms)
            case TimerFired():
                return self._timer(event.key, now_ms)
            case OpeningsToldToWait():
                return self._tell_to_wait(event)
            case ProducerOpening() | OpeningAbandoned() if self.serving is None:
                return self._early(event)
            case _ if self.serving is not None:
                return self._route(self._serve(self.serving, event, now_ms), now_ms)
            case _:
                return self._recover(event, now_ms)

    def _serve(self, serving: Serving, event: TopicEvent, now_ms: int) -> list[ServingOut]:
        """Events of a topic whose state is here."""
        match event:
            case BatchesReceived():
                return serving.receive(event.session, event.batches, now_ms)
            case _ if isinstance(event, LedgerEvent):
                return serving.ledger_event(event, now_ms)
            case ProducerOpening():
                return serving.opening(event, now_ms)
            case OpeningAbandoned():
                return serving.abandoned(event.call)
            case SessionClosed():
                serving.sessions.close(event.session)
                return []
            case ProducerIdAllocated():
                return serving.allocated(event.ask, event.producer_id, now_ms)
            case ProducerIdRefused():
                return [*serving.openings.refused(event.ask, event.error)]
            case EntryIdsRead():
                return serving.learned(event.position, event.header, event.deltas, now_ms)
            case CursorRecordWritten():
                return serving.cursor_written(event, now_ms)
            case TrimWanted():
                return cast("list[ServingOut]", self._trim(serving, event))
            case _:
                return []

    def _recover(self, event: TopicEvent, now_ms: int) -> _Out:
        """What was meant for a stretch of serving that is over concerns no takeover."""
        attempt = self.attempt
        if attempt is None:
            return []
        if isinstance(event, LedgerIdClaimed | LedgerCreated):
            return cast("_Out", attempt.next_ledger.handle(event)) if event.purpose is LedgerPurpose.LOG else []
        return self._route(attempt.takeover.handle(event), now_ms) if isinstance(event, TakeoverEvent) else []

    def _see(self, nodes: StorageNodesUpdated, now_ms: int) -> _Out:
        self.nodes = nodes
        if self.serving is not None:
            return self._route(self.serving.update_nodes(nodes, now_ms), now_ms)
        return cast("_Out", self.attempt.next_ledger.update_nodes(nodes)) if self.attempt else []

    # --- phases -------------------------------------------------------------------------------------------------------

    def _assigned(self, event: TopicAssigned) -> _Out:
        """Told again while it is held, only a newer epoch would say something: the record says which."""
        read = cast("_Out", self.ownership.read())
        if self.phase is not Phase.IDLE:
            return read
        self.ownership.gave_up(event.given_up)
        self.phase = Phase.READING
        return [*read, StartTimer("tick", self._kept[0].tick_ms)]

    def _route(
        self, news: Sequence[ServingOut | TakeoverEffect | TakeoverNews | OwnershipEffect | OwnershipNews], now_ms: int
    ) -> _Out:
        """Perform the news that concern the topic itself; the rest are effects."""
        out: _Out = []
        for item in news:
            match item:
                case Owned():
                    out += self._begin(now_ms)
                case OwnershipConfirmed():
                    out += self._route(self.serving.ownership_confirmed(now_ms), now_ms) if self.serving else []
                case Linked():
                    out += self._linked(now_ms)
                case Trimmed():
                    out.append(DeleteLedgers(item.ledger_ids))
                case Deposed():
                    out += self._end(Phase.DEPOSED, item.reason)
                case LinkWanted():
                    out += self._route(self.ownership.link(item.link), now_ms)
                case Suspicion():
                    out += self._route(self.ownership.suspect(), now_ms)
                case ConfirmOwnership():
                    out += self._confirm_ownership()
                case TakenOver():
                    out += self._taken_over(item, now_ms)
                case TakeoverFailed():
                    self.phase, self._failure = Phase.WAITING, item
                    out += self._give_up()
                    out += self._route(self.ownership.suspect(), now_ms)
                case TopicClosed():
                    out += self._end(Phase.CLOSED, "it was closed")
                case _:
                    out.append(cast("TopicEffect", item))
        return out

    def _confirm_ownership(self) -> _Out:
        """Read the record for those who wait for it now. Whoever comes while it is read needs the next read."""
        read = cast("_Out", self.ownership.read())
        if read and self.serving is not None:
            self.serving.openings.ownership_asked()
        return read

    def _begin(self, now_ms: int) -> _Out:
        """The record names this owner: start at B, whatever was going on before."""
        if self.phase is Phase.WAITING:
            return [TopicFailed(self._failure), StartTimer("retry", self._kept[0].retry_ms)]
        if self.serving is not None and self.serving.draining:
            return self._end(Phase.CLOSED, "the process is draining")
        error = SessionEnded("the topic is being recovered: open again and resend what is pending")
        out = [*self._leave(error), *self._give_up()]
        self.phase = Phase.RECOVERING
        self._attempts += 1
        begun = self.attempt = _attempt(self.ownership.record, *self._kept, self.nodes, self._attempts)
        return [*out, *self._route(begun.takeover.start(), now_ms), *cast("_Out", begun.next_ledger.prepare())]

    def _give_up(self) -> _Out:
        """End an attempt at a takeover, if there is one."""
        attempt, self.attempt = self.attempt, None
        return cast("_Out", attempt.next_ledger.drop()) if attempt else []

    def _taken_over(self, taken: TakenOver, now_ms: int) -> _Out:
        attempt, self.attempt = self.attempt, None
        assert attempt is not None, "a takeover ends that never began"
        self.phase = Phase.OPENING
        self.serving = Serving(
            self.ownership.record, taken, *self._kept, next_ledger=attempt.next_ledger,
            first_session=self._next_session, dedup_enabled=self.dedup_enabled, now_ms=now_ms,
        )  # fmt: skip
        out = self._route(self.serving.start(now_ms), now_ms)
        # From here on they wait where their repeats and withdrawals find them.
        for opening in self.early.take_all():
            out += self._route(self.serving.opening(opening, now_ms), now_ms)
        return out

    def _linked(self, now_ms: int) -> _Out:
        if self.serving is None:
            return []
        out: _Out = []
        if self.phase is Phase.OPENING:
            self.phase = Phase.SERVING
            out.append(Served(self.serving.log.table.state.position))
        return out + self._route(self.serving.linked(now_ms), now_ms)

    def _early(self, event: ProducerOpening | OpeningAbandoned) -> _Out:
        """Openings wait for the takeover."""
        if isinstance(event, OpeningAbandoned):
            self.early.remove(event.call)
            return []
        _, former = self.early.add(event)
        return [] if former is None else [AnswerOpen(former, superseded())]

    def _leave(self, error: NotOwner | TopicNotFound | SessionEnded) -> _Out:
        """End what was served here; session numbers go on upwards."""
        if self.serving is None:
            return []
        serving, self.serving = self.serving, None
        self._next_session = serving.sessions.next_session
        return cast("_Out", serving.end(error))

    def _end(self, phase: Phase, reason: str) -> _Out:
        self.phase = phase
        error = self.ownership.lost(reason)
        out = [*self._leave(error), *self._give_up()]
        out += [AnswerOpen(opening.call, error) for opening in self.early.take_all()]
        return [*out, TopicClosed() if phase is Phase.CLOSED else TopicDeposed(reason)]

    def _refuse(self, event: TopicEvent) -> _Out:
        if isinstance(event, ProducerOpening):
            return [AnswerOpen(event.call, self.ownership.lost("look it up again"))]
        return []

    def _drain(self, now_ms: int) -> _Out:
        if self.phase is Phase.SERVING and self.serving is not None:
            return self._route(self.serving.drain(now_ms), now_ms)
        return self._end(Phase.CLOSED, "the process is draining")

    def _tell_to_wait(self, told: OpeningsToldToWait) -> _Out:
        """Answer the openings that a topic which cannot serve keeps waiting; their clients ask again."""
        if self.serving is not None:
            return [] if self.serving.log.open else cast("_Out", self.serving.openings.refuse_all(told.error))
        return [AnswerOpen(opening.call, told.error) for opening in self.early.take_all()]

    def _timer(self, key: str, now_ms: int) -> _Out:
        if key.startswith(RETURN_TIMER):
            return self._route(self.serving.return_over(key, now_ms), now_ms) if self.serving is not None else []
        if key.startswith(CURSOR_TIMER):
            return self._route(self.attempt.takeover.handle(TimerFired(key)), now_ms) if self.attempt else []
        if key == "retry":
            if self.phase is not Phase.WAITING:
                return []
            self.phase = Phase.READING
            return self._route(self.ownership.suspect(), now_ms)
        again = StartTimer("tick", self._kept[0].tick_ms)
        if self.serving is None or self.phase is not Phase.SERVING:
            return [again]
        return [again, *self._route(self.serving.tick(now_ms), now_ms)]

    def _switch(self, on: bool) -> _Out:
        changed, self.dedup_enabled = on is not self.dedup_enabled, on
        if self.serving is None:
            return []
        self.serving.log.table.dedup_enabled = on
        return [NotifyDedupToggled(on)] if changed else []

    def _trim(self, serving: Serving, event: TrimWanted) -> list[OwnershipEffect | OwnershipNews]:
        """Ledgers that end before both `before` and the trim bound leave the list, never the last one."""
        bound = serving.cursor.trim_bound()
        if bound is None:
            return []
        limit = min(bound, event.before).ledger_id
        gone = [link for link in self.ownership.record.ledgers[:-1] if link.ledger_id < limit]
        return self.ownership.trim(len(gone)) if gone else []

    def check_invariants(self) -> None:
        if self.serving is not None:
            self.serving.check_invariants()


def open_ledger(topic: Topic) -> LedgerMetadata | None:
    """The ledger whose members can prove that this owner is the current one; None while there is none.

    Whoever looks again behind an answer and finds the same object knows that the ledger was open in between.
    """
    if topic.phase is not Phase.SERVING or topic.serving is None or not topic.serving.log.ledgers.open:
        return None
    writer = topic.serving.log.ledgers.writer
    return None if writer is None else writer.metadata
