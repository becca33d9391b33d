"""One topic and its environment without faults: records, counters, storage nodes, and owners one after the other.

The effects of an owner wait in its queue until they are performed, in order; a test may hold back effects by type. So a
test can stop any owner after any step, and let another one begin.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from oncelog.core.acks.ack_state import SubscriptionsState
from oncelog.core.chain.managed_ledger import EntriesAnswered, SendAdds
from oncelog.core.chain.next_ledger import ClaimLedgerId, DeleteLedgers, LedgerIdClaimed
from oncelog.core.chain.replay import EntriesRead, EntriesUnavailable, EntryUnreadable, ReadEntries
from oncelog.core.delivery.events import MessagesRead, ReadMessages, StoredEntry
from oncelog.core.errors import EntriesLost
from oncelog.core.formats.batch import deltas_of, peek_batch
from oncelog.core.formats.entry import EntryKind, body_of, peek_header
from oncelog.core.formats.ledger_page import ListPage, decode_page, encode_page
from oncelog.core.formats.opening import Granted, ProducerOpening
from oncelog.core.formats.topic_record import CursorRecord, LedgerLink, TopicRecord
from oncelog.core.ids import EntryId, Incarnation, LedgerId, ProducerId, SessionNumber
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata, LedgerState
from oncelog.core.ledger.recovery import (
    FenceMember,
    RecoveryAdd,
    RecoveryRead,
)
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.records.records import (
    ABSENT_VERSION,
    CursorKey,
    Kind,
    PageKey,
    ReadRecord,
    RecordRead,
    TopicKey,
    WriteRecord,
    kind_of,
)
from oncelog.core.records.status import WriteStatus
from oncelog.core.topic.serving import TopicSettings
from oncelog.core.topic.topic import Topic
from oncelog.core.topic_events.effects import (
    AllocateProducerId,
    AnswerBatches,
    AnswerOpen,
    BatchAnswer,
    CheckClock,
    DeletePages,
    NotifyDedupToggled,
    ReadEntryIds,
    ReadLedgerEnds,
    ReadStoredTimes,
    StartTopicTimer,
    TopicEffect,
)
from oncelog.core.topic_events.events import (
    BatchesReceived,
    ClockChecked,
    EndOfLedger,
    EntryIdsRead,
    LedgerEndsRead,
    ProducerIdAllocated,
    ReceivedBatch,
    StoredTimesRead,
    TopicAssigned,
    TopicEvent,
    TopicTimerFired,
)
from tests.core.builders import TOPIC, A, B, C, checksum, fold
from tests.core.ledger import correct_members

SETTINGS = TopicSettings()
T = TypeVar("T")
#: Effects that a test holds back: see `Owner.run`.
READ_TOPIC, WRITE_TOPIC = (ReadRecord, TopicKey), (WriteRecord, TopicKey)
WRITE_CURSOR = (WriteRecord, CursorKey)
READ_PAGE = (ReadRecord, PageKey)
READ_LEDGER, WRITE_LEDGER = (ReadRecord, LedgerKey), (WriteRecord, LedgerKey)


@dataclass
class World:
    """The state outside of the owners."""

    topic: tuple[TopicRecord, int] = (TopicRecord(TOPIC, "public/default/t"), 0)
    cursor: tuple[CursorRecord | None, int] = (None, -1)
    ledgers: dict[LedgerId, tuple[LedgerMetadata, int]] = field(default_factory=dict)
    nodes: dict[Incarnation, dict[LedgerId, dict[int, bytes]]] = field(default_factory=lambda: {A: {}, B: {}, C: {}})
    fenced: set[tuple[Incarnation, LedgerId]] = field(default_factory=set)
    #: members that answer no adds
    silent: set[Incarnation] = field(default_factory=set)
    #: entries that nobody can read any more
    unreadable: set[tuple[LedgerId, int]] = field(default_factory=set)
    #: {entry: how often no member has it, before one comes back}
    away: dict[tuple[LedgerId, int], int] = field(default_factory=dict)
    #: by how much ZooKeeper's clock is ahead of the owners'
    ahead_ms: int = 0
    #: the pages of the topic's list of ledgers, by name
    pages: dict[LedgerId, ListPage] = field(default_factory=dict)
    #: every ledger that the log or the cursor has listed
    listed: set[LedgerId] = field(default_factory=set)
    ledger_ids: Iterator[int] = field(default_factory=lambda: count(1))
    producer_ids: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def record(self) -> TopicRecord:
        return self.topic[0]

    @property
    def links(self) -> list[LedgerLink]:
        """The ledgers of the log, with those in pages."""
        paged = [each for link in self.record.pages for each in link.listed(self.pages[link.name])]
        return [*(LedgerLink(each.ledger_id, each.base_index) for each in paged), *self.record.ledgers]

    def read(self, key: TopicKey | CursorKey | LedgerKey | PageKey) -> RecordRead[Any, Any]:
        match key:
            case TopicKey():
                return RecordRead(key, *self.topic)
            case CursorKey():
                return RecordRead(key, *self.cursor)
            case LedgerKey(ledger_id):
                return RecordRead(key, *self.ledgers.get(ledger_id, (None, -1)))
            case PageKey():
                return RecordRead(key, self.pages.get(key.name), 0)

    def written(self, record: TopicRecord | CursorRecord | LedgerMetadata, write: WriteRecord[Any, Any]) -> None:
        """The write is applied."""
        version = write.version + 1
        match record:
            case TopicRecord():
                assert record.deleted_below >= self.record.deleted_below, "floors only rise"
                assert record.acks_deleted_below >= self.record.acks_deleted_below, "floors only rise"
                self.topic = (record, version)
                self.listed |= {link.ledger_id for link in record.ledgers} | set(record.acks)
                if write.page is not None:
                    self.pages[write.page.name] = decode_page(encode_page(write.page))
            case CursorRecord():
                former = self.cursor[0]
                assert former is None or record.deleted_below >= former.deleted_below, "floors only rise"
                self.cursor = (record, version)
                self.listed |= {link.ledger_id for link in record.ledgers}
            case LedgerMetadata():
                self.ledgers[record.ledger_id] = (record, version)

    def place(self, owner: Incarnation) -> None:
        """Name an owner in the topic record (the end of the phase acquire)."""
        record, version = self.topic
        self.topic = (record.placed_on(owner), version + 1)

    def proves_deletion_of(self, ledger_id: LedgerId) -> bool:
        """Whether the record that listed this ledger proves that it was deleted (hazard missing-record-is-no-deletion),
        or it has left its list without an entry."""
        cursor = self.cursor[0]
        links = [*(link.ledger_id for link in self.links), *self.record.acks]
        floor = max(self.record.deleted_below, self.record.acks_deleted_below)
        if cursor is not None:
            links += [link.ledger_id for link in cursor.ledgers]
            floor = max(floor, cursor.deleted_below)
        metadata, _ = self.ledgers[ledger_id]
        empty = metadata.state is LedgerState.CLOSED and metadata.end < 0 and not metadata.given_up_by
        return ledger_id not in links and (ledger_id < floor or empty)

    def delete_pages(self, below: LedgerId) -> None:
        """Delete the pages below the floor, and the records of their ledgers."""
        for name, page in list(self.pages.items()):
            if page.ledgers[-1].ledger_id < below:
                for ledger in page.ledgers:
                    assert ledger.ledger_id not in self.ledgers or self.proves_deletion_of(ledger.ledger_id)
                    self.ledgers.pop(ledger.ledger_id, None)
                del self.pages[name]

    def held(self, member: Incarnation, ledger_id: LedgerId) -> dict[int, bytes]:
        """What one node holds of a ledger."""
        return self.nodes[member].setdefault(ledger_id, {})

    def entries_of(self, ledger_id: LedgerId) -> dict[int, bytes]:
        """All entries of a ledger that at least one node holds."""
        held: dict[int, bytes] = {}
        for copies in self.nodes.values():
            held.update(copies.get(ledger_id, {}))
        return held

    def folded(self) -> DedupState:
        """The fold of the whole log up to the ends of its ledgers, the last one's included when it is CLOSED."""
        state = DedupState()
        for link in self.links:
            metadata, _ = self.ledgers[link.ledger_id]
            held = self.entries_of(link.ledger_id)
            end = metadata.end if metadata.state is LedgerState.CLOSED else max(held, default=-1)
            fold(((peek_header(held[i]), held[i]) for i in range(end + 1)), into=state)
        return state

    def folded_acks(self) -> SubscriptionsState:
        """The same of the ack log, as far as it is still listed."""
        state = SubscriptionsState()
        for ledger_id in self.record.acks:
            metadata, _ = self.ledgers[ledger_id]
            held = self.entries_of(ledger_id)
            end = metadata.end if metadata.state is LedgerState.CLOSED else max(held, default=-1)
            for i in range(end + 1):
                state.fold(peek_header(held[i]), body_of(held[i]))
        return state


class Owner:
    """One process that may own the topic."""

    def __init__(
        self,
        world: World,
        me: str,
        settings: TopicSettings = SETTINGS,
        first_session: SessionNumber = SessionNumber(1),
    ) -> None:
        self.world = world
        self.now_ms = 0
        self.core = Topic(
            TOPIC, Incarnation(me), settings, checksum,
            first_session=first_session, nodes=StorageNodesUpdated((A, B, C)),
        )  # fmt: skip
        self.queue: deque[TopicEffect] = deque()
        #: all effects so far, in order
        self.effects: list[TopicEffect] = []
        self.answers: dict[int, object] = {}
        self.batches: list[BatchAnswer] = []
        self._calls = count(1)

    # --- steps of tests -----------------------------------------------------------------------------------------------

    def handle(self, event: TopicEvent) -> list[TopicEffect]:
        effects = self.core.handle(event, now_ms=self.now_ms)
        self.core.check_invariants()
        self.queue += effects
        self.effects += effects
        for effect in effects:
            if isinstance(effect, AnswerOpen):
                self.answers[effect.call] = effect.result
            elif isinstance(effect, AnswerBatches):
                self.batches += effect.answers
        return effects

    def step(self, *hold: Kind) -> bool:
        """Perform the first effect that is not held back. Returns whether there was one."""
        for i, effect in enumerate(self.queue):
            if kind_of(effect) not in hold:
                del self.queue[i]
                for event in self._perform(effect):
                    self.handle(event)
                return True
        return False

    def run(self, *hold: Kind) -> "Owner":
        """Perform all effects except those held back, which stay in the queue."""
        while self.step(*hold):
            pass
        return self

    def take_over(self, *hold: Kind) -> "Owner":
        self.world.place(self.core.ownership.me)
        self.handle(TopicAssigned())
        return self.run(*hold)

    def ask(self, name: str | None, *hold: Kind, **fields: object) -> int:
        """Ask for a session; returns the call."""
        call = next(self._calls)
        self.handle(ProducerOpening(call, name, **fields))  # type: ignore[arg-type]
        self.run(*hold)
        return call

    def open(self, name: str | None = "p", **fields: object) -> Granted:
        granted = self.answers[self.ask(name, **fields)]
        assert isinstance(granted, Granted), granted
        return granted

    def send(self, session: SessionNumber, *batches: ReceivedBatch) -> None:
        self.handle(BatchesReceived([(session, list(batches))]))

    def tick(self, after_ms: int = 0) -> "Owner":
        self.now_ms += after_ms
        self.handle(TopicTimerFired("tick"))
        return self

    def roll(self) -> None:
        """Begin a planned roll of the log, as age or size would, until the ledger accepts no more entries."""
        serving = self.core.serving
        assert serving is not None
        serving.log.ledgers.roll()
        self.queue += self.core._step.take()
        while serving.log.open:
            self.step()

    def result(self, request: int) -> object:
        (found,) = [answer.result for answer in self.batches if answer.request == request]
        return found

    def emitted(self, kind: type[T]) -> list[T]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def writes(self, key: type, effects: Iterable[TopicEffect] | None = None) -> list[WriteRecord[Any, Any]]:
        """The writes of this kind of record among all effects so far, or among these."""
        among = self.effects if effects is None else effects
        return [effect for effect in among if isinstance(effect, WriteRecord) and isinstance(effect.key, key)]

    def created_ledgers(self) -> list[LedgerId]:
        """The ledgers whose records this owner has begun to create."""
        return [write.key.ledger_id for write in self.writes(LedgerKey) if write.version == ABSENT_VERSION]

    # --- the environment ----------------------------------------------------------------------------------------------

    def _perform(self, effect: TopicEffect) -> list[TopicEvent]:
        world = self.world
        match effect:
            case ReadRecord():
                return [self.world.read(effect.key)]
            case WriteRecord():
                fits = world.read(effect.key).version == effect.version
                if fits:
                    world.written(effect.value, effect)
                return [effect.answered(WriteStatus.OK if fits else WriteStatus.CONFLICT, effect.version + 1)]
            case ClaimLedgerId():
                return [LedgerIdClaimed(effect.purpose, LedgerId(next(world.ledger_ids)))]
            case AllocateProducerId():
                return [ProducerIdAllocated(effect.allocation, ProducerId(next(world.producer_ids)))]
            case DeleteLedgers():
                for ledger_id in effect.ledger_ids:
                    assert ledger_id not in world.listed or world.proves_deletion_of(ledger_id), "no proof of its end"
                    del world.ledgers[ledger_id]
                return []
            case DeletePages(below):
                world.delete_pages(below)
                return []
            case StartTopicTimer() | NotifyDedupToggled():
                return []
            case _:
                return self._storage(effect)

    def _storage(self, effect: TopicEffect) -> list[TopicEvent]:
        world = self.world
        match effect:
            case SendAdds():
                return [event for member in effect.members for event in self._add(effect, member)]
            case FenceMember():
                world.fenced.add((effect.member, effect.ledger_id))
                return [correct_members.fenced(effect, world.held(effect.member, effect.ledger_id))]
            case RecoveryRead():
                return [correct_members.read(effect, world.held(effect.member, effect.ledger_id))]
            case RecoveryAdd():
                return [correct_members.added(effect, world.held(effect.member, effect.ledger_id))]
            case ReadEntries():
                return self._read(effect)
            case ReadMessages():
                return [MessagesRead(effect.number, effect.first_index, self._messages(effect))]
            case ReadEntryIds(position):
                body = body_of(world.entries_of(position.ledger_id)[position.entry_id])
                header = peek_batch(body)
                return [EntryIdsRead(position, header, bytes(deltas_of(header, body)))]
            case ReadLedgerEnds(ledger_ids):
                return [LedgerEndsRead(tuple(self._end(ledger_id) for ledger_id in ledger_ids))]
            case ReadStoredTimes(indexes):
                return [StoredTimesRead({index: self.stored_ms(index) for index in indexes})]
            case CheckClock():
                return [ClockChecked(self.now_ms, self.now_ms + world.ahead_ms)]
            case _:
                return []

    def _end(self, ledger_id: LedgerId) -> EndOfLedger:
        metadata, held = self.world.ledgers[ledger_id][0], self.world.entries_of(ledger_id)
        appended_ms = peek_header(held[metadata.end]).append_time_ms if metadata.end >= 0 else 0
        return EndOfLedger(ledger_id, metadata.end, metadata.length, appended_ms)

    def stored_ms(self, index: int) -> int | None:
        """The append time of a message; None: no entry holds it."""
        headers = (
            peek_header(data) for ledger_id in self.world.ledgers for data in self.world.entries_of(ledger_id).values()
        )
        return next((each.append_time_ms for each in headers if each.base_index <= index < each.next_index), None)

    def _messages(self, effect: ReadMessages) -> tuple[StoredEntry, ...]:
        """The durable entries of messages from the one on that holds an index."""
        serving = self.core.serving
        end = serving.log.table.state.next_index if serving is not None else 0
        found: list[StoredEntry] = []
        for link in self.world.links:
            for _, data in sorted(self.world.entries_of(link.ledger_id).items()):
                header = peek_header(data)
                if header.kind == EntryKind.MESSAGES and effect.first_index < header.next_index <= end:
                    found.append(StoredEntry(header.position, header.base_index, header.count, header.skip_first, data))
        return tuple(found)

    def _add(self, effect: SendAdds, member: Incarnation) -> list[TopicEvent]:
        if member in self.world.silent:
            return []
        ids = [add.entry_id for add in effect.adds]
        if (member, effect.ledger_id) in self.world.fenced:
            return [EntriesAnswered(effect.ledger_id, member, ids, AppendStatus.FENCED)]
        held = self.world.held(member, effect.ledger_id)
        held.update({add.entry_id: b"".join(map(bytes, add.parts)) for add in effect.adds})
        return [EntriesAnswered(effect.ledger_id, member, ids, AppendStatus.OK)]

    def _read(self, effect: ReadEntries) -> list[TopicEvent]:
        """One entry at a time, so that a takeover can be stopped between any two."""
        ledger_id = effect.metadata.ledger_id
        events: list[TopicEvent] = []
        held = self.world.entries_of(ledger_id)
        lost = self.world.ledgers[ledger_id][0].lost
        for i in range(effect.first, effect.last + 1):
            for first, last in lost:
                if first <= i <= last:
                    unreadable = EntryUnreadable(ledger_id, EntryId(i), "it is lost", (), EntriesLost.code, last)
                    return [*events, unreadable]
            if (ledger_id, i) in self.world.unreadable or i not in held:
                return [*events, EntryUnreadable(ledger_id, EntryId(i), "nobody holds it")]
            if self.world.away.get((ledger_id, i), 0):
                self.world.away[ledger_id, i] -= 1
                return [*events, EntriesUnavailable(ledger_id, EntryId(i), effect.last, "two are away", (A, B))]
            events.append(EntriesRead(ledger_id, [(EntryId(i), held[i])]))
        return events
