"""What a client is answered about one batch, by what the log knows of its messages.

A receipt may name a place in the log. The client numbers the messages of its batch from there on, so the place is named
only if the entry there holds exactly this batch: the same first and last id, the same count, and no prefix that was
stored before. Otherwise the id that `send` returns would be another message's, and a reader that starts behind it would
skip messages (hazard place-of-another-batch). A receipt without a place is a success, too.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import assert_never

from oncelog.core.ids import SEQUENCE_ID_MAX, Position


class Known(Enum):
    """Of the messages of one batch."""

    #: written now, all of them
    STORED = auto()
    #: this very batch was stored before, or by a write in flight
    SAME_BATCH = auto()
    #: some were stored before, the others now
    PARTLY_NEW = auto()
    #: all were stored before, in other batches
    OTHER_BATCHES = auto()
    #: older than what is remembered
    UNVERIFIED = auto()
    #: some were provably never stored, and are below ids that were
    STALE = auto()
    #: another message is stored under one of the ids
    OTHER_CONTENT = auto()


@dataclass(frozen=True, slots=True)
class TopicRules:
    """Policies of a topic, for clients of Pulsar. Where one accepts, the answer is Pulsar's: a success."""

    accept_stale: bool = False
    accept_other_content: bool = False
    accept_unverified: bool = True


@dataclass(frozen=True, slots=True)
class Ids:
    """Sequence ids of a SEND. highest: None if the client did not send it."""

    sequence_id: int
    highest: int | None = None

    @property
    def last(self) -> int:
        """Of the batch: as a client of Java names the batch in its queue."""
        return self.sequence_id if self.highest is None else max(self.sequence_id, self.highest)

    def __str__(self) -> str:
        return f"{self.sequence_id}" if self.last == self.sequence_id else f"{self.sequence_id} to {self.last}"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A receipt. place: None: without one."""

    place: Position | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """The batch fails. A retry fails in the same way."""

    sentence: str


Verdict = Accepted | Rejected
_ACCEPTED = Accepted()


#: What a topic's rules decide about.
BY_RULES = frozenset({Known.UNVERIFIED, Known.STALE, Known.OTHER_CONTENT})


def verdict_on(known: Known, ids: Ids, place: Position | None, rules: TopicRules) -> Verdict:
    """place: of the entry that holds the batch, if it is remembered."""
    match known:
        case Known.STORED | Known.SAME_BATCH:
            return Accepted(place)
        case Known.PARTLY_NEW | Known.OTHER_BATCHES:
            return _ACCEPTED
        case Known.UNVERIFIED if rules.accept_unverified:
            return _ACCEPTED
        case Known.STALE if rules.accept_stale:
            return _ACCEPTED
        case Known.OTHER_CONTENT if rules.accept_other_content:
            return _ACCEPTED
        case Known.UNVERIFIED:
            return Rejected(f"sequence ids {ids} are older than what the log remembers of this producer")
        case Known.STALE:
            return Rejected(
                f"sequence ids {ids}: some were never stored, and are below ids that were. What was new in the batch "
                "is stored: send the others under new ids"
            )
        case Known.OTHER_CONTENT:
            return Rejected(
                f"sequence ids {ids}: another message is stored under one of them. Start behind the last sequence id "
                "of this producer name, or use another name"
            )
    assert_never(known)


def rejection_of_numbers(ids: Ids, message_count: int) -> Rejected | None:
    """Why the numbers of a SEND alone fail it; None: they do not."""
    if ids.last > SEQUENCE_ID_MAX:
        return Rejected(f"sequence id {ids.last} is above 2**63 - 1")
    if message_count < 1:
        return Rejected(f"a batch of {message_count} messages: at least 1")
    return None


def rejection_of_kind(*, transaction: bool, marker: bool) -> Rejected | None:
    """Why a SEND of this kind fails; None: it is an ordinary one."""
    if transaction:
        return Rejected("messages of transactions are not offered here: send them without one")
    if marker:
        return Rejected("markers of Pulsar's brokers are not taken from clients")
    return None
