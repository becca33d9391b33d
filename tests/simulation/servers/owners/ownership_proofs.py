"""An owner proves that it is the current one, with delays of its own: the shells' parts of `ownership_proofs`, which is
asked, and of `ownership_watch`, which asks for consumers (hazard deposed-owner-delivers). `consumers.withheld` asks for
what consumers are told.

Chance comes from a separate generator, so that proofs change no other run.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from oncelog.core.chain import ownership_proof
from oncelog.core.chain.ownership_proof import OwnershipProof
from oncelog.core.ids import Incarnation, LedgerId, OwnerEpoch, Position, TopicId
from oncelog.core.ledger.member_status import FenceState
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.topic.topic import Phase, open_ledger
from oncelog.core.topic_events.events import HigherEpochReported
from tests.simulation.network import Network
from tests.simulation.servers.store.decoding import decode_topic
from tests.simulation.world import Process

if TYPE_CHECKING:
    from tests.simulation.servers.metadata.metadata_server import MetadataServer
    from tests.simulation.servers.nodes.storage_server import StorageServer
    from tests.simulation.servers.owners.owner_server import OwnerServer
    from tests.simulation.servers.owners.topic_shell import TopicShell

#: Members that are silent for so long have the record asked.
FENCES_TICKS = 60
#: between two proofs for the consumers of a topic
WATCH_TICKS = (400, 700)
Refuse = Callable[[], None]
Answer = Callable[[Position, OwnerEpoch], None]


@dataclass(frozen=True, slots=True)
class Paths:
    """How messages about one topic go."""

    network: Network
    nodes: "dict[Incarnation, StorageServer]"
    topic_id: TopicId
    rng: random.Random

    def delay(self, source: str, target: str) -> int | None:
        """None: behind a network partition."""
        network = self.network
        if network.cut(source, target):
            return None
        held = max(0, network.clogs.get((source, target), 0) - network.world.now)
        return held + self.rng.randint(1, network.faults.delay_max)

    def send(
        self, source: str, target: Process, label: str, do: Callable[[], None], *, life: int | None = None
    ) -> None:
        """life: an answer reaches only the life of the process that asked."""
        delay = self.delay(source, target.name)
        if delay is not None:
            target.post(delay, label, do, life=life)


def ask_each(
    paths: Paths,
    asker: "OwnerServer | MetadataServer",
    nodes: Iterable[Incarnation],
    ledger_id: LedgerId,
    told: Callable[[FenceState], None],
) -> None:
    """The fence states of a ledger, as the storage nodes say them that get the question in the asker's era."""
    era, life = asker.store.era, asker.life

    def at_node(server: "StorageServer", member: Incarnation) -> None:
        if server.incarnation != member:
            return
        if server.refuses(era):
            asker.world.count("question of a former era")
            paths.send(server.name, asker, "is of a former era", lambda: told(FenceState.FENCED), life=life)
            return
        state = server.core.ledgers.fence_state(ledger_id)
        paths.send(server.name, asker, f"is {state.name}", lambda: told(state), life=life)

    for node in nodes:
        server = paths.nodes[Incarnation(node.split(".")[0])].at(asker.name)
        paths.send(asker.name, server, "fenced?", partial(at_node, server, node))


class Asked:
    """One question at an owner: refuted, it reads its record."""

    def __init__(self, paths: Paths, owner: "OwnerServer", seen: OwnerEpoch, answer: Answer, refuse: Refuse) -> None:
        self.paths = paths
        self.owner = owner
        self.seen = seen
        self.over = False
        self._answer = answer
        self._refuse = refuse

    def begin(self) -> None:
        shell = self.owner.topics.get(self.paths.topic_id)
        if shell is None or shell.core.phase is not Phase.SERVING:
            self._refuse()
        elif self.seen > shell.epoch:
            self.owner.world.count("question shows a higher epoch")
            self._read_record(shell, confirmed=False)
        elif (ledger := open_ledger(shell.core)) is not None:
            self._ask_members(shell, ledger)
        else:
            self._ask_nodes(shell)

    def _ask_members(self, shell: "TopicShell", ledger: LedgerMetadata) -> None:
        states: list[FenceState] = []

        def told(state: FenceState) -> None:
            states.append(state)
            if self.over:
                return
            verdict = ownership_proof.assess(states, ack_quorum=ledger.ack_quorum)
            if verdict is OwnershipProof.PROVED and open_ledger(shell.core) is ledger:
                self.owner.world.count("owner proved by fences")
                self._say(shell)
            elif verdict is OwnershipProof.REFUTED:
                self.owner.world.count("owner refuted by a fence")
                self._suspect(shell)

        self._ask_each(ledger.members, ledger.ledger_id, told)
        self.owner.post(FENCES_TICKS, "fences are unknown", lambda: None if self.over else self._ask_nodes(shell))

    def _ask_nodes(self, shell: "TopicShell") -> None:
        """Whether the record may be believed: its store may be the one that was lost, in runs that lose stores."""
        if not self.owner.parts.restores:
            self._read_record(shell)
            return
        states: list[FenceState] = []
        decided = False

        def told(state: FenceState) -> None:
            nonlocal decided
            states.append(state)
            quorum = self.owner.parts.settings.ack_quorum
            if not (self.over or decided) and ownership_proof.record_decides(states, ack_quorum=quorum):
                decided = True
                self._read_record(shell)

        self._ask_each(self.owner.storage_nodes().live, ownership_proof.NO_LEDGER, told)

    def _ask_each(self, nodes: Iterable[Incarnation], ledger_id: LedgerId, told: Callable[[FenceState], None]) -> None:
        ask_each(self.paths, self.owner, nodes, ledger_id, told)

    def _read_record(self, shell: "TopicShell", *, confirmed: bool = True) -> None:
        """confirmed: a record that names this owner at its epoch proves it; else it is looked at for a newer one."""
        store, world, life = self.owner.store, self.owner.world, self.owner.life
        delay = self.paths.delay(self.owner.name, "store")
        if delay is None:
            return
        delay += max(0, store.stalled_until - world.now)

        def read() -> None:
            if store.lost:
                return
            data, _ = store.get(f"topics/{self.paths.topic_id}")
            record = None if data is None else decode_topic(data)
            current = record is not None and (record.owner, record.owner_epoch) == (self.owner.incarnation, shell.epoch)
            self.owner.post(1, "record read", lambda: decide(current), life=life)

        def decide(current: bool) -> None:
            if self.over:
                return
            if not current:
                self._suspect(shell)
            elif confirmed:
                world.count("owner proved by the record")
                self._say(shell)
            else:
                self.give_up()

        world.after(delay, "store reads a record for a question", read)

    def _say(self, shell: "TopicShell") -> None:
        self.over = True
        if shell.core.phase is Phase.SERVING:
            self._answer(shell.confirmed, shell.epoch)
        else:
            self._refuse()

    def give_up(self) -> None:
        """It takes too long."""
        self.over = True
        self._refuse()

    def _suspect(self, shell: "TopicShell") -> None:
        self.over = True
        self._refuse()
        if not shell.over:
            shell.handle(HigherEpochReported())


class OwnershipWatch:
    """Of one life of an owner: consumers ask nothing, and one that has nothing to acknowledge would never learn that
    its owner was deposed."""

    def __init__(self, owner: "OwnerServer") -> None:
        self._owner = owner
        self._rng = random.Random(f"{owner.world.seed}/{owner.incarnation} watches")
        self._later()

    def _later(self) -> None:
        self._owner.post(self._rng.randint(*WATCH_TICKS), "watches its topics", self._look)

    def _look(self) -> None:
        self._later()
        owner = self._owner
        for topic_id, shell in list(owner.topics.items()):
            if shell.consumers.any_attached:
                paths = Paths(owner.parts.network, owner.parts.nodes, topic_id, self._rng)
                Asked(paths, owner, OwnerEpoch(0), lambda *_: None, lambda: None).begin()
