"""The events that a topic's core accepts from its shell: one union."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.chain.managed_ledger import LedgerEvent
from oncelog.core.chain.replay import EntriesRead, EntriesUnavailable, EntryUnreadable
from oncelog.core.delivery.events import ConsumerEvent
from oncelog.core.errors import OncelogError, Retriable
from oncelog.core.formats.batch import BatchHeader, Buffer
from oncelog.core.formats.ledger_page import ListPage
from oncelog.core.formats.opening import ProducerOpening
from oncelog.core.formats.topic_record import CursorRecord, TopicRecord
from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch, Position, ProducerId, SessionNumber
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.recovery import (
    LedgerRecordEvent,
    MemberErased,
    MemberFenced,
    RecoveryAdded,
    RecoveryReadAnswered,
)
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.records.records import CursorKey, PageKey, RecordRead, RecordWritten, TopicKey

# --- producers --------------------------------------------------------------------------------------------------------


class ReceivedBatch(NamedTuple):
    """One batch as it arrived, its checksum verified; `data` is stored verbatim."""

    request: int
    header: BatchHeader
    data: Buffer


@dataclass(frozen=True, slots=True)
class BatchesReceived:
    """What one frame has for the topic: the batches of each session, in order, checksums verified."""

    runs: list[tuple[SessionNumber, list[ReceivedBatch]]]


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The client closed the session, or its stream broke. keeps_name: the client of a gateway may come back."""

    session: SessionNumber
    keeps_name: bool = False


@dataclass(frozen=True, slots=True)
class NameHeld:
    """The answer to NameWanted: the client of the gateway is there. If it is not, the gateway closes the session."""

    session: SessionNumber


@dataclass(frozen=True, slots=True)
class OpeningAbandoned:
    """The client withdrew its request to open a producer, or its stream broke: `call` needs no answer."""

    call: int


@dataclass(frozen=True, slots=True)
class OpeningsDelayed:
    """The response to ExplainDelay: answer the requests to open that wait with this error, which names the cause."""

    error: Retriable


@dataclass(frozen=True, slots=True)
class ProducerIdAllocated:
    """The answer to AllocateProducerId."""

    allocation: int
    producer_id: ProducerId


@dataclass(frozen=True, slots=True)
class ProducerIdRefused:
    """The other answer to AllocateProducerId: no id is available."""

    allocation: int
    error: OncelogError


@dataclass(frozen=True, slots=True)
class EntryIdsRead:
    """The batch header and id deltas of the entry of ReadEntryIds. header None: no storage node gives the entry now.
    has_record: False if that is because its ledger has no record."""

    position: Position
    header: BatchHeader | None
    deltas: Buffer
    has_record: bool = True


# --- the topic --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicAssigned:
    """A metadata service has assigned the topic to this owner; the topic record decides.

    given_up: the epoch at which this owner has closed the topic a moment ago, 0: none. The metadata service that
    requested the close assigns the topic at a higher epoch.
    """

    given_up: OwnerEpoch = OwnerEpoch(0)


@dataclass(frozen=True, slots=True)
class HigherEpochReported:
    """A client or a storage node showed an owner_epoch above this one's."""


@dataclass(frozen=True, slots=True)
class DedupToggled:
    """Deduplication was enabled or disabled for this topic."""

    enabled: bool


@dataclass(frozen=True, slots=True)
class PoliciesChanged:
    """The policies of the topic, at the start and at each change."""

    policies: TopicPolicies


@dataclass(frozen=True, slots=True)
class TruncateRequested:
    """Delete all messages up to the present end."""

    call: int


@dataclass(frozen=True, slots=True)
class TrimBelowRequested:
    """Delete the ledgers that have only messages below an index; None: below the durable end."""

    call: int
    below: int | None


@dataclass(frozen=True, slots=True)
class SnapshotRequested:
    """Write a snapshot now; answered by AnswerAdmin."""

    call: int


@dataclass(frozen=True, slots=True)
class ProducerRemovalRequested:
    """Expire a producer before its time, or delete it, also if it lives for ever; answered by AnswerAdmin when that is
    durable. by: the operator. force: also a connected one, whose session ends."""

    call: int
    producer_id: ProducerId
    by: str
    delete: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class TrimRequested:
    """Messages in ledgers that end before `before` may go, as far as the kept snapshots allow."""

    before: Position


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Close cleanly: write a snapshot, answer what is in flight, close both ledgers."""


@dataclass(frozen=True, slots=True)
class TopicTimerFired:
    """The timer of the StartTopicTimer with this key has expired."""

    key: str


# --- answers of ZooKeeper and storage nodes ---------------------------------------------------------------------------


class EndOfLedger(NamedTuple):
    """The end of a CLOSED ledger. length: body bytes. appended_ms: append time of the last entry; 0 without one."""

    ledger_id: LedgerId
    end: EntryId
    length: int
    appended_ms: int


@dataclass(frozen=True, slots=True)
class LedgerEndsRead:
    """Some of the response to ReadLedgerEnds. A ledger that was deleted meanwhile is left out."""

    ends: tuple[EndOfLedger, ...]


@dataclass(frozen=True, slots=True)
class StoredTimesRead:
    """The response to ReadStoredTimes. times: {index: append time of the message; None: it could not be read}."""

    times: Mapping[int, int | None]


@dataclass(frozen=True, slots=True)
class ClockChecked:
    """The response to CheckClock: this process has written a record. answered_ms: own clock at the response.
    modified_ms: the record's mtime."""

    answered_ms: int
    modified_ms: int


TakeoverEvent = (
    EntriesRead | EntriesUnavailable | EntryUnreadable | LedgerRecordEvent | MemberErased
    | MemberFenced | RecoveryReadAnswered | RecoveryAdded | TopicTimerFired
)  # fmt: skip

TopicRecordEvent = RecordRead[TopicKey, TopicRecord] | RecordWritten[TopicKey, TopicRecord]
PageRead = RecordRead[PageKey, ListPage]
CursorRecordEvent = RecordRead[CursorKey, CursorRecord] | RecordWritten[CursorKey, CursorRecord]

TopicEvent = (
    BatchesReceived | SessionClosed | NameHeld | ProducerOpening | OpeningAbandoned | OpeningsDelayed
    | ProducerIdAllocated | ProducerIdRefused | EntryIdsRead | TopicAssigned | TopicRecordEvent | CursorRecordEvent
    | PageRead | HigherEpochReported | DedupToggled | PoliciesChanged | TruncateRequested | TrimBelowRequested
    | SnapshotRequested | ProducerRemovalRequested | LedgerEndsRead | StoredTimesRead
    | ClockChecked | TrimRequested | DrainRequested | StorageNodesUpdated | ConsumerEvent
    | LedgerEvent | TakeoverEvent
)  # fmt: skip
