"""What a send returns: a SendResult for one message, a BatchResult for a list. What an acknowledgement returns."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, overload

from oncelog.core.errors import OncelogError
from oncelog.core.formats.message_id import MessageId
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.ids import TopicId
from oncelog.core.sdk.producer.sequence_ids import BatchIds, ids_of


class TopicPartition(NamedTuple):
    """The parts of a message id that all messages of a topic share."""

    topic_id: TopicId
    partition: int


def message_id_at(topic: TopicPartition, stored: ResultRange, index: int) -> MessageId | None:
    """The id of the index-th message of a range; None when the owner does not remember its entry."""
    if stored.position is None:
        return None
    ledger_id, entry_id = stored.position
    return MessageId(topic.topic_id, topic.partition, ledger_id, entry_id, stored.offset + index)


class SendResult:
    """A message that is stored, by this send or by an earlier one.

    Attributes:
        sequence_id: the message's sequence id, given by the application or assigned.
        message_id: the message's position in the topic; None for a duplicate whose position is no longer remembered.
        duplicate: the message was stored before; this send wrote nothing.
        resent: the message is a duplicate only because the SDK repeated this very send after a lost answer. No other
            producer instance stored it.
        verified: False only for a monotonic sequence id that is older than all ids the topic owner remembers of the
            producer. Such a message was not stored now, and it is unknown whether it was ever stored.
        content_differs: of a duplicate: True: another message is stored under its id, or under the id of another
            message of its batch; only a producer with on_content_differs="accept" gets this result. False: the stored
            message is the same. None: unknown, or no duplicate.
    """

    __slots__ = ("_index", "_range", "_topic", "resent", "sequence_id")

    def __init__(
        self,
        topic: TopicPartition,
        stored: ResultRange,
        index: int,
        sequence_id: int,
        resent: bool,  # by position: one is made for every message
    ) -> None:
        self._topic = topic
        self._range = stored
        self._index = index
        self.sequence_id = sequence_id
        self.resent = resent

    @property
    def message_id(self) -> MessageId | None:
        return message_id_at(self._topic, self._range, self._index)

    @property
    def duplicate(self) -> bool:
        return self._range.kind is not ResultKind.STORED

    @property
    def verified(self) -> bool:
        return self._range.kind is not ResultKind.BELOW_MARK

    @property
    def content_differs(self) -> bool | None:
        return self._range.content_differs

    def __repr__(self) -> str:
        return (
            f"SendResult(message_id={self.message_id}, duplicate={self.duplicate}, resent={self.resent}, "
            f"verified={self.verified}, content_differs={self.content_differs}, sequence_id={self.sequence_id})"
        )


class AnsweredRange(NamedTuple):
    """Consecutive messages of one batch with the same result: `stored`, or `error` for each of them."""

    size: int
    stored: ResultRange | None
    resent: bool = False
    error: OncelogError | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether these are duplicates of another send whose content could not be compared with the stored one."""
        stored = self.stored
        return (
            stored is not None
            and stored.kind is ResultKind.DUPLICATE
            and not self.resent
            and stored.content_differs is None
        )


class AnsweredBatch:
    """One batch of a list. ids None: the batch failed without an answer."""

    __slots__ = ("_sequence_ids", "ids", "ranges", "size")

    def __init__(self, size: int, ids: BatchIds | None, ranges: list[AnsweredRange]) -> None:
        self.size = size
        self.ids = ids
        self.ranges = ranges
        self._sequence_ids: Sequence[int] | None = None

    def result_at(self, topic: TopicPartition, index: int) -> SendResult | OncelogError:
        within = index
        for answered in self.ranges:
            if within < answered.size:
                break
            within -= answered.size
        if answered.error is not None:
            return answered.error
        assert answered.stored is not None, "a range without an error is stored"
        assert self.ids is not None, "a stored range was answered"
        if self._sequence_ids is None:
            self._sequence_ids = ids_of(self.ids, self.size)
        return SendResult(topic, answered.stored, within, self._sequence_ids[index], answered.resent)


class MessageIds(Sequence[MessageId | None]):
    """The message ids of one list, computed on access; None for messages that failed or are not remembered."""

    __slots__ = ("_count", "_ranges", "_topic")

    def __init__(self, topic: TopicPartition, ranges: Sequence[AnsweredRange]) -> None:
        self._topic = topic
        self._ranges = ranges
        self._count = sum(answered.size for answered in ranges)

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
            for size, stored, _, _ in self._ranges:
                if at < size:
                    return None if stored is None else message_id_at(self._topic, stored, at)
                at -= size
        raise IndexError("message index out of range")

    def __repr__(self) -> str:
        return f"MessageIds({self._count}, first={self[0]}, last={self[-1]})" if self._count else "MessageIds(0)"

    def __iter__(self) -> Iterator[MessageId | None]:
        for size, stored, _, _ in self._ranges:
            for index in range(size):
                yield None if stored is None else message_id_at(self._topic, stored, index)


class SendResults(Sequence[SendResult | OncelogError]):
    """For each message of one list: its SendResult, or the error it failed with (see OncelogError for `stored`)."""

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


class BatchResult:
    """The result of a list of messages, message by message.

    `send_many` returns one when all messages are stored, by this send or by an earlier one. An error that `send_many`
    raises carries one as `error.result`; some of its messages have failed.

    Attributes:
        count: messages of the list; also `len(result)`.
        first, last: sequence ids of the first and the last message that was answered, -1 when there is none.
        duplicates: how many messages were stored before this send, including resent and unverified ones.
        unknown: how many of the duplicates may be other messages than the stored ones; see `unknown_ranges`.
        verified: False when any message is unverified; see SendResult.
        results: `results[i]` is the SendResult of message i, or the error it failed with.
        message_ids: a sequence with the MessageId of each message; None for those that failed.
        duplicate_ranges, resent_ranges, unverified_ranges, differing_ranges, unknown_ranges, failed_ranges: lists of
            `range`s of indexes into the list.
    """

    __slots__ = ("_batches", "_starts", "_topic", "count", "first", "last")

    def __init__(self, topic: TopicPartition, batches: Sequence[AnsweredBatch]) -> None:
        self._topic = topic
        self._batches = batches
        self._starts = [0]
        answered: list[BatchIds] = []
        for batch in batches:
            self._starts.append(self._starts[-1] + batch.size)
            if batch.ids is not None:
                answered.append(batch.ids)
        self.first = answered[0].first if answered else -1
        self.last = answered[-1].last if answered else -1
        self.count = self._starts[-1]

    @property
    def duplicates(self) -> int:
        return sum(map(len, self.duplicate_ranges))

    @property
    def unknown(self) -> int:
        return sum(map(len, self.unknown_ranges))

    @property
    def verified(self) -> bool:
        return not self.unverified_ranges

    @property
    def ranges(self) -> list[AnsweredRange]:
        """Consecutive messages of one batch with the same result, in the order of the list."""
        return [answered for batch in self._batches for answered in batch.ranges]

    def _indexes(self, wanted: Callable[[AnsweredRange], bool]) -> list[range]:
        ranges: list[range] = []
        at = 0
        for answered in self.ranges:
            if wanted(answered):
                joins = ranges and ranges[-1].stop == at
                start = ranges.pop().start if joins else at
                ranges.append(range(start, at + answered.size))
            at += answered.size
        return ranges

    @property
    def duplicate_ranges(self) -> list[range]:
        """Indexes of the messages that were stored before this send; see SendResult.duplicate."""
        return self._indexes(lambda r: r.stored is not None and r.stored.kind is not ResultKind.STORED)

    @property
    def resent_ranges(self) -> list[range]:
        """Indexes of the duplicates that the SDK's own resending caused; see SendResult.resent."""
        return self._indexes(lambda r: r.resent)

    @property
    def unverified_ranges(self) -> list[range]:
        """Indexes of the messages of which it is unknown whether they are stored; see SendResult.verified."""
        return self._indexes(lambda r: r.stored is not None and r.stored.kind is ResultKind.BELOW_MARK)

    @property
    def differing_ranges(self) -> list[range]:
        """Indexes of the duplicates with other content than the stored ones; see SendResult.content_differs."""
        return self._indexes(lambda r: r.stored is not None and r.stored.content_differs is True)

    @property
    def unknown_ranges(self) -> list[range]:
        """Indexes of the duplicates whose content could not be compared with the stored one, such as those of a list
        whose messages were sent one by one before. Resent and unverified ones are not among them."""
        return self._indexes(lambda r: r.is_unknown)

    @property
    def failed_ranges(self) -> list[range]:
        """Indexes of the messages that failed; `results` has each message's error."""
        return self._indexes(lambda r: r.error is not None)

    @property
    def message_ids(self) -> Sequence[MessageId | None]:
        return MessageIds(self._topic, self.ranges)

    @property
    def results(self) -> SendResults:
        return SendResults(self)

    def with_ranges(
        self, change: "Callable[[list[AnsweredRange], TopicPartition], list[AnsweredRange]]"
    ) -> "BatchResult":
        """The same messages with other results. change: of the ranges of one batch."""
        batches = [AnsweredBatch(b.size, b.ids, change(b.ranges, self._topic)) for b in self._batches]
        return BatchResult(self._topic, batches)

    def result_at(self, index: int) -> SendResult | OncelogError:
        """The result of the message at `index`, 0 to count - 1."""
        number = bisect_right(self._starts, index) - 1
        return self._batches[number].result_at(self._topic, index - self._starts[number])

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        failed = sum(map(len, self.failed_ranges))
        return (
            f"{type(self).__name__}(first={self.first}, last={self.last}, count={self.count}, "
            f"duplicates={self.duplicates}, unknown={self.unknown}, failed={failed})"
        )


class RoutedBatchResult(BatchResult):
    """The result of a list whose messages went to several partitions; `results` and ranges are in the list's order."""

    __slots__ = ("_parts", "_places")

    def __init__(self, places: Sequence[tuple[int, int]], parts: Mapping[int, BatchResult]) -> None:
        """places: (partition, index in the list that went there) of each message. parts: {partition: its result}."""
        self._parts = parts
        self._places = places
        self.count = len(places)
        ids = [part.first for part in parts.values()], [part.last for part in parts.values()]
        answered = [(first, last) for first, last in zip(*ids, strict=True) if last >= 0]
        self.first = min((first for first, _ in answered), default=-1)
        self.last = max((last for _, last in answered), default=-1)

    @property
    def ranges(self) -> list[AnsweredRange]:
        """One for each message, because neighbours of the list are in different partitions."""
        singles = {number: list(_singles(part.ranges)) for number, part in self._parts.items()}
        return [singles[number][index] for number, index in self._places]

    @property
    def message_ids(self) -> Sequence[MessageId | None]:
        ids = {number: list(part.message_ids) for number, part in self._parts.items()}
        return [ids[number][index] for number, index in self._places]

    def result_at(self, index: int) -> SendResult | OncelogError:
        number, within = self._places[index]
        return self._parts[number].result_at(within)


def _singles(ranges: Sequence[AnsweredRange]) -> Iterator[AnsweredRange]:
    for answered in ranges:
        one = answered._replace(size=1)
        for _ in range(answered.size):
            yield one


class PublishResult(NamedTuple):
    """The result of a `publish` with an idempotency key: the message is stored, once.

    Attributes:
        message_id: the message's position, the same for each call with the key; None if it is no longer remembered.
        replayed: another call with this key has stored the message, or this call's own earlier attempt.
    """

    message_id: MessageId | None
    replayed: bool


class AckResult(NamedTuple):
    """The result of an acknowledgement.

    Attributes:
        durable: True: the messages are never delivered again to this subscription, unless it is sought. False: the
            state of the topic's acknowledgements has reached its hard limit. The topic owner withholds the messages
            while it serves the topic, and stores the acknowledgement when there is room; the next owner may deliver
            them again.
        complete: False only for a cumulative acknowledgement: it ended before a message that this consumer has
            negatively acknowledged and not received again. What comes after that message is not acknowledged: repeat
            the call later, or acknowledge single messages.
    """

    durable: bool
    complete: bool = True
