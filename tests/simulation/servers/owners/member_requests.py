"""A topic's requests to storage nodes, repeated until answered; and frames of entries, sent once.

A member is named by its incarnation. A different incarnation at the same place refuses the request, which is no answer:
the request is repeated until its takeover is over.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from oncelog.core.chain.managed_ledger import EntriesAnswered, MemberLost, SendAdds
from oncelog.core.chain.ownership_proof import NO_LEDGER, record_decides
from oncelog.core.chain.replay import EntriesRead, EntryUnreadable, ReadEntries
from oncelog.core.errors import CorruptEntry
from oncelog.core.formats import entry
from oncelog.core.formats.entry import HEADER_BYTES, EntryHeader, peek_header
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import AppendStatus, FenceState, ReadStatus
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.recovery import (
    FenceMember,
    MemberErased,
    MemberFenced,
    RecoveryAdd,
    RecoveryAdded,
    RecoveryRead,
    RecoveryReadAnswered,
)
from oncelog.core.node.answers import AnswerFence
from tests.simulation.servers.nodes.storage_server import ReadReply, Reply, StorageServer

if TYPE_CHECKING:
    from tests.simulation.servers.owners.topic_shell import TopicShell

#: Entries that an owner keeps in memory.
MEMORY_ENTRIES = 16
#: Ticks until an ask is repeated, doubling up to the second.
RETRY_TICKS = (60, 800)

MemberRequest = Callable[[StorageServer, Callable[[Reply], None]], None]


class MemberRequests:
    """The requests of one topic."""

    def __init__(self, shell: "TopicShell") -> None:
        self.shell = shell
        self.owner = shell.owner
        #: of this life of the owner
        self._era = shell.owner.store.era
        #: (ledger, entry, bytes) of the newest entries: the owner's memory
        self.memory: deque[tuple[LedgerId, EntryId, bytes]] = deque(maxlen=MEMORY_ENTRIES)
        #: {(member, whether of the ack log): (ledger, first id)} of the newest recovery read
        self._newest_read: dict[tuple[Incarnation, bool], tuple[LedgerId, EntryId]] = {}

    def server(self, member: Incarnation) -> StorageServer:
        return self.owner.parts.nodes[Incarnation(member.split(".")[0])].at(self.owner.name)

    def _call(self, member: Incarnation, label: str, ask: MemberRequest, answered: Callable[[Reply], bool]) -> None:
        """Repeat one request until it is answered. `answered` takes a reply; False: the reply was no answer."""
        owner, network, server = self.owner, self.owner.parts.network, self.server(member)
        begun = self.shell.core.takeover
        done = False
        life = owner.life

        def reply(answer: Reply) -> None:
            def arrive() -> None:
                nonlocal done
                if not done and answered(answer):
                    done = True

            # An answer to an earlier life is dropped.
            if owner.life == life:
                network.send(server.name, owner, f"answer {label}", arrive)

        def attempt(wait: int) -> None:
            if done or self.shell.core.takeover is not begun:
                return
            network.send(owner.name, server, label, lambda: None if self._refused(server) else ask(server, reply))
            owner.post(wait, f"repeats {label}", lambda: attempt(min(wait * 2, RETRY_TICKS[1])))

        attempt(RETRY_TICKS[0])

    def _refused(self, server: StorageServer) -> bool:
        """Whether a call is refused where it arrives, because this owner is of another era. The owner is told."""
        owner, life = self.owner, self.owner.life
        if not server.refuses(self._era):
            return False

        def told() -> None:
            if owner.life == life:
                owner.refused(server.name)

        self.owner.parts.network.send(server.name, owner, "is of another era", told)
        return True

    def until_era_is_proved(self, done: Callable[[], None]) -> None:
        """Ask the storage nodes until an ack quorum takes a call of this owner's era."""
        owner, network, life = self.owner, self.owner.parts.network, self.owner.life
        over = False

        def attempt(wait: int) -> None:
            states: dict[Incarnation, FenceState] = {}
            if over or self.shell.over:
                return

            def told(node: Incarnation, state: FenceState) -> None:
                nonlocal over
                states[node] = state
                decides = record_decides(states.values(), ack_quorum=owner.parts.settings.ack_quorum)
                if not over and owner.life == life and decides:
                    over = True
                    done()

            def ask(node: Incarnation) -> None:
                server = self.server(node)
                if server.incarnation == node and not self._refused(server):
                    state = server.core.ledgers.fence_state(NO_LEDGER)
                    network.send(server.name, owner, "is of this era", lambda: told(node, state))

            for node in owner.storage_nodes().live:
                network.send(owner.name, self.server(node), "of this era?", partial(ask, node))
            owner.post(wait, "asks for its era again", lambda: attempt(min(wait * 2, RETRY_TICKS[1])))

        attempt(RETRY_TICKS[0])

    # --- recovery -----------------------------------------------------------------------------------------------------

    def fence(self, effect: FenceMember) -> None:
        def answered(reply: Reply) -> bool:
            if not isinstance(reply, AnswerFence):
                return False
            if reply.status is ReadStatus.ERASED:
                return self._erased(effect)
            if reply.status is not ReadStatus.OK:
                return False
            last, confirmed = reply.last_entry, reply.last_add_confirmed
            self.shell.handle(MemberFenced(effect.ledger_id, effect.member, last, confirmed, reply.topic_id))
            return True

        label = f"fence {effect.ledger_id}"
        self._call(effect.member, label, lambda s, r: s.fence(effect.member, effect.ledger_id, r), answered)

    def _erased(self, effect: FenceMember | RecoveryRead | RecoveryAdd) -> bool:
        self.shell.handle(MemberErased(effect.ledger_id, effect.member))
        return True

    def recovery_read(self, effect: RecoveryRead) -> None:
        key = (effect.ledger_id, effect.first)
        recovery = (effect.member, effect.ledger_id in self.shell.core.ownership.record.acks)
        self._newest_read[recovery] = key

        def answered(reply: Reply) -> bool:
            if self._newest_read.get(recovery) != key:
                return True
            if isinstance(reply, ReadReply) and reply.answer.status is ReadStatus.ERASED:
                return self._erased(effect)
            if not isinstance(reply, ReadReply) or reply.answer.status is not ReadStatus.OK:
                return False
            answer = reply.answer
            unreadable = frozenset(e for e in answer.present if e not in reply.found) | frozenset(answer.unreadable)
            self.shell.handle(
                RecoveryReadAnswered(
                    effect.ledger_id, effect.member, effect.first, reply.found, frozenset(answer.missing), unreadable
                )
            )
            return True

        def ask(server: StorageServer, reply: Callable[[Reply], None]) -> None:
            server.read(effect.member, effect.ledger_id, (effect.first, effect.count), reply, fence=True)

        self._call(effect.member, f"recovery read {effect.ledger_id}:{effect.first}", ask, answered)

    def recovery_add(self, effect: RecoveryAdd) -> None:
        entries = [(peek_header(data), data) for _, data in effect.entries]

        def answered(reply: Reply) -> bool:
            if isinstance(reply, ReadReply) or not isinstance(reply.status, AppendStatus):
                return False
            if reply.status is AppendStatus.ERASED:
                return self._erased(effect)
            if reply.status in (AppendStatus.WRONG_INCARNATION, AppendStatus.TOO_MANY_REQUESTS):
                return False
            ok = reply.status is AppendStatus.OK
            self.shell.handle(RecoveryAdded(effect.ledger_id, effect.member, tuple(reply.entry_ids), ok))
            return True

        def ask(server: StorageServer, reply: Callable[[Reply], None]) -> None:
            server.append(effect.member, entries, reply, recovery=True, era=self.owner.store.era)

        self._call(effect.member, f"recovery add {effect.ledger_id}", ask, answered)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read_entries(self, effect: ReadEntries) -> None:
        """Read page after page, each from any member that has it."""
        begun = self.shell.core.takeover
        metadata, page = effect.metadata, self.owner.world.rng.randint(1, 8)

        def still_asked() -> bool:
            return self.shell.core.takeover is begun

        def go_on(first: EntryId) -> None:
            def arrived(found: list[tuple[EntryId, bytes]]) -> None:
                last = found[-1][0]
                self.shell.handle(EntriesRead(metadata.ledger_id, list(found)))
                if last < effect.last and self.owner.alive and still_asked():
                    go_on(EntryId(last + 1))

            def unreadable() -> None:
                self.shell.handle(EntryUnreadable(metadata.ledger_id, first, "no member has it"))

            span = (first, min(page, effect.last - first + 1))
            EntryRead(self, metadata, span, arrived, still_asked, unreadable).attempt()

        go_on(effect.first)

    def read_entry(
        self, metadata: LedgerMetadata, entry_id: EntryId, arrived: Callable[[bytes], None],
        still_asked: Callable[[], bool], unreadable: Callable[[], None],
    ) -> None:  # fmt: skip
        EntryRead(self, metadata, (entry_id, 1), lambda found: arrived(found[0][1]), still_asked, unreadable).attempt()

    # --- writing ------------------------------------------------------------------------------------------------------

    def send_adds(self, effect: SendAdds) -> None:
        """Send one frame to each member, once."""
        entries: list[tuple[EntryHeader, bytes]] = [
            (add.header, bytes(add.parts[0]) + bytes(add.parts[1])) for add in effect.adds
        ]
        assert all(len(data) >= HEADER_BYTES for _, data in entries)
        self.memory += [(effect.ledger_id, header.entry_id, data) for header, data in entries]
        for member in effect.members:
            self._send_frame(effect.ledger_id, member, entries)

    def _send_frame(self, ledger_id: LedgerId, member: Incarnation, entries: list[tuple[EntryHeader, bytes]]) -> None:
        owner, network, server = self.owner, self.owner.parts.network, self.server(member)
        life = owner.life

        def reply(answer: Reply) -> None:
            if isinstance(answer, ReadReply) or not isinstance(answer.status, AppendStatus) or owner.life != life:
                return
            event = EntriesAnswered(ledger_id, member, answer.entry_ids, answer.status)
            network.send(
                server.name, owner, f"added {ledger_id} {answer.status.name}", lambda: self.shell.handle(event)
            )

        era = owner.store.era

        def arrive() -> None:
            self._refused(server)
            server.append(member, entries, reply, recovery=False, era=era)

        sent = network.send(owner.name, server, f"add {ledger_id}:{entries[0][0].entry_id}", arrive)
        if not server.alive or (not sent and owner.world.chance(0.5)):
            lost = MemberLost(ledger_id, member)
            owner.post(network.delay(server.name, owner.name), f"lost {member}", lambda: self.shell.handle(lost))


def intact(data: bytes, metadata: LedgerMetadata, entry_id: EntryId) -> bool:
    """Whether the bytes are the entry that was asked for; the checksum is the core's to verify."""
    try:
        header = peek_header(data)
        entry.require_topic(header, metadata.topic_id)
    except CorruptEntry:
        return False
    return (header.ledger_id, header.entry_id) == (metadata.ledger_id, entry_id)


class EntryRead:
    """One read of consecutive entries: members are asked in turn until one has the first; what it has with it counts.

    All members say that it is not there, or damaged, or that another has taken their place: unreadable. A silent member
    says nothing.
    """

    def __init__(
        self, requests: MemberRequests, metadata: LedgerMetadata, span: tuple[EntryId, int],
        arrived: Callable[[list[tuple[EntryId, bytes]]], None], still_asked: Callable[[], bool],
        unreadable: Callable[[], None],
    ) -> None:  # fmt: skip
        self.requests = requests
        self.metadata = metadata
        self.span = span
        self.arrived = arrived
        self.still_asked = still_asked
        self.unreadable = unreadable
        self.order = list(metadata.members)
        self.without: dict[Incarnation, None] = {}
        self.tries = 0
        requests.owner.world.rng.shuffle(self.order)

    def attempt(self) -> None:
        """Ask the next member, and the one after it when that takes too long."""
        if self.tries < 0 or not self.still_asked():
            return
        owner = self.requests.owner
        member = self.order[self.tries % len(self.order)]
        self.tries += 1
        self._ask(member)
        tries = self.tries
        wait = min(RETRY_TICKS[0] * 2 ** (tries // len(self.order)), RETRY_TICKS[1])
        owner.post(wait, "repeats entry read", lambda: self.attempt() if self.tries == tries else None)

    def _ask(self, member: Incarnation) -> None:
        owner, network, server = self.requests.owner, self.requests.owner.parts.network, self.requests.server(member)
        life = owner.life

        def reply(answer: Reply) -> None:
            if owner.life == life:
                network.send(server.name, owner, "entries", lambda: self._take(member, answer))

        def ask() -> None:
            server.read(member, self.metadata.ledger_id, self.span, reply, fence=False)

        network.send(owner.name, server, f"read {self.metadata.ledger_id}:{self.span[0]}", ask)

    def _take(self, member: Incarnation, reply: Reply) -> None:
        if self.tries < 0 or not self.still_asked() or not isinstance(reply, ReadReply):
            return
        first, count = self.span
        found: list[tuple[EntryId, bytes]] = []
        for number in range(first, first + count):
            data = reply.found.get(EntryId(number))
            if data is None or not intact(data, self.metadata, EntryId(number)):
                break
            found.append((EntryId(number), data))
        if found:
            self.tries = -1
            self.arrived(found)
            return
        self.without[member] = None
        if len(self.without) < len(self.order):
            self.attempt()
        else:
            self.tries = -1
            self.unreadable()
