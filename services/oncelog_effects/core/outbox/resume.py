"""`oncelog relay resume`: an operator says what has happened, and the outbox goes on at the end of the log.

    --after-restore   the database was restored: rows whose event ids the log has are stored; all others get new numbers
    --log-lost        the log was restored: rows above its end, as far as they are kept, get new numbers
    --other-topic, --other-cluster   the topic is another one: all rows that are left get numbers of a new stream

Rules
- What the log has is recognized by event id, also among rows without a number: those of the lost time are in the log
  under numbers that the restored database does not know (hazard restored-row-sent-again).
- The rows lose their numbers first, and the stream gets its new end last: a resume that is cut short leaves an outbox
  that the relay refuses, and is repeated.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from oncelog.core.outbox_errors import LogLostMessages, OutboxDiverged
from oncelog_effects.core.outbox.streams import LogMessage, Stream


class Happened(Enum):
    RESTORED = "after-restore"
    LOG_LOST = "log-lost"
    OTHER_TOPIC = "other-topic"


class StoredRow(NamedTuple):
    row: int
    number: int


class Recognized(NamedTuple):
    """stored: rows that the log has. lost: event ids of messages whose rows the database does not have."""

    stored: tuple[StoredRow, ...]
    lost: tuple[str, ...]


def recognized(found: Sequence[LogMessage], rows: Mapping[str, int]) -> Recognized:
    """rows: {event id: row}, of those that the outbox has of the found ones."""
    stored = tuple(StoredRow(rows[each.event_id], each.number) for each in found if each.event_id in rows)
    return Recognized(stored, tuple(each.event_id for each in found if each.event_id not in rows))


def check_resume(stream: Stream, happened: Happened, last: int) -> None:
    """last: the highest number in the log. Raises the error that the operator's word does not explain."""
    if happened is Happened.RESTORED and last < stream.confirmed:
        raise LogLostMessages(
            f"{stream.topic} ends at number {last}, and the outbox knows that {stream.confirmed} was stored: the log "
            f"has lost messages; use `oncelog relay resume --log-lost {stream.topic}`",
            topic=stream.topic,
            first=last + 1,
            last=stream.confirmed,
        )
    if happened is Happened.LOG_LOST and last >= stream.confirmed:
        raise OutboxDiverged(
            f"{stream.topic} ends at number {last}, and the outbox knows of {stream.confirmed} only: the log has lost "
            "nothing; if the database was restored, use `oncelog relay resume --after-restore`",
            topic=stream.topic,
            number=last,
        )


def undecided(stream: Stream, first_found: int, numbered: Sequence[int]) -> tuple[int, ...]:
    """Numbers of rows below the first message that the log still has: retention has deleted the messages under them, so
    nothing says whether they were those of the rows."""
    return tuple(number for number in numbered if stream.confirmed < number < first_found)
