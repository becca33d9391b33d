"""What one ledger needs, judged from its record, the storage nodes and the damage that they report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from oncelog.core.ids import NO_ENTRY, EntryId, Incarnation
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata, LedgerState
from oncelog.core.ledger.quorum import coverage
from oncelog.core.rendezvous import ranked
from oncelog.core.repair.events import RepairJob, RepairNodes


@dataclass(frozen=True, slots=True)
class DirectoryView:
    """One directory that ever joined, from its cookie and its registration.

    live: registered. retired: superseded or removed for ever. leaving: decommissioned, or being drained. read_only: an
    operator or a nearly full disk. joining: not yet a member of the cluster (hazard unmounted-volume). silent:
    registered, but it did not answer the last look.
    """

    incarnation: Incarnation
    live: bool = True
    retired: bool = False
    leaving: bool = False
    read_only: bool = False
    joining: bool = False
    silent: bool = False
    #: the wall clock of the repairer when it first saw the node absent; None while it is live
    absent_since_ms: int | None = None


class StorageNodes:
    """All directories, as the repairer sees them. absent_delay_ms: see hazard flapping-node."""

    def __init__(self, views: Iterable[DirectoryView] = (), *, now_ms: int = 0, absent_delay_ms: int = 0) -> None:
        self.views = {view.incarnation: view for view in views}
        self._now_ms = now_ms
        self._absent_delay_ms = absent_delay_ms

    def live(self, node: Incarnation) -> bool:
        view = self.views.get(node)
        return view is not None and view.live

    def answers(self, node: Incarnation) -> bool:
        view = self.views.get(node)
        return view is not None and view.live and not view.silent

    def retired(self, node: Incarnation) -> bool:
        view = self.views.get(node)
        return view is not None and view.retired

    def expected(self, node: Incarnation) -> bool:
        """Whether the node is absent and may return with its copies. A node without a cookie may."""
        view = self.views.get(node)
        return view is None or not (view.live or view.retired)

    def to_replace(self, node: Incarnation) -> bool:
        """Whether its copies are made elsewhere now: retired, leaving, or absent for the delay."""
        view = self.views.get(node)
        return view is not None and (view.retired or view.leaving or self.long_absent(node))

    def long_absent(self, node: Incarnation) -> bool:
        view = self.views.get(node)
        since = None if view is None else view.absent_since_ms
        return since is not None and self._now_ms - since >= self._absent_delay_ms

    @property
    def targets(self) -> list[Incarnation]:
        """The nodes that can take copies of further ledgers."""
        return [
            view.incarnation
            for view in self.views.values()
            if view.live and not (view.retired or view.leaving or view.read_only or view.joining)
        ]

    def for_repair(self) -> RepairNodes:
        views = self.views.values()
        return RepairNodes(
            tuple(v.incarnation for v in views if v.live),
            tuple(v.incarnation for v in views if v.retired),
            tuple(v.incarnation for v in views if v.leaving),
        )


class Need(Enum):
    """REPAIR: a job can run. ROLL: the ledger is not CLOSED, and its owner must end it first. NOTHING: no work, or none
    that is possible now."""

    NOTHING = "nothing"
    REPAIR = "repair"
    ROLL = "roll"


@dataclass(frozen=True, slots=True)
class Assessment:
    """copies: live members without known damage. unavailable: ranges that no live member has; a last entry of NO_ENTRY
    is a ledger that is not CLOSED, and cannot be closed now. waiting_for: members that may return. owed: retired
    members whose copies live nodes could make now."""

    need: Need
    copies: int
    under_replicated: bool = False
    unavailable: tuple[EntryRange, ...] = ()
    waiting_for: tuple[Incarnation, ...] = ()
    owed: tuple[Incarnation, ...] = ()
    job: RepairJob | None = None


def assess(
    record: LedgerMetadata, nodes: StorageNodes, damaged: Sequence[Incarnation], *, avoid: Mapping[Incarnation, object]
) -> Assessment:
    """Assess one listed ledger. damaged: nodes that report damage in it. avoid: nodes that refused copies lately.

    Under-replicated counts against the record's own write quorum (hazard too-few-nodes).
    """
    closed = record.state is LedgerState.CLOSED
    sound = [member for member in record.members if nodes.live(member) and member not in damaged]
    waiting_for = tuple(member for member in record.members if nodes.expected(member))
    unavailable = _unavailable(record, sound)
    under_replicated = sum(1 for m in sound if not nodes.retired(m)) < record.write_quorum and (
        not closed or record.end >= 0
    )
    if record.frozen:
        return Assessment(Need.NOTHING, len(sound), under_replicated, unavailable, waiting_for)
    ailing = _ailing(record, nodes)
    target = _target(record, nodes, avoid) if ailing else None
    if not closed:
        # Without a live node that is not a member, rolling would choose the same members again (hazard
        # repair-of-an-open-ledger).
        helps = any(member in damaged for member in record.members) or (ailing and target is not None)
        need = Need.ROLL if helps else Need.NOTHING
        return Assessment(need, len(sound), under_replicated, unavailable, waiting_for)
    old = ailing[0] if ailing and (target is not None or record.joining is not None) else None
    copyable = old is not None and bool(sound or record.end < 0)
    owed = tuple(m for m in ailing if copyable and not nodes.expected(m) and not nodes.live(m))
    reported = tuple(member for member in record.members if member in damaged and nodes.live(member))
    everyone = all(nodes.live(member) for member in record.members)
    unfinished = everyone and (record.joining is not None or not (record.verified or record.lost))
    if old is None and not reported and not unfinished:
        return Assessment(Need.NOTHING, len(sound), under_replicated, unavailable, waiting_for)
    absent = old is not None and nodes.expected(old)
    job = RepairJob(record.ledger_id, old, None if old is None else target, absent, reported)
    return Assessment(Need.REPAIR, len(sound), under_replicated, unavailable, waiting_for, owed, job)


def _ailing(record: LedgerMetadata, nodes: StorageNodes) -> list[Incarnation]:
    """The members to replace: those that never return first, then absent ones, then those that still serve."""
    members = [member for member in record.members if nodes.to_replace(member)]
    return sorted(members, key=lambda m: (nodes.live(m), nodes.expected(m), record.members.index(m)))


def _target(record: LedgerMetadata, nodes: StorageNodes, avoid: Mapping[Incarnation, object]) -> Incarnation | None:
    candidates = [node for node in nodes.targets if node not in record.members and node not in avoid]
    return next(iter(ranked(f"repair {record.ledger_id}", candidates)), None)


def _unavailable(record: LedgerMetadata, sound: Sequence[Incarnation]) -> tuple[EntryRange, ...]:
    if record.state is not LedgerState.CLOSED:
        needed = coverage(write_quorum=record.write_quorum, ack_quorum=record.ack_quorum)
        return () if len(sound) >= needed else (EntryRange(EntryId(0), NO_ENTRY),)
    if sound or record.end < 0:
        return ()
    return (EntryRange(EntryId(0), record.end),)
