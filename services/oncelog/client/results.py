"""What a send gives back: for one message a SendResult, for a list a BatchResult."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from oncelog.core.ids import TopicId
from oncelog.core.message_id import MessageId
from oncelog.core.outcome import Outcome, Part, PartKind
from oncelog.core.sequence_ids import BatchIds


class TopicPlace(NamedTuple):
    """What makes a position a message id."""

    topic_id: TopicId
    partition: int


def message_id_at(place: TopicPlace, part: Part, index: int) -> MessageId | None:
    """Id of the index-th message of a part; None where the owner no longer remembers the entry."""
    if part.position is None:
        return None
    ledger_id, entry_id = part.position
    return MessageId(place.topic_id, place.partition, ledger_id, entry_id, part.offset + index)


class SendResult:
    """The fate of one message: it is stored, now or before.

    sequence_id: given, or assigned. duplicate: it was stored before, nothing was written now. verified: False only for
    a monotonic id below everything that the owner remembers: it was not stored now, and whether it ever was is unknown.
    """

    __slots__ = ("_index", "_part", "_place", "sequence_id")

    def __init__(self, place: TopicPlace, part: Part, index: int, sequence_id: int) -> None:
        self._place = place
        self._part = part
        self._index = index
        self.sequence_id = sequence_id

    @property
    def message_id(self) -> MessageId | None:
        """Where it is; None for a duplicate whose place is no longer remembered."""
        return message_id_at(self._place, self._part, self._index)

    @property
    def duplicate(self) -> bool:
        return self._part.kind is not PartKind.STORED

    @property
    def verified(self) -> bool:
        return self._part.kind is not PartKind.BELOW_MARK

    def __repr__(self) -> str:
        return (
            f"SendResult(message_id={self.message_id}, duplicate={self.duplicate}, verified={self.verified}, "
            f"sequence_id={self.sequence_id})"
        )


class MessageIds(Sequence[MessageId | None]):
    """Ids of the messages of one send, made when asked for."""

    __slots__ = ("_count", "_parts", "_place")

    def __init__(self, place: TopicPlace, parts: Sequence[Part]) -> None:
        self._place = place
        self._parts = parts
        self._count = sum(part.count for part in parts)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> MessageId | None: ...
    @overload
    def __getitem__(self, index: slice) -> "list[MessageId | None]": ...
    def __getitem__(self, index: int | slice) -> "MessageId | list[MessageId | None] | None":
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        at = index + self._count if index < 0 else index
        if at >= 0:
            for part in self._parts:
                if at < part.count:
                    return message_id_at(self._place, part, at)
                at -= part.count
        raise IndexError("message index out of range")

    def __iter__(self) -> Iterator[MessageId | None]:
        for part in self._parts:
            for index in range(part.count):
                yield message_id_at(self._place, part, index)


class BatchResult:
    """The fate of a list of messages: all are stored, now or before.

    first, last: sequence ids of the first and last message, -1 for an empty list. count: messages. duplicates: how many
    of them were stored before. verified: see SendResult; False when it is for any. message_ids: in order, a sequence.
    """

    __slots__ = ("_place", "count", "duplicates", "first", "last", "parts", "verified")

    def __init__(self, place: TopicPlace, answers: Sequence[tuple[BatchIds, Outcome]]) -> None:
        self._place = place
        #: each stretch of messages with one fate, in order
        self.parts = [part for _, outcome in answers for part in outcome]
        self.first = answers[0][0].first if answers else -1
        self.last = answers[-1][0].last if answers else -1
        self.count = sum(part.count for part in self.parts)
        self.duplicates = sum(part.count for part in self.parts if part.kind is not PartKind.STORED)
        self.verified = all(part.kind is not PartKind.BELOW_MARK for part in self.parts)

    @property
    def message_ids(self) -> MessageIds:
        return MessageIds(self._place, self.parts)

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"BatchResult(first={self.first}, last={self.last}, count={self.count}, duplicates={self.duplicates})"
