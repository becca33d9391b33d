"""The health of one ledger in one word, for reports."""

from enum import Enum

from oncelog.core.ids import Incarnation
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.ledger.storage_nodes import NodeState
from oncelog.core.repair.assessment import Assessment
from oncelog.metadata.repair.storage_nodes_reader import StorageSeen


class LedgerCondition(Enum):
    """The last that applies.

    OK: each member is live. UNVERIFIED: closed, and not every member has read its copy back from its disk yet.
    UNDER_REPLICATED: a member is absent or damaged. UNAVAILABLE: entries cannot be read now, or the ledger cannot be
    closed, until a node returns. LOST: entries have no copy any more. FROZEN: sound copies differ. UNLISTED: no topic
    names it, for example because it is the next ledger of one, or was deleted a moment ago.
    """

    OK = "ok"
    UNVERIFIED = "unverified"
    UNDER_REPLICATED = "under-replicated"
    UNAVAILABLE = "unavailable"
    LOST = "lost"
    FROZEN = "frozen"
    UNLISTED = "unlisted"


def health_of(record: LedgerMetadata, assessment: Assessment | None) -> LedgerCondition:
    """assessment: None for a ledger that no topic names."""
    if assessment is None:
        return LedgerCondition.UNLISTED
    if record.frozen:
        return LedgerCondition.FROZEN
    if record.lost:
        return LedgerCondition.LOST
    if assessment.unavailable:
        return LedgerCondition.UNAVAILABLE
    if assessment.under_replicated:
        return LedgerCondition.UNDER_REPLICATED
    return (
        LedgerCondition.OK if record.verified or record.state is not LedgerState.CLOSED else LedgerCondition.UNVERIFIED
    )


def copy_state(record: LedgerMetadata, node: Incarnation, seen: StorageSeen) -> str:
    """live, away, retired, draining or damaged."""
    view = seen.nodes[node]
    retired = view.state is NodeState.RETIRED
    if not view.registered:
        return "retired" if retired else "away"
    if record.ledger_id in seen.damaged.get(node, ()):
        return "damaged"
    if view.draining:
        return "draining"
    return "retired" if retired else "live"
