"""Ids of messages, and where a reader begins that names one.

An id of Pulsar is our place: ledger, entry, partition. Its batch index counts the messages that are delivered with the
entry; it is -1 for an entry that is delivered as a single message. So an id is a function of the stored entry alone.
Numbers that clients mean as negative come as 2**64 less.

    what the client names        where the reader begins
    -1:-1, or any ledger < 0     with the first message
    2**63-1:any                  behind the message that is the last one now
    ledger:-1                    with the first entry of the ledger
    ledger:entry, any index      with this entry, whole

    ledger:2**62 + entry         with the entry, a message in chunks

The last line but one holds for readers that want the named message and for those that want the next one, and for an id
inside of a batch: each client drops what precedes its own start, by index and entry, and counts that as consumed. A
client that wants the named message sends the same id as one that does not, so any other rule skips a message of one of
them (hazard reader-start). If the entry was trimmed, the reader begins with the first message behind it.

Chunks of a message that are not its last one have an id of no message. An acknowledgement of it changes nothing: a
client that gives up a message of which it has some chunks acknowledges these, also when the message came whole later
(hazard chunk-acknowledged-for-its-message). The id is above those of all entries of the ledger: a client drops what has
an id below one that it has acknowledged cumulatively, and entries of others may lie between chunks and their message.
"""

from dataclasses import dataclass
from typing import NamedTuple

from oncelog.core.ids import EntryId, LedgerId, Position

NO_BATCH_INDEX = -1
#: Of a number that the client means as negative.
_NEGATIVE = 2**63
_LATEST_LEDGER = 2**63 - 1
#: Of a chunk that is not the last one, the entry of the message is added.
_CHUNKS_FROM = 2**62


class DeliveredId(NamedTuple):
    """The id of a message at a client. batch_index: NO_BATCH_INDEX for a message that is delivered alone."""

    position: Position
    batch_index: int = NO_BATCH_INDEX


@dataclass(frozen=True, slots=True)
class FromFirst:
    """With the first message that is kept."""


@dataclass(frozen=True, slots=True)
class FromEnd:
    """With what is stored from now on."""


@dataclass(frozen=True, slots=True)
class FromEntry:
    """With this entry, or the first one behind it."""

    position: Position


@dataclass(frozen=True, slots=True)
class FromTime:
    """With the first entry that was appended at this time or later, in ms since 1970."""

    time_ms: int


Start = FromFirst | FromEnd | FromEntry | FromTime


def start_at_id(ledger_id: int, entry_id: int) -> Start:
    """Where a reader begins that names this id, with the numbers as they are received."""
    if ledger_id >= _NEGATIVE:
        return FromFirst()
    if ledger_id == _LATEST_LEDGER:
        return FromEnd()
    first = 0 if entry_id >= _NEGATIVE else entry_id % _CHUNKS_FROM
    return FromEntry(Position(LedgerId(ledger_id), EntryId(first)))


def chunk_place(message: Position) -> Position:
    """What the id of each chunk of a message names, but that of the last one."""
    return Position(message.ledger_id, EntryId(_CHUNKS_FROM + message.entry_id))


def names_chunk(entry_id: int) -> bool:
    """Whether an id with this entry is that of a chunk, and of no message."""
    return _CHUNKS_FROM <= entry_id < _NEGATIVE


def start_at_time(publish_time_ms: int) -> Start:
    """Where a seek to this time begins, with the number as it is received. A negative one is before all messages."""
    return FromTime(0 if publish_time_ms >= _NEGATIVE else publish_time_ms)


def before(position: Position) -> Position:
    """The place directly before an entry: of the first entry of a ledger it is ledger:-1, as clients write it."""
    return Position(position.ledger_id, EntryId(position.entry_id - 1))
