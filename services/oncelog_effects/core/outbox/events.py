"""Events and effects of `relay`. Each names the claim under which it is performed; what comes late is dropped.

attempt: the opening of the stream's producer that it belongs to.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from oncelog.core.errors import OncelogError
from oncelog_effects.core.outbox.rows import NumberedRow, RowHead
from oncelog_effects.core.outbox.streams import LogMessage, Stream


class TimerKind(Enum):
    CLAIM = "claim"
    RENEW = "renew"
    POLL = "poll"
    RETRY = "retry"
    PRUNE = "prune"


class Assigned(NamedTuple):
    """row: its id. stream: the key of the stream."""

    row: int
    stream: int
    number: int


class Refused(NamedTuple):
    row: int
    reason: str


# --- effects, and what comes back -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClaimOutbox:
    """In one transaction: take the lease if it is free, and read streams and numbered rows. -> OutboxClaimed,
    ClaimRefused"""

    claim: str


@dataclass(frozen=True, slots=True)
class RenewClaim:
    """-> ClaimRenewed"""

    claim: str


@dataclass(frozen=True, slots=True)
class FindPartitions:
    """-> PartitionsFound, TopicFailed. topic: its full name."""

    claim: str
    topic: str


@dataclass(frozen=True, slots=True)
class OpenStream:
    """Open the producer of the topic or partition; an older one of this process is closed. -> StreamOpened,
    StreamFailed"""

    claim: str
    topic: str
    attempt: int


@dataclass(frozen=True, slots=True)
class CreateStream:
    """Insert a row for the stream. -> StreamCreated"""

    claim: str
    topic: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Read the messages of the producer behind message `after` (empty: from the first one that is kept) up to number
    `last`. -> LogRead, StreamFailed"""

    claim: str
    topic: str
    attempt: int
    after: str
    last: int


@dataclass(frozen=True, slots=True)
class LookAtRows:
    """The committed rows without number and reason, by id; without those of these topics, as the rows have them.
    -> RowsSeen"""

    claim: str
    count: int
    except_topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NumberRows:
    """In one transaction, with the claim: give the numbers and reasons, and write next_number of each stream; nothing,
    if a row is gone. -> RowsNumbered"""

    claim: str
    assigned: tuple[Assigned, ...]
    refused: tuple[Refused, ...]


@dataclass(frozen=True, slots=True)
class SendRows:
    """Send the rows with these numbers, both inclusive. -> RowsSent, StreamFailed"""

    claim: str
    stream: int
    topic: str
    attempt: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ConfirmRows:
    """In one transaction, with the claim: delete the rows of the stream up to this number, or mark them as stored, and
    write confirmed. -> RowsConfirmed"""

    claim: str
    stream: int
    topic: str
    up_to: int
    message_id: str


@dataclass(frozen=True, slots=True)
class PruneRows:
    """Delete up to so many rows that were stored long enough ago. -> RowsPruned"""

    claim: str
    count: int


@dataclass(frozen=True, slots=True)
class StartTimer:
    """A timer replaces the former one of its kind. -> TimerFired"""

    claim: str
    kind: TimerKind
    after_ms: int


@dataclass(frozen=True, slots=True)
class CloseStreams:
    """Close every producer, without waiting for what is under way."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The relay ends with this error."""

    error: OncelogError


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connected:
    """There is a new connection to the database. claim: fresh, 32 hexadecimal digits."""

    claim: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection broke, an outcome is unknown, or another relay has the claim."""

    claim: str


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    claim: str


@dataclass(frozen=True, slots=True)
class OutboxClaimed:
    """numbered: {key of a stream: its rows that have a number above `confirmed`, ascending}."""

    claim: str
    streams: tuple[Stream, ...]
    numbered: dict[int, tuple[NumberedRow, ...]]


@dataclass(frozen=True, slots=True)
class ClaimRenewed:
    claim: str


@dataclass(frozen=True, slots=True)
class PartitionsFound:
    """count: 0: the topic has no partitions, or is missing."""

    claim: str
    topic: str
    count: int


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """last: the highest sequence id in the log, -1: none. value_bytes_max: what the topic takes."""

    claim: str
    topic: str
    attempt: int
    topic_id: str
    last: int
    value_bytes_max: int


@dataclass(frozen=True, slots=True)
class StreamFailed:
    """The topic or partition cannot be used now; fenced: another producer has the name."""

    claim: str
    topic: str
    attempt: int
    error: OncelogError
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class TopicFailed:
    """The partitions of the topic are unknown."""

    claim: str
    topic: str
    error: OncelogError


@dataclass(frozen=True, slots=True)
class StreamCreated:
    claim: str
    stream: Stream


@dataclass(frozen=True, slots=True)
class LogRead:
    claim: str
    topic: str
    attempt: int
    found: tuple[LogMessage, ...]


@dataclass(frozen=True, slots=True)
class RowsSeen:
    claim: str
    rows: tuple[RowHead, ...]


@dataclass(frozen=True, slots=True)
class RowsNumbered:
    """written: False: a row was deleted meanwhile, so nothing was."""

    claim: str
    written: bool


@dataclass(frozen=True, slots=True)
class RowsSent:
    """message_id: of the last one. foreign: a number was stored before, and not by this producer."""

    claim: str
    topic: str
    attempt: int
    last: int
    message_id: str
    foreign: bool


@dataclass(frozen=True, slots=True)
class RowsConfirmed:
    claim: str
    topic: str


@dataclass(frozen=True, slots=True)
class RowsPruned:
    claim: str
    count: int


@dataclass(frozen=True, slots=True)
class TimerFired:
    claim: str
    kind: TimerKind


RelayEffect = (
    ClaimOutbox | RenewClaim | FindPartitions | OpenStream | CreateStream | ReadLog | LookAtRows | NumberRows | SendRows
    | ConfirmRows | PruneRows | StartTimer | CloseStreams | Stop
)  # fmt: skip
RelayEvent = (
    Connected | Disconnected | ClaimRefused | OutboxClaimed | ClaimRenewed | PartitionsFound | StreamOpened
    | StreamFailed | TopicFailed | StreamCreated | LogRead | RowsSeen | RowsNumbered | RowsSent | RowsConfirmed
    | RowsPruned | TimerFired
)  # fmt: skip
