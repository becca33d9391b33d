"""Whether an operator may go on without what only lost members of a ledger have (hazards index-given-twice and
open-ledger-without-quorum).

An open ledger may be ended only if no recovery can close it: fewer than Qw-Qa+1 of its members can say where it ends.
These are registered, and lack no records of it: a member in limbo never says that an entry does not exist, so nobody
does if the disks of most members went back in time. What no registered member holds is given up, although it may have
been acknowledged. Of a closed ledger entries may be given up if they are proved lost, or if so many members are not
registered that they may be the only ones with an entry.
"""

from collections.abc import Container

from oncelog.core.errors import Conflict
from oncelog.core.ids import Incarnation
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.ledger.quorum import coverage


def members_to_give_up(
    record: LedgerMetadata, registered: Container[Incarnation], lacking: Container[Incarnation] = ()
) -> tuple[Incarnation, ...]:
    """The members that are not registered. Raises Conflict if the ledger can be recovered, or, once it is closed, if
    no entry of it can be lost. lacking: nodes that may lack records of this ledger because of damage or limbo."""
    name = f"ledger {record.ledger_id}"
    needed = coverage(write_quorum=record.write_quorum, ack_quorum=record.ack_quorum)
    present = [member for member in record.members if member in registered]
    absent = tuple(member for member in record.members if member not in registered)
    if record.state is LedgerState.CLOSED:
        if not record.lost and len(absent) < record.ack_quorum:
            raise Conflict(
                f"{name} is closed, and none of its entries is proved lost: {len(present)} of its "
                f"{record.write_quorum} storage nodes are registered ({', '.join(present)}), and every entry has "
                f"{record.ack_quorum} copies: wait for the repair",
                ledger_id=record.ledger_id,
            )
        return absent
    able = [member for member in present if member not in lacking]
    if len(able) >= needed:
        raise Conflict(
            f"{name} cannot be ended: {len(able)} of its {record.write_quorum} storage nodes are registered and lack "
            f"nothing ({', '.join(able)}), and {needed} are enough to recover it: wait for its topic owner",
            ledger_id=record.ledger_id,
        )
    return absent
