"""A process that restores the records of a lost store: the shell of `core.rebuild` over the simulated network.

It performs one effect after the other, and may crash between two of them: the next life goes on with the restore id.
Others may restore at the same time, in the same ensemble or in another one. An ensemble has the cluster's record, and
the records of one era are put below it as a whole, if the record still has the version of the claim.

If a restore is refused, its operator names the directories absent that were replaced and are not emptied, and accepts
the review when every other node was asked. Two of them, or one beside a node in limbo, are beyond the bound, although
nothing is lost in truth: all is there, and every topic gives up.

What storage nodes note of the nodes that ever joined is taken for complete here.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, assert_never

from oncelog.core.era import Era
from oncelog.core.formats.entry import peek_header
from oncelog.core.formats.note import Note
from oncelog.core.formats.topic_record import DEDUP_CURSOR
from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.ledger.member_status import CopyState, ReadStatus
from oncelog.core.node.era import AnswerEra
from oncelog.core.rebuild.join import join
from oncelog.core.rebuild.restore_events import (
    Claimed,
    ClaimEra,
    ClusterSeen,
    Collect,
    Collected,
    CommitEra,
    EraCommitted,
    ErasRaised,
    JoinRecords,
    Knowledge,
    NodeSeen,
    RaiseEras,
    RecordsJoined,
    RecordsWritten,
    RestoreEffect,
    RestoreEnded,
    RestoreEvent,
    RestoreRequest,
    Survey,
    Surveyed,
    WriteRecords,
)
from oncelog.core.rebuild.restore_plan import ACCEPT_ALL, Restore
from oncelog.core.rebuild.result import Asked, CopiedRecords, Rebuilt, RebuiltTopic
from oncelog.core.rebuild.sources import Inventory
from oncelog.core.records.status import WriteStatus
from oncelog.core.retention.paging import PageSettings
from oncelog.metadata.restore.new_tree import new_tree
from oncelog.metadata.restore.noted_records import NewestRecords, newest_of, records_of, usable_copies
from oncelog.metadata_store.copies.copy_file import RecordCopy
from oncelog.metadata_store.records.cluster_store import Rights
from oncelog.metadata_store.session import paths
from oncelog.verify.violation import Violation
from tests.simulation.network import Network
from tests.simulation.servers.metadata import emptied_nodes
from tests.simulation.servers.nodes.inventories import CLUSTER_ID, inventory_of
from tests.simulation.servers.nodes.kept_copies import KeptCopies
from tests.simulation.servers.nodes.storage_server import Reply, StorageServer
from tests.simulation.servers.store.ledger_lists import page_path
from tests.simulation.servers.store.store import ABSENT, Store
from tests.simulation.world import Process, World

T = TypeVar("T")

CLUSTER = "cluster"
#: until nodes that do not answer count as silent; between two attempts that are refused
ANSWER_TICKS, REPEAT_TICKS = 250, 200


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has written below the root of its era. unseen_below: of a ledger from this one on, an asked node
    shows every acknowledged entry. given_up: the nodes that it gave up beyond the bound."""

    records: dict[str, bytes]
    rebuilt: Rebuilt
    inventories: tuple[Inventory, ...]
    unseen_below: LedgerId
    given_up: tuple[Incarnation, ...] = ()


@dataclass(slots=True)
class RestoreParts:
    """Of all that restore one cluster into one ensemble. lost: the records that are lost; only notes and copies of them
    are used."""

    world: World
    network: Network
    nodes: dict[Incarnation, StorageServer]
    lost: Store
    pages: PageSettings
    ack_quorum: int
    #: told of each commit
    committed: Callable[["RestoreParts", Era, Restored], None]
    kept: KeptCopies
    #: the era that serves by this ensemble's record, and which a restore here is to end; None: it has no record
    ends: Era | None = None
    #: whether the newest commit has closed the rights of all but superusers
    rights_closed: bool = False
    #: whether its operator names directories absent when a restore is refused
    gives_up: bool = True
    #: its operator leaves the restore as it is, for ever
    abandoned: bool = False
    #: it has the cluster's record
    store: Store = field(init=False)
    #: {era: what is below its root}
    roots: dict[Era, Restored] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = Store(self.world, self.network)
        self.store.faults = self.lost.faults
        if self.ends is not None:
            self.store.put(CLUSTER, encode_cluster(self.ends, restoring=False), ABSENT)
        self.store.observers.append(self._changed)

    def _changed(self, _path: str, _before: bytes | None, after: bytes | None) -> None:
        assert after is not None
        era, restoring = decode_cluster(after)
        if not restoring:
            self.world.count("restore committed")
            self.committed(self, era, self.roots[era])

    @property
    def ends_era(self) -> int:
        return 0 if self.ends is None else self.ends.number

    def copies(self, inventories: Iterable[Inventory]) -> list[RecordCopy]:
        """Those on these storage nodes that can be used, the oldest first."""
        own = () if self.ends is None else (self.ends,)
        committed = frozenset(own).union(*(each.committed_eras for each in inventories))
        return usable_copies(self.kept.copies, committed)[0]

    def joined(self) -> list[Incarnation]:
        """Every storage node that was ever registered."""
        return self._noted("storage_cookies")

    def emptied(self) -> list[Incarnation]:
        return self._noted(emptied_nodes.FOLDER)

    def _noted(self, folder: str) -> list[Incarnation]:
        stores = [self.lost]
        while stores[-1].successor is not None:
            stores.append(stores[-1].successor)
        return list(dict.fromkeys(Incarnation(name) for store in stores for name in store.children(folder)))

    @property
    def done(self) -> bool:
        data, _ = self.store.get(CLUSTER)
        if self.abandoned or data is None:
            return self.abandoned
        era, restoring = decode_cluster(data)
        return not restoring and era.number > self.ends_era


def encode_cluster(era: Era, *, restoring: bool) -> bytes:
    return f"{era} {'restoring' if restoring else 'serving'}".encode()


def decode_cluster(data: bytes) -> tuple[Era, bool]:
    era, state = data.decode().split()
    return Era.parse(era), state == "restoring"


class Restorer(Process):
    """One performer. `restore_id`: that of its request; a restore that it resumes keeps its own."""

    def __init__(self, parts: RestoreParts, name: str, restore_id: str) -> None:
        super().__init__(parts.world, name)
        self.parts = parts
        self.restore_id = restore_id
        self.plan = Restore(RestoreRequest(restore_id))
        #: what the operator names absent, once a restore was refused
        self._absent: tuple[Incarnation, ...] = ()
        self._inventories: dict[Incarnation, Inventory] = {}
        #: {node: what it had noted with its inventory}
        self._notes: dict[Incarnation, tuple[Note, ...]] = {}
        self._rebuilt: Rebuilt | None = None
        self._unseen_below = LedgerId(0)

    def start(self) -> None:
        super().start()
        self._attempt()

    def _attempt(self) -> None:
        if self.parts.done:
            return
        ends_era = self.parts.ends_era
        self.plan = Restore(RestoreRequest(self.restore_id, self._absent, take_over=True, ends_era=ends_era))
        self._perform(self.plan.begin())

    def _handle(self, event: RestoreEvent) -> None:
        self._perform(self.plan.handle(event))

    def _perform(self, effects: list[RestoreEffect]) -> None:
        for effect in effects:
            self.world.count(f"restore {type(effect).__name__}")
            if self.burn():
                return
            match effect:
                case Survey():
                    self._survey()
                case ClaimEra():
                    self._claim(effect)
                case RaiseEras(nodes, era):
                    self._raise(nodes, era)
                case Collect(nodes):
                    self._collect(nodes)
                case JoinRecords():
                    self._join(effect)
                case WriteRecords():
                    self._write(effect)
                case CommitEra():
                    self._commit(effect)
                case RestoreEnded(refusal):
                    if refusal:
                        self.world.count("restore refused")
                        self._absent = self._replaced() if self.parts.gives_up else ()
                        self.post(REPEAT_TICKS, "restores again", self._attempt)
                case _:
                    assert_never(effect)

    # --- storage nodes ------------------------------------------------------------------------------------------------

    def _gather(
        self, servers: Sequence[StorageServer], label: str,
        ask: Callable[[StorageServer, Callable[[T], None]], None], done: Callable[[dict[Incarnation, T]], None],
    ) -> None:  # fmt: skip
        """Ask each node until it answers, for a while."""
        answers: dict[Incarnation, T] = {}
        life, over, network = self.life, False, self.parts.network

        def end() -> None:
            nonlocal over
            if not over:
                over = True
                done(answers)

        def take(node: Incarnation, value: T) -> None:
            if over or self.life != life:
                return
            answers[node] = value
            if len(answers) == len(servers):
                end()

        def attempt(server: StorageServer, wait: int) -> None:
            if over or server.incarnation in answers:
                return

            def arrive() -> None:
                node = server.incarnation
                ask(server, lambda value: reply(node, value))

            def reply(node: Incarnation, value: T) -> None:
                network.send(server.name, self, f"{label} answered", lambda: take(node, value))

            network.send(self.name, server, label, arrive)
            self.post(wait, f"repeats {label}", lambda: attempt(server, wait * 2))

        for server in servers:
            attempt(server, 30)
        self.post(ANSWER_TICKS, f"waits no longer for {label}", end)

    def _servers(self, nodes: Sequence[Incarnation]) -> list[StorageServer]:
        return [self.parts.nodes[Incarnation(node.split(".")[0])] for node in nodes]

    def _survey(self) -> None:
        def tree_read(data: bytes | None, version: int) -> None:
            tree = (
                None if data is None else ClusterSeen(CLUSTER_ID, *decode_cluster(data), version, self.parts.ack_quorum)
            )

            def described(nodes: dict[Incarnation, NodeSeen]) -> None:
                self._handle(Surveyed(tree, nodes, self._noted_nodes() if nodes else Knowledge()))

            self._gather(list(self.parts.nodes.values()), "survey", describe, described)

        def describe(server: StorageServer, reply: Callable[[NodeSeen], None]) -> None:
            reply(NodeSeen(CLUSTER_ID, server.core.durable_era, server.core.ledgers.limbo.below > 0))

        self.parts.store.read(self, CLUSTER, tree_read)

    def _noted_nodes(self) -> Knowledge:
        joined = self.parts.joined()
        latest = {node.split(".")[0]: node for node in joined}
        replaced = frozenset(node for node in joined if latest[node.split(".")[0]] != node)
        counts = dict.fromkeys(joined, True) | dict.fromkeys(self.parts.emptied(), False)
        return Knowledge(counts, self.parts.ack_quorum, replaced=replaced)

    def _replaced(self) -> tuple[Incarnation, ...]:
        """Directories that were replaced, and never return."""
        present = {server.incarnation for server in self.parts.nodes.values()}
        counts = self._noted_nodes().nodes
        return tuple(node for node in counts if counts[node] and node not in present)

    def _raise(self, nodes: tuple[Incarnation, ...], era: Era) -> None:
        def ask(server: StorageServer, reply: Callable[[Era | None], None]) -> None:
            def answered(answer: Reply) -> None:
                assert isinstance(answer, AnswerEra)
                reply(answer.era if answer.status is ReadStatus.OK else None)

            server.raise_era(era, answered)

        def raised(answers: dict[Incarnation, Era | None]) -> None:
            self._handle(ErasRaised({node: answers.get(node) for node in nodes}))

        self._gather(self._servers(nodes), "raise the era", ask, raised)

    def _inventory_and_notes(self, server: StorageServer) -> Inventory:
        self._notes[server.incarnation] = tuple(server.notes.values())
        return inventory_of(server)

    def _collect(self, nodes: tuple[Incarnation, ...]) -> None:
        def ask(server: StorageServer, reply: Callable[[Inventory], None]) -> None:
            reply(self._inventory_and_notes(server))

        def collected(inventories: dict[Incarnation, Inventory]) -> None:
            self._inventories = inventories
            seen = {
                node: NodeSeen(each.cluster_id, each.era, each.limbo_below > 0) for node, each in inventories.items()
            }
            self._handle(Collected(seen, self._noted_nodes()))

        self._gather(self._servers(nodes), "inventory", ask, collected)

    # --- records ------------------------------------------------------------------------------------------------------

    def _claim(self, effect: ClaimEra) -> None:
        data = encode_cluster(effect.era, restoring=True)
        self._put(data, effect.version, lambda status, version: self._handle(Claimed(status, version)))

    def _put(self, data: bytes, version: int, done: Callable[[WriteStatus, int], None]) -> None:
        self.parts.store.write(self, CLUSTER, data, version, done)

    def _join(self, effect: JoinRecords) -> None:
        parts, inventories = self.parts, [self._inventories[node] for node in sorted(self._inventories)]
        noted = self._newest().noted()
        by = "an operator" if self._absent else ""
        asked = Asked(
            effect.missing, parts.ack_quorum, by, self._absent, parts.kept.owed_below, self.plan.emptied
        )  # fmt: skip
        copied = self._copied()
        rebuilt = join(inventories, noted, copied, asked, self.plan.era, parts.pages, self.world.now)
        beyond = self._beyond_the_bound(len(effect.missing))
        self.world.count("restore beyond the bound asks", beyond and bool(rebuilt.reviews))
        if rebuilt.reviews and not self._absent and not beyond:
            raise Violation("review", f"a restore within the bound asks its operator: {rebuilt.reviews}")
        self._unseen_below = self._highest_unseen(effect.missing)
        self._rebuilt = replace(
            rebuilt, topics={each: self._with_lengths(topic) for each, topic in rebuilt.topics.items()}
        )
        # A node that is silent beside those that are named absent is waited for. All that are left are in limbo, which
        # ends in an era that is served only: there is nothing to wait for.
        if self._absent and all(node in self._absent or node in self._inventories for node in effect.missing):
            self.plan.request = replace(self.plan.request, accepted=(ACCEPT_ALL,))
        self._handle(RecordsJoined(tuple(each.message for each in rebuilt.reviews)))

    def _beyond_the_bound(self, missing: int) -> bool:
        """Whether an acknowledged entry may have no sound copy at the nodes that were asked: some are missing for now,
        another one's copy is damaged, and some were given up by an earlier restore, of which a topic may not know."""
        held = [copy for each in self._inventories.values() for copy in each.ledgers.values()]
        damaged = Counter(copy.ledger_id for copy in held if copy.state is CopyState.DAMAGED)
        away = missing + len(self.parts.kept.given_up)
        return away + max(damaged.values(), default=0) >= self.parts.ack_quorum

    def _highest_unseen(self, missing: Sequence[Incarnation]) -> LedgerId:
        limbo = [each.limbo_below for each in self._inventories.values() if each.limbo_below > 0]
        silent = [LedgerId(1 << 62) for node in missing if node not in self._inventories]
        holes, needed = sorted(silent + limbo, reverse=True), self.parts.ack_quorum
        return holes[needed - 1] if len(holes) >= needed else LedgerId(0)

    def _copied(self) -> CopiedRecords:
        return records_of(self.parts.copies(self._inventories.values()))

    def _newest(self) -> NewestRecords:
        notes = (note for node in self._inventories for note in self._notes[node])
        return newest_of(self.parts.copies(self._inventories.values()), notes)

    def _with_lengths(self, topic: RebuiltTopic) -> RebuiltTopic:
        """The shell reads them from the holders."""
        lengths = {}
        for wanted in topic.wanted:
            holder = self._servers(wanted.holders)[0]
            data = holder.disk.held(wanted.ledger_id).get(wanted.end)
            assert data is not None
            lengths[wanted.ledger_id] = peek_header(data).length
        return replace(
            topic,
            ledgers=tuple(replace(each, length=lengths.get(each.ledger_id, each.length)) for each in topic.ledgers),
        )

    def _write(self, effect: WriteRecords) -> None:
        assert self._rebuilt is not None
        parts, era = self.parts, effect.era
        rights = Rights.CLOSED if effect.gives_up else Rights.OPEN
        tree = new_tree(self._rebuilt, self._newest(), era=era, retired=(), rights=rights, by="an operator").records
        records = _records(self._rebuilt, tree)
        for node in parts.joined():
            records[f"storage_cookies/{node}"] = node.split(".")[0].encode()
        # What was given up beyond the bound is told in every topic, so nobody copies it any more.
        given_up = effect.absent if effect.gives_up else ()
        records |= {emptied_nodes.emptied_path(node): b"" for node in (*parts.emptied(), *given_up)}
        restored = Restored(records, self._rebuilt, tuple(self._inventories.values()), self._unseen_below, given_up)
        life = self.life

        def write() -> None:
            fenced = parts.store.get(CLUSTER)[1] != effect.version
            self.world.count("performer fenced", fenced)
            if not fenced:
                parts.roots[era] = restored
                if not any(server.core.durable_era == era for server in self._servers(tuple(self._inventories))):
                    self.world.count("copy of a restore not kept")
                    self.post(REPEAT_TICKS, "restores again", self._attempt)
                    return
                parts.kept.add(era, tree, self.world.now, claim=effect.version)
            self.post(1, "root written", lambda: self._handle(RecordsWritten(fenced=fenced)), life=life)

        self.world.after(parts.network.delay(self.name, "store"), "store writes a root", write)

    def _commit(self, effect: CommitEra) -> None:
        self.parts.rights_closed = effect.rights_closed
        data = encode_cluster(effect.era, restoring=False)
        self._put(data, effect.version, lambda status, _: self._handle(EraCommitted(status)))


def _records(rebuilt: Rebuilt, tree: dict[str, bytes]) -> dict[str, bytes]:
    """By the paths of the simulated store."""
    records = {
        f"ids/{path.rpartition('/')[2]}": data for path, data in tree.items() if path.startswith(f"{paths.IDS}/")
    }
    records |= {path[1:]: data for path, data in tree.items() if path.startswith(f"{paths.TOMBSTONES}/")}
    for topic_id, topic in rebuilt.topics.items():
        records[f"topics/{topic_id}"] = tree[paths.topic(topic_id)]
        if topic.cursor is not None:
            records[f"cursors/{topic_id}"] = tree[paths.cursor(topic_id, DEDUP_CURSOR)]
        for page in topic.pages:
            records[page_path(topic_id, page.name)] = tree[paths.page(topic_id, page.name)]
        for ledger in topic.ledgers:
            records[f"ledgers/{ledger.ledger_id}"] = tree[paths.ledger(ledger.ledger_id)]
    return records
