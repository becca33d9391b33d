"""A reader: it asks an owner, perhaps a deposed one, how far it may read, and reads entries from storage nodes.

It goes entry by entry from the first ledger that is kept, and never beyond what that owner confirmed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.batch import Checksum
from oncelog.core.formats.entry import decode_entry
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.topic.topic import Phase
from tests.oracles.history import History
from tests.simulation.network import Network
from tests.simulation.servers.nodes.storage_server import ReadReply, Reply, StorageServer
from tests.simulation.servers.owners.owner_server import OwnerServer
from tests.simulation.servers.store.decoding import decode_ledger
from tests.simulation.servers.store.ledger_lists import ids_known_to
from tests.simulation.servers.store.store import Store
from tests.simulation.world import Process, World

READ_TICKS = (30, 160)


@dataclass(frozen=True, slots=True)
class ReaderParts:
    world: World
    network: Network
    store: Store
    history: History
    checksum: Checksum
    owners: dict[str, OwnerServer]
    nodes: dict[Incarnation, StorageServer]
    #: how far a reader may go by what an owner confirmed; a mutant goes further
    bound: Callable[[Position], Position] = lambda confirmed: confirmed


class ReaderClient(Process):
    """One reader of one topic."""

    def __init__(self, parts: ReaderParts, name: str, topic_id: TopicId) -> None:
        super().__init__(parts.world, name)
        self.parts = parts
        self.topic_id = topic_id
        #: the next entry to read, None before the first
        self.next: Position | None = None
        #: the last entry that was received
        self._last: Position | None = None
        self._lives = 0

    @property
    def reader(self) -> str:
        return f"{self.name}.{self._lives}"

    def start(self) -> None:
        super().start()
        self._lives += 1
        self.next = self._last = None
        self._later()

    def _later(self) -> None:
        self.post(self.world.rng.randint(*READ_TICKS), "reads", self._ask)

    def _ask(self) -> None:
        """Any owner that serves the topic, also a deposed one that has not noticed it."""
        self._later()
        network, life = self.parts.network, self.life
        owner = self.world.rng.choice(list(self.parts.owners.values()))

        def asked() -> None:
            shell = owner.topics.get(self.topic_id)
            if shell is None or shell.core.phase is not Phase.SERVING or self.life != life:
                return
            ledgers = ids_known_to(owner.store, shell.core.ownership.record)
            confirmed = shell.confirmed
            network.send(owner.name, self, "may read", lambda: self._may_read(owner.store, ledgers, confirmed))

        network.send(self.name, owner, "how far", asked)

    def _may_read(self, store: Store, ledgers: list[LedgerId], confirmed: Position) -> None:
        bound = self.parts.bound(confirmed)
        if self.next is not None and self.next.ledger_id < store.era.first_id and self.next.ledger_id not in ledgers:
            self.world.count("reader in a ledger that no restore lists")
            self.next = self._resumed()
        if self.next is None or self.next.ledger_id < ledgers[0]:
            self.next = Position(ledgers[0], EntryId(0))
        if self.next.ledger_id not in ledgers:
            # An empty ledger has left the list, or the owner does not know this one yet.
            beyond = [other for other in ledgers if other > self.next.ledger_id]
            if not beyond:
                return
            self.next = Position(beyond[0], EntryId(0))
        if self.next > bound:
            return
        position, ledger_id = self.next, self.next.ledger_id

        def ledger_read(data: bytes | None, _version: int) -> None:
            if data is not None and self.next == position:
                self._read(decode_ledger(data), bound, ledgers)

        store.read(self, f"ledgers/{ledger_id}", ledger_read)

    def _resumed(self) -> Position | None:
        """Each stream begins behind the last entry that was received, wherever the former one waited: a restore may
        have brought back a tail there, and left out the empty ledger behind it."""
        return self._last and Position(self._last.ledger_id, EntryId(self._last.entry_id + 1))

    def _read(self, metadata: LedgerMetadata, bound: Position, ledgers: list[LedgerId]) -> None:
        position = self.next
        assert position is not None
        ledger_id = position.ledger_id
        if ledger_id == bound.ledger_id:
            last: int = bound.entry_id
        elif metadata.state is LedgerState.CLOSED:
            last = metadata.end
        else:
            return
        if position.entry_id > last:
            beyond = [other for other in ledgers if other > ledger_id]
            if beyond and ledger_id != bound.ledger_id:
                self.next = Position(beyond[0], EntryId(0))
            return
        member = self.world.rng.choice(metadata.members)
        server = self.parts.nodes[Incarnation(member.split(".")[0])].at(self.name)
        count, life, network = min(8, last - position.entry_id + 1), self.life, self.parts.network

        def reply(answer: Reply) -> None:
            if isinstance(answer, ReadReply) and self.life == life:
                network.send(server.name, self, "entries", lambda: self._take(metadata, position, answer.found))

        def ask() -> None:
            server.read(member, ledger_id, (position.entry_id, count), reply, fence=False)

        network.send(self.name, server, f"reads {position}", ask)

    def _take(self, metadata: LedgerMetadata, position: Position, found: dict[EntryId, bytes]) -> None:
        while self.next == position and position.entry_id in found:
            data = found[position.entry_id]
            try:
                decode_entry(
                    data, ledger_id=position.ledger_id, entry_id=position.entry_id, checksum=self.parts.checksum,
                    topic_id=metadata.topic_id,
                )  # fmt: skip
            except CorruptEntry:
                return
            self.parts.history.read(self.reader, position, data)
            self.world.count("entry read")
            self._last = position
            self.next = position = Position(position.ledger_id, EntryId(position.entry_id + 1))
