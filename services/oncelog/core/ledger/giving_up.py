"""Whether an operator may end an open ledger without the members that are gone (hazards 72 and 79).

Only a ledger that no recovery can close may be ended: fewer than Qw-Qa+1 of its members are registered. What only the
others hold is given up, although it may have been acknowledged.
"""

from collections.abc import Container

from oncelog.core.errors import Conflict
from oncelog.core.ids import Incarnation
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.ledger.quorum import coverage


def members_to_give_up(record: LedgerMetadata, registered: Container[Incarnation]) -> tuple[Incarnation, ...]:
    """The members that are not registered. Raises Conflict if the ledger is CLOSED, or can be recovered."""
    name = f"ledger {record.ledger_id}"
    if record.state is LedgerState.CLOSED:
        raise Conflict(f"{name} is closed already: there is nothing to end", ledger_id=record.ledger_id)
    needed = coverage(write_quorum=record.write_quorum, ack_quorum=record.ack_quorum)
    present = [member for member in record.members if member in registered]
    if len(present) >= needed:
        raise Conflict(
            f"{name} cannot be ended: {len(present)} of its {record.write_quorum} storage nodes are registered "
            f"({', '.join(present)}), and {needed} are enough to recover it: wait for its topic owner",
            ledger_id=record.ledger_id,
        )
    return tuple(member for member in record.members if member not in registered)
