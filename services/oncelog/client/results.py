"""What a send gives back: for one message a SendResult, for a list a BatchResult."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple, overload

from oncelog.client.unverified import OnUnverified
from oncelog.core.errors import OncelogError, StaleSequence, UnverifiedSequence
from oncelog.core.formats.message_id import MessageId
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import TopicId
from oncelog.core.producer.events import Complete
from oncelog.core.producer.sequence_ids import BatchIds, ids_of


class TopicPlace(NamedTuple):
    """What makes a position a message id."""

    topic_id: TopicId
    partition: int


def message_id_at(place: TopicPlace, part: ResultRange, index: int) -> MessageId | None:
    """Id of the index-th message of a part; None where the owner no longer remembers the entry."""
    if part.position is None:
        return None
    ledger_id, entry_id = part.position
    return MessageId(place.topic_id, place.partition, ledger_id, entry_id, part.offset + index)


class SendResult:
    """The fate of one message: it is stored, now or before.

    sequence_id: given, or assigned. duplicate: it was stored before, nothing was written by the sending that this
    answers. resent: a duplicate of the producer's own earlier sending, which the SDK repeated, for its answer was lost;
    nobody else has stored it. verified: False only for a monotonic id below everything that the owner remembers: it was
    not stored now, and whether it ever was is unknown.
    """

    __slots__ = ("_index", "_part", "_place", "resent", "sequence_id")

    def __init__(
        self, place: TopicPlace, part: ResultRange, index: int, sequence_id: int, *, resent: bool = False
    ) -> None:
        self._place = place
        self._part = part
        self._index = index
        self.sequence_id = sequence_id
        self.resent = resent

    @property
    def message_id(self) -> MessageId | None:
        """Where it is; None for a duplicate whose place is no longer remembered."""
        return message_id_at(self._place, self._part, self._index)

    @property
    def duplicate(self) -> bool:
        return self._part.kind is not ResultKind.STORED

    @property
    def verified(self) -> bool:
        return self._part.kind is not ResultKind.BELOW_MARK

    def __repr__(self) -> str:
        return (
            f"SendResult(message_id={self.message_id}, duplicate={self.duplicate}, resent={self.resent}, "
            f"verified={self.verified}, sequence_id={self.sequence_id})"
        )


_UNVERIFIED = (
    "the sequence id is older than everything that the log remembers of this producer: it was not stored now, whether "
    "it ever was is not known, and sending it again tells nothing more; if it is new, send it under an id above "
    "last_sequence_id or under another name"
)


class Stretch(NamedTuple):
    """Consecutive messages of one batch with one fate. part None: they failed, each with `error`."""

    size: int
    part: ResultRange | None
    resent: bool = False
    error: OncelogError | None = None


def stretches_of(answer: Complete, on_unverified: OnUnverified = OnUnverified.ACCEPT) -> list[Stretch]:
    """The fates of a batch that was answered, in order."""
    stretches: list[Stretch] = []
    at = 0
    own_from = None if answer.own_above is None else _first_above(answer)
    for part in answer.outcome:
        if part.kind is ResultKind.STALE_SEQUENCE:
            stretches.append(Stretch(part.count, None, error=_stale(answer)))
        elif part.kind is ResultKind.BELOW_MARK and on_unverified is OnUnverified.RAISE:
            stretches.append(Stretch(part.count, None, error=UnverifiedSequence(_UNVERIFIED)))
        elif own_from is None or part.kind is not ResultKind.DUPLICATE:
            stretches.append(Stretch(part.count, part))
        else:
            before = min(max(own_from - at, 0), part.count)
            if before:
                stretches.append(Stretch(before, part._replace(count=before)))
            if before < part.count:
                own = part._replace(count=part.count - before, offset=part.offset + before)
                stretches.append(Stretch(own.count, own, resent=True))
        at += part.count
    return stretches


def _first_above(answer: Complete) -> int:
    """Index of the first message of the batch whose id is above `own_above`."""
    assert answer.own_above is not None, "asked only where it is set"
    count = sum(part.count for part in answer.outcome)
    return bisect_right(ids_of(answer.ids, count), answer.own_above)


def _stale(answer: Complete) -> StaleSequence:
    message = f"the sequence id is below the mark {answer.high_water} and was never stored"
    return StaleSequence(message, high_water=answer.high_water).of_send(stored=False)


class MessageIds(Sequence[MessageId | None]):
    """Ids of the messages of one send, made when asked for."""

    __slots__ = ("_count", "_place", "_stretches")

    def __init__(self, place: TopicPlace, stretches: Sequence[Stretch]) -> None:
        self._place = place
        self._stretches = stretches
        self._count = sum(stretch.size for stretch in stretches)

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
            for stretch in self._stretches:
                if at < stretch.size:
                    return None if stretch.part is None else message_id_at(self._place, stretch.part, at)
                at -= stretch.size
        raise IndexError("message index out of range")

    def __iter__(self) -> Iterator[MessageId | None]:
        for stretch in self._stretches:
            for index in range(stretch.size):
                yield None if stretch.part is None else message_id_at(self._place, stretch.part, index)


class SendResults(Sequence[SendResult | OncelogError]):
    """What became of each message of one list: a SendResult, or why it failed (`error.stored`: see OncelogError)."""

    __slots__ = ("_batch",)

    def __init__(self, batch: "BatchResult") -> None:
        self._batch = batch

    def __len__(self) -> int:
        return self._batch.count

    @overload
    def __getitem__(self, index: int) -> SendResult | OncelogError: ...
    @overload
    def __getitem__(self, index: slice) -> "list[SendResult | OncelogError]": ...
    def __getitem__(self, index: int | slice) -> "SendResult | OncelogError | list[SendResult | OncelogError]":
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError("message index out of range")
        return self._batch.result_at(at)


class Piece:
    """One batch of a list. ids None: it failed before it was answered."""

    __slots__ = ("_sequence_ids", "ids", "size", "stretches")

    def __init__(self, size: int, ids: BatchIds | None, stretches: list[Stretch]) -> None:
        self.size = size
        self.ids = ids
        self.stretches = stretches
        self._sequence_ids: Sequence[int] | None = None

    def result_at(self, place: TopicPlace, index: int) -> SendResult | OncelogError:
        within = index
        for stretch in self.stretches:
            if within < stretch.size:
                break
            within -= stretch.size
        if stretch.error is not None:
            return stretch.error
        assert stretch.part is not None, "what did not fail has its part"
        assert self.ids is not None, "and was answered"
        if self._sequence_ids is None:
            self._sequence_ids = ids_of(self.ids, self.size)
        return SendResult(place, stretch.part, within, self._sequence_ids[index], resent=stretch.resent)


class BatchResult:
    """The fate of a list of messages, message by message. What `send_many` returns: all are stored, now or before.

    As the `result` of an error that `send_many` raised, some have failed. first, last: sequence ids of the first and
    last message that was answered, -1 for none. count: messages of the list. duplicates: how many of them were stored
    before, resent and unverified ones among them. verified: see SendResult; False when it is for any.

    Which ones: `duplicate_ranges`, `resent_ranges`, `unverified_ranges` and `failed_ranges` are lists of `range`s of
    indexes into the list; `results[i]` is the SendResult, or the error, of the message at index i. message_ids: in
    order, a sequence; None for what failed.
    """

    __slots__ = ("_place", "_starts", "count", "duplicates", "first", "last", "pieces", "verified")

    def __init__(self, place: TopicPlace, pieces: Sequence[Piece]) -> None:
        self._place = place
        self.pieces = pieces
        self._starts = list(accumulate((piece.size for piece in pieces), initial=0))
        answered = [piece.ids for piece in pieces if piece.ids is not None]
        self.first = answered[0].first if answered else -1
        self.last = answered[-1].last if answered else -1
        self.count = self._starts[-1]
        self.duplicates = sum(map(len, self.duplicate_ranges))
        self.verified = not self.unverified_ranges

    @property
    def stretches(self) -> list[Stretch]:
        """Each stretch of messages with one fate, in order."""
        return [stretch for piece in self.pieces for stretch in piece.stretches]

    def _ranges(self, told: Callable[[Stretch], bool]) -> list[range]:
        ranges: list[range] = []
        at = 0
        for stretch in self.stretches:
            if told(stretch):
                joins = ranges and ranges[-1].stop == at
                start = ranges.pop().start if joins else at
                ranges.append(range(start, at + stretch.size))
            at += stretch.size
        return ranges

    @property
    def duplicate_ranges(self) -> list[range]:
        """Indexes of the messages that were stored before; see SendResult.duplicate."""
        return self._ranges(lambda s: s.part is not None and s.part.kind is not ResultKind.STORED)

    @property
    def resent_ranges(self) -> list[range]:
        """Indexes of the duplicates of this producer's own earlier sending; see SendResult.resent."""
        return self._ranges(lambda s: s.resent)

    @property
    def unverified_ranges(self) -> list[range]:
        """Indexes of the messages for which it is unknown whether they are stored; see SendResult.verified."""
        return self._ranges(lambda s: s.part is not None and s.part.kind is ResultKind.BELOW_MARK)

    @property
    def failed_ranges(self) -> list[range]:
        """Indexes of the messages that failed; `results` tells of each why, and whether it may be stored."""
        return self._ranges(lambda s: s.error is not None)

    @property
    def message_ids(self) -> MessageIds:
        return MessageIds(self._place, self.stretches)

    @property
    def results(self) -> SendResults:
        return SendResults(self)

    def result_at(self, index: int) -> SendResult | OncelogError:
        """Of the message at `index`, 0 to count - 1."""
        number = bisect_right(self._starts, index) - 1
        return self.pieces[number].result_at(self._place, index - self._starts[number])

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        failed = sum(map(len, self.failed_ranges))
        return (
            f"BatchResult(first={self.first}, last={self.last}, count={self.count}, duplicates={self.duplicates}, "
            f"failed={failed})"
        )
