"""One run's cluster: every role, wired over the simulated network, disks and metadata store."""

import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import SequenceMode
from oncelog.core.formats.opening import OnConflict
from oncelog.core.formats.topic_record import TopicRecord, encode_topic
from oncelog.core.ids import Incarnation, Position, TopicId
from oncelog.core.node.node import StorageNode
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.publishing.producers import RECENT_BYTES_MAX
from oncelog.core.records.id_claim import IdClaim
from oncelog.core.retention.paging import PageSettings
from oncelog.core.sdk.producer.session import ProducerSession
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.core.topic.serving import TopicSettings
from oncelog.core.topic.topic import Topic
from tests.oracles.history import History
from tests.oracles.leases import LeaseHistory
from tests.simulation.clients.ack_workload import AckWorkload, ChangingTopic
from tests.simulation.clients.byzantine_client import Stranger
from tests.simulation.clients.end_of_log_client import Questioner
from tests.simulation.clients.lease_client import LeaseClient, LeaseShape, draw_lease_shape, lease_programs
from tests.simulation.clients.producer_client import ClientParts, Input, ProducerClient
from tests.simulation.clients.reader_client import ReaderClient, ReaderParts
from tests.simulation.clients.workload import make_inputs
from tests.simulation.consumers.consumption import EPOCH_MS, ConsumerShape, TopicConsumption, draw_consumer_shape
from tests.simulation.network import Network
from tests.simulation.servers.disk import Index
from tests.simulation.servers.metadata_server import MetadataParts, MetadataServer, StaleRoutes
from tests.simulation.servers.owner_server import OwnerParts, OwnerServer
from tests.simulation.servers.repair_server import Repairer, queue_settings
from tests.simulation.servers.storage_server import NodeParts, StorageServer
from tests.simulation.servers.store import Store
from tests.simulation.servers.topic_shell import TopicShell
from tests.simulation.watches.watching import Watch
from tests.simulation.world import Process, World

SESSION_TICKS = 400
#: how long a name is left to its holder after a takeover
RETURN_TICKS = 1500
#: between two reviews of all ledgers of a storage node, in runs with repair
REVIEW_TICKS = 700
#: how long a takeover waits for the recovery of the cursor's last ledger
CURSOR_TICKS = 400
#: The runs from this seed on change subscriptions, too.
ACK_SEEDS = 1_000_000
#: The runs from this seed on have consumers instead.
CONSUMER_SEEDS = 2_000_000
#: In the runs from this seed on, messages of consumers take effect in a store.
EFFECT_SEEDS = 3_000_000
#: In the runs from this seed on, producers lease their ids, and producers expire.
LEASE_SEEDS = 4_000_000
#: In the runs from this seed on ledgers begin with heads: all that a restore of ZooKeeper's records needs.
RESTORE_SEEDS = 5_000_000
#: Between two ticks of an idle topic.
IDLE_TICKS = 400


def checksum(data: Buffer, value: int) -> int:
    """CRC32 instead of CRC32C: the cores take any, and this one is at hand."""
    return zlib.crc32(data, value)


@dataclass(slots=True)
class Rules:
    """The classes of the cores and the rules of the shells. A mutant replaces one of them."""

    topic: type[Topic] = Topic
    claim: type[IdClaim] = IdClaim
    session: type[ProducerSession] = ProducerSession
    node: Callable[[Incarnation, Index, Any], StorageNode] = StorageNode
    sync_at_start: bool = True
    read_bound: Callable[[Position], Position] = lambda confirmed: confirmed


@dataclass(slots=True)
class Shape:
    """How large a run's cluster is."""

    owners: int = 2
    nodes: int = 3
    metadata: int = 2
    topics: int = 1
    producers: int = 3
    readers: int = 1
    questioners: int = 1
    #: ticks between two batches of a producer
    pace: tuple[int, int] = (4, 60)
    settings: TopicSettings = field(default_factory=TopicSettings)
    #: the inputs of each topic, and at how many places each is fed; None: drawn
    inputs: list[tuple[Input, int]] | None = None
    #: the only faults to inject, on a good network; empty: they are drawn
    only_faults: tuple[str, ...] = ()
    #: whether the metadata replicas repair, as in every fifth run; impatient: absent nodes are soon replaced
    repair: bool = False
    impatient: bool = False
    #: whether changes of subscriptions are appended to the ack logs
    acks: bool = False
    #: of the consumers of each topic; None: it has none
    consumers: ConsumerShape | None = None
    #: of the programs that lease producer ids; None: there are none, and no producer expires
    leases: LeaseShape | None = None
    #: when the cluster gets the level of which ledgers begin with heads, in ticks; None: never
    heads_from: int | None = None

    @staticmethod
    def on_conflict(world: World, source: Input) -> OnConflict:
        """The producers of some runs fence nobody, by a separate generator, so that other runs do not change."""
        shy = random.Random(f"{world.seed}/on_conflict").random() < 0.3
        return OnConflict.REFUSE if shy else source.on_conflict


def small_settings(world: World) -> TopicSettings:
    """Limits so low that a short run meets all of them."""
    rng = world.rng
    return TopicSettings(
        ledger_bytes_max=rng.choice((1500, 1 << 20)),
        ledger_entries_max=rng.choice((4, 8, 20, 1000)),
        ledger_age_max_ms=rng.choice((700, 2500, 100_000)),
        add_timeout_ms=rng.choice((80, 200)),
        rejoin_after_ms=rng.choice((100, 500)),
        tick_ms=80,
        retry_ms=120,
        return_grace_ms=RETURN_TICKS,
        cursor_timeout_ms=CURSOR_TICKS,
        cursor_timeout_ms_max=CURSOR_TICKS,
        openings_wait_max_ms=_openings_wait(world),
        snapshot=SnapshotSettings(
            entries_max=rng.choice((3, 3, 8, 25)),
            interval_ms=rng.choice((300, 2000)),
            gap_ms=rng.choice((10, 100)),
            deltas_max=rng.choice((0, 0, 1, 3)),
            idle_after_ms=(idle_after_ms := rng.choice((400, 100_000))),
            # Half of the runs forget batches all the time.
            recent_bytes_max=600 if idle_after_ms == 400 else RECENT_BYTES_MAX,
        ),
    )


def _openings_wait(world: World) -> int:
    """Requests to open give up in some runs, by a separate generator, so that other runs do not change."""
    return 400 if random.Random(f"{world.seed}/openings wait").random() < 0.15 else 1 << 40


def draw_shape(world: World) -> Shape:
    """Lists of ledgers have tiny pages in half of the runs, by a separate generator, so that others do not change."""
    shape = _drawn_for(world)
    if random.Random(f"{world.seed}/pages").random() < 0.5:
        return replace(shape, settings=replace(shape.settings, pages=PageSettings(ledgers=3, inline_max=4)))
    return shape


def _drawn_for(world: World) -> Shape:
    if LEASE_SEEDS <= world.seed < RESTORE_SEEDS:
        return _with_leases(world)
    shape = _draw_shape(world)
    if world.seed < ACK_SEEDS:
        # Here idle topics tick as often as others, which is the harder case for rolls and snapshots.
        return replace(shape, settings=replace(shape.settings, idle_tick_ms=shape.settings.tick_ms))
    rng = random.Random(f"{world.seed}/acks")
    if CONSUMER_SEEDS <= world.seed < RESTORE_SEEDS:
        shape = _with_consumers(world, rng)
    acks = replace(
        shape.settings.acks, ledger_entries_max=rng.choice((3, 10, 1000)), ledger_age_max_ms=rng.choice((700, 100_000))
    )  # fmt: skip
    snapshot = shape.settings.snapshot
    if shape.consumers is None and random.Random(f"{world.seed}/steps").random() < 0.3:
        snapshot = replace(snapshot, step_producers=1)  # each snapshot is encoded in many steps
    settings = replace(shape.settings, acks=acks, snapshot=snapshot, idle_tick_ms=IDLE_TICKS)
    if shape.consumers is not None and shape.consumers.ack_state_bytes_max is not None:
        settings = replace(settings, ack_state_bytes_max=shape.consumers.ack_state_bytes_max)
    shape = replace(shape, acks=shape.consumers is None, settings=settings)
    return shape if world.seed < RESTORE_SEEDS else replace(shape, heads_from=_heads_from(world))


def _heads_from(world: World) -> int:
    """Of most clusters from the beginning; the others are raised to that level."""
    rng = random.Random(f"{world.seed}/heads")
    return rng.randrange(2000) if rng.random() < 0.25 else 0


def _with_consumers(world: World, rng: random.Random) -> Shape:
    """Messages come during all the faults, nobody else reads them, and the log can be trimmed often."""
    inputs = [(Input(f"producer {n}", SequenceMode.CONTIGUOUS, range(rng.randint(25, 55))), 1) for n in range(2)]
    settings = small_settings(world)
    snapshot = replace(settings.snapshot, entries_max=1, interval_ms=100, gap_ms=10, deltas_max=0)
    settings = replace(settings, ledger_entries_max=rng.choice((2, 4, 20)), snapshot=snapshot)
    return Shape(
        owners=rng.choice((2, 3)), metadata=1, readers=0, questioners=0, inputs=inputs, pace=(40, 300),
        settings=settings,
        consumers=replace(draw_consumer_shape(world.seed), effects=world.seed >= EFFECT_SEEDS),
    )  # fmt: skip


def _with_leases(world: World) -> Shape:
    """Beside the programs with leases one other producer, which may have a lifetime, too. Holders have little time to
    come back after a takeover, so that ids expire between takeovers."""
    rng = world.rng
    settings = replace(small_settings(world), return_grace_ms=rng.choice((150, 500)))
    return Shape(
        owners=rng.choice((2, 3)), metadata=1, producers=1, readers=0, questioners=0, pace=(30, 250),
        settings=settings, leases=draw_lease_shape(world.seed),
    )  # fmt: skip


def _draw_shape(world: World) -> Shape:
    rng = world.rng
    if world.seed % 100 in HISTORIES:
        return HISTORIES[world.seed % 100]()
    if rng.random() < 0.06:
        return restless_shape()
    return Shape(
        owners=rng.choice((2, 2, 3)), nodes=rng.choice((3, 3, 4)), metadata=rng.choice((1, 2)),
        topics=rng.choice((1, 1, 2)), producers=rng.choice((2, 3)), readers=rng.choice((0, 1)),
        settings=small_settings(world), repair=world.seed % 5 == 4, impatient=world.seed % 10 == 9,
    )  # fmt: skip


def _history(
    fault: str, *faults: str, nodes: int = 3, entries: int = 100, ledger_entries_max: int = 40, impatient: bool = False
) -> Shape:
    """One topic with two producers, on a good network, with these faults only."""
    settings = TopicSettings(
        add_timeout_ms=200, tick_ms=80, retry_ms=120, rejoin_after_ms=300, ledger_entries_max=ledger_entries_max,
        return_grace_ms=RETURN_TICKS, cursor_timeout_ms=CURSOR_TICKS, cursor_timeout_ms_max=CURSOR_TICKS,
    )  # fmt: skip
    inputs = [(Input(f"producer {n}", SequenceMode.CONTIGUOUS, range(entries)), 1) for n in range(2)]
    return Shape(
        nodes=nodes, readers=0, settings=settings, inputs=inputs, only_faults=(fault, *faults), repair=True,
        impatient=impatient,
    )  # fmt: skip


def restless_shape() -> Shape:
    """One topic that stores, rolls and trims all the time, and an owner that is paused meanwhile."""
    snapshot = SnapshotSettings(entries_max=3, interval_ms=200, gap_ms=10, deltas_max=0, idle_after_ms=100_000)
    settings = TopicSettings(
        ledger_entries_max=6,
        add_timeout_ms=200,
        tick_ms=80,
        retry_ms=120,
        rejoin_after_ms=300,
        snapshot=snapshot,
        return_grace_ms=RETURN_TICKS,
        cursor_timeout_ms=CURSOR_TICKS,
        cursor_timeout_ms_max=CURSOR_TICKS,
    )
    inputs = [(Input(f"producer {n}", SequenceMode.CONTIGUOUS, range(150)), 1) for n in range(3)]
    return Shape(owners=3, readers=0, settings=settings, inputs=inputs, only_faults=("long sleep",))


#: {seed modulo 100: the shape of its run}: histories of repair that random runs hardly meet
HISTORIES = {
    14: lambda: _history("differing copies", "spoiled entries", "storage node crash", ledger_entries_max=8),
    24: lambda: _history("hole while recovering", entries=250, ledger_entries_max=12),
    34: lambda: _history("late hole", entries=20),
    44: lambda: _history("restored record", nodes=5, impatient=True),
    49: lambda: _history("fence in a hole", entries=400),
    79: lambda: _history("target crash", "disk replacement", nodes=4, entries=200, ledger_entries_max=8),
    74: lambda: _history("directory of the past", entries=250, ledger_entries_max=12),
    94: lambda: _history("copy of a directory", entries=250, ledger_entries_max=12),
    69: lambda: _history("entries vanish", ledger_entries_max=8),
    84: lambda: _history("older store", nodes=5, entries=200, ledger_entries_max=8),
    54: lambda: _history("one holder", "spoiled everywhere", ledger_entries_max=8),
}


class Cluster:
    """All processes, by place."""

    def __init__(self, world: World, shape: Shape, rules: Rules) -> None:
        self.world = world
        self.network = Network(world)
        self.store = Store(world, self.network)
        stale = StaleRoutes()
        topic_ids = tuple(TopicId(f"{n + 1:032x}") for n in range(shape.topics))
        self.nodes: dict[Incarnation, StorageServer] = {}
        self.watch = Watch(self.store, self.nodes, checksum)
        node_parts = NodeParts(
            world, self.network, self.store, checksum, self.watch.erased, rules.node, rules.sync_at_start,
            review_ticks=REVIEW_TICKS if shape.repair else 0, changed=self.nodes_changed,
        )  # fmt: skip
        for name in [f"node{n}" for n in range(shape.nodes)]:
            self.nodes[Incarnation(name)] = StorageServer(node_parts, name)
        self.owner_parts = OwnerParts(
            world,
            self.network,
            self.store,
            checksum,
            shape.settings,
            self.nodes,
            self._stepped,
            ChangingTopic if shape.acks else rules.topic,
            rules.claim,
        )
        self.owners = {f"owner{n}": OwnerServer(self.owner_parts, f"owner{n}") for n in range(shape.owners)}
        self.watch.copies.owners = self.owners
        if shape.heads_from is not None:
            self._begin_heads(shape.heads_from)
        self.shape = shape
        repairs = self._repairer if shape.repair else None
        parts = MetadataParts(world, self.network, self.store, self.owners, topic_ids, repairs)
        self.metadata = [MetadataServer(parts, f"metadata{n}", stale) for n in range(shape.metadata)]
        #: {topic: what appends to its ack log}
        self.ack_workloads: dict[TopicId, AckWorkload] = {}
        if shape.acks:
            self.ack_workloads = {each: AckWorkload(world, self.owners, each) for each in topic_ids}
            self.owner_parts.recorders = {each: load.recorder for each, load in self.ack_workloads.items()}
        #: they ask each topic's owner how far its log goes
        self.questioners: list[Questioner] = []
        self.stranger = Stranger(world, self.network, checksum)
        #: {topic: its leases}; the programs that lease
        self.leases: dict[TopicId, LeaseHistory] = {}
        self.lease_clients: list[LeaseClient] = []
        #: {topic: (history, its producers' places, its readers)}
        self.clients: dict[TopicId, tuple[History, list[ProducerClient], list[ReaderClient]]] = {}
        for topic_id in topic_ids:
            self._add_topic(topic_id, shape, rules)
            if shape.questioners:
                self.questioners.append(Questioner(parts, self.nodes, self.clients[topic_id][0], topic_id))
        if shape.consumers is not None:
            self._add_consumers(shape.consumers)
        if shape.leases is not None:
            self.owner_parts.policies = TopicPolicies(lifetimes=shape.leases.policy)
            self.owner_parts.began_ms = EPOCH_MS

    def _begin_heads(self, tick: int) -> None:
        """A process reads the level when it starts, and now and then."""
        self.owner_parts.heads_from = tick
        self.watch.headed = tick == 0
        for owner in self.owners.values() if tick else ():
            late = random.Random(f"{self.world.seed}/{owner.name}").randrange(1000)
            self.world.after(tick + late, f"{owner.name} sees the level", owner.see_level)

    def _add_consumers(self, shape: ConsumerShape) -> None:
        parts = self.owner_parts
        parts.policies, parts.stream_bytes_max = shape.policies, shape.stream_bytes_max
        if shape.skews:
            parts.began_ms, parts.skews = EPOCH_MS, dict(zip(self.owners, shape.skews, strict=False))
        parts.consumption = {each: TopicConsumption(self, each, shape) for each in self.topic_ids}

    @property
    def consumption(self) -> dict[TopicId, TopicConsumption]:
        """{topic: its consumers}"""
        return self.owner_parts.consumption

    def _repairer(self, server: MetadataServer) -> Repairer:
        return Repairer(server, self.nodes, queue_settings(impatient=self.shape.impatient))

    @property
    def topic_ids(self) -> tuple[TopicId, ...]:
        return tuple(self.clients)

    @property
    def stale(self) -> StaleRoutes:
        """The routes that lead to former owners; one for all metadata replicas."""
        return self.metadata[0].stale

    def _add_topic(self, topic_id: TopicId, shape: Shape, rules: Rules) -> None:
        world, history, producers = self.world, History(), list[ProducerClient]()
        self.store.put(f"topics/{topic_id}", encode_topic(TopicRecord(topic_id, f"t{int(topic_id, 16)}")), -1)
        number = int(topic_id, 16)
        parts = ClientParts(
            world,
            self.network,
            history,
            checksum,
            self.metadata,
            session_class=rules.session,
            pace=shape.pace,
            keyed=shape.consumers is not None,
            leases=None if shape.leases is None else LeaseHistory(),
        )
        if parts.leases is not None:
            self.owner_parts.appended[topic_id] = parts.leases.appended
            self.leases[topic_id] = parts.leases
        for source, places in shape.inputs or make_inputs(world.rng, shape.producers):
            # A shape may serve many runs.
            mine = replace(source, complete=False, places=places, on_conflict=shape.on_conflict(world, source))
            for _ in range(places):
                producers.append(ProducerClient(parts, f"client{number}{len(producers)}", topic_id, mine))
        if shape.leases is not None:
            programs = lease_programs(parts, f"leaser{number}", topic_id, shape.leases)
            self.lease_clients += programs
            producers += programs
        reader_parts = ReaderParts(
            world, self.network, self.store, history, checksum, self.owners, self.nodes, rules.read_bound
        )
        readers = [ReaderClient(reader_parts, f"reader{number}{n}", topic_id) for n in range(shape.readers)]
        self.clients[topic_id] = (history, producers, readers)

    @property
    def producers(self) -> list[ProducerClient]:
        return [client for _, producers, _ in self.clients.values() for client in producers]

    def processes(self) -> list[Process]:
        readers = [reader for _, _, others in self.clients.values() for reader in others]
        consumers = [client for each in self.consumption.values() for client in each.clients]
        return [*self.nodes.values(), *self.owners.values(), *self.metadata, *self.producers, *readers, *consumers]

    # --- lives --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.stranger.start()
        for process in (*self.nodes.values(), *self.owners.values(), *self.metadata):
            self.revive(process)
        for questioner in self.questioners:
            questioner.start()
        for workload in self.ack_workloads.values():
            workload.start()
        for process in self.processes():
            if not process.alive:
                process.post(0, "", lambda: None)
                self.world.after(
                    self.world.rng.randint(1, 300),
                    f"{process.name} starts",
                    lambda p=process: self.revive(p),  # type: ignore[misc]
                )

    def revive(self, process: Process) -> None:
        """Start the processes that are down. Other processes notice it."""
        if process.alive:
            return
        process.start()
        if isinstance(process, OwnerServer):
            for replica in self.metadata:
                if replica.alive:
                    replica.connect(process)
        if isinstance(process, StorageServer):
            self.nodes_changed()

    def crash(self, process: Process) -> None:
        """Its session in the store ends some time later."""
        if process.alive:
            process.crash()
        self.crashed(process)

    def crashed(self, process: Process) -> None:
        for path in self._ephemerals(process):
            self.world.after(SESSION_TICKS, f"session of {path} ends", lambda p=path, o=process: self.expire(p, o))  # type: ignore[misc]

    def _ephemerals(self, process: Process) -> list[str]:
        kind = {OwnerServer: "owners", StorageServer: "storage"}.get(type(process))
        if kind is None:
            return []
        return [f"{kind}/{n}" for n in self.store.children(kind) if n.split(".")[0] == process.name]

    def expire(self, path: str, process: Process, *, forced: bool = False) -> None:
        """End a session unless its process keeps it alive. A live process registers again later."""
        keeps = process.alive and not process.paused and path.endswith(getattr(process, "incarnation", ""))
        if keeps and not forced:
            return
        self.store.remove(path)
        if path.startswith("storage/"):
            self.nodes_changed()
        if isinstance(process, OwnerServer | StorageServer) and process.alive:
            process.post(self.world.rng.randint(20, 300), "registers again", lambda: self._register(process))

    def _register(self, process: OwnerServer | StorageServer) -> None:
        process.register()
        if isinstance(process, StorageServer):
            self.nodes_changed()

    def nodes_changed(self) -> None:
        for owner in self.owners.values():
            owner.post(self.world.rng.randint(1, 120), "sees storage nodes", owner.see_nodes)

    def _stepped(self, owner: OwnerServer, shell: TopicShell) -> None:
        self.watch.stepped(owner, shell)

    def state_line(self) -> str:
        """The state of every place, in one line."""
        owners = " ".join(f"{owner.name}:{_owner_state(owner)}" for owner in self.owners.values())
        nodes = "".join("+" if n.alive and not n.paused else "z" if n.alive else "-" for n in self.nodes.values())
        clients = " ".join(f"{c.app.next}/{len(c.source.ids)}" if c.alive else "down" for c in self.producers)
        consumers = "".join(f" | {each.state_line()}" for each in self.consumption.values())
        return f"{owners} | nodes {nodes} | producers {clients}{consumers}"


def _owner_state(owner: OwnerServer) -> str:
    if not owner.alive:
        return "down"
    return "paused" if owner.paused else ",".join(_topic_line(shell) for shell in owner.topics.values()) or "-"


def _topic_line(shell: TopicShell) -> str:
    takeover = shell.core.takeover
    step = takeover.state.value if takeover is not None else str(shell.confirmed)
    return f"{shell.core.phase.value}@{shell.epoch}({step})"
