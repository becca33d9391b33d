"""The oracles of repair: where the copies of CLOSED ledgers are, by the disks themselves.

A copy counts if it is durable and the medium has not spoiled it. A directory exists until it is wiped, also while its
process is down.
"""

from dataclasses import replace

from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.node.node_ledger import JournalRecord
from oncelog.verify.violation import Violation
from tests.simulation.servers.metadata.repair_server import memory_of
from tests.simulation.servers.nodes.storage_server import StorageServer
from tests.simulation.servers.owners.owner_server import OwnerServer
from tests.simulation.servers.store.decoding import decode_ledger, decode_topic
from tests.simulation.servers.store.store import Store


class CopyWatch:
    """The copies of all ledgers, checked when a record changes and when a node erases its copy."""

    def __init__(self, store: Store, nodes: dict[Incarnation, StorageServer]) -> None:
        self.store = store
        self.nodes = nodes
        #: {place: owner}
        self.owners: dict[str, OwnerServer] = {}
        #: {ledger: nodes whose copy was spoiled or lost by a fault since the record was whole}
        self.spoiled: dict[LedgerId, dict[Incarnation, None]] = {}
        #: {ledger: nodes that lost entries of it in silence since then}
        self.vanished: dict[LedgerId, dict[Incarnation, None]] = {}
        #: {ledger: (node, entry) that can be read again since the last change of the record}
        self.came_back: dict[LedgerId, dict[tuple[Incarnation, EntryId], None]] = {}

    def lost_by_fault(self, node: Incarnation, lost: list[JournalRecord]) -> None:
        for record in lost:
            self.spoiled.setdefault(record.ledger_id, {})[node] = None

    # --- the disks ----------------------------------------------------------------------------------------------------

    def existing(self, node: Incarnation) -> StorageServer | None:
        """The place of a directory that was not replaced."""
        server = self.nodes[Incarnation(node.split(".")[0])]
        return server if server.incarnation == node else None

    def has_another(self, node: Incarnation, ledger_id: LedgerId) -> bool:
        """Whether the node has a ledger of another topic with this id: then it takes no copy."""
        server = self.existing(node)
        return server is not None and server.disk.has_foreign(ledger_id)

    def sound(self, node: Incarnation, ledger_id: LedgerId) -> dict[EntryId, bytes]:
        """{entry: bytes} of the sound durable copies in an existing directory."""
        server = self.existing(node)
        if server is None:
            return {}
        held, damaged = server.disk.held(ledger_id), server.disk.damaged
        if not damaged:
            return held
        return {entry_id: data for entry_id, data in held.items() if (ledger_id, entry_id) not in damaged}

    def lacking(self, record: LedgerMetadata, node: Incarnation) -> list[EntryId]:
        """The ids of 0..end, but the lost ones, that the node has no sound copy of."""
        held = self.sound(node, record.ledger_id)
        ids = map(EntryId, range(record.end + 1))
        return [e for e in ids if e not in held and not any(each.first <= e <= each.last for each in record.lost)]

    # --- the records --------------------------------------------------------------------------------------------------

    def record_changed(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        """Every change of a CLOSED record is a step of repair."""
        repair = {"members": (), "joining": None, "verified": False, "lost": (), "frozen": False}
        if replace(before, **repair) != replace(after, **repair):  # type: ignore[arg-type]
            raise Violation("CLOSED is final", f"{before} became {after}")
        self._swapped(before, after)
        if after.verified and not before.verified:
            self._whole(after)
        self._lost(before, after)
        self.came_back.pop(after.ledger_id, None)
        if after.frozen and not before.frozen and not self._differ(after):
            raise Violation("frozen", f"ledger {after.ledger_id} is frozen, and all of its sound copies are equal")

    def _swapped(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        added = [member for member in after.members if member not in before.members]
        removed = [member for member in before.members if member not in after.members]
        if not added and not removed:
            return
        if added != [before.joining] or len(removed) != 1 or len(after.members) != len(before.members):
            raise Violation("swap", f"{before.members} with {before.joining} became {after.members}")
        self._complete(after, added[0], "swap")

    def _whole(self, record: LedgerMetadata) -> None:
        if record.lost:
            raise Violation("whole", f"ledger {record.ledger_id} is whole, and lost {record.lost}")
        for member in record.members:
            self._complete(record, member, "whole")
        self.spoiled.pop(record.ledger_id, None)
        self.vanished.pop(record.ledger_id, None)

    def _complete(self, record: LedgerMetadata, member: Incarnation, what: str) -> None:
        """The member has every entry, unless a fault took something from it while the record was written."""
        faulty = self.existing(member) is None or member in self.spoiled.get(record.ledger_id, {})
        lacking = [] if faulty else self.lacking(record, member)
        if lacking:
            raise Violation(what, f"ledger {record.ledger_id}: {member} lacks {lacking[:5]} of 0..{record.end}")

    def _lost(self, before: LedgerMetadata, after: LedgerMetadata) -> None:
        """No node that can be asked, and no named one that may come back, holds what is called lost (hazard
        lost-too-early). An entry that can be read again since the last change may have come back behind the proof,
        which is of one version of the record: the next repair finds it."""
        registered = self.store.children("storage")
        data, _ = self.store.get(f"topics/{after.topic_id}")
        named = None if data is None else decode_topic(data).owner
        owner = None if named is None else self.owners.get(named.split(".")[0])
        added = [span for span in after.lost if span not in before.lost]
        if owner is not None and owner.alive and owner.incarnation == named:
            kept = memory_of(owner, after.topic_id, after.ledger_id, added)
            if kept and not any(s.first <= kept[0][0] <= s.last for s in before.lost):
                raise Violation(
                    "lost", f"ledger {after.ledger_id}: {added} are called lost, {named} has some in memory"
                )
        for span in after.lost:
            if span in before.lost:
                continue
            for node in dict.fromkeys((*registered, *before.members)):
                held = self.sound(Incarnation(node), after.ledger_id)
                back = self.came_back.get(after.ledger_id, {})
                found = [e for e in held if span.first <= e <= span.last and (node, e) not in back]
                if found and not any(each.first <= found[0] <= each.last for each in before.lost):
                    raise Violation("lost", f"ledger {after.ledger_id}: {found[:5]} are called lost, {node} has them")

    def _differ(self, record: LedgerMetadata) -> bool:
        """Whether two sound copies of an entry up to the end differ (hazard differing-copies)."""
        held = [self.sound(server.incarnation, record.ledger_id) for server in self.nodes.values()]
        ids = map(EntryId, range(record.end + 1))
        return any(len({copies[e] for copies in held if e in copies}) > 1 for e in ids)

    # --- erasing ------------------------------------------------------------------------------------------------------

    def may_go(self, node: Incarnation, ledger_id: LedgerId) -> bool:
        """Whether the copy of a listed ledger that a node has just erased is not needed: the record does not name the
        node, and the members have everything that no fault took from them."""
        data, _ = self.store.get(f"ledgers/{ledger_id}")
        record = None if data is None else decode_ledger(data)
        if record is None or record.state is not LedgerState.CLOSED or record.names(node):
            return False
        for member in record.members:
            self._complete(record, member, "erasing")
        return True

    # --- the end ------------------------------------------------------------------------------------------------------

    def check_whole(self, record: LedgerMetadata) -> None:
        """After healing: every member exists and has everything, and all copies are equal, unless they are frozen."""
        if record.frozen:
            return
        first = self.sound(record.members[0], record.ledger_id)
        for member in record.members:
            if self.has_another(member, record.ledger_id):
                continue
            held = self.sound(member, record.ledger_id)
            lacking = self.lacking(record, member)
            if lacking:
                raise Violation("whole at the end", f"ledger {record.ledger_id}: {member} lacks {lacking[:5]}")
            if any(held[e] != first[e] for e in map(EntryId, range(record.end + 1)) if e in held and e in first):
                raise Violation("equal copies", f"ledger {record.ledger_id}: {member} has other copies")
