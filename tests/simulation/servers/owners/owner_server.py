"""A topic owner's process: its topics, its claims of ids, and its connections to clients."""

from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from types import coroutine
from typing import TYPE_CHECKING, Any, Protocol

from oncelog.core.errors import InvalidBatch, NotOwner, OncelogError
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.batch_check import BatchLimits, check_batch
from oncelog.core.formats.opening import ProducerOpening
from oncelog.core.formats.outcome import Outcome
from oncelog.core.ids import Incarnation, OwnerEpoch, Position, SessionNumber, TopicId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.records.id_claim import Counter, CounterRecord, IdClaim
from oncelog.core.records.records import ReadRecord, RecordRead, RecordWritten, WriteRecord
from oncelog.core.records.status import WriteStatus
from oncelog.core.topic.serving import TopicSettings
from oncelog.core.topic.topic import Topic
from oncelog.core.topic_events.effects import AnswerOpen
from oncelog.core.topic_events.events import PoliciesChanged, ReceivedBatch, TopicAssigned
from oncelog.verify.violation import Violation
from tests.oracles.leases import Appended
from tests.simulation.clients.ack_workload import Recorder
from tests.simulation.consumers.streams import OwnerStreams
from tests.simulation.network import Network, Stream
from tests.simulation.servers.nodes.storage_server import StorageServer
from tests.simulation.servers.owners.ownership_proofs import OwnershipWatch
from tests.simulation.servers.owners.proved_openings import ProvedOpenings
from tests.simulation.servers.owners.topic_shell import TopicShell
from tests.simulation.servers.store.records import read_record, write_record
from tests.simulation.servers.store.store import Store
from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from tests.simulation.consumers.consumption import TopicConsumption

#: Session numbers of two times of ownership never overlap.
SESSIONS_PER_TOPIC = 1_000_000
#: A topic that was closed here is not taken at the same epoch again for so long.
RETAKE_TICKS = 300


class ClientLink(Protocol):
    """One stream of a client, as the owner sees it."""

    stream: Stream

    def opened(self, answer: AnswerOpen, owner_epoch: OwnerEpoch) -> None: ...
    def answered(
        self, session: SessionNumber, answers: list[tuple[int, Outcome | OncelogError]], owner_epoch: OwnerEpoch
    ) -> None: ...
    def ended(self, session: SessionNumber, error: OncelogError, owner_epoch: OwnerEpoch) -> None: ...


@dataclass(slots=True)
class OwnerParts:
    """State that all owners of a cluster share. The classes are here so that a mutant can replace them."""

    world: World
    network: Network
    store: Store
    checksum: Checksum
    settings: TopicSettings
    #: {incarnation: where it is or was}
    nodes: dict[Incarnation, StorageServer]
    #: told of every step of a topic
    watch: Callable[["OwnerServer", TopicShell], None]
    #: a process ends, and is started again
    ended: Callable[["OwnerServer"], None]
    topic_class: type[Topic] = Topic
    claim_class: type[IdClaim] = IdClaim
    pid_block: int = 3
    dedup_enabled: bool = True
    #: {topic: creates the recorder of changes for each life of a topic at an owner}
    recorders: dict[TopicId, Callable[[], Recorder]] = field(default_factory=dict)
    #: ids that are granted before this tick are told then
    ids_stalled_until: int = 0
    #: {(counter, id)}: every id that was ever allocated
    granted: dict[tuple[str, int], Incarnation] = field(default_factory=dict)
    #: every claim that was begun: one that a crash has interrupted is kept until the run ends
    claims: list[Coroutine[Any, Any, None]] = field(default_factory=list)
    policies: TopicPolicies = field(default_factory=TopicPolicies)
    #: {topic: {entry: how it was appended}}, in runs in which producers expire
    appended: dict[TopicId, dict[Position, Appended]] = field(default_factory=dict)
    #: the true time at tick 0; {place of an owner: by how much its clock is ahead}
    began_ms: int = 0
    skews: dict[str, int] = field(default_factory=dict)
    #: whether the records of the store are lost and restored
    restores: bool = False
    #: the budget of what waits until consumers read it; None: they read at once
    stream_bytes_max: int | None = None
    #: {topic: its consumers}
    consumption: "dict[TopicId, TopicConsumption]" = field(default_factory=dict)
    #: no further faults
    healed: bool = False

    @property
    def true_ms(self) -> int:
        return self.began_ms + self.world.now


@coroutine
def _asked(effect: Any) -> Generator[Any, Any, Any]:
    """What the store answers. The procedure waits here, and is not resumed if its process has crashed."""
    return (yield effect)


class IdSource:
    """The claims of one counter by one life of a process."""

    def __init__(self, owner: "OwnerServer", counter: Counter, *, block: int, prefetch_below: int) -> None:
        self.owner = owner
        self.counter = counter
        self.path = f"ids/{counter.value}"
        self.core = owner.parts.claim_class(owner.incarnation, block=block, prefetch_below=prefetch_below)
        self._claim: Coroutine[Any, Any, None]
        #: nothing is performed any more
        self._crashed = False

    def want(self, granted: Callable[[int], None]) -> None:
        if self.core.request(lambda number: self._grant(number, granted)) and not self._crashed:
            self._claim = self.core.claim(self)
            self.owner.parts.claims.append(self._claim)
            self._resume(None)
        self._check()

    async def read(self) -> tuple[CounterRecord | None, int]:
        read: RecordRead[Counter, CounterRecord] = await _asked(ReadRecord(self.counter))
        return read.value, read.version

    async def write(self, record: CounterRecord, *, version: int) -> WriteStatus:
        written: RecordWritten[Counter, CounterRecord] = await _asked(WriteRecord(self.counter, record, version))
        return written.status

    def _resume(self, answer: Any) -> None:
        """To its next question."""
        try:
            effect = self._claim.send(answer)
        except StopIteration:
            effect = None
        if self._crashed:
            return
        match effect:
            case ReadRecord():
                read_record(self.owner.store, self.owner, effect, self._resume)
                self._burn()
            case WriteRecord():
                write_record(self.owner.store, self.owner, effect, self._resume)
                self._burn()
        self._check()

    def _grant(self, number: int | None, granted: Callable[[int], None]) -> None:
        assert number is not None, "the simulation used up its ids"
        if self._crashed:
            return
        known = self.owner.parts.granted
        if (self.path, number) in known:
            raise Violation("ids never repeat", f"{self.path} {number} was given to {known[self.path, number]}")
        known[self.path, number] = self.owner.incarnation
        stalled = max(0, self.owner.parts.ids_stalled_until - self.owner.world.now)
        self.owner.post(stalled, f"id {self.path} {number}", lambda: granted(number))
        self._burn()

    def _burn(self) -> None:
        self._crashed = self.owner.burn()

    def _check(self) -> None:
        if not self._crashed:
            self.core.check_invariants()


class OwnerServer(Process):
    """One place for an owner; each life has a new incarnation."""

    def __init__(self, parts: OwnerParts, name: str) -> None:
        super().__init__(parts.world, name)
        self.parts = parts
        #: of the era in which this life is; home: of a former one, whose address the process has; None: the newest
        self.store = parts.store
        self.home: Store | None = None
        #: places of nodes that refuse the era of this life
        self.refused_by: dict[str, None] = {}
        #: {topic id: shell}
        self.topics: dict[TopicId, TopicShell] = {}
        self.links: list[ClientLink] = []
        #: to the metadata replicas
        self.streams: list[Stream] = []
        self.ledger_ids: IdSource
        self.producer_ids: IdSource
        #: what waits until consumers read it; None: they read at once
        self.waiting: OwnerStreams | None = None
        self._slots = 0
        #: {topic closed here: (its epoch then, until when it is not taken at that one)}
        self._given_up: dict[TopicId, tuple[OwnerEpoch, int]] = {}

    @property
    def incarnation(self) -> Incarnation:
        return Incarnation(f"{self.name}.{(self.life + 1) // 2}")

    @property
    def now_ms(self) -> int:
        return self.parts.true_ms + self.parts.skews.get(self.name, 0)

    def start(self) -> None:
        super().start()
        self.store = self.home or self.parts.store.newest
        self.refused_by = {}
        self.topics, self.links, self._given_up = {}, [], {}
        self.proved_openings = ProvedOpenings(self)
        bytes_max = self.parts.stream_bytes_max
        self.waiting = None if bytes_max is None else OwnerStreams(self, bytes_max)
        self.ledger_ids = IdSource(self, Counter.LEDGER, block=1, prefetch_below=0)
        self.producer_ids = IdSource(self, Counter.PRODUCER, block=self.parts.pid_block, prefetch_below=1)
        if self.parts.consumption:
            OwnershipWatch(self)
        self.register()

    def register(self) -> None:
        if f"owners/{self.incarnation}" not in self.store.records:
            self.store.put(f"owners/{self.incarnation}", self.name.encode(), -1)

    def crash(self) -> None:
        streams = [link.stream for link in self.links] + self.streams
        super().crash()
        self.links, self.streams = [], []
        for stream in streams:
            stream.sever()

    def refused(self, place: str) -> None:
        """A node refuses this owner, because it is of another era: the process ends when more than half do."""
        self.refused_by[place] = None
        if 2 * len(self.refused_by) > len(self.parts.nodes):
            self.refused_by = {}
            self.world.count("owner of a former era ended")
            self.post(1, "ends with its era", lambda: self.parts.ended(self))

    # --- what others send ---------------------------------------------------------------------------------------------

    def assign(self, topic_id: TopicId) -> None:
        """A metadata replica reports that the record names this owner."""
        shell = self.topics.get(topic_id)
        given_up = self.gave_up_at(topic_id)
        if shell is None or shell.over:
            self._slots += 1
            first = SessionNumber(self._slots * SESSIONS_PER_TOPIC)
            shell = self.topics[topic_id] = TopicShell(self, topic_id, first)
            if self.parts.policies != TopicPolicies():
                shell.handle(PoliciesChanged(self.parts.policies))
        shell.handle(TopicAssigned(given_up))

    def closed(self, shell: TopicShell) -> None:
        """A topic was closed here at its epoch. This owner does not take it at that epoch for a while."""
        self._given_up[shell.topic_id] = (shell.epoch, self.world.now + RETAKE_TICKS)

    def gave_up_at(self, topic_id: TopicId) -> OwnerEpoch:
        """The epoch at which the topic was closed here recently. 0: it was not closed recently."""
        epoch, until = self._given_up.get(topic_id, (OwnerEpoch(0), 0))
        return epoch if self.world.now < until else OwnerEpoch(0)

    def storage_nodes(self) -> StorageNodesUpdated:
        """Where the storage nodes stand by the store's ephemerals and cookies, as of now."""
        store = self.store
        live = tuple(Incarnation(name) for name in store.children("storage"))
        known = [Incarnation(name) for name in store.children("storage_cookies")]
        latest = {name.split(".")[0]: name for name in known}
        retired = tuple(name for name in known if latest[name.split(".")[0]] != name)
        absent = tuple(name for name in known if name not in live and name not in retired)
        return StorageNodesUpdated(tuple(n for n in live if n not in retired), absent, retired)

    def see_nodes(self) -> None:
        nodes = self.storage_nodes()
        for shell in list(self.topics.values()):
            if self.alive and nodes != shell.core.nodes:
                shell.handle(nodes)

    def open(self, link: ClientLink, topic_id: TopicId, opening: ProducerOpening) -> None:
        shell = self.topics.get(topic_id)
        if shell is None:
            link.opened(AnswerOpen(opening.call, NotOwner("this process does not serve the topic")), OwnerEpoch(0))
        else:
            if link not in self.links:
                self.links.append(link)
            if opening.client is not None and opening.client.token is not None:
                self.proved_openings.open(link, topic_id, opening)
            else:
                shell.open(link, opening)

    def withdraw(self, link: ClientLink, topic_id: TopicId, call: int) -> None:
        self.proved_openings.withdraw(link, call)
        shell = self.topics.get(topic_id)
        if shell is not None:
            shell.withdraw(link, call)

    def receive(self, topic_id: TopicId, session: SessionNumber, batches: list[ReceivedBatch]) -> None:
        shell = self.topics.get(topic_id)
        if shell is not None:
            shell.receive(session, batches)

    def receive_bytes(
        self, link: ClientLink, topic_id: TopicId, session: SessionNumber, data: bytes, checksum: Checksum
    ) -> None:
        """One batch of a client whose bytes need not be sound: what cannot be stored ends its session."""
        try:
            header = check_batch(data, checksum, BatchLimits(1 << 20))
        except InvalidBatch as error:
            self.close_session(topic_id, session)
            link.answered(session, [(1, error)], OwnerEpoch(0))
        else:
            self.receive(topic_id, session, [ReceivedBatch(1, header, data)])

    def close_session(self, topic_id: TopicId, session: SessionNumber, *, keeps_name: bool = False) -> None:
        shell = self.topics.get(topic_id)
        if shell is not None:
            shell.close_session(session, keeps_name=keeps_name)

    def hold_name(self, topic_id: TopicId, session: SessionNumber) -> None:
        """A gateway says that the client of this session is there."""
        shell = self.topics.get(topic_id)
        if shell is not None:
            shell.hold_name(session)

    def link_broken(self, link: ClientLink) -> None:
        self.proved_openings.link_broken(link)
        if link in self.links:
            self.links.remove(link)
        for shell in list(self.topics.values()):
            if self.alive:
                shell.link_broken(link)
