"""Events and effects of a producer session, besides those of `owner_attempts`, `opening` and
`pending_batches`."""

from dataclasses import dataclass

from oncelog.core.errors import OncelogError
from oncelog.core.formats.outcome import Outcome
from oncelog.core.ids import OwnerEpoch, SequenceId, SessionNumber
from oncelog.core.sdk.owner_attempts import AttemptEvent, FailSession
from oncelog.core.sdk.producer.opening import OpeningEffect, OpenRefused, ProducerGranted
from oncelog.core.sdk.producer.pending_batches import BatchReady, SendBatches
from oncelog.core.sdk.producer.sequence_ids import BatchIds

# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchesAnswered:
    """A frame of answers, in any order."""

    session: SessionNumber
    answers: list[tuple[int, Outcome | OncelogError]]
    owner_epoch: OwnerEpoch


@dataclass(frozen=True, slots=True)
class SessionClosedByOwner:
    """The owner ended the session; unanswered batches are undecided. owner_epoch 0: unknown."""

    session: SessionNumber
    error: OncelogError
    owner_epoch: OwnerEpoch = OwnerEpoch(0)


@dataclass(frozen=True, slots=True)
class SessionDedupToggled:
    """Deduplication was switched on or off for the session's topic."""

    session: SessionNumber
    on: bool


@dataclass(frozen=True, slots=True)
class NameIsWanted:
    """Another client wants the name of this session, which a gateway has opened: is the gateway's client there?"""

    session: SessionNumber


@dataclass(frozen=True, slots=True)
class ClientIsThere:
    """The answer to ReportWanted. If the client is gone, the gateway closes the producer."""


ProducerEvent = (
    BatchReady | BatchesAnswered | ProducerGranted | OpenRefused | SessionClosedByOwner | SessionDedupToggled
    | NameIsWanted | ClientIsThere | AttemptEvent
)  # fmt: skip


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReportOpen:
    """The first grant: the producer is open. last_sequence_id: -1 when nothing is stored."""

    name: str
    last_sequence_id: SequenceId
    message_bytes_max: int


@dataclass(frozen=True, slots=True)
class ReportWanted:
    """Ask the client of the gateway whether it is there; ClientIsThere follows, CloseWanted, or nothing."""


@dataclass(frozen=True, slots=True)
class HoldName:
    """Tell the owner that the client of this session is there."""

    attempt: int
    session: SessionNumber


@dataclass(frozen=True, slots=True)
class Complete:
    """The batch was answered: its ids, and the results of its messages.

    own_above: set when the batch was also sent in an earlier session and some message is a duplicate: only this
    batch can have stored ids above it. high_water: set when a message is stale: the highest id known to be stored.
    """

    request: int
    ids: BatchIds
    outcome: Outcome
    own_above: SequenceId | None = None
    high_water: SequenceId | None = None


@dataclass(frozen=True, slots=True)
class Fail:
    """The batch failed. stored False: this send stored nothing of it and never will; None: unknown."""

    request: int
    error: OncelogError
    stored: bool | None


ProducerEffect = OpeningEffect | ReportOpen | ReportWanted | HoldName | SendBatches | Complete | Fail | FailSession
