"""The results of batches that are not answered yet: futures of messages and of lists, and tasks that wait for a flush.

Unverified messages (see `duplicates`) are counted. Where they are accepted, the first ones of a producer are logged as
a warning. So are the first duplicates whose content is unknown, unless other content is accepted.
"""

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import compress, islice
from typing import Any, Protocol

from oncelog.client.network.session_driver import SessionDriver
from oncelog.client.producing.duplicates import DuplicateRules, OnContentDiffers, OnUnverified
from oncelog.client.producing.send_buffer import PackedBatch, call, fail
from oncelog.client.values.results import AnsweredBatch, AnsweredRange, BatchResult, SendResult, TopicPartition
from oncelog.core.errors import OncelogError, StaleSequence
from oncelog.core.formats.outcome import ResultKind
from oncelog.core.sdk.producer.events import Complete
from oncelog.core.sdk.producer.sequence_ids import BatchIds, ids_of

#: Documented names: applications filter or silence the warnings by them.
logger = logging.getLogger("oncelog.client.unverified")
unknown_content_logger = logging.getLogger("oncelog.client.unknown_content")
_IDS_SHOWN_MAX = 5


class PendingResult(Protocol):
    """Receives the result of one batch, exactly once."""

    def completed(self, topic: TopicPartition, ids: BatchIds, ranges: list[AnsweredRange]) -> None: ...
    def failed(self, error: OncelogError) -> None: ...


class PendingMessages:
    """A batch of single messages, each with its own future or callback."""

    __slots__ = ("_ids", "_receivers")

    def __init__(self, packed: PackedBatch) -> None:
        self._receivers = packed.receivers
        self._ids = packed.ids

    def completed(self, topic: TopicPartition, ids: BatchIds, ranges: list[AnsweredRange]) -> None:
        given: Sequence[int] = self._ids if self._ids is not None else range(ids.first, ids.last + 1)
        rows = zip(self._receivers, given, strict=True)
        future_class = asyncio.Future
        for size, stored, resent, error in ranges:
            for index, (receiver, sequence_id) in enumerate(islice(rows, size)):
                if stored is None:
                    if error is not None:
                        fail(receiver, error)
                elif not isinstance(receiver, future_class):
                    call(receiver, SendResult(topic, stored, index, sequence_id, resent), None)
                elif not receiver.done():
                    receiver.set_result(SendResult(topic, stored, index, sequence_id, resent))

    def failed(self, error: OncelogError) -> None:
        for receiver in self._receivers:
            fail(receiver, error)


class PendingList:
    """All batches of one list, with one future for the list."""

    def __init__(self) -> None:
        #: why the rest of the list cannot be sent
        self.error: OncelogError | None = None
        #: one item for each batch that was sent; None: not answered yet
        self._batches: list[AnsweredBatch | None] = []
        self._unanswered = 0
        self._done: asyncio.Future[None] | None = None

    def batch(self, count: int) -> "PendingListBatch":
        """The pending result of the list's next batch, which has `count` messages."""
        self._batches.append(None)
        self._unanswered += 1
        return PendingListBatch(self, len(self._batches) - 1, count)

    def answered(self, number: int, batch: AnsweredBatch) -> None:
        self._batches[number] = batch
        self._unanswered -= 1
        if not self._unanswered and self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def result(self, driver: SessionDriver[Any, Any, Any], *, unsent: int) -> BatchResult:
        """Wait for all batches that were sent. Returns the result when all messages are stored.

        driver: of the list's topic or partition. unsent: messages of the list that were not sent, because of `error`.
        Raises the first error, which carries the result.
        """
        if self._unanswered:
            self._done = asyncio.get_running_loop().create_future()
            await self._done
        batches = [batch for batch in self._batches if batch is not None]
        if unsent and self.error is not None:
            error = self.error.of_send(stored=False)
            batches.append(AnsweredBatch(unsent, None, [AnsweredRange(unsent, None, error=error)]))
        return without_errors(BatchResult(driver.topic_partition, batches))


def without_errors(result: BatchResult) -> BatchResult:
    """Raises the first error of a message, which carries the result."""
    failed = [answered for answered in result.ranges if answered.error is not None]
    if failed:
        raise _error_of_list(failed, result)
    return result


def _error_of_list(failed: Sequence[AnsweredRange], result: BatchResult) -> OncelogError:
    """The first error, stated for the whole list. Its `stored` is False when no message of the list is stored."""
    first = failed[0].error
    assert first is not None, "failed ranges have an error"
    count = sum(answered.size for answered in failed)
    if count == result.count and all(answered.error and answered.error.stored is False for answered in failed):
        whole = first.of_send(stored=False)
    else:
        # Some messages may be stored, whatever is known of the first failed one.
        message = f"{count} of {result.count} messages failed; the first: {first.cause}"
        whole = type(first)(message, **first.details)
        whole.stored = None
        whole.__cause__ = first
    whole.result = result
    return whole


class PendingListBatch:
    """One batch of a list."""

    __slots__ = ("_count", "_list", "_number")

    def __init__(self, whole: PendingList, number: int, count: int) -> None:
        self._list = whole
        self._number = number
        self._count = count

    def completed(self, _topic: TopicPartition, ids: BatchIds, ranges: list[AnsweredRange]) -> None:
        self._list.answered(self._number, AnsweredBatch(self._count, ids, ranges))

    def failed(self, error: OncelogError) -> None:
        if not isinstance(error, StaleSequence):
            self._list.error = self._list.error or error
        failed = AnsweredBatch(self._count, None, [AnsweredRange(self._count, None, error=error)])
        self._list.answered(self._number, failed)


class PendingResults:
    """All pending results of one producer: {request: its pending result}; the requests ascend."""

    def __init__(self, topic: str, rules: DuplicateRules) -> None:
        #: messages that were answered as unverified so far
        self.unverified_count = 0
        self._topic = topic
        self._rules = rules
        self._warned_of_content = rules.on_content_differs is OnContentDiffers.ACCEPT
        self._results: dict[int, PendingResult] = {}
        self._last_request = 0
        #: (request, done when everything up to the request is answered)
        self._flushes: deque[tuple[int, asyncio.Future[None]]] = deque()

    def add(self, result: PendingResult, *, chunks: int = 0) -> int:
        """Returns the batch's request number. chunks: so many numbers before it are its own, too."""
        self._last_request += 1 + chunks
        self._results[self._last_request] = result
        return self._last_request

    def complete(self, answer: Complete, topic: TopicPartition, producer_name: str) -> None:
        """A batch was answered: give each of its messages its result."""
        outcome = answer.outcome
        if len(outcome) == 1 and outcome[0].kind is ResultKind.STORED:  # nearly every answer
            ranges = [AnsweredRange(outcome[0].count, outcome[0])]
        else:
            self._count_unverified(answer, producer_name)
            ranges = self._rules.applied(_answered_ranges(answer), topic)
            if not self._warned_of_content:
                self._warn_of_content(ranges, answer, producer_name)
        self._take(answer.request).completed(topic, answer.ids, ranges)

    def fail(self, request: int, error: OncelogError) -> None:
        self._take(request).failed(error)

    def _take(self, request: int) -> PendingResult:
        result = self._results.pop(request)
        if self._flushes:
            oldest = next(iter(self._results), self._last_request + 1)
            while self._flushes and self._flushes[0][0] < oldest:
                flushed = self._flushes.popleft()[1]
                if not flushed.done():
                    flushed.set_result(None)
        return result

    async def all_answered(self) -> None:
        """Return when everything sent until now is answered, with a success or an error."""
        if self._results:
            flushed = asyncio.get_running_loop().create_future()
            self._flushes.append((self._last_request, flushed))
            await flushed

    def _count_unverified(self, answer: Complete, producer_name: str) -> None:
        count = sum(result.count for result in answer.outcome if result.kind is ResultKind.BELOW_MARK)
        if count and not self.unverified_count and self._rules.on_unverified is OnUnverified.ACCEPT:
            # The unverified ids are the lowest of their batch.
            ids = ids_of(answer.ids, sum(result.count for result in answer.outcome))[:count]
            logger.warning(
                "producer %r on %s: %d messages were not stored, because their sequence ids are older than all ids "
                "that the log remembers of this producer: %s. It is unknown whether they were ever stored; if they are "
                "new, they are lost: send them with sequence ids above last_sequence_id or under another producer "
                "name. This warning is logged once per producer; unverified_count has the current count",
                producer_name, self._topic, count, _shown(ids),
            )  # fmt: skip
        self.unverified_count += count

    def _warn_of_content(self, ranges: Sequence[AnsweredRange], answer: Complete, producer_name: str) -> None:
        unknown = [each for answered in ranges for each in [answered.is_unknown] * answered.size]
        if not any(unknown):
            return
        self._warned_of_content = True
        ids = [*compress(ids_of(answer.ids, len(unknown)), unknown)]
        unknown_content_logger.warning(
            "producer %r on %s: messages are stored under the sequence ids of %d messages already: %s. It is unknown "
            "whether they are the same messages, because the log compares only batches that have the same ids as a "
            "stored one, and no compression. If your program repeats what it has sent before, all is well; if the "
            "messages are new, they are lost: send them with sequence ids above last_sequence_id. Lists that are sent "
            "again as they were, or messages that are sent one by one both times, can be compared. This warning is "
            "logged once per producer; `unknown_ranges` of each BatchResult has the messages",
            producer_name, self._topic, len(ids), _shown(ids),
        )  # fmt: skip


def _shown(ids: Sequence[int]) -> str:
    shown = ", ".join(map(str, islice(ids, _IDS_SHOWN_MAX)))
    return shown if len(ids) <= _IDS_SHOWN_MAX else f"{shown} … {ids[-1]}"


def _answered_ranges(answer: Complete) -> list[AnsweredRange]:
    """The results of an answered batch, in order."""
    ranges: list[AnsweredRange] = []
    at = 0
    #: index of the first message that only this send can have stored
    own_from = None
    if answer.own_above is not None:
        ids = ids_of(answer.ids, sum(result.count for result in answer.outcome))
        own_from = bisect_right(ids, answer.own_above)
    for result in answer.outcome:
        if result.kind is ResultKind.STALE_SEQUENCE:
            ranges.append(AnsweredRange(result.count, None, error=_stale(answer)))
        elif own_from is None or result.kind is not ResultKind.DUPLICATE:
            ranges.append(AnsweredRange(result.count, result))
        else:
            before = min(max(own_from - at, 0), result.count)
            if before:
                ranges.append(AnsweredRange(before, result._replace(count=before)))
            if before < result.count:
                own = result._replace(count=result.count - before, offset=result.offset + before)
                ranges.append(AnsweredRange(own.count, own, resent=True))
        at += result.count
    return ranges


def _stale(answer: Complete) -> StaleSequence:
    mark = answer.high_water
    below = f"the sequence id is below {mark}, the highest id of this producer"
    message = f"{below}, and was never stored: use an id above {mark}"
    return StaleSequence(message, high_water=answer.high_water).of_send(stored=False)
