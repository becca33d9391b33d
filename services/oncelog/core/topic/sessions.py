"""Producer sessions on one topic: the order within a session, and the answers.

A session takes its batches in order. A batch that cannot be checked yet parks the session, and everything behind it:

    ROLL       no ledger is open for entries                 until the next one opens
    GRANT      the verdict rests on a grant not yet durable  until that is
    IDS        a batch's ids must be read from its entry     until they are
    OWNERSHIP  a verdict refuses the batch, or some of it    until the topic record was read again

The first refused batch ends its session and no other; what is behind it is dropped, for the client resends it in order.
A batch of which single messages are refused (stale ids beside stored or new ones) ends nothing: those messages are
never sent again, so nothing can overtake them.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from enum import Enum

from oncelog.core.dedup.table import Accept, DedupTable, NeedIds, NothingNew, Refused, Wait
from oncelog.core.errors import InvalidArgument, OncelogError
from oncelog.core.formats.batch import BatchHeader, Buffer, deltas_of
from oncelog.core.formats.opening import ProducerInstance
from oncelog.core.formats.outcome import Outcome, ResultKind, ResultRange, refuses
from oncelog.core.ids import NOT_DEDUPLICATED, Position, ProducerId, SessionNumber
from oncelog.core.topic.log import InFlight, ReceivedBatch, TopicLog, Waiting

# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    session: SessionNumber
    request: int
    result: Outcome | OncelogError


@dataclass(frozen=True, slots=True)
class AnswerBatches:
    answers: tuple[BatchAnswer, ...]


@dataclass(frozen=True, slots=True)
class EndSession:
    """Nothing more is answered on this session."""

    session: SessionNumber
    error: OncelogError


@dataclass(frozen=True, slots=True)
class ReadEntryIds:
    """Read the ids of the batch in this entry; comes back as EntryIdsRead."""

    position: Position


@dataclass(frozen=True, slots=True)
class ConfirmOwnership:
    """News for the topic: read the topic record before anything more is refused."""


SessionEffect = AnswerBatches | EndSession | ReadEntryIds | ConfirmOwnership


class Park(Enum):
    ROLL = "roll"
    GRANT = "grant"
    IDS = "ids"
    OWNERSHIP = "ownership"


@dataclass(slots=True)
class Session:
    """parked: batches not checked yet, in order; why: what the first of them waits for, None when nothing does.

    asked: the topic record is being read since this session was about to be refused. confirmed: it named this owner.
    """

    number: SessionNumber
    name: str
    instance: ProducerInstance
    parked: deque[ReceivedBatch] = field(default_factory=deque)
    why: Park | None = None
    asked: bool = False
    confirmed: bool = False


class Sessions:
    """All producer sessions of one topic at its owner."""

    def __init__(self, log: TopicLog, *, first_session: SessionNumber) -> None:
        self.log = log
        #: messages by verdict, since this process took the topic over
        self.counters: Counter[str] = Counter()
        #: {session number: session}
        self.open_sessions: dict[SessionNumber, Session] = {}
        #: session numbers go up for as long as this process lives
        self.next_session = first_session
        #: {producer id: its session}
        self._by_producer: dict[ProducerId, SessionNumber] = {}
        self._answers: list[BatchAnswer] = []

    @property
    def table(self) -> DedupTable:
        return self.log.table

    def connected(self, pid: ProducerId) -> bool:
        return pid in self._by_producer

    @property
    def producer_ids(self) -> list[ProducerId]:
        """Of the producers that are connected."""
        return list(self._by_producer)

    def start(
        self, name: str, instance: ProducerInstance, *, ended: OncelogError
    ) -> tuple[Session, list[SessionEffect]]:
        """Open the one session of a producer; the one before it ends with the error `ended`."""
        session = Session(self.next_session, name, instance)
        self.next_session = SessionNumber(self.next_session + 1)
        old = self._by_producer.get(instance.producer_id)
        effects = self._end(old, ended) if old is not None else []
        self.open_sessions[session.number] = session
        self._by_producer[instance.producer_id] = session.number
        return session, effects

    def fence(self, instance: ProducerInstance, error: OncelogError) -> list[SessionEffect]:
        """End the session of an older instance than this one, which opens none itself."""
        number = self._by_producer.get(instance.producer_id)
        if number is None or self.open_sessions[number].instance.generation >= instance.generation:
            return []
        return self._end(number, error)

    # --- batches ------------------------------------------------------------------------------------------------------

    def receive(self, number: SessionNumber, batches: list[ReceivedBatch], now_ms: int) -> list[SessionEffect]:
        """Take batches of one session, in order."""
        session = self.open_sessions.get(number)
        if session is None:
            return []
        session.parked.extend(batches)
        return self._check_parked(session, now_ms) if session.why is None else []

    def _check_parked(self, session: Session, now_ms: int) -> list[SessionEffect]:
        session.why = None
        while session.parked:
            if not self.log.open:
                session.why = Park.ROLL
                return []
            batch = session.parked[0]
            pid, generation = session.instance
            if (batch.header.producer_id, batch.header.generation) != (
                pid,
                generation,
            ) and batch.header.producer_id != NOT_DEDUPLICATED:
                error = InvalidArgument("the batch is of another producer than its session", field="producer_id")
                return self._refuse(session, batch, error)
            verdict = self.table.check(batch.header, deltas_of(batch.header, batch.data))
            if isinstance(verdict, Accept | NothingNew) and refuses(verdict.known):
                if not session.confirmed:
                    session.why = Park.OWNERSHIP
                    return [ConfirmOwnership()]
                session.confirmed = session.asked = False  # the next refusal needs a reading of its own
            match verdict:
                case Accept():
                    self._accept(session, batch, verdict, now_ms)
                case NothingNew():
                    self._known(session, batch, verdict)
                case NeedIds():
                    session.why = Park.IDS
                    return [ReadEntryIds(verdict.position)]
                case Wait():
                    session.why = Park.GRANT
                    return []
                case Refused():
                    return self._refuse(session, batch, verdict.error)
            session.parked.popleft()
        return []

    def _accept(self, session: Session, batch: ReceivedBatch, verdict: Accept, now_ms: int) -> None:
        entry = self.log.append_batch(batch, skip_first=verdict.skip_first, now_ms=now_ms)
        stored = ResultRange(
            ResultKind.STORED, batch.header.count - verdict.skip_first, entry.header.position, verdict.skip_first
        )
        entry.waiting.append(Waiting(session.number, batch.request, (*verdict.known, stored)))
        self._count_results(verdict.known)

    def _known(self, session: Session, batch: ReceivedBatch, verdict: NothingNew) -> None:
        self._count_results(verdict.known)
        if verdict.settles_at > self.table.state.position:
            entry = self.log.at(verdict.settles_at)
            entry.waiting.append(Waiting(session.number, batch.request, verdict.known))
        else:
            self._answers.append(BatchAnswer(session.number, batch.request, verdict.known))

    def _refuse(self, session: Session, batch: ReceivedBatch, error: OncelogError) -> list[SessionEffect]:
        if not session.confirmed:
            session.why = Park.OWNERSHIP
            return [ConfirmOwnership()]
        self.counters[error.code] += batch.header.count
        self._answers.append(BatchAnswer(session.number, batch.request, error))
        return self._end(session.number, error)

    def _count_results(self, outcome: Outcome) -> None:
        for part in outcome:
            self.counters[part.kind.name.lower()] += part.count

    # --- what unblocks ------------------------------------------------------------------------------------------------

    def settle(self, entries: list[InFlight]) -> None:
        """Entries became durable: the answers that waited for them are due."""
        for entry in entries:
            for waiting in entry.waiting:
                if waiting.session in self.open_sessions:
                    self._answers.append(BatchAnswer(*waiting))
            if entry.batch is not None:
                self.counters["stored"] += entry.header.count

    def learned(self, position: Position, header: BatchHeader, deltas: Buffer, now_ms: int) -> list[SessionEffect]:
        """The ids of an entry were read: its producer's session goes on, and no other, for theirs are other entries."""
        self.table.state.learn_deltas(position, header, deltas)
        number = self._by_producer.get(header.producer_id)
        session = self.open_sessions[number] if number is not None else None
        return self._check_parked(session, now_ms) if session is not None and session.why is Park.IDS else []

    def unlearnable(self, position: Position, now_ms: int) -> list[SessionEffect]:
        """The entry that a session waits for was trimmed: its ids are from now on older than the recent batches."""
        effects: list[SessionEffect] = []
        for session in list(self.open_sessions.values()):
            pid = session.instance.producer_id
            if session.why is Park.IDS:
                if any(recent.position == position for recent in self.table.state.producers[pid].recent_batches):
                    self.table.state.forget_until(pid, position)
                # Also where the batch was forgotten meanwhile. A session that waits for another entry asks again.
                effects += self._check_parked(session, now_ms)
        return effects

    def ownership_asked(self) -> None:
        """A read of the topic record begins: it will answer for whoever waits for it by now, and for nobody later."""
        for session in self.open_sessions.values():
            session.asked = session.asked or session.why is Park.OWNERSHIP

    def ownership_confirmed(self, now_ms: int) -> list[SessionEffect]:
        """The topic record still names this owner and epoch: refusals may be said to those that it was read for."""
        for session in self.open_sessions.values():
            session.confirmed = session.confirmed or session.asked
        return self.retry(Park.OWNERSHIP, now_ms)

    def retry(self, why: Park, now_ms: int) -> list[SessionEffect]:
        """Check again what waited for `why`."""
        effects: list[SessionEffect] = []
        for session in list(self.open_sessions.values()):
            if session.why is why:
                effects += self._check_parked(session, now_ms)
        return effects

    # --- ending -------------------------------------------------------------------------------------------------------

    def _end(self, number: SessionNumber, error: OncelogError) -> list[SessionEffect]:
        self.close(number)
        return [EndSession(number, error)]

    def close(self, number: SessionNumber) -> None:
        """The client closed the session, or its stream broke."""
        session = self.open_sessions.pop(number, None)
        if session is not None and self._by_producer.get(session.instance.producer_id) == number:
            del self._by_producer[session.instance.producer_id]

    def end_all(self, error: OncelogError) -> list[SessionEffect]:
        """The ledger failed or the topic is lost: every session ends."""
        effects: list[SessionEffect] = []
        for number in list(self.open_sessions):
            effects += self._end(number, error)
        return effects

    def take_answers(self) -> list[SessionEffect]:
        """The answers due since the last call, as one effect."""
        if not self._answers:
            return []
        answers, self._answers = tuple(self._answers), []
        return [AnswerBatches(answers)]
