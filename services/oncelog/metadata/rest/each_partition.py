"""What is asked of a topic is asked of the topic itself, or of each of its partitions.

When partitions answer differently, one error is returned for all:

    the outcome of a partition is unknown            deadline_exceeded: the request may have been carried out there
    otherwise, an error that says why it was not     that error; it names how many partitions were done
    nothing but missing subscriptions                not found, unless other partitions have the subscription
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from oncelog.core.errors import DeadlineExceeded, OncelogError, SubscriptionNotFound, TopicNotFound
from oncelog.core.names import TopicName

#: Partitions that are asked at the same time.
_AT_ONCE = 16
ResultT = TypeVar("ResultT")


async def each_partition(
    topic: TopicName, count: int, do: Callable[[TopicName], Awaitable[ResultT]], *, unused: bool = False
) -> dict[TopicName, ResultT]:
    """{topic or partition: result}.

    count: of the topic's partitions; 0: it has none. unused: a partition that does not exist yet is a failure;
    otherwise it is left out. When some fail, the error names them and what was done.
    """
    if not count:
        return {topic: await do(topic)}
    room, done, failed = asyncio.Semaphore(_AT_ONCE), dict[TopicName, ResultT](), dict[TopicName, OncelogError]()

    async def one(partition: TopicName) -> None:
        async with room:
            try:
                done[partition] = await do(partition)
            except TopicNotFound as error:
                if unused:
                    failed[partition] = error
            except OncelogError as error:
                failed[partition] = error

    await asyncio.gather(*(one(replace(topic, partition=number)) for number in range(count)))
    # A partition without the subscription is no failure if another one has it.
    only_missing = all(isinstance(error, SubscriptionNotFound) for error in failed.values())
    if failed and not (done and only_missing):
        raise _error_of_some(failed, len(done), count)
    return done


def _error_of_some(failed: dict[TopicName, OncelogError], done: int, count: int) -> OncelogError:
    # A definite answer would be wrong while one partition may have done it, and "not found" while one has not answered.
    unknown = [topic for topic, error in failed.items() if isinstance(error, DeadlineExceeded)]
    others = [topic for topic, error in failed.items() if not isinstance(error, SubscriptionNotFound)]
    first = min(unknown or others or failed, key=lambda topic: topic.partition or 0)
    error, of_unknown = failed[first], f", unknown on {len(unknown)}" if unknown else ""
    counts = f"done on {done} of {count} partitions, failed on {len(failed) - len(unknown)}{of_unknown}"
    return type(error)(f"{counts}; {first}: {error.message}", **error.details)
