"""Acknowledgements of one consumer and one topic or partition: many calls become few requests.

What is acknowledged in one turn of the event loop goes into one request, as ranges. While several requests are
unanswered, later calls wait and are merged, so the number of requests depends on the owner's speed and not on the
number of messages. A single acknowledgement at a low rate is sent at once.

Of cumulative ones, one request is unanswered at a time. Those that are called meanwhile become one request of the
highest place, because the owner makes them durable after the first in any case, and each change in the log has a cost.
"""

import asyncio
from collections.abc import Callable, Iterable

from oncelog.client.consuming.consumer_driver import ConsumerDriver, Settled
from oncelog.client.values.results import AckResult
from oncelog.core.acks.changes import IndexRange
from oncelog.core.errors import OncelogError
from oncelog.core.ids import Generation, SeekEpoch
from oncelog.core.names import TopicName
from oncelog.core.sdk.consumer.index_set import IndexSet
from oncelog.core.sdk.partition_results import error_of_partitions

#: The owner makes one group of acknowledgements durable at a time: so many keep it busy.
REQUESTS_IN_FLIGHT = 4
#: Ranges of one request; the rest waits for the next one.
_RANGES_MAX = 8_192


#: Resolved when the request that carries the acknowledgement is answered.
AckFuture = asyncio.Future[AckResult]


class _Waiting:
    """Acknowledgements that wait for one request. count: calls; a flush adds futures of its own."""

    def __init__(self) -> None:
        self.futures: list[AckFuture] = []
        self.count = 0


class _Cumulative(_Waiting):
    """Cumulative ones of one grant, which wait for the answer to an earlier one."""

    def __init__(self) -> None:
        super().__init__()
        self.below = 0


class _Group(_Waiting):
    """Those of one seek epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.indexes = IndexSet()


class Acknowledgements:
    """Of one driver."""

    def __init__(self, driver: ConsumerDriver) -> None:
        self._driver = driver
        self._loop = asyncio.get_running_loop()
        self._groups: dict[SeekEpoch, _Group] = {}
        self._in_flight = 0
        self._scheduled = False
        self._cumulative: dict[tuple[SeekEpoch, Generation], _Cumulative] = {}
        self._cumulative_in_flight = 0
        #: calls that are not answered
        self.open_count = 0

    async def settled(self, *, reports: bool) -> None:
        """Return when what was acknowledged before is answered, or the consumer has ended. reports: also when the owner
        has what was reported before. Raises no error."""
        waiting: list[AckFuture] = []
        groups: list[_Waiting] = [*self._groups.values(), *self._cumulative.values()]
        for group in groups:
            future: AckFuture = self._loop.create_future()
            group.futures.append(future)
            waiting.append(future)
        if waiting:
            await asyncio.wait(waiting)
        await self._driver.flush(reports=reports)

    def add(self, seek_epoch: SeekEpoch, ranges: Iterable[IndexRange]) -> AckFuture:
        """Acknowledge these messages with the next request. The error of a future that nobody awaits is not logged: an
        acknowledgement that fails only means that the messages are delivered again."""
        group = self._groups.get(seek_epoch) or self._begin(seek_epoch)
        for first, last in ranges:
            group.indexes.add(first, last)
        return self._result(group)

    def add_one(self, seek_epoch: SeekEpoch, index: int) -> AckFuture:
        """The same for one message; applications call this for each message."""
        group = self._groups.get(seek_epoch) or self._begin(seek_epoch)
        group.indexes.add(index, index)
        return self._result(group)

    def add_below(self, seek_epoch: SeekEpoch, generation: Generation, below: int) -> AckFuture:
        """Acknowledge every message with an index lower than `below`."""
        future: AckFuture = self._loop.create_future()
        waiting = self._cumulative.setdefault((seek_epoch, generation), _Cumulative())
        waiting.below = max(waiting.below, below)
        waiting.futures.append(future)
        waiting.count += 1
        self.open_count += 1
        # Where a negative acknowledgement ends some of them earlier, the result of each is its own.
        if not self._cumulative_in_flight or self._driver.has_nacked:
            self._send_cumulative()
        return future

    def _send_cumulative(self) -> None:
        waiting, self._cumulative = self._cumulative, {}
        for (seek_epoch, generation), group in waiting.items():
            self._send_below(seek_epoch, generation, group)

    def _send_below(self, seek_epoch: SeekEpoch, generation: Generation, group: _Cumulative) -> None:
        def on_result(result: Settled) -> None:
            self._cumulative_in_flight -= 1
            self.open_count -= group.count
            settle(group.futures, [result])
            if not self._cumulative_in_flight:
                self._send_cumulative()

        self._cumulative_in_flight += 1
        self._driver.ack(seek_epoch, on_result, below=group.below, generation=generation)

    def send_before(self) -> None:
        """Send before a request that must not overtake them: all cumulative ones, and others as far as `send` does."""
        self._send_cumulative()
        self.send()

    def _begin(self, seek_epoch: SeekEpoch) -> _Group:
        group = self._groups[seek_epoch] = _Group()
        return group

    def _result(self, group: _Group) -> AckFuture:
        future: AckFuture = self._loop.create_future()
        group.futures.append(future)
        group.count += 1
        self.open_count += 1
        if not self._scheduled and self._in_flight < REQUESTS_IN_FLIGHT:
            self._scheduled = True
            self._loop.call_soon(self.send)
        return future

    def send(self) -> None:
        """Send what waits, as far as requests may be in flight."""
        self._scheduled = False
        while self._groups and self._in_flight < REQUESTS_IN_FLIGHT:
            seek_epoch = next(iter(self._groups))
            self._send(seek_epoch, self._groups.pop(seek_epoch))

    def _send(self, seek_epoch: SeekEpoch, group: _Group) -> None:
        ranges = tuple(group.indexes)
        parts = [ranges[at : at + _RANGES_MAX] for at in range(0, len(ranges), _RANGES_MAX)]
        results: list[Settled] = []

        def on_result(result: Settled) -> None:
            results.append(result)
            self._in_flight -= 1
            if len(results) == len(parts):
                self.open_count -= group.count
                settle(group.futures, results)
            self.send()

        self._in_flight += len(parts)
        for part in parts:
            self._driver.ack(seek_epoch, on_result, ranges=part)


def settle(futures: list[AckFuture], results: list[Settled]) -> None:
    """Resolve the futures with one result for all."""
    whole = _merged(results)
    for future in futures:
        if future.done():
            continue
        if isinstance(whole, AckResult):
            future.set_result(whole)
        else:
            future.set_exception(whole)
            future.exception()  # not logged if nobody awaits it


def _merged(results: list[Settled]) -> Settled:
    """The first error, or durable and complete if all results are."""
    error = next((result for result in results if isinstance(result, OncelogError)), None)
    if error is not None:
        return error
    good = [result for result in results if isinstance(result, AckResult)]
    return AckResult(all(result.durable for result in good), all(result.complete for result in good))


def promise() -> tuple[Callable[[Settled], None], AckFuture]:
    """A future, and the function that resolves it."""
    future: AckFuture = asyncio.get_running_loop().create_future()
    return lambda result: settle([future], [result]), future


def joined(futures: list[tuple[TopicName, AckFuture]]) -> AckFuture:
    """One future of the results of several topics or partitions. When some fail, the error says what was done."""
    if len(futures) == 1:
        return futures[0][1]
    whole: AckFuture = asyncio.get_running_loop().create_future()
    left = len(futures)

    def done(_: AckFuture) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            settle([whole], [_result_of_all(futures)])

    for _, future in futures:
        future.add_done_callback(done)
    if not futures:
        whole.set_result(AckResult(durable=True))
    return whole


def _result_of_all(futures: list[tuple[TopicName, AckFuture]]) -> Settled:
    results = [(topic, _settled(future)) for topic, future in futures]
    failed = {topic: result for topic, result in results if isinstance(result, OncelogError)}
    topics = {topic for topic, _ in results}
    if not failed or len(topics) == 1:
        return _merged([result for _, result in results])
    return error_of_partitions(failed, done=len(topics) - len(failed))


def _settled(future: AckFuture) -> Settled:
    error = future.exception()
    if error is None:
        return future.result()
    assert isinstance(error, OncelogError), "an acknowledgement fails with an error of the owner"
    return error
