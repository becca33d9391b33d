"""Producer sessions on one topic: the order within a session, and the answers.

A session checks its batches in order. A batch that cannot be checked yet blocks the session, with everything behind it:

    ROLL       no ledger is open for entries, or it is about to  until the next one opens
               roll and a message in chunks begins
    GRANT      the verdict depends on a grant not yet durable    until the grant is durable
    IDS        a stored batch's ids must be read from its entry  until they were read, or the entry was trimmed
    QUOTA      a backlog quota holds publishing             until a subscription has acknowledged enough
    OWNERSHIP  a verdict refuses the batch, or some of it        until the topic record was read again

The first refused batch ends its session and no other; the batches behind it are dropped, and the client resends them
in order. A batch of which single messages are refused (stale ids beside stored or new ones) does not end the session:
those messages are never sent again, so nothing can overtake them.

Ids of a trimmed entry are older than the recent batches from then on. Only the floor of the log proves a trim (hazard
missing-record-is-no-deletion): storage nodes that do not answer, and a record of a ledger that is missing or was put
back, prove nothing.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from oncelog.core.errors import BacklogQuotaExceeded, InvalidArgument, OncelogError
from oncelog.core.formats.batch import IN_CHUNKS, Checksum, PayloadFormat, deltas_of, payload_of
from oncelog.core.formats.chunks import decode_chunk
from oncelog.core.formats.opening import ProducerInstance
from oncelog.core.formats.outcome import Outcome, ResultKind, ResultRange, refuses
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import NOT_DEDUPLICATED, Position, ProducerId, SessionNumber
from oncelog.core.policies.retention_rules import QuotaVerdict
from oncelog.core.publishing.client_order import SessionClient
from oncelog.core.publishing.dedup_table import Accept, DedupTable, NothingNew, Refused, Wait
from oncelog.core.publishing.log import InFlight, PendingBatchAnswer, TopicLog
from oncelog.core.publishing.recent_batches import NeedIds
from oncelog.core.publishing.refusals import Refusals
from oncelog.core.publishing.repeated_content import with_content
from oncelog.core.publishing.uploads import Uploads
from oncelog.core.topic_events.effects import AnswerBatches, BatchAnswer, EndSession, ReadEntryIds, Step
from oncelog.core.topic_events.events import BatchesReceived, EntryIdsRead, ReceivedBatch, SessionClosed

QUOTA_EXCEEDED = (
    "a subscription leaves more unacknowledged than the topic's backlog quota allows: let its consumers catch up, or "
    "delete it"
)


class BlockedOn(Enum):
    ROLL = "roll"
    GRANT = "grant"
    IDS = "ids"
    QUOTA = "quota"
    OWNERSHIP = "ownership"


@dataclass(slots=True)
class TopicSession:
    """received: batches not checked yet, in order; blocked_on: what the first of them waits for.

    ids_at: the entry whose ids it waits for. read_begun: a read of the topic record began after this session was
    blocked. confirmed: that read named this owner.
    peer: host:port of its client; empty: unknown. client: for whom a gateway has opened it; None: not of a gateway.
    """

    number: SessionNumber
    name: str
    instance: ProducerInstance
    received: deque[ReceivedBatch] = field(default_factory=deque)
    blocked_on: BlockedOn | None = None
    ids_at: Position | None = None
    read_begun: bool = False
    confirmed: bool = False
    peer: str = ""
    client: SessionClient | None = None


class Sessions:
    """All producer sessions of one topic at its owner."""

    def __init__(
        self,
        step: Step,
        log: TopicLog,
        checksum: Checksum,
        *,
        record: Callable[[], TopicRecord],
        first_session: SessionNumber,
    ) -> None:
        """record: returns the topic record as this owner has it."""
        self._step = step
        self._record = record
        self._checksum = checksum
        self.log = log
        self.uploads = Uploads(step, log)
        #: messages by verdict, since this process took the topic over
        self.counters: Counter[str] = Counter()
        #: {producer id: the same for it, without `stored`}
        self.counters_of: dict[ProducerId, Counter[str]] = {}
        self.refusals = Refusals(step.now_ms)
        #: {session number: session}
        self.open_sessions: dict[SessionNumber, TopicSession] = {}
        #: session numbers go up for as long as this process lives
        self.next_session = first_session
        #: {producer id: its session}
        self._by_producer: dict[ProducerId, SessionNumber] = {}
        #: producers whose sessions have ended, until their expiry has taken note of it
        self.left: dict[ProducerId, None] = {}
        #: sessions of gateways' clients that have ended, and whether their names are kept, until `take_parted`
        self.parted: list[tuple[TopicSession, bool]] = []
        #: of the topic's backlog quota
        self._quota = QuotaVerdict()
        #: answers that became due in this step
        self.due: list[BatchAnswer] = []

    @property
    def table(self) -> DedupTable:
        return self.log.table

    def connected(self, pid: ProducerId) -> bool:
        return pid in self._by_producer

    @property
    def producer_ids(self) -> list[ProducerId]:
        """Of the producers that are connected."""
        return list(self._by_producer)

    def session_of(self, pid: ProducerId) -> TopicSession | None:
        """The open session of this producer."""
        number = self._by_producer.get(pid)
        return None if number is None else self.open_sessions[number]

    def start(
        self,
        name: str,
        instance: ProducerInstance,
        *,
        ended: OncelogError,
        peer: str = "",
        client: SessionClient | None = None,
    ) -> TopicSession:
        """Open the one session of a producer; the one before it ends with the error `ended`."""
        session = TopicSession(self.next_session, name, instance, peer=peer, client=client)
        self.next_session = SessionNumber(self.next_session + 1)
        old = self._by_producer.get(instance.producer_id)
        if old is not None:
            self._end(old, ended)
        self.open_sessions[session.number] = session
        self._by_producer[instance.producer_id] = session.number
        return session

    def fence(self, instance: ProducerInstance, error: OncelogError) -> None:
        """End the session of an older instance than this one, which opens none itself."""
        number = self._by_producer.get(instance.producer_id)
        if number is not None and self.open_sessions[number].instance.generation < instance.generation:
            self._end(number, error)

    def take_parted(self) -> list[tuple[TopicSession, bool]]:
        """The sessions of gateways' clients that have ended since the last call, of producers that have no other
        session, and whether their names are kept for the tokens of these clients."""
        parted, self.parted = self.parted, []
        return [(session, kept) for session, kept in parted if not self.connected(session.instance.producer_id)]

    def end_of(self, pid: ProducerId, error: OncelogError) -> None:
        """End the session of this producer, if it has one."""
        number = self._by_producer.get(pid)
        if number is not None:
            self._end(number, error)

    # --- receive, check, append ---------------------------------------------------------------------------------------

    def receive(self, event: BatchesReceived) -> None:
        """Take batches of several sessions, in order."""
        for number, batches in event.runs:
            session = self.open_sessions.get(number)
            if session is not None:
                session.received.extend(batches)
                if session.blocked_on is None:
                    self._check(session)

    def _check(self, session: TopicSession) -> None:
        """Check the received batches in order, up to the first one that blocks or is refused."""
        session.blocked_on = None
        received, instance = session.received, session.instance
        while received:
            if not self.log.open:
                session.blocked_on = BlockedOn.ROLL
                return
            batch = received[0]
            # Before deduplication judges it (hazard full-disk-refuses-acks).
            if self._quota.hold:
                session.blocked_on = BlockedOn.QUOTA
                return
            if self._quota.refuse:
                self._refuse(session, batch, BacklogQuotaExceeded(QUOTA_EXCEEDED))
                return
            header = batch.header
            pid = header.producer_id
            if pid != NOT_DEDUPLICATED and (pid, header.generation) != instance:
                error = InvalidArgument("the batch is of another producer than its session", field="producer_id")
                self._refuse(session, batch, error)
                return
            verdict = self.table.check(header, deltas_of(header, batch.data))
            match verdict:
                case Accept(known=()) if header.payload_format in IN_CHUNKS:
                    if not self._accept_chunk(session, batch, verdict):
                        return
                case Accept(known=()):
                    self._accept(session, batch, verdict)
                case Accept() | NothingNew():
                    if refuses(verdict.known):
                        if not session.confirmed:
                            self._block_on_ownership(session)
                            return
                        session.confirmed = session.read_begun = False  # the next refusal needs another read
                    if isinstance(verdict, Accept):
                        self._accept(session, batch, verdict)
                    else:
                        self._known(session, batch, verdict)
                case NeedIds(position):
                    if self._is_trimmed(position):
                        self.table.state.forget_until(pid, position)
                        continue
                    session.blocked_on, session.ids_at = BlockedOn.IDS, position
                    self._step.emit(ReadEntryIds(position))
                    return
                case Wait():
                    session.blocked_on = BlockedOn.GRANT
                    return
                case Refused():
                    self._refuse(session, batch, verdict.error)
                    return
            received.popleft()

    def _block_on_ownership(self, session: TopicSession) -> None:
        session.blocked_on = BlockedOn.OWNERSHIP
        self._step.reads_ownership = True

    def _accept(self, session: TopicSession, batch: ReceivedBatch, verdict: Accept) -> None:
        skip = verdict.skip_first
        entry = self.log.append_batch(batch, skip_first=skip)
        # Readers see the messages that are not skipped, from the entry's index on.
        index = entry.header.base_index
        stored = ResultRange(ResultKind.STORED, batch.header.count - skip, entry.position, skip, index=index)
        entry.waiting.append(PendingBatchAnswer(session.number, batch.request, (*verdict.known, stored)))
        if verdict.known:
            self._count_results(session, batch, verdict.known)

    def _accept_chunk(self, session: TopicSession, batch: ReceivedBatch, verdict: Accept) -> bool:
        """Write a chunk, or the message that names its chunks. False: the session is blocked, or refused."""
        if batch.header.payload_format == PayloadFormat.CHUNKED:
            refused = self.uploads.check(session.number, batch)
            if refused is None:
                self._accept(session, batch, verdict)
                return True
            self._refuse(session, batch, refused)
            return False
        if self.uploads.waits(batch):
            session.blocked_on = BlockedOn.ROLL
            return False
        written = self.uploads.append(session.number, batch)
        if isinstance(written, OncelogError):
            self._refuse(session, batch, written)
            return False
        chunk = ResultRange(ResultKind.CHUNK, 1, written.position, 0)
        written.waiting.append(PendingBatchAnswer(session.number, batch.request, (chunk,)))
        return True

    def _known(self, session: TopicSession, batch: ReceivedBatch, verdict: NothingNew) -> None:
        known = with_content(verdict.known, self.table, batch.header, batch.data, self._checksum)
        self._count_results(session, batch, known)
        if verdict.settles_at > self.table.state.position:
            entry = self.log.at(verdict.settles_at)
            entry.waiting.append(PendingBatchAnswer(session.number, batch.request, known))
        else:
            self.due.append(BatchAnswer(session.number, batch.request, known))

    def _refuse(self, session: TopicSession, batch: ReceivedBatch, error: OncelogError) -> None:
        if not session.confirmed:
            self._block_on_ownership(session)
            return
        self._count(session, error.code, batch.header.count)
        self.refusals.refused(batch.header, error.code, now_ms=self._step.now_ms, peer=session.peer)
        self.due.append(BatchAnswer(session.number, batch.request, error))
        self._end(session.number, error, keeps_name=True)

    def _count_results(self, session: TopicSession, batch: ReceivedBatch, outcome: Outcome) -> None:
        header = batch.header
        if header.payload_format == PayloadFormat.CHUNK and decode_chunk(payload_of(header, batch.data))[0]:
            return  # its message was counted with the first of its chunks
        deltas = deltas_of(header, batch.data)
        self.refusals.known(header, deltas, outcome, now_ms=self._step.now_ms, peer=session.peer)
        for result in outcome:
            self._count(session, result.kind.name.lower(), result.count)
            if result.content_differs:
                self._count(session, "content_differs", result.count)

    def _count(self, session: TopicSession, verdict: str, count: int) -> None:
        self.counters[verdict] += count
        self.counters_of.setdefault(session.instance.producer_id, Counter())[verdict] += count

    # --- confirm, answer ----------------------------------------------------------------------------------------------

    def settle(self, entries: list[InFlight]) -> None:
        """Entries became durable: the answers that waited for them are due."""
        for entry in entries:
            for waiting in entry.waiting:
                if waiting.session in self.open_sessions:
                    self.due.append(BatchAnswer(*waiting))
            if entry.batch is not None:
                self.counters["stored"] += entry.header.count
            elif entry.chunk is not None:
                self.counters["chunk"] += 1

    def flush(self) -> None:
        """Give the answers that are due, as one effect."""
        due, self.due = self.due, []
        self._step.emit(AnswerBatches(tuple(due)))

    def quota_checked(self, verdict: QuotaVerdict) -> None:
        """The verdict of the backlog quota has changed."""
        self._quota = verdict
        self.retry(BlockedOn.QUOTA)

    # --- what unblocks ------------------------------------------------------------------------------------------------

    def entry_ids_read(self, event: EntryIdsRead) -> None:
        """The ids of an entry were read: the session of its producer goes on. Others wait for other entries."""
        if event.header is None:
            self._ids_not_read(event.position, has_record=event.has_record)
            return
        self.table.state.learn_deltas(event.position, event.header, event.deltas)
        number = self._by_producer.get(event.header.producer_id)
        session = self.open_sessions[number] if number is not None else None
        if session is not None and session.blocked_on is BlockedOn.IDS:
            self._check(session)

    def _ids_not_read(self, position: Position, *, has_record: bool) -> None:
        """The sessions that wait for this entry ask again, unless they need it no more. A restore may have left its
        ledger out, so that it has no record and is in no list: its ids are then older than the recent batches, too."""
        left_out = not has_record and not any(link.ledger_id == position.ledger_id for link in self._record().ledgers)
        for session in self._waiting_for_ids():
            if session.ids_at == position:
                if left_out:
                    self.table.state.forget_until(session.instance.producer_id, position)
                self._check(session)

    def trimmed(self) -> None:
        """The log begins later now: the sessions go on that wait for ids of an entry before that."""
        for session in self._waiting_for_ids():
            if session.ids_at is not None and self._is_trimmed(session.ids_at):
                self._check(session)

    def _waiting_for_ids(self) -> list[TopicSession]:
        return [session for session in self.open_sessions.values() if session.blocked_on is BlockedOn.IDS]

    def _is_trimmed(self, position: Position) -> bool:
        return position.ledger_id < self._record().deleted_below

    def ownership_read_begun(self) -> None:
        """A read of the topic record begins: it answers for the sessions blocked by now, not for later ones."""
        for session in self.open_sessions.values():
            session.read_begun = session.read_begun or session.blocked_on is BlockedOn.OWNERSHIP

    def ownership_confirmed(self) -> None:
        """The topic record still names this owner and epoch: the sessions that it was read for may be refused."""
        for session in self.open_sessions.values():
            session.confirmed = session.confirmed or session.read_begun
        self.retry(BlockedOn.OWNERSHIP)

    def retry(self, blocked_on: BlockedOn) -> None:
        """Check the sessions again that were blocked by this."""
        for session in list(self.open_sessions.values()):
            if session.blocked_on is blocked_on:
                self._check(session)

    def retry_producer(self, pid: ProducerId, blocked_on: BlockedOn) -> None:
        """Check the session of this producer again, if it was blocked by this."""
        number = self._by_producer.get(pid)
        if number is not None and self.open_sessions[number].blocked_on is blocked_on:
            self._check(self.open_sessions[number])

    # --- ending -------------------------------------------------------------------------------------------------------

    def _end(self, number: SessionNumber, error: OncelogError, *, keeps_name: bool = False) -> None:
        """Answers come before the end of their session."""
        if self.due:
            self.flush()
        self._close(number, keeps_name=keeps_name)
        self._step.emit(EndSession(number, error))

    def close(self, event: SessionClosed) -> None:
        """The client closed the session, or its stream broke."""
        self._close(event.session, keeps_name=event.keeps_name)

    def _close(self, number: SessionNumber, *, keeps_name: bool) -> None:
        session = self.open_sessions.pop(number, None)
        self.uploads.end(number)
        if session is not None and self._by_producer.get(session.instance.producer_id) == number:
            del self._by_producer[session.instance.producer_id]
            self.left[session.instance.producer_id] = None
            if session.client is not None:
                self.parted.append((session, keeps_name))

    def end_all(self, error: OncelogError) -> None:
        """The ledger failed or the topic is lost: every session ends."""
        for number in list(self.open_sessions):
            self._end(number, error)
