"""The settings, the events and the effects of the queue of repairs."""

from dataclasses import dataclass

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.ids import Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.storage_nodes import NodeView
from oncelog.core.repair.events import RepairFinished, RepairJob, RepairLimits


@dataclass(frozen=True, slots=True)
class RepairSettings:
    """absent_delay_ms: after which copies of an absent node are made elsewhere. jobs_max: repairs at the same time.
    None begins while those that run hold jobs_bytes_max bytes or more: of each its ledger, but at most job_bytes_max.
    retry_ms: the first pause after a repair that did not succeed; it doubles up to retry_max_ms. lost_retry_ms: the
    pause after LOST, which only a node that registers can change. roll_retry_ms: the pause after the first request to
    roll a ledger; it doubles up to roll_retry_max_ms. assessed_at_once: ledgers that one event assesses, of those
    that a node concerns. They take some tens of ms.
    """

    absent_delay_ms: int = 600_000
    jobs_max: int = 1
    job_bytes_max: int = RepairLimits().bytes_max
    jobs_bytes_max: int = 4 * RepairLimits().bytes_max
    retry_ms: int = 2_000
    retry_max_ms: int = 60_000
    lost_retry_ms: int = 600_000
    roll_retry_ms: int = 10_000
    roll_retry_max_ms: int = 600_000
    assessed_at_once: int = 1_000


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LedgerRecorded:
    """A ledger's record, and its version in ZooKeeper; an older version than the last one is ignored."""

    record: LedgerMetadata
    version: int = 0


@dataclass(frozen=True, slots=True)
class LedgerRemoved:
    """There is no such record any more."""

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class ChainRecorded:
    """The ledgers of a topic's log, cursor or ack log, as they are now; none when the topic is deleted. owner: of the
    topic, None while it has none. deleted_below: the floor of this list. owner_epoch: of the record that has the list;
    0: there is no such record."""

    topic_id: TopicId
    purpose: LedgerPurpose
    ledgers: tuple[LedgerId, ...]
    owner: Incarnation | None = None
    deleted_below: LedgerId = LedgerId(0)
    owner_epoch: OwnerEpoch = OwnerEpoch(0)


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """All storage nodes and the live owners."""

    nodes: tuple[NodeView, ...]
    owners: tuple[Incarnation, ...]
    now_ms: int


@dataclass(frozen=True, slots=True)
class DamageReported:
    """All ledgers in which the node is in limbo or has known damage."""

    node: Incarnation
    ledgers: tuple[LedgerId, ...]


@dataclass(frozen=True, slots=True)
class RepairEnded:
    """The end of a job that StartRepair began. finished: the last effect of its LedgerRepair. A job whose process was
    interrupted ends with RepairResult.CONFLICT and no record."""

    finished: RepairFinished
    now_ms: int


@dataclass(frozen=True, slots=True)
class RepairAsked:
    """An operator asks for one ledger: it is first, and any pause is over."""

    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class AssessmentsDue:
    """The queue is behind, and others had a turn: some more ledgers are assessed."""


@dataclass(frozen=True, slots=True)
class QueueTicked:
    now_ms: int


QueueEvent = (
    LedgerRecorded
    | LedgerRemoved
    | ChainRecorded
    | ClusterSeen
    | DamageReported
    | RepairEnded
    | RepairAsked
    | AssessmentsDue
    | QueueTicked
)


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartRepair:
    """Run this job; answered by RepairEnded."""

    job: RepairJob


@dataclass(frozen=True, slots=True)
class AskOwnerToRoll:
    """Ask the topic's owner to end this open ledger and to continue in another one."""

    topic_id: TopicId
    owner: Incarnation
    purpose: LedgerPurpose
    ledger_id: LedgerId


@dataclass(frozen=True, slots=True)
class PlaceTopic:
    """The topic has no live owner: place it, so that its takeover closes the open ledger."""

    topic_id: TopicId


QueueEffect = StartRepair | AskOwnerToRoll | PlaceTopic
