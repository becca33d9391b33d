"""The repairer of a metadata replica: the queue of repairs, and the repairs of single ledgers, over the faulty network.

Every replica repairs at the same time: an election is only a hint, and the compare-and-sets on the records decide. A
paused replica goes on with what it knew; one that crashes between two effects leaves its repairs where they are.
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.errors import CorruptEntry
from oncelog.core.formats import entry
from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.member_status import AppendStatus, ReadStatus
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata
from oncelog.core.ledger.storage_nodes import NodeView
from oncelog.core.node.answers import AnswerAppend
from oncelog.core.node.review import AnswerReview
from oncelog.core.records.records import ReadRecord, WriteRecord
from oncelog.core.repair.events import (
    CopyEntries,
    CopyOutcome,
    CopyVerified,
    EntriesCopied,
    EntriesRestored,
    LedgerReviewed,
    OwnerMemory,
    RepairEvent,
    RepairFinished,
    RepairJob,
    RepairLimits,
    RepairNodesChanged,
    RepairRecordRead,
    RepairResult,
    RepairStarted,
    RestoreEntries,
    ReviewLedger,
    VerifyCopy,
    VerifyStatus,
)
from oncelog.core.repair.ledger_repair import LedgerRepair
from oncelog.core.repair.queue_events import (
    AskOwnerToRoll,
    ChainRecorded,
    ClusterSeen,
    DamageReported,
    LedgerRecorded,
    LedgerRemoved,
    PlaceTopic,
    QueueTicked,
    RepairEnded,
    RepairSettings,
    StartRepair,
)
from oncelog.core.repair.repair_queue import RepairQueue
from oncelog.verify.violation import Violation
from tests.simulation.servers.metadata.emptied_nodes import note_emptied
from tests.simulation.servers.nodes.storage_server import ReadReply, Reply, StorageServer
from tests.simulation.servers.owners.owner_server import OwnerServer
from tests.simulation.servers.store.decoding import decode_cursor, decode_ledger, decode_topic
from tests.simulation.servers.store.ledger_lists import chain_of, ids_of, listed_ledgers_of
from tests.simulation.servers.store.records import write_record
from tests.simulation.servers.store.store import Store
from tests.simulation.world import Process

if TYPE_CHECKING:
    from tests.simulation.servers.metadata.metadata_server import MetadataServer

T = TypeVar("T")
P = TypeVar("P", bound=Process)

TICK_TICKS = (100, 300)
#: how long a call to a storage node waits for its answer
CALL_TICKS = 250
#: ranges and copies so small that every repair has many steps
LIMITS = RepairLimits(entries_max=6, bytes_max=600)


def queue_settings(*, impatient: bool) -> RepairSettings:
    """impatient: absent nodes are soon replaced."""
    return RepairSettings(
        absent_delay_ms=300 if impatient else 1500,
        jobs_max=3,
        retry_ms=100,
        retry_max_ms=500,
        lost_retry_ms=800,
        roll_retry_ms=500,
        roll_retry_max_ms=8_000,
    )


def directory_views(store: Store, silent: Container[Incarnation] = ()) -> tuple[NodeView, ...]:
    """Every directory that ever joined: one with a successor at its place is retired. silent: did not answer lately."""
    known = store.children("storage_cookies")
    latest = {name.split(".")[0]: name for name in known}
    live = dict.fromkeys(store.children("storage"))
    return tuple(
        NodeView(
            Incarnation(name),
            registered=name in live,
            retired=latest[name.split(".")[0]] != name,
            silent=name in live and Incarnation(name) in silent,
        )
        for name in known
    )


class Replacements:
    """The oracle of hazard flapping-node, by what one replica has seen: a member that is only absent is replaced after
    a delay, and not after it was seen again."""

    def __init__(self, absent_delay: int) -> None:
        self.absent_delay = absent_delay
        self._views: dict[Incarnation, NodeView] = {}
        #: {node that is not registered: since when this replica has seen it so}
        self._absent: dict[Incarnation, int] = {}

    def see(self, views: tuple[NodeView, ...], now: int) -> None:
        self._views = {view.incarnation: view for view in views}
        self._absent = {v.incarnation: self._absent.get(v.incarnation, now) for v in views if not v.registered}

    def check_job(self, job: RepairJob, now: int) -> None:
        old = job.replace
        if old is None or self._views[old].retired:
            return
        away = now - self._absent.get(old, now)
        if away < self.absent_delay:
            raise Violation("replacement", f"{old} of ledger {job.ledger_id} is replaced after {away} ticks of absence")

    def check_write(self, repair: LedgerRepair, record: LedgerMetadata) -> None:
        for old in repair.record.members if repair.record is not None else ():
            if old not in record.members and old not in self._absent and not self._views[old].retired:
                raise Violation("replacement", f"{old} of ledger {record.ledger_id} is replaced, although it is back")


@dataclass(slots=True)
class _Call:
    """One call to a storage node; only its first answer counts, and the deadline is one."""

    done: bool = False
    copied: list[EntryId] = field(default_factory=list)


class Repairer:
    """Of one life of a replica."""

    def __init__(
        self, server: "MetadataServer", nodes: dict[Incarnation, StorageServer], settings: RepairSettings
    ) -> None:
        self.server = server
        self.world = server.world
        self.store = server.store
        self.nodes = nodes
        self.queue = RepairQueue(settings)
        self.repairs: dict[LedgerId, LedgerRepair] = {}
        self.replacements = Replacements(settings.absent_delay_ms)
        self._life = server.life
        #: {open ledger: how often its owner was asked to roll}
        self._rolls: dict[LedgerId, int] = {}
        self._seen: dict[LedgerId, None] = {}
        #: the nodes that did not answer the last question
        self._silent: dict[Incarnation, None] = {}
        self._chains: dict[tuple[TopicId, LedgerPurpose], None] = {}
        self._later()

    def _later(self) -> None:
        self.server.post(self.world.rng.randint(*TICK_TICKS), "repairs", self._tick)

    # --- the queue ----------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._later()
        self._see_records()
        store, now = self.store, self.world.now
        owners = tuple(map(Incarnation, store.children("owners")))
        views = directory_views(store, self._silent)
        self.queue.handle(ClusterSeen(views, owners, now))
        self.replacements.see(views, now)
        nodes = self.queue.nodes
        for repair in list(self.repairs.values()):
            repair.handle(RepairNodesChanged(nodes))
        for node in nodes.registered:
            self._ask_for_damage(node)
        note_emptied(self.server, store, views, listed_ledgers_of(store), self.nodes.values())
        for effect in self.queue.handle(QueueTicked(now)):
            match effect:
                case StartRepair(job):
                    self._start(job)
                case PlaceTopic(topic_id):
                    self.server.place(topic_id)
                case AskOwnerToRoll():
                    self._end_open_ledger(effect)
            if self.server.burn():
                return

    def _see_records(self) -> None:
        """What watches show, perhaps late: the queue only chooses, and each repair reads the record itself."""
        store, queue = self.store, self.queue
        present: dict[LedgerId, None] = {}
        for name in store.children("ledgers"):
            data, version = store.get(f"ledgers/{name}")
            if data is not None:
                record = decode_ledger(data)
                present[record.ledger_id] = None
                queue.handle(LedgerRecorded(record, version))
        for ledger_id in self._seen:
            if ledger_id not in present:
                queue.handle(LedgerRemoved(ledger_id))
        self._seen = present
        for name in store.children("topics"):
            self._see_chain(TopicId(name), LedgerPurpose.LOG)
            self._see_chain(TopicId(name), LedgerPurpose.ACKS)
        for name in store.children("cursors"):
            self._see_chain(TopicId(name), LedgerPurpose.DEDUP)

    def _see_chain(self, topic_id: TopicId, purpose: LedgerPurpose) -> None:
        ledgers, owner = chain_of(self.store, topic_id, purpose)
        self.queue.handle(ChainRecorded(topic_id, purpose, ledgers, owner))

    def _ask_for_damage(self, node: Incarnation) -> None:
        def ask(server: StorageServer, reply: Callable[[tuple[LedgerId, ...]], None]) -> None:
            if server.incarnation == node:
                ledgers = server.core.ledgers
                reply((*ledgers.in_limbo, *ledgers.damaged))

        self._call(node, "damage", ask, lambda found: self._damage(node, found))

    def _damage(self, node: Incarnation, found: tuple[LedgerId, ...] | None) -> None:
        if found is None:
            self._silent[node] = None
        else:
            self._silent.pop(node, None)
            self.queue.handle(DamageReported(node, found))

    def _end_open_ledger(self, effect: AskOwnerToRoll) -> None:
        """As the real shell does: an owner rolls by itself when a member is retired or absent. It does not notice
        the damage of a member to which it sends nothing, so from the second request on the topic is handed over."""
        self.world.count("owner asked to roll")
        asked = self._rolls[effect.ledger_id] = self._rolls.get(effect.ledger_id, 0) + 1
        if asked > 1:
            self.world.count("topic handed over to end a ledger")
            self.server.unload(effect.topic_id, effect.owner)

    def _start(self, job: RepairJob) -> None:
        self.world.count("repair begun")
        self.replacements.check_job(job, self.world.now)
        repair = self.repairs[job.ledger_id] = LedgerRepair(job, self.queue.nodes, LIMITS)
        self._handle(repair, RepairStarted())

    # --- one repair ---------------------------------------------------------------------------------------------------

    def _handle(self, repair: LedgerRepair, event: RepairEvent) -> None:
        if self.server.life != self._life:
            return
        for effect in repair.handle(event):
            match effect:
                case ReadRecord(key):
                    self._read(repair, key.ledger_id)
                case WriteRecord():
                    self.replacements.check_write(repair, effect.value)
                    write_record(self.store, self.server, effect, partial(self._handle, repair))
                case VerifyCopy():
                    self._verify(repair, effect)
                case CopyEntries():
                    self._copy(repair, effect)
                case ReviewLedger():
                    self._review(repair, effect)
                case RestoreEntries():
                    self._restore(repair, effect)
                case RepairFinished():
                    self._finished(effect)
            if self.server.burn():
                return
        repair.check_invariants()

    def _finished(self, finished: RepairFinished) -> None:
        self.world.count(f"repair {finished.result.value}")
        self.repairs.pop(finished.ledger_id, None)
        self.queue.handle(RepairEnded(finished, self.world.now))
        if finished.result is RepairResult.WHOLE and self.world.chance(0.3):
            self.world.rng.choice(list(self.nodes.values())).look_for_garbage()

    def _read(self, repair: LedgerRepair, ledger_id: LedgerId) -> None:
        def ledger_read(data: bytes | None, version: int) -> None:
            record = None if data is None else decode_ledger(data)
            if record is None:
                self._handle(repair, RepairRecordRead(None, version, listed=False))
                return

            def log_read(topic: bytes | None, _: int) -> None:
                named = None if topic is None else decode_topic(topic)
                if named and (ledger_id in named.acks or ledger_id in ids_of(self.store, named)):
                    self._handle(repair, RepairRecordRead(record, version))
                else:
                    self.store.read(self.server, f"cursors/{record.topic_id}", cursor_read)

            def cursor_read(cursor: bytes | None, _: int) -> None:
                listed = cursor is not None and any(k.ledger_id == ledger_id for k in decode_cursor(cursor).ledgers)
                self._handle(repair, RepairRecordRead(record, version, listed=listed))

            self.store.read(self.server, f"topics/{record.topic_id}", log_read)

        self.store.read(self.server, f"ledgers/{ledger_id}", ledger_read)

    # --- calls to storage nodes ---------------------------------------------------------------------------------------

    def _call(
        self, node: Incarnation, label: str, ask: Callable[[StorageServer, Callable[[T], None]], None],
        answered: Callable[[T | None], None],
    ) -> None:  # fmt: skip
        self._ask(self.nodes[Incarnation(node.split(".")[0])].at(self.server.name), label, ask, answered)

    def _ask(
        self, server: P, label: str, ask: Callable[[P, Callable[[T], None]], None],
        answered: Callable[[T | None], None],
    ) -> None:  # fmt: skip
        """answered: called once, with None after the deadline, or at once if the process is down."""
        network, call = self.server.parts.network, _Call()

        def settle(answer: T | None) -> None:
            if not call.done:
                call.done = True
                answered(answer)

        def reply(answer: T) -> None:
            if self.server.life == self._life:
                network.send(server.name, self.server, f"{label} answered", lambda: settle(answer))

        network.send(self.server.name, server, label, lambda: ask(server, reply))
        if not server.alive:
            delay = network.delay(self.server.name, server.name)
            self.server.post(delay, f"{label} refused", lambda: settle(None))
        self.server.post(CALL_TICKS, f"{label} waited for", lambda: settle(None))

    def _verify(self, repair: LedgerRepair, effect: VerifyCopy) -> None:
        def ask(server: StorageServer, reply: Callable[[CopyVerified], None]) -> None:
            server.verify_copy(effect, reply)

        silent = CopyVerified(effect.node, effect.first, VerifyStatus.SILENT)
        label = f"verifies {effect.ledger_id}:{effect.first}"
        self._call(effect.node, label, ask, lambda answer: self._handle(repair, answer or silent))

    def _review(self, repair: LedgerRepair, effect: ReviewLedger) -> None:
        def ask(server: StorageServer, reply: Callable[[Reply], None]) -> None:
            server.review(effect.node, effect.ledger_id, reply)

        def answered(answer: Reply | None) -> None:
            ok = isinstance(answer, AnswerReview) and answer.status is ReadStatus.OK
            state = answer.state if ok and isinstance(answer, AnswerReview) else None
            self._handle(repair, LedgerReviewed(effect.node, state))

        self._call(effect.node, f"reviews {effect.ledger_id}", ask, answered)

    def _copy(self, repair: LedgerRepair, effect: CopyEntries) -> None:
        """Read a run of consecutive ids from the source, and append what was found to the target."""
        span = 1
        while span < len(effect.ids) and effect.ids[span] == effect.ids[0] + span and span < 3:
            span += 1
        wanted = effect.ids[:span]

        def ended(copied: tuple[EntryId, ...], outcome: CopyOutcome) -> None:
            self._handle(repair, EntriesCopied(effect.source, effect.target, copied, outcome))

        def ask(server: StorageServer, reply: Callable[[Reply], None]) -> None:
            server.read(effect.source, effect.ledger_id, (wanted[0], span), reply, fence=False)

        def read(answer: Reply | None) -> None:
            found = answer.found if isinstance(answer, ReadReply) else {}
            data = [found[e] for e in wanted if e in found and _is_of(found[e], effect.topic_id)]
            if len(data) < span:
                ended((), CopyOutcome.SOURCE_FAILED)
            else:
                self._append(effect, data, partial(ended, tuple(wanted)))

        self._call(effect.source, f"reads {effect.ledger_id} to copy", ask, read)

    def _restore(self, repair: LedgerRepair, effect: RestoreEntries) -> None:
        """As `metadata.repair.owner_memory` does it."""
        path = f"topics/{effect.topic_id}"

        def ended(outcome: OwnerMemory, owner: Incarnation | None = None) -> None:
            self.world.count(f"entries in an owner's memory: {outcome.value}")
            self._handle(repair, EntriesRestored(outcome, owner))

        def topic_read(data: bytes | None, _: int) -> None:
            owner = None if data is None else decode_topic(data).owner
            if owner is None:
                ended(OwnerMemory.NOTHING)
            elif f"owners/{owner}" not in self.store.records:
                ended(OwnerMemory.SILENT, owner)
            else:
                self._ask(self.server.parts.owners[owner.split(".")[0]], "entries in memory?", ask, answered)

        def ask(owner: OwnerServer, reply: Callable[[list[bytes]], None]) -> None:
            reply([data for _, data in memory_of(owner, effect.topic_id, effect.ledger_id, effect.ranges)])

        def answered(found: list[bytes] | None) -> None:
            if not found:
                ended(OwnerMemory.SILENT if found is None else OwnerMemory.NOTHING)
            else:
                self._append(effect, found, stored)

        def stored(outcome: CopyOutcome) -> None:
            ended(OwnerMemory.RESTORED if outcome is CopyOutcome.DONE else OwnerMemory.SILENT)

        self.store.read(self.server, path, topic_read)

    def _append(
        self, effect: CopyEntries | RestoreEntries, data: list[bytes], ended: Callable[[CopyOutcome], None]
    ) -> None:
        call, count = _Call(), len(data)

        def ask(server: StorageServer, reply: Callable[[AppendStatus], None]) -> None:
            def answered(answer: Reply) -> None:
                # An append is answered in parts; the last one, or the first refusal, counts.
                if not isinstance(answer, AnswerAppend):
                    return
                call.copied += answer.entry_ids
                if answer.status is not AppendStatus.OK or len(dict.fromkeys(call.copied)) == count:
                    reply(answer.status)

            entries = [(peek_header(each), each) for each in data]
            server.append(effect.target, entries, answered, repair=True, era=self.store.era)

        outcomes = {
            AppendStatus.OK: CopyOutcome.DONE,
            AppendStatus.NOT_WRITABLE: CopyOutcome.NOT_NAMED,
            AppendStatus.READ_ONLY: CopyOutcome.TARGET_REFUSED,
            AppendStatus.CONFLICTING: CopyOutcome.TARGET_CONFLICTS,
        }

        def appended(status: AppendStatus | None) -> None:
            outcome = CopyOutcome.TARGET_FAILED if status is None else outcomes.get(status, CopyOutcome.TARGET_FAILED)
            if outcome is CopyOutcome.DONE:
                self.world.count("entries copied", count)
            ended(outcome)

        self._call(effect.target, f"copies {effect.ledger_id}", ask, appended)


def memory_of(
    owner: OwnerServer, topic_id: TopicId, ledger_id: LedgerId, ranges: Iterable[EntryRange]
) -> list[tuple[EntryId, bytes]]:
    """The entries of these ranges that the owner has in memory."""
    shell = owner.topics.get(topic_id)
    return [
        (entry_id, data)
        for ledger, entry_id, data in (() if shell is None else shell.requests.memory)
        if ledger == ledger_id and any(span.first <= entry_id <= span.last for span in ranges)
    ]


def _is_of(data: bytes, topic_id: TopicId) -> bool:
    try:
        entry.require_topic(peek_header(data), topic_id)
    except CorruptEntry:
        return False
    return True
