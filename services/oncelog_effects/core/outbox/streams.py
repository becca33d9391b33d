"""One stream of an outbox: the rows of one topic or partition, under the numbers of a producer of its own.

`confirmed` is the highest number whose row is settled in the database: deleted, or marked as stored. The rows above it,
up to `next_number`, are numbered and not confirmed. What follows compares them with the log, after the producer was
opened:

    last number in the log    conclusion
    below `confirmed`         LogLostMessages: the log has lost what it had answered
    `confirmed`               nothing was sent since: send all numbered rows
    below `next_number`       read the messages: the rows with the same event ids are stored
    `next_number` or above    OutboxRestored: the log has numbers that this database never gave

Rules
- The producer is opened before the log is read: from then on no other relay stores anything (hazard
  log-read-before-the-producer-is-opened).
- A number counts as stored only if the message under it has the event id of the row (hazard duplicate-of-another-row).
- Numbers are given after the comparison only (hazard numbers-given-twice-after-a-restore).
"""

from collections.abc import Sequence
from typing import NamedTuple

from oncelog.core.counted import counted
from oncelog.core.outbox_errors import LogLostMessages, OutboxDiverged, OutboxRestored, TopicRecreated
from oncelog_effects.core.outbox.rows import NumberedRow

_RESUME = "stop all relays of this outbox, and run `oncelog relay resume"
AFTER_RESTORE = f"{_RESUME} --after-restore`"


class Stream(NamedTuple):
    """A row of the table of streams.

    number: its key in the table. topic: with the suffix of a partition. topic_id: 32 hexadecimal digits.
    confirmed: -1: nothing. confirmed_message: the id of the message with this number; empty: none.
    """

    number: int
    topic: str
    topic_id: str
    next_number: int = 0
    confirmed: int = -1
    confirmed_message: str = ""


class LogMessage(NamedTuple):
    """A message of the stream's producer. event_id: empty: it has none, so it is not of a relay."""

    number: int
    event_id: str
    message_id: str


def check_end(stream: Stream, numbered: Sequence[NumberedRow], topic_id: str, last: int, *, stored: int = -1) -> None:
    """numbered: above `confirmed`. last: the highest number in the log, -1: none. stored: numbers up to it were
    answered. Raises what the table above says, and TopicRecreated."""
    topic, stored = stream.topic, max(stored, stream.confirmed)
    if topic_id != stream.topic_id:
        raise TopicRecreated(
            f"the outbox has sent rows to topic {topic} with id {stream.topic_id}, and the cluster has it with id "
            f"{topic_id}: it was deleted and created again, or this is another cluster. To send all rows that are "
            f"left there, {_RESUME} --other-topic {topic}`",
            topic=topic,
        )
    if last < stored:
        raise LogLostMessages(
            f"the outbox knows that {topic} has stored its numbers up to {stored}, and the log ends at "
            f"{last}: it has lost {counted(stored - last, 'message')}, or was restored. To go on behind the loss, and "
            f"send those rows again that --keep has kept, {_RESUME} --log-lost {topic}`",
            topic=topic,
            first=last + 1,
            last=stored,
        )
    if last >= stream.next_number:
        raise OutboxRestored(
            f"the next number of the outbox for {topic} is {stream.next_number}, and the log has numbers up to "
            f"{last}: the database was restored to an older state, or two databases use one outbox id. "
            f"To leave out the rows that the log has, {AFTER_RESTORE}",
            topic=topic,
            last_sequence_id=last,
            next_number=stream.next_number,
        )
    wanted = range(stream.confirmed + 1, stream.next_number)
    missing = next((n for n, row in zip(wanted, numbered, strict=False) if row.number != n), None)
    if missing is None and len(numbered) != len(wanted):
        missing = wanted[len(numbered)] if len(numbered) < len(wanted) else numbered[len(wanted)].number
    if missing is not None:
        raise OutboxDiverged(
            f"the outbox has given the numbers {wanted.start} to {wanted.stop - 1} for {topic}, and its row with "
            f"number {missing} is missing or too much: rows were changed by hand. To number the others anew, "
            f"{AFTER_RESTORE}",
            topic=topic,
            number=missing,
        )


def check_found(stream: Stream, numbered: Sequence[NumberedRow], found: Sequence[LogMessage], last: int) -> None:
    """found: the messages of the producer behind `confirmed`, up to number `last`. Raises OutboxDiverged."""
    by_number = {message.number: message for message in found}
    for row in numbered:
        if row.number > last:
            return
        message = by_number.get(row.number)
        if message is None:
            raise OutboxDiverged(
                f"{stream.topic} has stored number {row.number} of the outbox (event {row.event_id}), and the message "
                f"is not in the log any more, so the two cannot be compared: retention has deleted it. {AFTER_RESTORE}",
                topic=stream.topic,
                number=row.number,
            )
        if message.event_id != row.event_id:
            raise OutboxDiverged(
                f"number {row.number} of the outbox is event {row.event_id}, and {stream.topic} has event "
                f"{message.event_id or '(none)'} under it in message {message.message_id}: the database was restored, "
                f"or two databases use one outbox id. To leave out the rows that the log has, {AFTER_RESTORE}",
                topic=stream.topic,
                number=row.number,
            )
