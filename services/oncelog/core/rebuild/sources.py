"""What a rebuild reads: the inventory of each asked storage node, notes of records, and copies of all records.

Rules
- An inventory is taken behind the node's own durable record of the new era, so nothing of an older era follows it
  (hazard inventory-before-the-era).
- Entries in limbo, damaged entries and erased copies prove nothing: who has them is no holder, and who lacks them in
  limbo does not lack them for certain.
- The highest note of a path (`core.formats.note`) is the record's last known state.
- The copy of an era has each record that the era began with, unless a note of that era says that it was deleted. So a
  note of a former era says nothing about a record that this copy lacks: the restore has not found it. A process of the
  former era may have noted it later, at a node that did not know the new era yet (hazard note-of-a-former-era).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.formats.head import LedgerHead
from oncelog.core.formats.note import NoteOrder
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.member_status import CopyState
from oncelog.core.ledger.metadata import EntryRange


class Chain(NamedTuple):
    """One chain of ledgers of a topic."""

    topic_id: TopicId
    purpose: LedgerPurpose


@dataclass(frozen=True, slots=True)
class HeldLedger:
    """What one node has of one ledger.

    chain: None if only a fence or a tombstone is stored. runs: of sound entries, ascending. base_index: of the first
    held entry. last_length, owner_epoch: of the last held entry. deleted: the tombstone says that the ledger was.
    erased_before: a copy was erased here once, also if another one is held now.
    """

    ledger_id: LedgerId
    chain: Chain | None
    state: CopyState
    runs: tuple[EntryRange, ...] = ()
    last_add_confirmed: EntryId = EntryId(-1)
    fenced: bool = False
    head: LedgerHead | None = None
    base_index: int = 0
    last_length: int = 0
    owner_epoch: OwnerEpoch = OwnerEpoch(0)
    deleted: bool = False
    erased_before: bool = False


@dataclass(frozen=True, slots=True)
class Inventory:
    """Of one node. limbo_below: of every lower ledger that is not in `ledgers`, entries may be missing; 0: of none.
    floors: by which the node has erased copies. committed_eras: of which it knows that their restore was
    committed."""

    node: Incarnation
    cluster_id: str
    era: Era
    ledgers: Mapping[LedgerId, HeldLedger]
    limbo_below: LedgerId = LedgerId(0)
    floors: Mapping[Chain, LedgerId] = field(default_factory=dict)
    committed_eras: frozenset[Era] = frozenset({FIRST_ERA})


class CopiedEra(NamedTuple):
    """The newest era of which there is a copy. paths: of the noted records that its copies have."""

    number: int = FIRST_ERA.number
    paths: Collection[str] = ()

    def believes(self, path: str, order: NoteOrder) -> bool:
        """Whether a note of this order says anything about the record at this path."""
        return order.era >= self.number or path in self.paths
