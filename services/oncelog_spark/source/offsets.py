"""Offsets of a query as Spark keeps them, and the messages between two of them. Pure.

Each message of a partition has a dense number (the column `index`), which no roll of a ledger, takeover or trim
changes. So an offset is one number for each partition: that of the next message. "Topic" here means a topic without
partitions, or one partition.

    {"format": 1, "topics": {"public/default/flights": {"topic_id": "0123…", "next": 42}}}

Rules
- A topic that is missing in the start offset is read from its first message, number 0: it came after the query began.
- A topic of the same name with another id is another topic, and begins at 0, too.
- Once a topic is deleted, nothing shows whether it was read to its end. So its deletion is a loss (`gone_between`).
- Offsets do not go back by themselves. The owner has proved that it is current before it told the end of a topic, so
  an offset above that end is of a part of the log that was lost (hazard position-of-a-lost-part): a loss, too. If
  losses are allowed, the topic is read from its end on.
- Where an operator has given up a ledger, the log leaves out numbers (`GivenUpNumbers`). A batch of a stream ends
  before them or begins at them, and they are a loss like trimmed messages.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from oncelog.core.errors import InvalidArgument, NotFound
from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId

FORMAT = 1


class TopicOffset(NamedTuple):
    """Everything below `next` is read of the topic with this id."""

    topic_id: TopicId
    next: int


#: {full name of a topic, or of a partition: how far it is read}
TopicOffsets = Mapping[str, TopicOffset]


class GivenUpNumbers(NamedTuple):
    """Numbers first to end - 1 that the log leaves out, because an operator has given up a ledger: acknowledged
    messages may have been lost, and no number that a client received before is used again."""

    first: int
    end: int


class ClosedLedger(NamedTuple):
    """A ledger that can be read from storage nodes: messages first to end - 1 are in its entries 0 to last_entry.

    members: (incarnation, host:port or "" while it is not registered). length_bytes: of all of its entries.
    """

    ledger_id: LedgerId
    first: int
    end: int
    last_entry: EntryId
    members: tuple[tuple[Incarnation, str], ...]
    length_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TopicState:
    """The current state of one topic, or partition: it keeps the messages `earliest` to `next` - 1.

    closed: those of its ledgers that can be read without its owner, ascending; only numbers that were given up are
    missing between two of them. given_up: those above `earliest`, ascending.
    """

    topic: str
    topic_id: TopicId
    earliest: int
    next: int
    closed: tuple[ClosedLedger, ...] = ()
    given_up: tuple[GivenUpNumbers, ...] = ()

    def rows_between(self, first: int, end: int) -> int:
        """The number of messages with these numbers, of which those that were given up do not exist."""
        return end - first - sum(max(0, min(end, gap.end) - max(first, gap.first)) for gap in self.given_up)


class Span(NamedTuple):
    """The messages first to end - 1 of one topic."""

    topic: str
    topic_id: TopicId
    first: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.first


@dataclass(frozen=True, slots=True)
class TaskRange:
    """What one task reads. closed: the ledgers of it that are read from storage nodes."""

    span: Span
    closed: tuple[ClosedLedger, ...] = ()


class MessageLoss(NamedTuple):
    """Messages first to end - 1, which were to be read, are gone. kept: the first message that is left; None: the topic
    does not exist any more. end None: the topic was deleted, and nothing shows how many messages it had. given_up: an
    operator has given up the ledger that they were in. ahead: they were read already, and the log ends before them."""

    topic: str
    first: int
    end: int | None
    kept: int | None
    given_up: bool = False
    ahead: bool = False

    def __str__(self) -> str:
        if self.end is None:
            anew = "" if self.kept is None else " and created anew"
            return f"{self.topic} was deleted{anew}: its messages from number {self.first} on, if it had any, are gone"
        lost = f"messages {self.first} to {self.end - 1} of {self.topic}"
        if self.kept is None:
            return f"{lost} are gone: the topic was deleted"
        if self.ahead:
            return (
                f"{lost} were read before and the log has lost them: it ends at {self.first}, so that new messages get "
                "these numbers again"
            )
        if self.given_up:
            return (
                f"{lost} were given up with a ledger (`oncelog admin ledger end`) or with storage nodes "
                "(`oncelog admin backup restore --absent`): acknowledged messages may be lost, and the log leaves "
                f"these numbers out (the next message is {self.kept})"
            )
        return f"{lost} were trimmed (the first message kept is {self.kept})"


def encode_offset(offsets: TopicOffsets) -> dict[str, Any]:
    """As Spark's checkpoint keeps it: dicts of strings and integers."""
    topics = {topic: {"topic_id": offset.topic_id, "next": offset.next} for topic, offset in sorted(offsets.items())}
    return {"format": FORMAT, "topics": topics}


def decode_offset(stored: Mapping[str, Any]) -> dict[str, TopicOffset]:
    """Raises InvalidArgument for a checkpoint of another source, or of a later version."""
    if stored.get("format") != FORMAT:
        message = f"the checkpoint has no offset of format {FORMAT} of this source: {str(stored)[:200]}"
        raise InvalidArgument(message, field="checkpointLocation")
    return {
        topic: TopicOffset(TopicId(each["topic_id"]), int(each["next"])) for topic, each in stored["topics"].items()
    }


def offsets_at_end(states: Iterable[TopicState]) -> dict[str, TopicOffset]:
    """The offset behind all messages that are stored now."""
    return {state.topic: TopicOffset(state.topic_id, state.next) for state in states}


def not_before(offsets: TopicOffsets, start: TopicOffsets) -> dict[str, TopicOffset]:
    """`offsets`, and `start` for each topic where it is further."""
    return {
        topic: offset._replace(next=max(offset.next, begin_of(start, topic, offset)))
        for topic, offset in offsets.items()
    }


def begin_of(start: TopicOffsets, topic: str, end: TopicOffset) -> int:
    """The first message behind `start` of a topic whose end is `end`."""
    before = start.get(topic)
    return before.next if before is not None and before.topic_id == end.topic_id else 0


def spans_between(start: TopicOffsets, end: TopicOffsets) -> list[Span]:
    """The messages of a batch from one offset to the other, by topic."""
    spans = [Span(topic, offset.topic_id, begin_of(start, topic, offset), offset.next) for topic, offset in end.items()]
    return sorted(span for span in spans if span.rows > 0)


def gone_between(start: TopicOffsets, end: TopicOffsets) -> list[MessageLoss]:
    """Topics of `start` that were deleted before `end`, or deleted and created anew."""
    losses = []
    for topic, offset in sorted(start.items()):
        after = end.get(topic)
        if after is None or after.topic_id != offset.topic_id:
            losses.append(MessageLoss(topic, offset.next, None, None if after is None else 0))
    return losses


def ahead_of_end(start: TopicOffsets, states: Mapping[str, TopicState]) -> list[MessageLoss]:
    """Messages that were read and that their log has lost: those from its end up to the offset."""
    return [
        MessageLoss(topic, state.next, offset.next, state.next, ahead=True)
        for topic, offset in sorted(start.items())
        if (state := states.get(topic)) is not None and state.topic_id == offset.topic_id and state.next < offset.next
    ]


def up_to_given_up(
    latest: TopicOffsets, start: TopicOffsets, states: Mapping[str, TopicState]
) -> dict[str, TopicOffset]:
    """`latest`, but for each topic not beyond the first numbers behind `start` that were given up."""
    cut = {}
    for topic, offset in latest.items():
        begin, state = begin_of(start, topic, offset), states.get(topic)
        gaps = () if state is None or state.topic_id != offset.topic_id else state.given_up
        cut[topic] = offset._replace(next=min([offset.next, *(gap.first for gap in gaps if gap.first > begin)]))
    return cut


def offsets_after(
    start: TopicOffsets, latest: TopicOffsets, admitted: Iterable[Span], losses: Iterable[MessageLoss] = ()
) -> dict[str, TopicOffset]:
    """The offset behind a batch: how far each topic of `latest` is read once `admitted` was read.

    losses: of topics without a message that could be admitted; these topics are passed over up to there.
    """
    ends = {loss.topic: loss.end for loss in losses if loss.end is not None}
    ends |= {span.topic: span.end for span in admitted}
    return {
        topic: offset._replace(next=ends.get(topic, begin_of(start, topic, offset))) for topic, offset in latest.items()
    }


def kept_of(spans: Iterable[Span], states: Mapping[str, TopicState]) -> tuple[list[Span], list[MessageLoss]]:
    """Those of the messages that are still kept, and those that are lost."""
    kept: list[Span] = []
    losses: list[MessageLoss] = []
    for span in spans:
        state = states.get(span.topic)
        if state is None or state.topic_id != span.topic_id:
            losses.append(MessageLoss(span.topic, span.first, span.end, None))
            continue
        first = max(span.first, min(state.earliest, span.end))
        if first > span.first:
            losses.append(MessageLoss(span.topic, span.first, first, state.earliest))
        for gap in state.given_up:
            if gap.end > first and gap.first < span.end:
                if gap.first > first:
                    kept.append(span._replace(first=first, end=gap.first))
                lost = max(first, gap.first), min(gap.end, span.end)
                losses.append(MessageLoss(span.topic, *lost, gap.end, given_up=True))
                first = lost[1]
        if first < span.end:
            kept.append(span._replace(first=first))
    return kept, losses


def refuse_loss(losses: Iterable[MessageLoss]) -> None:
    """Raises NotFound for the first loss, and names the option that allows it."""
    for loss in losses:
        message = f"{loss}. To continue with the messages that are kept, set the option failOnDataLoss to false"
        raise NotFound(message, field="failOnDataLoss", topic=loss.topic)


def lag_between(behind: TopicOffsets, latest: TopicOffsets, states: Mapping[str, TopicState]) -> dict[str, Any]:
    """Messages behind an offset: {"rows": in all, "topics": {topic: how many}}, without topics that have none."""
    spans = spans_between(behind, latest)
    rows = {span.topic: states[span.topic].rows_between(span.first, span.end) for span in spans}
    waiting = {topic: count for topic, count in rows.items() if count}
    return {"rows": sum(waiting.values()), "topics": waiting}


def split(span: Span, rows_max: int | None) -> list[Span]:
    """The span in pieces of about the same size, none above rows_max; None: one piece."""
    if rows_max is None or span.rows <= rows_max:
        return [span]
    count = -(-span.rows // rows_max)
    cuts = [span.first + span.rows * number // count for number in range(count + 1)]
    return [span._replace(first=first, end=end) for first, end in pairwise(cuts)]


def ledgers_of(span: Span, state: TopicState) -> tuple[ClosedLedger, ...]:
    """The closed ledgers with messages of the span."""
    return tuple(ledger for ledger in state.closed if ledger.first < span.end and ledger.end > span.first)
