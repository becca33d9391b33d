"""What one ledger needs, judged from its record, the storage nodes and the damage that they report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata, LedgerState
from oncelog.core.ledger.quorum import coverage
from oncelog.core.ledger.storage_nodes import NodeState, StorageNodes
from oncelog.core.rendezvous import ranked
from oncelog.core.repair.events import RepairJob


class Need(Enum):
    """REPAIR: a job can run. ROLL: the ledger is not CLOSED, and its owner must end it first. NOTHING: no work, or none
    that is possible now."""

    NOTHING = "nothing"
    REPAIR = "repair"
    ROLL = "roll"


@dataclass(frozen=True, slots=True)
class Assessment:
    """copies: live members without known damage. unavailable: ranges that no live member has; a last entry of NO_ENTRY
    is a ledger that is not CLOSED, and cannot be closed now. waiting_for: members that may return. copyable: retired
    members that are not registered, and whose copies live nodes could make now."""

    need: Need
    copies: int
    under_replicated: bool = False
    unavailable: tuple[EntryRange, ...] = ()
    waiting_for: tuple[Incarnation, ...] = ()
    copyable: tuple[Incarnation, ...] = ()
    job: RepairJob | None = None


def assess(
    record: LedgerMetadata, nodes: StorageNodes, damaged: Sequence[Incarnation], *, avoid: Mapping[Incarnation, object]
) -> Assessment:
    """Assess one listed ledger. damaged: nodes that report damage in it. avoid: nodes that refused copies lately.

    Under-replicated counts against the record's own write quorum (hazard too-few-nodes).
    """
    closed = record.state is LedgerState.CLOSED
    sound = [member for member in record.members if nodes[member].registered and member not in damaged]
    waiting_for = tuple(member for member in record.members if nodes[member].may_return)
    unavailable = _unavailable(record, sound)
    under_replicated = sum(1 for m in sound if nodes[m].state is not NodeState.RETIRED) < record.write_quorum and (
        not closed or record.end >= 0
    )
    if record.frozen:
        return Assessment(Need.NOTHING, len(sound), under_replicated, unavailable, waiting_for)
    to_replace = _to_replace(record, nodes)
    target = _target(record, nodes, avoid) if to_replace else None
    if not closed:
        # Without a live node that is not a member, rolling would choose the same members again (hazard
        # repair-of-an-open-ledger).
        helps = any(member in damaged for member in record.members) or (to_replace and target is not None)
        need = Need.ROLL if helps else Need.NOTHING
        return Assessment(need, len(sound), under_replicated, unavailable, waiting_for)
    old = to_replace[0] if to_replace and (target is not None or record.joining is not None) else None
    can_copy = old is not None and bool(sound or record.end < 0)
    copyable = tuple(m for m in to_replace if can_copy and nodes[m].never_returns)
    reported = tuple(member for member in record.members if member in damaged and nodes[member].registered)
    everyone = all(nodes[member].registered for member in record.members)
    unfinished = everyone and (record.joining is not None or not (record.verified or record.lost))
    if old is None and not reported and not unfinished:
        return Assessment(Need.NOTHING, len(sound), under_replicated, unavailable, waiting_for)
    absent = old is not None and nodes[old].may_return
    job = RepairJob(record.ledger_id, old, None if old is None else target, absent, reported)
    return Assessment(Need.REPAIR, len(sound), under_replicated, unavailable, waiting_for, copyable, job)


def _to_replace(record: LedgerMetadata, nodes: StorageNodes) -> list[Incarnation]:
    """The members to replace: those that never return first, then absent ones, then those that still serve."""
    members = [member for member in record.members if nodes.to_replace(member)]
    return sorted(members, key=lambda m: (nodes[m].registered, nodes[m].may_return, record.members.index(m)))


def _target(record: LedgerMetadata, nodes: StorageNodes, avoid: Mapping[Incarnation, object]) -> Incarnation | None:
    """The best node; if that which joins is in service, the next one behind it, so that repairs whose joining nodes
    refuse every copy try one node after another."""
    candidates = [node for node in nodes.targets if node not in record.members and node not in avoid]
    order = ranked(f"repair {record.ledger_id}", candidates)
    if record.joining in order:
        at = order.index(record.joining)
        order = [*order[at + 1 :], *order[:at]]
    return next(iter(order), None)


def _unavailable(record: LedgerMetadata, sound: Sequence[Incarnation]) -> tuple[EntryRange, ...]:
    if record.state is not LedgerState.CLOSED:
        needed = coverage(write_quorum=record.write_quorum, ack_quorum=record.ack_quorum)
        return () if len(sound) >= needed else (EntryRange(EntryId(0), NO_ENTRY),)
    if sound or record.end < 0:
        return ()
    return (EntryRange(EntryId(0), record.end),)
