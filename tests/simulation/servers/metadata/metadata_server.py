"""A metadata replica's process: placement of every topic, suspicions about owners, and look-ups of clients.

That a topic does not exist is said after storage nodes have proved the era, as in `metadata.topics.era_proof`.
Chance and delays of that come from a separate generator, so that it changes no other run.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from oncelog.core.chain.ownership_proof import NO_LEDGER, record_decides
from oncelog.core.errors import OncelogError, ServiceUnavailable, TopicNotFound
from oncelog.core.formats.topic_record import TopicRecord
from oncelog.core.ids import Incarnation, OwnerEpoch, TopicId
from oncelog.core.ledger.member_status import FenceState
from oncelog.core.placement.owner_suspicion import (
    ConnectionAccepted,
    ConnectionRefused,
    HostUnreachable,
    OwnerSuspected,
    OwnerSuspicion,
    ProbeOwner,
    SessionsUpdated,
    StreamClosed,
    StreamOpened,
    SuspicionEvent,
)
from oncelog.core.placement.topic_placement import (
    NoOwnerLive,
    NotifyOwner,
    OwnersView,
    PlacementEvent,
    PlacementRecordRead,
    PlacementRecordWritten,
    PlacementRequested,
    TopicMissing,
    TopicPlaced,
    TopicPlacement,
    UnloadRequested,
)
from oncelog.core.records.records import ReadRecord, RecordRead, RecordWritten, TopicKey, WriteRecord
from tests.simulation.network import Network, Stream
from tests.simulation.servers.metadata.repair_server import Repairer
from tests.simulation.servers.nodes.storage_server import StorageServer
from tests.simulation.servers.owners.owner_server import OwnerServer
from tests.simulation.servers.owners.ownership_proofs import FENCES_TICKS, Paths, ask_each
from tests.simulation.servers.store.records import read_record, write_record
from tests.simulation.servers.store.store import Store
from tests.simulation.world import Process, World

SCAN_TICKS = 250
BACKOFF_TICKS = 400

#: What a look-up is answered: where, and at which epoch; or why not.
Found = Callable[[OwnerServer, Incarnation, OwnerEpoch], None]
Failed = Callable[[OncelogError], None]


@dataclass(frozen=True, slots=True)
class MetadataParts:
    world: World
    network: Network
    store: Store
    #: {place: owner}
    owners: dict[str, OwnerServer]
    topics: tuple[TopicId, ...]
    #: {place: storage node}, and how many of them prove an era
    nodes: dict[Incarnation, StorageServer]
    ack_quorum: int
    #: how a replica begins to repair; None: the run has no repair
    repairs: Callable[["MetadataServer"], Repairer] | None = None
    #: {topic: every placement ever, oldest first}; what a stale route is made of
    placements: dict[TopicId, list[tuple[Incarnation, OwnerEpoch]]] = field(default_factory=dict)


@dataclass(slots=True)
class StaleRoutes:
    """Probability that a look-up gets a stale answer."""

    probability: float = 0.0


class MetadataServer(Process):
    """One replica."""

    def __init__(self, parts: MetadataParts, name: str, stale: StaleRoutes) -> None:
        super().__init__(parts.world, name)
        self.parts = parts
        #: of the era in which this life is; home: of a former one, whose address the process has; None: the newest
        self.store = parts.store
        self.home: Store | None = None
        self.stale = stale
        self.suspicion = OwnerSuspicion()
        self.placement: dict[TopicId, TopicPlacement] = {}
        #: {topic: who looks it up now}
        self.asking: dict[TopicId, list[tuple[Found, Failed]]] = {}
        self._streams = 0
        self._rng = random.Random(f"{parts.world.seed}/{name} proves its era")
        self.repairer: Repairer | None = None

    def start(self) -> None:
        super().start()
        self.store = self.home or self.parts.store.newest
        self.suspicion = OwnerSuspicion()
        self.placement = {t: TopicPlacement(t, backoff_ms=BACKOFF_TICKS) for t in self.parts.topics}
        self.asking = {t: [] for t in self.parts.topics}
        for owner in self.parts.owners.values():
            if owner.alive:
                self.connect(owner)
        self.post(self.world.rng.randint(1, SCAN_TICKS), "scan", self._scan)
        if self.parts.repairs is not None:
            self.repairer = self.parts.repairs(self)

    def _scan(self) -> None:
        self.post(SCAN_TICKS, "scan", self._scan)
        self._suspect(SessionsUpdated(self._live()))
        for topic_id in self.parts.topics:
            if self.alive:
                self._place(PlacementRequested(topic_id))

    def _live(self) -> tuple[Incarnation, ...]:
        return tuple(Incarnation(name) for name in self.store.children("owners"))

    # --- the owners' streams ------------------------------------------------------------------------------------------

    def connect(self, owner: OwnerServer) -> None:
        """An owner keeps a stream to each replica, and reconnects when the stream breaks."""
        self._streams += 1
        number, incarnation, network = self._streams, owner.incarnation, self.parts.network
        stream = Stream(network, owner, self)
        stream.on_broken[self.name] = lambda: self._suspect(StreamClosed(incarnation, number, self._meets(owner)))
        stream.on_broken[owner.name] = lambda: owner.post(
            self.world.rng.randint(1, 50), "connects anew", lambda: self.connect(owner) if self.alive else None
        )
        owner.streams.append(stream)
        self.post(network.delay(owner.name, self.name), "stream", lambda: self._opened(stream, incarnation, number))

    def _opened(self, stream: Stream, incarnation: Incarnation, number: int) -> None:
        self._suspect(StreamOpened(incarnation, number))
        if not stream.open:
            self._suspect(StreamClosed(incarnation, number))

    def _meets(self, owner: OwnerServer) -> bool:
        """Whether a round trip to the owner's place succeeds; what a stream closed by silence had none of."""
        network = self.parts.network
        return not network.cut(self.name, owner.name) and not network.cut(owner.name, self.name)

    def _suspect(self, event: SuspicionEvent) -> None:
        for effect in self.suspicion.handle(event):
            match effect:
                case ProbeOwner():
                    self._probe(effect.owner, effect.stream)
                case OwnerSuspected():
                    self.world.count("owner suspected")
                    for topic_id in self.parts.topics:
                        self._place(PlacementRequested(topic_id))
        self.suspicion.check_invariants()

    def _probe(self, incarnation: Incarnation, stream: int) -> None:
        """A host whose process is gone refuses, or is gone with it; one behind a cut has no route to it either."""
        owner, network = self.parts.owners[incarnation.split(".")[0]], self.parts.network
        event: SuspicionEvent = HostUnreachable(incarnation, stream)
        if not self._meets(owner):
            self.world.count("no route to a host behind a cut")
            self.post(network.faults.delay_max, "no route", lambda: self._suspect(event))
            return
        if owner.alive:
            event = ConnectionAccepted(incarnation, stream)
        elif owner.life % 4:  # even while it is dead
            event = ConnectionRefused(incarnation, stream)
        else:
            self.world.count("no route to a host that is gone")
        self.post(network.delay(owner.name, self.name), "probe answered", lambda: self._suspect(event))

    # --- placement ----------------------------------------------------------------------------------------------------

    def place(self, topic_id: TopicId) -> None:
        self._place(PlacementRequested(topic_id))

    def unload(self, topic_id: TopicId, avoid: Incarnation) -> None:
        self._place(UnloadRequested(topic_id, avoid))

    def look_up(self, topic_id: TopicId, owner_epoch: OwnerEpoch, found: Found, failed: Failed) -> None:
        """Answer a client; a stale answer is never older than what the client has seen."""
        past = [p for p in self.parts.placements.get(topic_id, ())[:-1] if p[1] >= owner_epoch]
        if past and self.world.chance(self.stale.probability):
            self.world.count("stale route")
            incarnation, epoch = self.world.rng.choice(past)
            found(self.parts.owners[incarnation.split(".")[0]], incarnation, epoch)
            return
        self.asking[topic_id].append((found, failed))
        self._place(PlacementRequested(topic_id))

    def _place(self, event: PlacementEvent) -> None:
        core = self.placement[event.topic_id]
        for effect in core.handle(event):
            match effect:
                case ReadRecord():
                    read_record(self.store, self, effect, self._read)
                case WriteRecord():
                    write_record(self.store, self, effect, self._written)
                case NotifyOwner(topic_id, owner, epoch):
                    self._tell_owner(topic_id, owner, epoch)
                case TopicPlaced(topic_id, owner, epoch):
                    self._placed(topic_id, owner, epoch)
                case NoOwnerLive(topic_id):
                    self._fail(self._taken(topic_id), ServiceUnavailable("no owner is live"))
                case TopicMissing(topic_id):
                    self._missing(topic_id, self._taken(topic_id))
            if self.burn():
                return
        core.check_invariants()

    def _taken(self, topic_id: TopicId) -> list[Failed]:
        asking, self.asking[topic_id] = self.asking[topic_id], []
        return [failed for _, failed in asking]

    def _fail(self, asking: list[Failed], error: OncelogError) -> None:
        for failed in asking:
            failed(error)

    def _missing(self, topic_id: TopicId, asking: list[Failed]) -> None:
        """The store of a former era may have been told of a deletion, and the topic lives."""
        if self.store.get(f"topics/{topic_id}")[0] is not None:
            # A scan has read it before it was created; a real service knows no id of a topic before that.
            self._fail(asking, ServiceUnavailable("the topic is being created"))
            return
        if not asking:
            return
        self.until_era_is_proved(
            topic_id,
            lambda: self._fail(asking, TopicNotFound("the topic does not exist")),
            lambda: self._fail(asking, ServiceUnavailable("this may be a former era")),
        )

    def until_era_is_proved(self, topic_id: TopicId, proved: Callable[[], None], unproved: Callable[[], None]) -> None:
        states: list[FenceState] = []
        over = False

        def told(state: FenceState) -> None:
            nonlocal over
            states.append(state)
            if not over and record_decides(states, ack_quorum=self.parts.ack_quorum):
                over = True
                self.world.count("topic said to be missing")
                proved()

        def give_up() -> None:
            nonlocal over
            if not over:
                over = True
                self.world.count("topic not said to be missing")
                unproved()

        paths = Paths(self.parts.network, self.parts.nodes, topic_id, self._rng)
        ask_each(paths, self, map(Incarnation, self.store.children("storage")), NO_LEDGER, told)
        self.post(FENCES_TICKS, "its era is unknown", give_up)

    def _read(self, read: RecordRead[TopicKey, TopicRecord]) -> None:
        owners = OwnersView(self._live(), self.suspicion.suspected)
        self._place(PlacementRecordRead(read.key.topic_id, read.value, read.version, owners, self.world.now))

    def _written(self, written: RecordWritten[TopicKey, TopicRecord]) -> None:
        topic_id, status, version = written.key.topic_id, written.status, written.version
        self._place(PlacementRecordWritten(topic_id, status, version, self.world.now))

    def _placed(self, topic_id: TopicId, incarnation: Incarnation, epoch: OwnerEpoch) -> None:
        known = self.parts.placements.setdefault(topic_id, [])
        if not known or known[-1][1] < epoch:
            known.append((incarnation, epoch))
        owner = self.parts.owners[incarnation.split(".")[0]]
        asking, self.asking[topic_id] = self.asking[topic_id], []
        for found, _ in asking:
            found(owner, incarnation, epoch)
        if not asking:
            self._tell_owner(topic_id, incarnation, epoch)

    def _tell_owner(self, topic_id: TopicId, incarnation: Incarnation, epoch: OwnerEpoch) -> None:
        owner = self.parts.owners[incarnation.split(".")[0]]
        if owner.incarnation == incarnation:
            self.parts.network.send(self.name, owner, f"assign {epoch}", lambda: owner.assign(topic_id))
