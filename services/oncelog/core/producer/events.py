"""What a producer session hears and does, beside the events and effects of `session_opening` and `pending_batches`."""

from dataclasses import dataclass

from oncelog.core.errors import OncelogError
from oncelog.core.formats.outcome import Outcome
from oncelog.core.ids import OwnerEpoch, SequenceId, SessionNumber
from oncelog.core.producer.opening import (
    EpochSeen,
    LookUpFailed,
    OpeningEffect,
    OpenRefused,
    OwnerFound,
    ProducerGranted,
    SessionTimerFired,
    StreamLost,
)
from oncelog.core.producer.pending_batches import BatchReady, SendBatches
from oncelog.core.producer.sequence_ids import BatchIds

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenWanted:
    """The application wants the producer; the first event."""


@dataclass(frozen=True, slots=True)
class BatchesAnswered:
    """A frame of answers, in any order."""

    session: SessionNumber
    answers: list[tuple[int, Outcome | OncelogError]]
    owner_epoch: OwnerEpoch


@dataclass(frozen=True, slots=True)
class SessionClosedByOwner:
    """The owner ended the session: everything unanswered is not decided. owner_epoch 0: not known."""

    session: SessionNumber
    error: OncelogError
    owner_epoch: OwnerEpoch = OwnerEpoch(0)


@dataclass(frozen=True, slots=True)
class SessionDedupToggled:
    """The owner judges by sequence ids from now on, or no longer."""

    session: SessionNumber
    on: bool


@dataclass(frozen=True, slots=True)
class CloseWanted:
    """The application is done; it flushes before, for everything still pending fails now."""


ProducerEvent = (
    BatchReady | BatchesAnswered | OpenWanted | OwnerFound | LookUpFailed | ProducerGranted | OpenRefused
    | SessionClosedByOwner | SessionDedupToggled | StreamLost | EpochSeen | SessionTimerFired | CloseWanted
)  # fmt: skip


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReportOpen:
    """The first grant: the application has its producer. last_sequence_id: -1 when nothing is stored."""

    name: str
    last_sequence_id: SequenceId
    message_bytes_max: int


@dataclass(frozen=True, slots=True)
class Complete:
    """The batch was answered: its ids, and the fate of its messages.

    own_above: set when it was sent in an earlier session, too, and some message is told as a duplicate: this instance
    alone may have stored ids above it. high_water: set when a message is stale: the highest id known to be stored.
    """

    request: int
    ids: BatchIds
    outcome: Outcome
    own_above: SequenceId | None = None
    high_water: SequenceId | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """The batch's result. stored False: nothing of it is stored by this send, now or later; None: that is not known."""

    request: int
    error: OncelogError
    stored: bool | None


@dataclass(frozen=True, slots=True)
class FailProducer:
    """The producer is over; a Fail for everything pending stands beside it."""

    error: OncelogError


ProducerEffect = OpeningEffect | ReportOpen | SendBatches | Complete | Fail | FailProducer
