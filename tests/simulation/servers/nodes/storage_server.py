"""A storage node's process: its core, its disk, one fsync at a time, and the checks of the metadata store.

A place keeps its name; a directory has an incarnation. A wiped directory is another incarnation at the same place, and
calls for the former one are refused there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.formats.batch import Buffer, Checksum
from oncelog.core.formats.entry import EntryHeader
from oncelog.core.formats.note import Note
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, encode_ledger
from oncelog.core.node.answers import (
    AnswerAppend,
    AnswerFence,
    AnswerRead,
    FenceReceived,
    LedgerErased,
    LimboCleared,
    ReadReceived,
)
from oncelog.core.node.era import AnswerEra, EraRaised, EraReceived, EraState, EraVerdict
from oncelog.core.node.node import AppendReceived, RecordsOpened, StorageEvent, StorageNode, Synced, WriteJournal
from oncelog.core.node.node_ledger import LedgerOrigin, was_deleted
from oncelog.core.node.review import (
    AnswerReview,
    CheckLedger,
    LedgerChecked,
    LedgerOrphaned,
    LedgerVerified,
    RecordTouched,
    ReviewReceived,
    TouchRecord,
    VerifyLedger,
)
from oncelog.core.records.status import WriteStatus
from oncelog.core.repair.events import CopyVerified, VerifyCopy, VerifyStatus
from tests.core.node.stored_records import Index, restore
from tests.simulation.network import Network
from tests.simulation.servers.nodes.disk import Disk
from tests.simulation.servers.nodes.node_starts import RETRY_TICKS, NodeStart
from tests.simulation.servers.store.decoding import decode_cursor, decode_ledger, decode_topic
from tests.simulation.servers.store.store import OLD, Store
from tests.simulation.world import Process, World


def floor_of(data: bytes | None, origin: LedgerOrigin | None) -> LedgerId:
    """The floor of a chain in its record; 0 without a record."""
    if data is None or origin is None:
        return LedgerId(0)
    if origin.purpose is LedgerPurpose.DEDUP:
        return decode_cursor(data).deleted_below
    record = decode_topic(data)
    return record.deleted_below if origin.purpose is LedgerPurpose.LOG else record.acks_deleted_below


class ReadReply(NamedTuple):
    """An AnswerRead with the bytes of what is present; what is not found is damaged."""

    answer: AnswerRead
    found: dict[EntryId, bytes]


Reply = AnswerAppend | AnswerFence | ReadReply | AnswerReview | AnswerEra


@dataclass(frozen=True, slots=True)
class NodeParts:
    """State that all storage nodes of a cluster share. make: creates the core; a mutant can replace it."""

    world: World
    network: Network
    store: Store
    checksum: Checksum
    #: called with each node and ledger when the node has erased its copy
    erased: Callable[[Incarnation, LedgerId], None]
    make: Callable[[Incarnation, Index, Checksum], StorageNode] = StorageNode
    #: whether what a start reads back is synced before it is served (hazard repeated-add-not-synced)
    sync_at_start: bool = True
    #: between two reviews of all ledgers; 0: none but those that a fault asks for
    review_ticks: int = 0
    #: called when a node has registered that could not start before
    changed: Callable[[], None] = lambda: None


class StorageServer(Process):
    """One place for a storage node."""

    def __init__(self, parts: NodeParts, name: str) -> None:
        super().__init__(parts.world, name)
        self.parts = parts
        #: of the newest era that this node has seen to be committed
        self.store = parts.store
        self.incarnations = 0
        #: {incarnation: directory} of every directory that ever was here, the present one last
        self.disks: dict[Incarnation, Disk] = {}
        self.index = Index({})
        self.core = StorageNode(Incarnation(""), self.index, parts.checksum)
        #: (call, {call: how to reply}) of this life
        self.calls: tuple[int, dict[int, Callable[[Reply], None]]] = (0, {})
        #: records handed to the disk before this life, and whether an fsync runs
        self._base = (0, False)
        #: the present start; interrupted: the next one ends before it is noted in the store
        self.present: NodeStart
        self.interrupted = False
        #: {path: note}. A node that joins copies all notes first, so a replaced directory has them, too.
        self.notes: dict[str, Note] = {}
        #: another process with a copy of the directory, and the names of the processes that reach that one
        self.beside: tuple[StorageServer, frozenset[str]] | None = None
        self.wipe()

    # --- lives --------------------------------------------------------------------------------------------------------

    def mount(self, incarnation: Incarnation, disk: Disk) -> None:
        """This is the directory from now on."""
        self.incarnation, self.disk = incarnation, disk
        self.disks[incarnation] = disk

    def wipe(self) -> None:
        """Replace the directory by an empty one while the process is down."""
        self.incarnations += 1
        self.mount(Incarnation(f"{self.name}.{self.incarnations}"), Disk())

    def start(self) -> None:
        super().start()
        self.store = self.parts.store.newest
        self.present = NodeStart(self)
        if self.present.is_refused():
            self.world.count("copy of a directory refused")
            self.end_and_retry()
            return
        if self.parts.sync_at_start:
            self.disk.reopen()
        self.present.look()
        self.index = Index(self.disk.damaged)
        self.core = self.parts.make(self.incarnation, self.index, self.parts.checksum)
        self.calls = (0, {})
        #: {ledger: what its check waits for from the store}
        self._checks: dict[LedgerId, CheckLedger | TouchRecord] = {}
        self._base = (len(self.disk.records), False)
        for record in self.disk.records:
            self.index.restore(record)
            restore(self.core, record)
        self.present.begin()
        if self.alive and self.store.era != FIRST_ERA:
            self.handle(RecordsOpened(self.store.era))
            self.join_era()
        if self.alive:
            self.register()
        if self.alive and self.parts.review_ticks:
            self.post(self.world.rng.randint(1, self.parts.review_ticks), "reviews", self._review_periodically)

    def end_and_retry(self) -> None:
        """The process ends by itself, and is started again."""
        super().crash()
        life = self.life

        def again() -> None:
            if self.life == life:
                self.start()
                self.parts.changed()

        self.world.after(RETRY_TICKS, f"{self.name} starts again", again)

    def at(self, sender: str) -> "StorageServer":
        """The process that a sender reaches by this node's name."""
        return self.beside[0] if self.beside is not None and sender in self.beside[1] else self

    def _review_periodically(self) -> None:
        self.post(self.parts.review_ticks, "reviews", self._review_periodically)
        self.collect()

    # --- eras ---------------------------------------------------------------------------------------------------------

    def raise_era(self, era: Era, reply: Callable[[Reply], None], *, committed: bool = False) -> None:
        self.call(lambda call: EraReceived(call, self.incarnation, era, committed), reply)

    def join_era(self) -> None:
        """The cluster's record names a new era: take it, and then its records (`log_storage`'s registration)."""
        newest = self.parts.store.newest

        def raised(answer: Reply) -> None:
            if not isinstance(answer, AnswerEra) or answer.era != newest.era:
                self.world.count("storage node waits in a higher era")
                return
            former, self.store = self.store, newest
            for check in list(self._checks.values()) if former.was_lost else ():
                self._ask_again(check)
            self.present.join_era()
            self.handle(RecordsOpened(newest.era))
            if self.core.ledgers.era.state is EraState.JOINED_LATE:
                self.world.count("era joined late")
            if self.alive:
                self.register()
                self.parts.changed()

        self.raise_era(newest.era, raised, committed=True)

    def _ask_again(self, check: CheckLedger | TouchRecord) -> None:
        """As `log_storage.serve.ledger_checks`: reads are retried until they are answered, a write is sent once."""
        match check:
            case CheckLedger():
                self._check(check)
            case TouchRecord():
                self._answered(check, RecordTouched(check.ledger_id, check.check, WriteStatus.UNKNOWN))

    def _answered(self, check: CheckLedger | TouchRecord, event: LedgerChecked | RecordTouched) -> None:
        if self._checks.get(check.ledger_id) is check:
            del self._checks[check.ledger_id]
        self.handle(event)

    def refuses(self, era: Era) -> bool:
        """Whether a call is refused because its caller was of another era when it sent it."""
        return self.core.ledgers.era.judge(era) is not EraVerdict.SAME

    def register(self) -> None:
        """The ephemeral only names the node to connect to; the cookie stays."""
        store = self.store
        if self.core.era != store.era:
            return
        if self.present.refuses_older_store():
            self.world.count("older store refused")
            self.end_and_retry()
            return
        store.records.setdefault(f"storage_cookies/{self.incarnation}", (self.name.encode(), 0))
        if f"storage/{self.incarnation}" not in store.records:
            store.put(f"storage/{self.incarnation}", self.name.encode(), -1)

    def crash(self) -> None:
        super().crash()
        if self.disk.crash(self.world.rng):
            self.world.count("unsynced writes lost")
            if self.disk.torn:
                self.world.count("torn tail")

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(self, make: Callable[[int], StorageEvent], reply: Callable[[Reply], None]) -> None:
        """Take one call as it arrives."""
        number = self.calls[0] + 1
        self.calls = (number, self.calls[1])
        self.calls[1][number] = reply
        self.handle(make(number))

    def append(
        self, target: Incarnation, entries: Sequence[tuple[EntryHeader, Buffer]], reply: Callable[[Reply], None],
        *, recovery: bool = False, repair: bool = False, era: Era = FIRST_ERA,
    ) -> None:  # fmt: skip
        self.call(lambda call: AppendReceived(call, target, entries, recovery, repair, era), reply)

    def fence(self, target: Incarnation, ledger_id: LedgerId, reply: Callable[[Reply], None]) -> None:
        self.call(lambda call: FenceReceived(call, target, ledger_id), reply)

    def read(
        self, target: Incarnation, ledger_id: LedgerId, span: tuple[EntryId, int], reply: Callable[[Reply], None],
        *, fence: bool,
    ) -> None:  # fmt: skip
        self.call(lambda call: ReadReceived(call, target, ledger_id, *span, fence), reply)

    def review(self, target: Incarnation, ledger_id: LedgerId, reply: Callable[[Reply], None]) -> None:
        self.call(lambda call: ReviewReceived(call, target, ledger_id), reply)

    def verify(self, ledger_id: LedgerId, first: EntryId, beyond: EntryId) -> tuple[list[EntryId], list[EntryId]]:
        """(missing, unreadable) of these ids, as the medium has them now."""
        missing: list[EntryId] = []
        unreadable: list[EntryId] = []
        for entry_id in map(EntryId, range(first, beyond)):
            if not self.index.contains(ledger_id, entry_id):
                missing.append(entry_id)
            elif self.index.read(ledger_id, entry_id) is None:
                unreadable.append(entry_id)
        return missing, unreadable

    def verify_copy(self, effect: VerifyCopy, reply: Callable[[CopyVerified], None]) -> None:
        """Verify as the service answers it: in limbo an entry that is not found is unreadable."""
        ledger_id, first = effect.ledger_id, effect.first
        ledger = self.core.ledgers.peek(ledger_id)
        if effect.node != self.incarnation or ledger.erasing:
            reply(CopyVerified(effect.node, first, VerifyStatus.SILENT))
            return
        if ledger.erased and self.index.last_entry(ledger_id) is None:
            reply(CopyVerified(effect.node, first, VerifyStatus.ERASED))
            return
        beyond = EntryId(first + min(effect.count, self.world.rng.randint(1, 8)))
        missing, unreadable = self.verify(ledger_id, first, beyond)
        if not ledger.is_of(effect.topic_id):
            missing, unreadable = [EntryId(n) for n in range(first, beyond)], []
        crcs = [self.index.entry_crc(ledger_id, EntryId(n)) or 0 for n in range(first, beyond)]
        if self.core.ledgers.limbo.covers(ledger_id):
            missing, unreadable = [], sorted(missing + unreadable)
        reply(CopyVerified(effect.node, first, VerifyStatus.ANSWERED, beyond, crcs, missing, unreadable))

    def handle(self, event: StorageEvent) -> None:
        for effect in self.core.handle(event):
            match effect:
                case WriteJournal(records):
                    self.disk.write(records)
                    self._sync()
                case CheckLedger():
                    self._check(effect)
                case VerifyLedger():
                    self._verify(effect)
                case TouchRecord():
                    self._touch(effect)
                case EraRaised():
                    self.world.count("era raised")
                case AnswerAppend() | AnswerFence() | AnswerReview() | AnswerEra():
                    self._reply(effect.call, effect)
                case AnswerRead():
                    found = {e: self.index.read(effect.ledger_id, e) for e in effect.present}
                    self._reply(effect.call, ReadReply(effect, {e: d for e, d in found.items() if d is not None}))
                case LedgerErased(ledger_id):
                    self.world.count("ledger deleted on a node")
                    self.parts.erased(self.incarnation, ledger_id)
                    self.index.entries.pop(ledger_id, None)
                case LimboCleared():
                    self.world.count("limbo of a ledger ended")
                case LedgerOrphaned():
                    self.world.count("ledger kept without a record")
            if self.burn():
                return
        self.core.check_invariants()

    def _reply(self, call: int, reply: Reply) -> None:
        # An append is answered in parts, each for some of its entries.
        self.calls[1][call](reply)

    def _sync(self) -> None:
        """Begin an fsync of everything written by now, unless one runs: then the next one begins behind it."""
        base, running = self._base
        if running:
            return
        self._base = (base, True)
        count = len(self.disk.records)
        disk = self.disk

        def synced() -> None:
            disk.sync(count)
            for record in disk.records[base + self.core._answers.synced : count]:
                self.index.put(record)
            self._base = (base, False)
            self.handle(Synced(count - base))
            if self.alive and len(disk.records) > count:
                self._sync()

        self.post(self.world.rng.randint(1, 5), "fsync done", synced)

    def _check(self, effect: CheckLedger) -> None:
        self._checks[effect.ledger_id] = effect
        ledger_id, origin = effect.ledger_id, effect.origin

        def checked(data: bytes | None, version: int) -> None:
            data, version = self._as_restored(ledger_id, f"ledgers/{ledger_id}", data, version)
            if data is None and origin is not None:
                chain = "cursors" if origin.purpose is LedgerPurpose.DEDUP else "topics"
                path = f"{chain}/{origin.topic_id}"
                self.store.read(self, path, lambda d, v: looked(self._as_restored(ledger_id, path, d, v)[0]))
                return
            metadata = None if data is None else decode_ledger(data)
            self._answered(effect, LedgerChecked(ledger_id, effect.check, metadata, version=version))

        def looked(data: bytes | None) -> None:
            floor = floor_of(data, origin)
            path = f"tombstones/{origin.topic_id}" if origin is not None else ""
            tombstone, _ = self._as_restored(ledger_id, path, *self.store.get(path))
            deleted = was_deleted(ledger_id, deleted_below=floor, topic_deleted=tombstone is not None)
            noted = floor if ledger_id < floor else LedgerId(0)
            found = LedgerChecked(ledger_id, effect.check, None, deleted=deleted, floor=noted)
            self._answered(effect, found)

        self.store.read(self, f"ledgers/{ledger_id}", checked)

    def _as_restored(
        self, ledger_id: LedgerId, path: str, data: bytes | None, version: int
    ) -> tuple[bytes | None, int]:
        """What a review reads while an old backup is in the place of the store. Adds see the store as it is: what an
        old record would let them do belongs to the restore of ZooKeeper."""
        if self.store.backup_of is None or self.core.ledgers.peek(ledger_id).queued:
            return data, version
        old = self.store.get_at(path, self.store.backup_of)
        self.world.count("review of an old backup", old != data)
        return (data, version) if old == data else (old, OLD)

    def _verify(self, effect: VerifyLedger) -> None:
        """The disk is read some time later, and the answer comes some time after that."""
        rng = self.world.rng

        def read() -> None:
            missing, unreadable = self.verify(effect.ledger_id, EntryId(0), EntryId(effect.end + 1))
            verified = LedgerVerified(effect.ledger_id, effect.check, tuple(missing), tuple(unreadable))
            self.post(rng.randint(1, 5), "verified", lambda: self.handle(verified))

        self.post(rng.randint(1, 5), "reads a ledger back", read)

    def _touch(self, effect: TouchRecord) -> None:
        def touched(status: WriteStatus, _version: int) -> None:
            self._answered(effect, RecordTouched(effect.ledger_id, effect.check, status))

        self._checks[effect.ledger_id] = effect
        path = f"ledgers/{effect.ledger_id}"
        self.store.write(self, path, encode_ledger(effect.metadata), effect.version, touched)

    def _needs_review(self, record: LedgerMetadata, *, held: bool) -> bool:
        """As `log_storage.reviewer` decides it."""
        ledger_id, here = record.ledger_id, self.incarnation
        if not record.names(here):
            return held
        if self.core.ledgers.limbo.covers(ledger_id) or self.core.ledgers.peek(ledger_id).damaged:
            return True
        attested = record.verified and not record.lost and here in record.members
        return attested and self.index.count_up_to(ledger_id, record.end) <= record.end

    def look_for_garbage(self) -> None:
        """The periodic review, somewhat later."""
        self.post(self.world.rng.randint(1, 60), "looks for garbage", self.collect)

    def collect(self) -> None:
        """Review the ledgers held here that seem to be gone, or not to need this copy, and the listed ones of which
        something may be lost here. The view of the store may lag; the core reads the record itself."""
        store, limbo = self.store, self.core.ledgers.limbo
        listed = (LedgerId(int(name)) for name in store.children("ledgers"))
        for ledger_id in dict.fromkeys((*self.index.entries, *listed)):
            held = ledger_id in self.index.entries or limbo.covers(ledger_id)
            data = store.get_lagging(f"ledgers/{ledger_id}") if held else store.get(f"ledgers/{ledger_id}")[0]
            if data is None:
                self.world.count("ledger seems to be gone")
            elif not self._needs_review(decode_ledger(data), held=held):
                continue
            self.review(self.incarnation, ledger_id, lambda _: None)
            if not self.alive:
                return
