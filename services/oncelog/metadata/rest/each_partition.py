"""What is asked of a topic is asked of the topic itself, or of each of its partitions.

When partitions answer differently, one error is returned for all: see `core.partition_results`. A partition without the
subscription is no failure if another one has it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from oncelog.core.errors import OncelogError, SubscriptionNotFound, TopicNotFound
from oncelog.core.names import TopicName
from oncelog.core.sdk.partition_results import error_of_partitions

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
        raise error_of_partitions(failed, done=len(done))
    return done
