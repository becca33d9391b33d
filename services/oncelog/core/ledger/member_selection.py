"""The storage nodes of a new ledger: its members.

Rules
- The choice is rendezvous hashing over the ledger id, so that ledgers spread evenly over the nodes.
- Live nodes come first. Known absent nodes fill the list as long as the ack quorum is live. Retired nodes are never
  chosen, because they do not come back (hazard members-lost-in-turn).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.ledger.quorum import check_quorums
from oncelog.core.ledger.storage_nodes import NodeState, StorageNodes
from oncelog.core.rendezvous import ranked


@dataclass(frozen=True, slots=True)
class StorageNodesUpdated:
    """The storage nodes of the cluster by their state (core.ledger.storage_nodes), as an owner sees them.

    live: registered, and open to new ledgers. absent: not registered but may return, or SILENT. retired: RETIRED.
    read_only: registered, but closed to new ledgers. Like absent nodes they only fill a ledger's list of members.
    full: those of them whose disks have no space; the others were set read-only.
    store_reachable: whether records can be written. While they cannot, no planned change begins.
    """

    live: tuple[Incarnation, ...]
    absent: tuple[Incarnation, ...] = ()
    retired: tuple[Incarnation, ...] = ()
    store_reachable: bool = True
    read_only: tuple[Incarnation, ...] = ()
    full: tuple[Incarnation, ...] = ()

    @classmethod
    def of(cls, nodes: StorageNodes, set_read_only: Collection[Incarnation]) -> "StorageNodesUpdated":
        """set_read_only: by an operator. A node also registers as read-only while its disk is nearly full.

        A fresh directory is no member before its predecessor was absent for a while (hazard unmounted-volume).
        """
        members = [nodes[one] for one in nodes.registered if not nodes[one].joining]
        read_only = tuple(view.incarnation for view in members if view.read_only and not view.retired)
        return cls(
            tuple(view.incarnation for view in members if not view.read_only),
            tuple(one for one, view in nodes.views.items() if view.may_return),
            nodes.in_state(NodeState.RETIRED),
            read_only=read_only,
            full=tuple(one for one in read_only if one not in set_read_only),
        )

    def now(self, silent: Collection[Incarnation], *, store_reachable: bool) -> "StorageNodesUpdated":
        """With what this process has noticed since: a registered node that cannot be reached is SILENT, and counts as
        absent."""
        return replace(
            self,
            live=tuple(node for node in self.live if node not in silent),
            absent=tuple(sorted({*self.absent, *(node for node in self.live if node in silent)})),
            store_reachable=store_reachable,
        )

    @property
    def fillers(self) -> tuple[Incarnation, ...]:
        """Nodes that fill a ledger's list of members when there are not enough live ones."""
        return self.absent + self.read_only


def pick_members(
    ledger_id: LedgerId,
    live: Sequence[Incarnation],
    known_absent: Sequence[Incarnation],
    retired: Sequence[Incarnation],
    write_quorum: int,
    ack_quorum: int,
) -> tuple[Incarnation, ...] | None:
    """The storage nodes for a new ledger, best first, live ones before absent ones.

    None when fewer than ack_quorum are live, or fewer than write_quorum are known. Raises InvalidArgument on impossible
    quorums.
    """
    check_quorums(write_quorum=write_quorum, ack_quorum=ack_quorum)
    key = f"ledger {ledger_id}"
    present = ranked(key, (node for node in live if node not in retired))[:write_quorum]
    if len(present) < ack_quorum:
        return None
    fillers = ranked(key, (node for node in known_absent if node not in retired and node not in live))
    members = (*present, *fillers[: write_quorum - len(present)])
    return members if len(members) == write_quorum else None
