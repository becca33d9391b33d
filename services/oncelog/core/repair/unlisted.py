"""Whether the record of a ledger that no list names can go.

    CLOSED       it was listed once, because an owner writes only to ledgers that a list names: the record can go if
                 the ledger is below the floor of a list. So must one that is empty: a storage node may have entries of
                 it that were never acknowledged. Without the record nothing proves a deletion, and the node takes
                 ZooKeeper for an older one than its disk (`LedgerStore.knows`)
    not CLOSED   an owner prepared it and did not link it, or a takeover passed over a ledger of snapshots: the record
                 can go if no owner can link it any more, whichever chain it was prepared for

An owner links by one compare-and-set on the record that has the list, the topic's or the cursor's, and ids in a list
ascend. So a list is out of its reach once that record has a higher owner_epoch, or the list ends in a higher ledger.
The epoch of the topic's record says nothing of the cursor's: a takeover claims that one last (hazard
prepared-ledger-is-left). None of this is ever undone, so reads that are out of date prove it, too.
"""

from collections.abc import Sequence

from oncelog.core.ids import LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.repair.queue_events import ChainRecorded


def can_go(record: LedgerMetadata, chains: Sequence[ChainRecorded]) -> bool:
    """chains: all lists of its topic, read after the record; none: they cannot be read."""
    ledger_id = record.ledger_id
    if not chains or any(ledger_id in chain.ledgers for chain in chains):
        return False
    if record.state is LedgerState.CLOSED:
        return any(ledger_id < chain.deleted_below for chain in chains)
    return all(_out_of_reach(record, chain) for chain in chains)


def _out_of_reach(record: LedgerMetadata, chain: ChainRecorded) -> bool:
    """Whether no owner can link the ledger in this chain any more."""
    last = chain.ledgers[-1] if chain.ledgers else LedgerId(-1)
    return last > record.ledger_id or (record.owner_epoch is not None and chain.owner_epoch > record.owner_epoch)
