"""How far a query has read, as Spark keeps it, and what that makes of a topic's log. Pure.

Each message of a topic has a dense number (`index` of the source's columns), which no roll of a ledger, takeover or
trim changes. So an offset is one number a topic: that of the next message. What lies between two is a subtraction.

    {"format": 1, "topics": {"public/default/flights": {"topic_id": "0123…", "next": 42}}}

Rules
- A topic that the beginning does not know is read from its first message, number 0: it came after the query began.
- A topic of the same name with another id is another topic, and begins at 0, too.
- Whether a topic was read to its end cannot be known once it is deleted, so its deletion is a loss (`gone_between`).
- An owner that was deposed may tell an older end: what was read before stays read.
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


#: {full name of a topic, or of a part: how far it is read}
TopicOffsets = Mapping[str, TopicOffset]


class ClosedLedger(NamedTuple):
    """A ledger that storage nodes can give: messages first to end - 1 are in its entries 0 to last_entry.

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
    """What the cluster says of one topic, or part, now: it keeps the messages `earliest` to `next` - 1.

    closed: those of its ledgers that need no owner, ascending and without a gap between them.
    """

    topic: str
    topic_id: TopicId
    earliest: int
    next: int
    closed: tuple[ClosedLedger, ...] = ()


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
    """What one task reads. closed: the ledgers in it that storage nodes are asked for; () for none."""

    span: Span
    closed: tuple[ClosedLedger, ...] = ()


class MessageLoss(NamedTuple):
    """Messages first to end - 1, which were to be read, are gone. kept: the first that is left, None: the topic is not
    there any more. end None: the topic was deleted, and how many messages it had is not known."""

    topic: str
    first: int
    end: int | None
    kept: int | None

    def __str__(self) -> str:
        if self.end is None:
            anew = "" if self.kept is None else " and made anew"
            return f"{self.topic} was deleted{anew}: its messages from number {self.first} on, if it had any, are gone"
        lost = f"messages {self.first} to {self.end - 1} of {self.topic}"
        if self.kept is None:
            return f"{lost} are gone: the topic was deleted"
        return f"{lost} were trimmed away: what is kept begins with message {self.kept}"


def encode_offset(marks: TopicOffsets) -> dict[str, Any]:
    """As Spark's checkpoint keeps it: dicts of texts and integers."""
    topics = {topic: {"topic_id": mark.topic_id, "next": mark.next} for topic, mark in sorted(marks.items())}
    return {"format": FORMAT, "topics": topics}


def decode_offset(offset: Mapping[str, Any]) -> dict[str, TopicOffset]:
    """Raises InvalidArgument: a checkpoint of another source, or of a later version."""
    if offset.get("format") != FORMAT:
        message = f"the checkpoint holds no offset of format {FORMAT} of this source: {str(offset)[:200]}"
        raise InvalidArgument(message, field="checkpointLocation")
    return {
        topic: TopicOffset(TopicId(told["topic_id"]), int(told["next"])) for topic, told in offset["topics"].items()
    }


def offsets_at_end(states: Iterable[TopicState]) -> dict[str, TopicOffset]:
    """The offset behind everything that is there now."""
    return {state.topic: TopicOffset(state.topic_id, state.next) for state in states}


def not_before(marks: TopicOffsets, start: TopicOffsets) -> dict[str, TopicOffset]:
    """`marks`, but for a topic that `start` has read further."""
    return {topic: mark._replace(next=max(mark.next, begin_of(start, topic, mark))) for topic, mark in marks.items()}


def begin_of(start: TopicOffsets, topic: str, end: TopicOffset) -> int:
    """The first message behind `start` of the topic that `end` speaks of."""
    before = start.get(topic)
    return before.next if before is not None and before.topic_id == end.topic_id else 0


def spans_between(start: TopicOffsets, end: TopicOffsets) -> list[Span]:
    """What a batch from one offset to the other holds, by topic."""
    spans = [Span(topic, mark.topic_id, begin_of(start, topic, mark), mark.next) for topic, mark in end.items()]
    return sorted(span for span in spans if span.rows > 0)


def gone_between(start: TopicOffsets, end: TopicOffsets) -> list[MessageLoss]:
    """Topics that were read up to `start` and are not the same at `end`: deleted, or deleted and made anew."""
    losses = []
    for topic, mark in sorted(start.items()):
        after = end.get(topic)
        if after is None or after.topic_id != mark.topic_id:
            losses.append(MessageLoss(topic, mark.next, None, None if after is None else 0))
    return losses


def offsets_after(start: TopicOffsets, latest: TopicOffsets, admitted: Iterable[Span]) -> dict[str, TopicOffset]:
    """The offset behind a batch: where each topic of `latest` is once `admitted` was read."""
    ends = {span.topic: span.end for span in admitted}
    return {topic: mark._replace(next=ends.get(topic, begin_of(start, topic, mark))) for topic, mark in latest.items()}


def kept_of(spans: Iterable[Span], states: Mapping[str, TopicState]) -> tuple[list[Span], list[MessageLoss]]:
    """What of the spans is still there, and what was lost of them."""
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
        if first < span.end:
            kept.append(span._replace(first=first))
    return kept, losses


def refuse_loss(losses: Iterable[MessageLoss]) -> None:
    """Raises NotFound for the first loss, with the option that reads on in spite of it."""
    for loss in losses:
        message = f"{loss}. To go on with what there is, set the option failOnDataLoss to false"
        raise NotFound(message, field="failOnDataLoss", topic=loss.topic)


def lag_between(behind: TopicOffsets, latest: TopicOffsets) -> dict[str, Any]:
    """Messages that wait behind an offset: {"rows": in all, "topics": {topic: how many}}, topics that lag alone."""
    waiting = {span.topic: span.rows for span in spans_between(behind, latest)}
    return {"rows": sum(waiting.values()), "topics": waiting}


def split(span: Span, rows_max: int | None) -> list[Span]:
    """The span in pieces of about one size, none above rows_max; None: whole."""
    if rows_max is None or span.rows <= rows_max:
        return [span]
    count = -(-span.rows // rows_max)
    cuts = [span.first + span.rows * number // count for number in range(count + 1)]
    return [span._replace(first=first, end=end) for first, end in pairwise(cuts)]


def ledgers_of(span: Span, state: TopicState) -> tuple[ClosedLedger, ...]:
    """The closed ledgers that hold messages of the span."""
    return tuple(ledger for ledger in state.closed if ledger.first < span.end and ledger.end > span.first)
