"""All that asked nodes, notes and a copy say, by topic and by ledger.

Rules
- What an intact entry says is true on whatever disk it is: heads and tombstones count from every node. A floor, and the
  deletion of a ledger, count from nodes that know the newest era of all (hazard deletion-in-a-former-era). What a node
  lacks counts only if the node has no hole there (hazard limbo-counts-as-asked).
- A node is *unseen* for a ledger if it may have had entries of it that it does not show: it was not asked, or the
  ledger is in limbo or damaged there. Fewer unseen nodes than acknowledgements of an entry: an acknowledged entry is
  shown by some node.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.era import FIRST_ERA
from oncelog.core.formats.head import LedgerHead
from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.rebuild.result import Asked, CopiedRecords, NotedRecords
from oncelog.core.rebuild.sources import Chain, HeldLedger, Inventory

#: Above every ledger id.
_ALL = LedgerId(2**63)
_UNSURE = (CopyState.LIMBO, CopyState.DAMAGED)


class NodeCopy(NamedTuple):
    """What one node shows of one ledger."""

    node: Incarnation
    held: HeldLedger

    @property
    def last(self) -> EntryId:
        """The highest entry; -1: none."""
        return self.held.runs[-1].last if self.held.runs else NO_ENTRY

    @property
    def begins(self) -> bool:
        """Whether entry 0 is there."""
        return bool(self.held.runs) and self.held.runs[0].first == 0

    @property
    def erased(self) -> bool:
        return self.held.state is CopyState.ERASED

    @property
    def sure(self) -> bool:
        """Whether the node lacks for certain what it does not show."""
        return self.held.state not in _UNSURE

    def entries_up_to(self, end: EntryId) -> int:
        """How many entries up to `end` are there."""
        return sum(min(run.last, end) - run.first + 1 for run in self.held.runs if run.first <= end)


class Evidence:
    """An index of what a rebuild knows."""

    def __init__(
        self, inventories: Iterable[Inventory], noted: NotedRecords, copied: CopiedRecords | None, asked: Asked
    ) -> None:
        """copied: of the newest readable copy; None: there is none."""
        self.inventories = {inventory.node: inventory for inventory in inventories}
        self.noted = noted
        self.copied = copied or CopiedRecords()
        self.asked = asked
        self.noted_names = {point.topic_id: name for name, point in noted.names.items()}
        self._copies: dict[LedgerId, list[NodeCopy]] = {}
        #: {topic: {chain: its ledgers that any node shows}}
        self._ledgers: dict[TopicId, dict[LedgerPurpose, dict[LedgerId, None]]] = {}
        self._floors: dict[Chain, LedgerId] = {}
        self._deleted: set[LedgerId] = set()
        #: (below which ledger a node may have more than it shows, the node)
        self._holes = [(each.limbo_below, each.node) for each in self.inventories.values() if each.limbo_below > 0]
        newest = max((era for each in self.inventories.values() for era in each.committed_eras), default=FIRST_ERA)
        for inventory in self.inventories.values():
            self._take(inventory, proves_deletions=newest in inventory.committed_eras)
        quorums = [asked.ack_quorum, *(record.ack_quorum for record in self.copied.ledgers.values()), *self._quorums()]
        #: the lowest that anything tells; 1 if nothing does
        self.ack_quorum = min((quorum for quorum in quorums if quorum > 0), default=1)
        # A node in limbo counts as missing, and has given an inventory: it counts once.
        self._silent = sum(1 for node in asked.absent if node not in self.inventories)
        holes = sorted([_ALL] * self._silent + [below for below, _ in self._holes], reverse=True)
        #: below this, an acknowledged entry may be in a ledger that no asked node shows; 0: nowhere
        self.unseen_below = LedgerId(0) if len(holes) < self.ack_quorum else holes[self.ack_quorum - 1]

    def _take(self, inventory: Inventory, *, proves_deletions: bool) -> None:
        for chain, floor in inventory.floors.items() if proves_deletions else ():
            self._floors[chain] = max(floor, self._floors.get(chain, floor))
        for ledger_id, held in inventory.ledgers.items():
            self._copies.setdefault(ledger_id, []).append(NodeCopy(inventory.node, held))
            if held.deleted and proves_deletions:
                self._deleted.add(ledger_id)
            if held.chain is not None:
                chains = self._ledgers.setdefault(held.chain.topic_id, {})
                chains.setdefault(held.chain.purpose, {})[ledger_id] = None

    def _quorums(self) -> Iterable[int]:
        for inventory in self.inventories.values():
            for held in inventory.ledgers.values():
                if held.head is not None:
                    yield held.head.ack_quorum

    @property
    def topic_ids(self) -> list[TopicId]:
        """Of every topic that anything names, also deleted ones."""
        return sorted({*self._ledgers, *self.copied.topics, *self.noted_names})

    @property
    def ledger_ids(self) -> list[LedgerId]:
        """Of every ledger that an asked node or the copy names."""
        return [*self._copies, *self.copied.ledgers]

    def shown(self, chain: Chain) -> list[LedgerId]:
        """The ledgers of a chain of which an asked node shows anything, ascending."""
        return sorted(self._ledgers.get(chain.topic_id, {}).get(chain.purpose, ()))

    def floor(self, chain: Chain) -> LedgerId:
        """Below this ledger nodes have erased copies because the chain was trimmed."""
        return self._floors.get(chain, LedgerId(0))

    def deleted(self, ledger_id: LedgerId) -> bool:
        """Whether a node has erased its copy because the ledger was deleted."""
        return ledger_id in self._deleted

    def copies(self, ledger_id: LedgerId) -> Sequence[NodeCopy]:
        return self._copies.get(ledger_id, ())

    def head(self, ledger_id: LedgerId) -> LedgerHead | None:
        return next((copy.held.head for copy in self.copies(ledger_id) if copy.held.head is not None), None)

    def begins(self, ledger_id: LedgerId) -> bool:
        """Whether any node shows entry 0."""
        return any(copy.begins for copy in self.copies(ledger_id))

    def unseen(self, ledger_id: LedgerId) -> int:
        """How many nodes may have entries of the ledger that they do not show."""
        copies = self.copies(ledger_id)
        showing = {copy.node for copy in copies}
        holes = sum(1 for below, node in self._holes if ledger_id < below and node not in showing)
        return self._silent + holes + sum(1 for copy in copies if not copy.sure)

    def size_bytes(self, ledger_id: LedgerId) -> int:
        """The bytes that the fullest copy has."""
        return max((copy.held.last_length for copy in self.copies(ledger_id)), default=0)
