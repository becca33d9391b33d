"""The shell of one storage node: one event loop drives the core, without an await between an event and its effects.

So the fence check, the note that an entry is held, and the record in the journal's queue are one step. The journal gets
its records in the order in which the core decided them.

    frames, fences, reads --> core --WriteJournal--> journal --Synced(lsn)--> core --> answers
                                   --CheckLedger--> ledger record, read after a sync, retried until answered --> core
                                   --VerifyLedger--> the ledger's entries, read back from the disk --> core
                                   --TouchRecord--> one compare-and-set on the ledger record --> core
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar, assert_never

from crc32c import crc32c

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import (
    CorruptEntry,
    InvariantViolated,
    JournalFailed,
    TooManyRequests,
)
from oncelog.core.formats.entry import HEADER_BYTES, peek_header
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.node.answers import (
    AnswerAppend,
    AnswerFence,
    AnswerRead,
    FenceReceived,
    LedgerErased,
    LimboCleared,
    ReadReceived,
)
from oncelog.core.node.era import AnswerEra, EraRaised, EraReceived, EraVerdict
from oncelog.core.node.node import (
    AppendReceived,
    DamageFound,
    ReadOnlyChanged,
    RecordsOpened,
    StorageEvent,
    StorageNode,
    Synced,
    WriteJournal,
)
from oncelog.core.node.node_ledger import JournalRecord
from oncelog.core.node.review import (
    AllReviewed,
    AnswerReview,
    CheckLedger,
    LedgerOrphaned,
    ReviewReceived,
    TouchRecord,
    VerifyLedger,
)
from oncelog.log_storage.directory.holes import encode_holes
from oncelog.log_storage.directory.index import LedgerIndex
from oncelog.log_storage.directory.replay import Replayed, replay
from oncelog.log_storage.directory.segment_format import SegmentRecord
from oncelog.log_storage.directory.segment_reader import Verified
from oncelog.log_storage.directory.segment_writer import DiskCalls
from oncelog.log_storage.directory.storage_directory import StorageDirectory
from oncelog.log_storage.serve.journal import Journal
from oncelog.log_storage.serve.ledger_checks import LedgerChecks, LedgerRecords
from oncelog.metadata_store.session.answers import until_answered
from oncelog.rpc.codecs.storage_codec import ReceivedAppend
from oncelog.runtime.observing.events import EventKind, EventRing

logger = logging.getLogger(__name__)

#: Fences, reads and reviews that may wait at the same time.
CALLS_MAX = 1024
#: Holes that are logged one by one; `oncelog storage inspect` lists all.
LOGGED_HOLES_MAX = 20
_CRC_AT = slice(4, 8)
Answer = AnswerFence | AnswerRead | AnswerEra | AnswerReview
AnswerT = TypeVar("AnswerT", AnswerFence, AnswerRead, AnswerEra, AnswerReview)


#: Called once if the journal fails; the process must then end.
OnFailed = Callable[[JournalFailed], None]
#: The synced counter of ledger ids: every ledger that exists has a lower id. Raises StoreUnavailable, CorruptEntry.
LedgerCounter = Callable[[], Awaitable[LedgerId]]


class AppendAnswers(Protocol):
    """Receives the answers of one stream of adds."""

    def answered(self, ledger_id: LedgerId, entry_ids: list[EntryId], status: AppendStatus) -> None: ...


@dataclass(slots=True)
class NodeCounts:
    """Counters of this node since its start, for metrics."""

    entries_received: int = 0
    bytes_received: int = 0
    groups_synced: int = 0
    fences: int = 0
    reads: int = 0
    bytes_read: int = 0
    #: of these, to readers with a ticket
    ticket_bytes_read: int = 0
    entries_unreadable: int = 0
    checks: int = 0
    #: ledgers kept although their records are missing, because nothing proves that they were deleted
    orphaned: set[LedgerId] = field(default_factory=set)
    #: {status: entries}
    answered: dict[AppendStatus, int] = field(default_factory=lambda: dict.fromkeys(AppendStatus, 0))


class NodeIndex:
    """The core's view of the stored entries."""

    def __init__(self, index: LedgerIndex) -> None:
        self.entries = index
        self.journal: Journal | None = None

    def contains(self, ledger_id: LedgerId, entry_id: EntryId) -> bool:
        return self.entries.contains(ledger_id, entry_id)

    def last_entry(self, ledger_id: LedgerId) -> int | None:
        return self.entries.last_entry(ledger_id)

    def count_up_to(self, ledger_id: LedgerId, end: EntryId) -> int:
        return self.entries.count_up_to(ledger_id, end)

    def entry_crc(self, ledger_id: LedgerId, entry_id: EntryId) -> int | None:
        """Reads the disk, but only for repeated adds: a recovery sends those, a healthy writer does not."""
        assert self.journal is not None
        try:
            data = self.journal.read(ledger_id=ledger_id, entry_id=entry_id)
        except CorruptEntry as error:
            logger.error("a damaged entry is stored again", extra={"fields": {"reason": error.message}})
            return None
        return None if data is None or len(data) < HEADER_BYTES else int.from_bytes(data[_CRC_AT], "little")


class NodeRunner:
    """Created by `read`. All methods run on the event loop."""

    def __init__(self, directory: StorageDirectory) -> None:
        self.incarnation = incarnation = Incarnation(directory.identity.incarnation)
        self._directory = directory
        self.events = EventRing("log_storage", incarnation)
        self.counts = NodeCounts()
        self.index = NodeIndex(LedgerIndex())
        self.read_only = False
        self.repairs_refused = False
        self.core = StorageNode(incarnation, self.index, crc32c)
        #: none before `begin`: without records nothing is checked
        self._checks: LedgerChecks | None = None
        self._next_call = 0
        self._appenders: dict[int, tuple[AppendAnswers, Era]] = {}
        #: called when the node has taken another era, before that is durable
        self.on_era: list[Callable[[Era], object]] = []
        #: called when a service states a higher era
        self.on_newer_caller: Callable[[], object] = lambda: None
        self._calls: dict[int, asyncio.Future[Answer]] = {}
        self._group_synced = asyncio.Event()
        #: Called when the journal has begun another segment.
        self.on_rolled: Callable[[], object] = lambda: None
        self._written_segment: int | None = None

    @classmethod
    async def read(
        cls,
        directory: StorageDirectory,
        *,
        on_failed: OnFailed,
        disk: DiskCalls | None = None,
    ) -> Self:
        """Replay the directory. What it has can be read; nothing is changed in it before `begin` or `raise_era`."""
        runner = cls(directory)
        replayed = await asyncio.to_thread(replay, directory, disk or DiskCalls())
        runner._restore(replayed)
        loop = asyncio.get_running_loop()
        runner.index.journal = Journal(
            directory, replayed, loop=loop, on_synced=runner._synced, on_failed=on_failed, disk=disk
        )
        runner.journal.damage.on_noted = runner._damage_noted_on(loop)
        return runner

    async def begin(self, records: LedgerRecords, ledger_counter: LedgerCounter) -> None:
        """Make the end of the directory durable, and become ready for every event.

        ledger_counter: asked only if the directory has new holes. Raises JournalFailed.
        """
        self._checks = LedgerChecks(self.incarnation, records, self.verify, self.handle)
        if self._directory.new_holes:
            self._enter_limbo(await until_answered("the ledger counter", ledger_counter))
        self._begin_journal()

    def _begin_journal(self) -> None:
        """Raises JournalFailed."""
        if self.journal.begun:
            return
        try:
            self.journal.begin()
        except OSError as error:
            path = self._directory.path
            raise JournalFailed(f"{path}: cannot make its end durable: {error}; check the disk") from error

    def _enter_limbo(self, counter: LedgerId) -> None:
        """The directory has new holes: the ledgers that exist now may lack entries (hazard damaged-fence)."""
        directory = self._directory
        holes = directory.new_holes
        self.events.note(
            EventKind.COPY_LOST, logger,
            "the directory is damaged: the node starts in limbo, and repair restores what it lacks", level="error",
            path=str(directory.path), holes=[hole._asdict() for hole in holes[:LOGGED_HOLES_MAX]],
            hole_count=len(holes),
        )  # fmt: skip
        directory.enter_limbo(max(counter, LedgerId(max(self.index.entries.ledgers(), default=-1) + 1)))
        self.core.restore_limbo(LedgerId(directory.limbo_below))

    def _restore(self, replayed: Replayed) -> None:
        core = self.core
        self.index.entries = replayed.index
        for ledger_id, origin in replayed.erased.items():
            core.restore_erasure(ledger_id, origin)
        for header, ordinary in replayed.entries():
            core.restore_entry(header, ordinary=ordinary)
        for ledger_id in replayed.fenced:
            core.restore_fence(ledger_id)
        core.restore_era(replayed.era)
        core.restore_limbo(replayed.limbo_below)
        for chain, (below, _) in replayed.control.floors.items():
            core.restore_floor(chain, LedgerId(below))
        for ledger_id in replayed.limbo_cleared:
            core.restore_limbo_cleared(ledger_id)

    @property
    def journal(self) -> Journal:
        assert self.index.journal is not None
        return self.index.journal

    @property
    def limbo_below(self) -> LedgerId:
        """Of every lower ledger entries may be missing here; 0: of none.

        A hole that was found at this start counts although it is not noted yet, for all ledgers of the era: their
        counter is not known.
        """
        below = self.core.ledgers.limbo.below
        return max(below, LedgerId(Era(self.era.number + 1, "").first_id)) if self._directory.new_holes else below

    def in_limbo(self, ledger_id: LedgerId) -> bool:
        """Whether entries of the ledger may be missing here, also if a record, which may be lost, did not name this
        node."""
        return self.core.ledgers.limbo.covers(ledger_id) or (
            bool(self._directory.new_holes) and ledger_id < self.limbo_below
        )

    @property
    def ledger_count(self) -> int:
        """Ledgers with an entry on this node."""
        return sum(1 for _ in self.index.entries.ledgers())

    def newest_ledger(self) -> LedgerId | None:
        """The highest id of a ledger with an entry or a fence on this node."""
        return max(map(LedgerId, {*self.index.entries.ledgers(), *self.journal.control.fences}), default=None)

    def newest_stored(self) -> LedgerId | None:
        """The highest id of a ledger with an entry on this node."""
        return max(map(LedgerId, self.index.entries.ledgers()), default=None)

    async def close(self) -> None:
        """Sync and confirm all records, end the journal. Requests that still wait get no answer."""
        if self._checks is not None:
            self._checks.cancel()
        for answer in self._calls.values():
            answer.cancel()
        await self.journal.close()

    # --- what the service asks ---------------------------------------------------------------------------------------

    def open_appender(self, answers: AppendAnswers, era: Era = FIRST_ERA) -> int:
        """Returns the number under which its frames are appended. era: of the client."""
        self._next_call += 1
        self._appenders[self._next_call] = answers, era
        return self._next_call

    def close_appender(self, call: int) -> None:
        """Entries that are being written stay accepted; their answers are dropped."""
        del self._appenders[call]

    def append(self, call: int, frame: ReceivedAppend) -> None:
        """Raises CorruptEntry if any part of the frame is not an entry; then nothing of the frame is stored."""
        entries = [(peek_header(data), data) for data in frame.entries]
        self.counts.entries_received += len(entries)
        self.counts.bytes_received += sum(map(len, frame.entries))
        era = self._appenders[call][1]
        self.handle(AppendReceived(call, frame.target, entries, frame.recovery, frame.repair, era))

    async def until_room(self, queue_bytes_max: int) -> None:
        """Wait until at most this many bytes wait for the disk. Until then a stream is not read."""
        while self.journal.pending_bytes > queue_bytes_max:
            self._group_synced.clear()
            await self._group_synced.wait()

    async def fence(self, target: Incarnation, ledger_id: LedgerId) -> AnswerFence:
        """Returns once the fence is durable. Raises TooManyRequests."""
        self.counts.fences += 1
        return await self._call(AnswerFence, lambda call: FenceReceived(call, target, ledger_id))

    async def look_up(
        self, target: Incarnation, ledger_id: LedgerId, first: EntryId, count: int, *, fence: bool
    ) -> AnswerRead:
        """Which of the ids are held. Waits for entries that are being written. Raises TooManyRequests."""
        return await self._call(AnswerRead, lambda call: ReadReceived(call, target, ledger_id, first, count, fence))

    async def review(self, target: Incarnation, ledger_id: LedgerId) -> AnswerReview:
        """Read the ledger's record and act on it. Returns when that is done. Raises TooManyRequests."""
        return await self._call(AnswerReview, lambda call: ReviewReceived(call, target, ledger_id))

    @property
    def era(self) -> Era:
        return self.core.era

    def all_reviewed(self) -> None:
        """The reviewer has looked at every ledger: if none is in limbo, the directory lacks nothing any more."""
        if self.core.ledgers.limbo.below:
            self.handle(AllReviewed(encode_holes(self._directory.holes)))

    def refuse_era(self, caller: Era) -> None:
        """Raises StaleEra, ServiceUnavailable for a service of another era."""
        stored = self.core.ledgers.era
        if stored.judge(caller) is EraVerdict.AHEAD:
            self.on_newer_caller()
        stored.refuse(caller)

    async def raise_era(self, target: Incarnation, era: Era, *, committed: bool) -> AnswerEra:
        """Returns once the era that the answer names is durable. Raises TooManyRequests, JournalFailed."""
        stored = self.core.ledgers.era
        if target == self.incarnation and stored.raised(era, committed=committed) != stored:
            if self._directory.new_holes:
                # Without ZooKeeper there is no counter. All ledgers of former eras have lower ids than this era's.
                self._enter_limbo(LedgerId(era.first_id))
            self._begin_journal()
        return await self._call(AnswerEra, lambda call: EraReceived(call, target, era, committed))

    async def join_era(self, era: Era) -> None:
        """After `StoredEra.why_newer`: the records in ZooKeeper are those of this era, which the cluster serves in."""
        await self.raise_era(self.incarnation, era, committed=True)
        self.handle(RecordsOpened(era))

    async def verify(self, ledger_id: LedgerId, first: EntryId, entries_max: int, bytes_max: int) -> Verified:
        """Read entries back from the disk; see `SegmentReader.verify`."""
        journal = self.journal
        plan = journal.plan_verify(ledger_id=ledger_id, first=first, entries_max=entries_max, bytes_max=bytes_max)
        return await asyncio.to_thread(journal.reader.verify, plan)

    def _damage_noted_on(self, loop: asyncio.AbstractEventLoop) -> Callable[[int, int], object]:
        """The damage is found on any thread. The core takes it on the loop."""
        return lambda ledger_id, entry_id: loop.call_soon_threadsafe(self._damage_noted, ledger_id, entry_id)

    def _damage_noted(self, ledger_id: int, entry_id: int) -> None:
        """A read, the scrubber or compaction has found another entry that is damaged."""
        self.counts.entries_unreadable += 1
        self.events.note(
            EventKind.COPY_LOST, logger, "damaged entries found; repair looks for sound copies elsewhere",
            level="error", repeats=True, ledger_id=ledger_id,
        )  # fmt: skip
        self.handle(DamageFound(LedgerId(ledger_id), (EntryId(entry_id),)))

    async def _call(self, kind: type[AnswerT], event_of: Callable[[int], StorageEvent]) -> AnswerT:
        if len(self._calls) >= CALLS_MAX:
            raise TooManyRequests(f"{CALLS_MAX} fences, reads and reviews are already waiting: retry")
        self._next_call += 1
        call = self._next_call
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._calls[call] = waiting
        try:
            self.handle(event_of(call))
            answer = await waiting
        finally:
            del self._calls[call]
        assert isinstance(answer, kind)
        return answer

    def set_read_only(self, read_only: bool, *, repairs_refused: bool = False) -> None:
        self.read_only, self.repairs_refused = read_only, repairs_refused
        self.handle(ReadOnlyChanged(read_only, repairs_refused))

    # --- events and effects ------------------------------------------------------------------------------------------

    def handle(self, event: StorageEvent) -> None:
        """Perform one step. Raises InvariantViolated, and JournalFailed once the journal has stopped."""
        for effect in self.core.handle(event):
            match effect:
                case AnswerAppend():
                    self._answer_append(effect)
                case WriteJournal():
                    self._write(effect.records)
                case AnswerFence() | AnswerRead() | AnswerEra() | AnswerReview():
                    answer = self._calls.get(effect.call)
                    if answer is not None and not answer.done():
                        answer.set_result(effect)
                case CheckLedger() | VerifyLedger() | TouchRecord():
                    self.counts.checks += isinstance(effect, CheckLedger)
                    assert self._checks is not None, "adds and reviews are served after `begin`"
                    self._checks.begin(effect)
                case LedgerErased(ledger_id):
                    self.counts.orphaned.discard(ledger_id)
                    logger.info("erased this node's copy of a ledger", extra={"fields": {"ledger_id": ledger_id}})
                case LimboCleared(ledger_id):
                    self.events.note(
                        EventKind.COPY_FOUND, logger, "a ledger is not in limbo any more", ledger_id=ledger_id
                    )
                case EraRaised(era):
                    self._era_raised(era)
                case LedgerOrphaned():
                    self._report_orphan(effect.ledger_id)
                case _:
                    assert_never(effect)

    def _answer_append(self, effect: AnswerAppend) -> None:
        self.counts.answered[effect.status] += len(effect.entry_ids)
        appender = self._appenders.get(effect.call)
        if appender is not None:
            appender[0].answered(effect.ledger_id, effect.entry_ids, effect.status)

    def _write(self, records: Sequence[JournalRecord]) -> None:
        batch = [SegmentRecord(kind, ledger_id, entry_id, data) for _, kind, ledger_id, entry_id, data in records]
        last = self.journal.append_many(batch)
        if last != records[-1].lsn:
            raise InvariantViolated(f"the journal counts {last} records, the core {records[-1].lsn}")

    def _era_raised(self, era: Era) -> None:
        self.events.note(EventKind.NODE, logger, "the node has taken another era", era=str(era))
        for raised in self.on_era:
            raised(era)

    def _report_orphan(self, ledger_id: LedgerId) -> None:
        """Log each ledger once."""
        if ledger_id not in self.counts.orphaned:
            self.counts.orphaned.add(ledger_id)
            self.events.note(
                EventKind.COPY_LOST, logger,
                "the record of a ledger is missing in ZooKeeper, but nothing proves that the ledger was deleted: its "
                "entries are kept; restore the record",
                level="error", ledger_id=ledger_id,
            )  # fmt: skip

    def _synced(self, lsn: int) -> None:
        self.counts.groups_synced += 1
        self.handle(Synced(lsn))
        self._group_synced.set()
        if self.journal.written_segment != self._written_segment:
            self._written_segment = self.journal.written_segment
            self.on_rolled()
