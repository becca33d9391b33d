"""Whether a storage node may be replaced, or removed, now: a pure function of records, nodes and their damage.

The answer is yes when every listed ledger that names the node keeps every entry without it: each other member is
registered, not retired, answering and undamaged, and
    CLOSED                the record is whole, or the ledger is empty
    OPEN, IN_RECOVERY     Qa is at least 2: an acknowledged entry has another copy, and the others can close the ledger

And when enough other nodes hold the notes of all records (hazard holders-fade): a note that was answered is on Qa
nodes, so on at least one other. If all others have the same notes, then each has every note.

And when a restore could use enough others while this one is away, should ZooKeeper be lost just then: a node in limbo
counts as missing there.

A draining node is removed when no record names it but those of empty, CLOSED ledgers that no list names: nothing is
ever written to one or read from it. Each takeover of an idle topic leaves one. Nobody moves it, and its record waits
for a floor, which does not rise.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from oncelog.core.formats.note import NotesDigests
from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.ledger.storage_nodes import NodeState, StorageNodes
from oncelog.core.repair.assessment import Assessment, Need

NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class Blocker:
    """A ledger that needs the node, and why."""

    ledger_id: LedgerId
    reason: str


@dataclass(frozen=True, slots=True)
class MayReplace:
    """blocking: how many ledgers need the node. blockers: the first ones, at most NAMED_MAX."""

    node: Incarnation
    allowed: bool
    blocking: int
    blockers: tuple[Blocker, ...]


def may_replace(
    node: Incarnation, ledgers: Iterable[LedgerMetadata], nodes: StorageNodes,
    damaged: Callable[[LedgerId], Sequence[Incarnation]],
) -> MayReplace:  # fmt: skip
    """ledgers: the listed ones that name the node; others are skipped. damaged: the nodes that report damage in it."""
    blocking, blockers = 0, list[Blocker]()
    for record in ledgers:
        reason = _reason(node, record, nodes, damaged(record.ledger_id)) if node in record.members else None
        if reason is not None:
            blocking += 1
            if len(blockers) < NAMED_MAX:
                blockers.append(Blocker(record.ledger_id, reason))
    return MayReplace(node, blocking == 0, blocking, tuple(blockers))


def _reason(
    node: Incarnation, record: LedgerMetadata, nodes: StorageNodes, damaged: Sequence[Incarnation]
) -> str | None:
    """Why the ledger needs the node; None if it does not."""
    closed = record.state is LedgerState.CLOSED
    if _is_empty(record):
        return None
    others = [member for member in record.members if member != node]
    # The registration of a lost directory stays until its session ends.
    if lost := [m for m in others if not nodes[m].registered or nodes[m].state is NodeState.RETIRED]:
        return f"its other members {', '.join(lost)} are not registered, or were replaced"
    # The registration of a process that was killed stays until its session ends, too.
    if silent := [member for member in others if not nodes[member].answers]:
        return f"its other members {', '.join(silent)} are registered, and do not answer"
    if lacking := [member for member in others if member in damaged]:
        return f"its other members {', '.join(lacking)} have damaged entries"
    if not others:
        return "it has no other member"
    if record.frozen:
        return "it is frozen: its copies differ"
    if closed:
        return None if record.verified else "its members have not all read their copies back yet"
    if record.ack_quorum < 2:
        return "it is open, and an acknowledged entry may be on this node alone"
    return None


def _is_empty(record: LedgerMetadata) -> bool:
    return record.state is LedgerState.CLOSED and record.end < 0


def keeps_draining(record: LedgerMetadata, node: Incarnation, *, listed: bool) -> bool:
    """Whether a draining node is not removed while there is this record. listed: a list names the ledger."""
    return record.names(node) and (listed or not _is_empty(record))


def drain_reason(record: LedgerMetadata, assessment: Assessment | None) -> str:
    """What the record of a ledger that keeps a draining node waits for. assessment: None if no list that could be read
    names the ledger."""
    closed = record.state is LedgerState.CLOSED
    if assessment is None:
        if closed:
            return "no list that can be read names it, and its record is below no floor of one"
        return "its owner created it, and no list names it: it goes once that owner cannot list it any more"
    if record.frozen:
        return "it is frozen: its copies differ"
    if not closed:
        if assessment.need is Need.ROLL:
            return "it is open: its topic's owner is asked to end it"
        return "it is open, and no other storage node can take the place of this one"
    if assessment.job is None or (assessment.job.target is None and record.joining is None):
        return "no other storage node can take its copy"
    if assessment.unavailable:
        return "entries of it have no sound copy at a live storage node"
    return "its copy is moved to another storage node"


def notes_refusal(
    node: Incarnation, digests: Mapping[Incarnation, NotesDigests], others: Sequence[Incarnation], *, ack_quorum: int,
    limbo: Collection[Incarnation] = (),
) -> str | None:  # fmt: skip
    """Why the other nodes do not hold all notes, or are too few for a restore, without this one; None if they are not.

    digests: of the registered nodes that answered, also of `node`. others: all that ever joined, and may return. limbo:
    the nodes whose directories may have lost records. ack_quorum: 0: no owner ever started.
    """
    if any(each.deletions is None for each in digests.values()):  # nodes of different versions
        digests = {one: each._replace(deletions=None) for one, each in digests.items()}
    answered = [one for one in others if one in digests]
    expected = digests.get(node, digests[answered[0]] if answered else NotesDigests())
    differing = [one for one in answered if digests[one] != expected]
    if differing:
        return (
            f"the notes of storage nodes {', '.join(sorted(differing))} differ: they are compared every "
            "ONCELOG_NOTES_INTERVAL_MS, by default each minute"
        )
    needed = min(ack_quorum or len(others), len(others))
    if len(answered) < needed:
        return f"only {len(answered)} of {needed} other storage nodes hold the notes of all records"
    unsure = sorted({*others} & {*limbo})
    missing = 1 + len(others) - len(answered) + len(unsure)
    if unsure and (missing >= max(1, ack_quorum) or 2 * missing > len(others)):
        return (
            f"storage nodes {', '.join(unsure)} are in limbo, so a restore of ZooKeeper could not use them: it would "
            "have too few nodes without this one. Limbo ends by itself when they have reviewed their ledgers: repeat "
            "this then"
        )
    return None


def decommission_refusal(node: Incarnation, nodes: StorageNodes, *, write_quorum: int) -> str | None:
    """Why the node must not be decommissioned; None if it may. The others must be able to hold a ledger (hazard
    too-few-nodes)."""
    if node not in nodes.views:
        return f"storage node {node} never joined this cluster"
    left = sum(1 for v in nodes.views.values() if v.incarnation != node and v.in_service and not v.joining)
    if left < write_quorum:
        return f"{left} other storage nodes are left, and a ledger needs {write_quorum}: add a storage node first"
    return None
