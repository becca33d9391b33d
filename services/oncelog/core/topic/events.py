"""What the core of a topic is told by its shell, and what it tells beside the effects of its machines."""

from dataclasses import dataclass

from oncelog.core.errors import OncelogError, Retriable
from oncelog.core.formats.batch import BatchHeader, Buffer
from oncelog.core.ids import OwnerEpoch, Position, ProducerId, SessionNumber
from oncelog.core.topic.log import ReceivedBatch
from oncelog.core.topic.takeover_events import TakeoverFailed

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicAssigned:
    """Somebody says that this owner was given the topic; the record decides.

    given_up: this owner has closed the topic a moment ago, at this epoch: whoever has asked it to, places the topic at
    a higher one. 0: it has not.
    """

    given_up: OwnerEpoch = OwnerEpoch(0)


@dataclass(frozen=True, slots=True)
class BatchesReceived:
    """Batches of one session, in order, checksums verified."""

    session: SessionNumber
    batches: list[ReceivedBatch]


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The client closed the session, or its stream broke."""

    session: SessionNumber


@dataclass(frozen=True, slots=True)
class OpeningAbandoned:
    """The client withdrew its request to open, or its stream broke: nobody waits for the answer to `call`."""

    call: int


@dataclass(frozen=True, slots=True)
class ProducerIdAllocated:
    """The answer to AllocateProducerId."""

    ask: int
    producer_id: ProducerId


@dataclass(frozen=True, slots=True)
class ProducerIdRefused:
    """The other answer to AllocateProducerId: there is no id."""

    ask: int
    error: OncelogError


@dataclass(frozen=True, slots=True)
class OpeningsToldToWait:
    """The topic has not served for a while, for this reason: clients that wait to open a producer hear it."""

    error: Retriable


@dataclass(frozen=True, slots=True)
class EntryIdsRead:
    """The batch header and id deltas of the entry asked for by ReadEntryIds. header None: it was trimmed."""

    position: Position
    header: BatchHeader | None
    deltas: Buffer


@dataclass(frozen=True, slots=True)
class HigherEpochSeen:
    """A client showed an owner_epoch above this one's."""


@dataclass(frozen=True, slots=True)
class DedupToggled:
    """Deduplication was switched on or off for this topic."""

    on: bool


@dataclass(frozen=True, slots=True)
class TrimWanted:
    """Messages in ledgers that end before `before` may go, as far as the kept snapshots allow."""

    before: Position


@dataclass(frozen=True, slots=True)
class DrainWanted:
    """Close cleanly: write a snapshot, answer what is in flight, close both ledgers."""


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NotifyDedupToggled:
    """Deduplication was switched on or off: notify every open session."""

    on: bool


@dataclass(frozen=True, slots=True)
class Served:
    """Mark E: the owner serves from here on. log_end: last position taken over."""

    log_end: Position


@dataclass(frozen=True, slots=True)
class TopicFailed:
    """The takeover stops loudly and is tried again later; nothing is served meanwhile."""

    failure: TakeoverFailed


@dataclass(frozen=True, slots=True)
class TopicDeposed:
    """This owner is done with the topic, for good at this epoch."""

    reason: str
