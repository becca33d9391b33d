"""One run's cluster: every role, wired over the simulated network, disks and metadata store."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.topic_record import TopicRecord, encode_topic
from oncelog.core.ids import Incarnation, Position, TopicId
from oncelog.core.node.node import StorageNode
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.records.id_claim import IdClaim
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.sdk.producer.session import ProducerSession
from oncelog.core.topic.topic import Topic
from oncelog.metadata_store.records.counter_store import new_counters
from tests.core.node.stored_records import Index
from tests.oracles.history import History
from tests.oracles.leases import LeaseHistory
from tests.simulation.clients.ack_workload import AckWorkload, ChangingTopic
from tests.simulation.clients.byzantine_client import Stranger
from tests.simulation.clients.end_of_log_client import Questioner
from tests.simulation.clients.epoched_client import EpochedClient, epochs_of
from tests.simulation.clients.lease_client import LeaseClient, lease_programs
from tests.simulation.clients.producer_client import ClientParts, ProducerClient
from tests.simulation.clients.reader_client import ReaderClient, ReaderParts
from tests.simulation.clients.workload import make_inputs
from tests.simulation.consumers.consumption import EPOCH_MS, ConsumerShape, TopicConsumption
from tests.simulation.doors.doors import Doors
from tests.simulation.faults.deletions import name_note
from tests.simulation.network import Network
from tests.simulation.servers.metadata.eras import Eras
from tests.simulation.servers.metadata.metadata_server import MetadataParts, MetadataServer, StaleRoutes
from tests.simulation.servers.metadata.repair_server import Repairer, queue_settings
from tests.simulation.servers.nodes.storage_server import NodeParts, StorageServer
from tests.simulation.servers.owners.owner_server import OwnerParts, OwnerServer
from tests.simulation.servers.owners.topic_shell import TopicShell
from tests.simulation.servers.store.store import Store
from tests.simulation.shapes import ACK_SEEDS, EPOCH_SEEDS, Shape
from tests.simulation.watches.watching import Watch
from tests.simulation.world import Process, World

SESSION_TICKS = 400
#: between two reviews of all ledgers of a storage node, in runs with repair
REVIEW_TICKS = 700
#: between two starts of a process that finds no records of its cluster
WAIT_TICKS = 100


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


class Cluster:
    """All processes, by place."""

    def __init__(self, world: World, shape: Shape, rules: Rules) -> None:
        self.world = world
        self.network = Network(world)
        self._first_store = Store(world, self.network)
        for path, data in new_counters().items():
            self._first_store.put(path.removeprefix("/"), data, ABSENT_VERSION)
        stale = StaleRoutes()
        topic_ids = tuple(TopicId(f"{n + 1:032x}") for n in range(shape.topics))
        self.nodes: dict[Incarnation, StorageServer] = {}
        self.eras = Eras(self)
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
            self.restart,
            ChangingTopic if shape.acks else rules.topic,
            rules.claim,
        )
        self.owners = {f"owner{n}": OwnerServer(self.owner_parts, f"owner{n}") for n in range(shape.owners)}
        self.watch.copies.owners = self.owners
        self.owner_parts.restores = shape.restores
        self.shape, self.rules = shape, rules
        repairs = self._repairer if shape.repair else None
        #: the id of a topic that gets the name of one that is deleted
        self.spare = TopicId(f"{shape.topics + 1:032x}") if shape.deletes_topic else None
        places = topic_ids if self.spare is None else (*topic_ids, self.spare)
        parts = MetadataParts(
            world, self.network, self.store, self.owners, places, self.nodes, shape.settings.ack_quorum, repairs
        )
        self.metadata = [MetadataServer(parts, f"metadata{n}", stale) for n in range(shape.metadata)]
        #: {topic: what appends to its ack log}
        self.ack_workloads: dict[TopicId, AckWorkload] = {}
        #: {topic: it asks the topic's owner how far its log goes}
        self.questioners: dict[TopicId, Questioner] = {}
        self.stranger = Stranger(world, self.network, checksum)
        #: {topic: its leases}; the programs that lease
        self.leases: dict[TopicId, LeaseHistory] = {}
        self.lease_clients: list[LeaseClient] = []
        #: None: nobody publishes through doors
        self.doors: Doors | None = None
        #: {topic: (history, its producers' places, its readers)}
        self.clients: dict[TopicId, tuple[History, list[ProducerClient], list[ReaderClient]]] = {}
        for topic_id in topic_ids:
            name = f"public/default/t{int(topic_id, 16)}"
            self._add_topic(topic_id, name)
            for node in self.nodes.values():
                node.notes[name_note(name, topic_id).path] = name_note(name, topic_id)
        if shape.consumers is not None:
            self._add_consumers(shape.consumers)
        if shape.doors is not None:
            history, _, _ = self.clients[topic_ids[0]]
            self.doors = Doors(self._client_parts(history), topic_ids[0], shape.doors)
        if shape.leases is not None:
            self.owner_parts.policies = TopicPolicies(lifetimes=shape.leases.policy)
            self.owner_parts.began_ms = EPOCH_MS

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
    def store(self) -> Store:
        """Of the newest era that is committed."""
        return self._first_store.newest

    @property
    def topic_ids(self) -> tuple[TopicId, ...]:
        return tuple(self.clients)

    @property
    def stale(self) -> StaleRoutes:
        """The routes that lead to former owners; one for all metadata replicas."""
        return self.metadata[0].stale

    def create_topic(self, topic_id: TopicId, name: str) -> None:
        """By use: nothing notes it but the heads of its ledgers."""
        self._add_topic(topic_id, name)
        self.watch.unnoted[topic_id] = None
        _, producers, readers = self.clients[topic_id]
        for process in (*producers, *readers):
            self.revive(process)
        self.questioners[topic_id].start()
        self.ack_workloads[topic_id].start()

    def forget_topic(self, topic_id: TopicId) -> None:
        """It is deleted, or never had an entry: its clients stop."""
        _, producers, readers = self.clients.pop(topic_id)
        for process in (*producers, *readers):
            if process.alive:
                process.crash()
        self.ack_workloads.pop(topic_id).stop()
        self.questioners.pop(topic_id).crash()

    def _add_topic(self, topic_id: TopicId, name: str) -> None:
        world, history, producers = self.world, History(), list[ProducerClient]()
        shape, rules, number = self.shape, self.rules, int(topic_id, 16)
        self.store.put(f"topics/{topic_id}", encode_topic(TopicRecord(topic_id, name)), -1)
        if shape.acks:
            load = self.ack_workloads[topic_id] = AckWorkload(world, self.owners, topic_id)
            self.owner_parts.recorders[topic_id] = load.recorder
        if shape.questioners:
            self.questioners[topic_id] = Questioner(self.metadata[0].parts, self.nodes, history, topic_id)
        parts = self._client_parts(history)
        if parts.leases is not None:
            self.owner_parts.appended[topic_id] = parts.leases.appended
            self.leases[topic_id] = parts.leases
        for source, places in shape.inputs or make_inputs(world.rng, shape.producers):
            # A shape may serve many runs.
            mine = replace(source, complete=False, places=places, on_conflict=shape.on_conflict(world, source))
            in_epochs = EPOCH_SEEDS <= world.seed < ACK_SEEDS and mine.name is not None
            of_kafka = epochs_of(mine, world.seed) if in_epochs else mine
            client_class = EpochedClient if in_epochs else ProducerClient
            for _ in range(places):
                producers.append(client_class(parts, f"client{number}{len(producers)}", topic_id, of_kafka))
        if shape.leases is not None:
            programs = lease_programs(parts, f"leaser{number}", topic_id, shape.leases)
            self.lease_clients += programs
            producers += programs
        reader_parts = ReaderParts(
            world, self.network, self.store, history, checksum, self.owners, self.nodes, rules.read_bound
        )
        readers = [ReaderClient(reader_parts, f"reader{number}{n}", topic_id) for n in range(shape.readers)]
        self.clients[topic_id] = (history, producers, readers)

    def _client_parts(self, history: History) -> ClientParts:
        shape = self.shape
        return ClientParts(
            self.world,
            self.network,
            history,
            checksum,
            self.metadata,
            session_class=self.rules.session,
            pace=shape.pace,
            keyed=shape.consumers is not None,
            leases=None if shape.leases is None else LeaseHistory(),
        )

    @property
    def producers(self) -> list[ProducerClient]:
        return [client for _, producers, _ in self.clients.values() for client in producers]

    def processes(self) -> list[Process]:
        readers = [reader for _, _, others in self.clients.values() for reader in others]
        consumers = [client for each in self.consumption.values() for client in each.clients]
        servers = [*self.nodes.values(), *self.owners.values(), *self.metadata]
        doors = [] if self.doors is None else self.doors.processes
        return [*servers, *self.producers, *readers, *consumers, *self.eras.restorers, *doors]

    # --- lives --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.stranger.start()
        for process in (*self.nodes.values(), *self.owners.values(), *self.metadata):
            self.revive(process)
        for questioner in self.questioners.values():
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
        if isinstance(process, OwnerServer | MetadataServer) and (process.home or self.store).lost:
            waits = f"{process.name} waits for the cluster's records"
            self.world.after(WAIT_TICKS, waits, lambda: self.revive(process))
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

    def restart(self, process: Process) -> None:
        """The process ends, and its supervisor starts it again."""
        self.crash(process)
        self.world.after(self.world.rng.randint(5, 60), f"{process.name} starts again", lambda: self.revive(process))

    def crashed(self, process: Process) -> None:
        kind = {OwnerServer: "owners", StorageServer: "storage"}.get(type(process))
        if kind is None:
            return
        assert isinstance(process, OwnerServer | StorageServer)
        store = process.store
        for name in [n for n in store.children(kind) if n.split(".")[0] == process.name]:
            self.world.after(
                SESSION_TICKS, f"session of {kind}/{name} ends",
                lambda p=f"{kind}/{name}": self.expire(p, process, store=store),  # type: ignore[misc]
            )  # fmt: skip

    def expire(self, path: str, process: Process, *, forced: bool = False, store: Store | None = None) -> None:
        """End a session unless its process keeps it alive. A live process registers again later."""
        store = store or self.store
        keeps = process.alive and not process.paused and path.endswith(getattr(process, "incarnation", ""))
        keeps = keeps and getattr(process, "store", store) is store
        if keeps and not forced:
            return
        store.remove(path)
        if path.startswith("storage/"):
            self.nodes_changed()
        if isinstance(process, OwnerServer | StorageServer) and process.alive and process.store is store:
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
        doors = "" if self.doors is None else f" | doors {self.doors.state_line()}"
        return f"{owners} | nodes {nodes} | producers {clients}{consumers}{doors}"


def _owner_state(owner: OwnerServer) -> str:
    if not owner.alive:
        return "down"
    return "paused" if owner.paused else ",".join(_topic_line(shell) for shell in owner.topics.values()) or "-"


def _topic_line(shell: TopicShell) -> str:
    takeover = shell.core.takeover
    step = takeover.state.value if takeover is not None else str(shell.confirmed)
    return f"{shell.core.phase.value}@{shell.epoch}({step})"
