"""The partitions of a topic: work on all of them, and new ones while a producer, reader or consumer is open."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from oncelog.client.network.backoff import persist
from oncelog.client.network.lookup import PartitionCounts
from oncelog.client.network.network import Network
from oncelog.core.errors import OncelogError
from oncelog.core.names import TopicName

logger = logging.getLogger(__name__)

#: Partitions that a producer or reader opens at the same time.
OPENINGS_MAX = 64
PartT = TypeVar("PartT")
ResultT = TypeVar("ResultT")


async def for_each_partition(
    do: Callable[[PartT], Coroutine[Any, Any, ResultT]], parts: Iterable[PartT], *, at_once_max: int = OPENINGS_MAX
) -> list[ResultT]:
    """The results, in the order of `parts`. Raises the first error itself, after the others were cancelled.

    In a task of its own: in Python 3.11 a TaskGroup that fails leaves its task's count of cancellations above 0, and
    the caller's task is the application's. A TaskGroup that fails also loses a cancellation that comes just then, which
    is raised here.
    """
    caller = asyncio.current_task()
    assert caller is not None, "a coroutine of asyncio runs in a task"
    cancelled_before = caller.cancelling()
    try:
        return await asyncio.create_task(_each_at_once(do, parts, at_once_max))
    except Exception as error:
        if caller.cancelling() > cancelled_before:
            raise asyncio.CancelledError from error
        raise


async def _each_at_once(
    do: Callable[[PartT], Coroutine[Any, Any, ResultT]], parts: Iterable[PartT], at_once_max: int
) -> list[ResultT]:
    room = asyncio.Semaphore(at_once_max)

    async def limited(part: PartT) -> ResultT:
        async with room:
            return await do(part)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(limited(part)) for part in parts]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


class PartitionWatch:
    """Looks up the number of partitions from time to time. One user's: ends with it.

    follow: called with the numbers when the topic has more partitions than before; if it raises OncelogError, it is
    called again at the next look-up.
    """

    def __init__(
        self, topic: TopicName, network: Network, follow: Callable[[PartitionCounts], Awaitable[None]]
    ) -> None:
        self._topic = topic
        self._network = network
        self._follow = follow
        self._task: asyncio.Task[None] | None = None
        #: a look-up and what follows from it, one at a time
        self._checking = asyncio.Lock()
        #: as of the last look-up that was followed
        self.counts = PartitionCounts(0)

    async def begin(self, timeout_ms: int | None) -> PartitionCounts:
        """The numbers now. Raises TopicNotFound, another fatal error, or DeadlineExceeded."""
        self.counts = await self._look_up(timeout_ms)
        return self.counts

    def start(self, known: PartitionCounts) -> None:
        """known: what the user has opened."""
        self.counts = known
        self._task = self._network.background.start(self._run(), what=f"the partition watch of {self._topic}")

    async def check(self, timeout_ms: int | None) -> None:
        """Look the number up now. timeout_ms: of the look-up. Raises as `begin`, and the error of `follow`."""
        async with self._checking:
            counts = await self._look_up(timeout_ms)
            if counts.now > self.counts.now:
                await self._follow(counts)
                self.counts = counts

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _look_up(self, timeout_ms: int | None) -> PartitionCounts:
        return await persist(
            lambda _: self._network.lookup.partition_counts(self._topic),
            timeout_ms=timeout_ms,
            what=f"the topic {self._topic}",
        )

    async def _run(self) -> None:
        while True:
            # Not all users of a client at once, and not all clients of a cluster.
            await asyncio.sleep(self._network.partitions_pause_s * random.uniform(0.5, 1.0))
            try:
                await self.check(None)
            except OncelogError as error:
                logger.info("could not look for new partitions of %s; will retry: %s", self._topic, error.message)
