"""When a retired storage node is emptied: other nodes hold all that it had. Until then a restore of a lost ZooKeeper
counts it as one of the missing nodes (hazard replaced-disk-is-missing).

A retired node is emptied when each ledger that any list names, by a record that was read after the retirement was seen,
    does not name the node    repair has exchanged it for one that holds every entry, or it never was a member
    is whole, or has proved what is lost, if a restore has written its record: that names the nodes which were asked,
                              although the retired one may have had one of the few copies of an entry

Rules
- Once true it stays true. The node's process has ended before the node is retired, or joins under another address:
  an owner that finds it there sees that it is retired. So it acknowledges no entry of a ledger that is begun later.
- A ledger that an owner chose before it saw the retirement, and lists afterwards, may name the node, which has nothing
  of it: nothing is written to a ledger before a list names it.
- What is not known proves nothing: a record or a list that cannot be read, or is missing, keeps every retired node.
"""

from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState


def may_need(record: LedgerMetadata, node: Incarnation, *, restored_below: LedgerId) -> bool:
    """Whether a retired node may have what no other one has of this listed ledger. restored_below: a restore may have
    written the records of lower ledgers."""
    if record.names(node):
        return True
    unproved = record.state is LedgerState.CLOSED and record.end >= 0 and not (record.verified or record.lost)
    return record.ledger_id < restored_below and unproved
