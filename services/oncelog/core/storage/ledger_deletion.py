"""Whether a ledger without a record in ZooKeeper was deleted, or its record was lost.

A missing record proves nothing: an operator may have removed it, or ZooKeeper may have been restored from an older
backup (hazards 2 and 67). Two facts prove a deletion, and both stay in ZooKeeper:

    the topic's tombstone exists                             the topic was deleted with all of its ledgers
    the record of the ledger's chain lists only higher ids   the ledger was trimmed: ids ascend in a list, and a
                                                             ledger leaves it at the front alone

A chain that lists nothing proves nothing. An older backup lists lower ids, so it proves less and never more.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

from oncelog.core.formats.entry import EntryHeader, EntryKind
from oncelog.core.ids import LedgerId, TopicId
from oncelog.core.ledger.next_ledger import Chain

_SNAPSHOT_KINDS = (EntryKind.SNAPSHOT_CHUNK, EntryKind.SNAPSHOT_MANIFEST)


class LedgerOrigin(NamedTuple):
    """Which chain of which topic a ledger belongs to, as each of its entries says."""

    topic_id: TopicId
    chain: Chain

    @classmethod
    def of(cls, header: EntryHeader) -> Self:
        """Snapshots are written to the ledgers of the dedup cursor, and to no others."""
        return cls(header.topic_id, Chain.DEDUP if header.kind in _SNAPSHOT_KINDS else Chain.LOG)


def was_deleted(ledger_id: LedgerId, *, listed: Sequence[LedgerId], topic_deleted: bool) -> bool:
    """Whether a ledger whose record is missing was deleted.

    listed: the ids that the record of its chain names now, ascending; empty when there is no such record.
    topic_deleted: whether the topic has a tombstone.
    """
    return topic_deleted or (len(listed) > 0 and ledger_id < listed[0])
