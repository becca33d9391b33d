"""Several coroutines at once: all results, or the first error."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


async def all_results(work: Sequence[Coroutine[Any, Any, ResultT]]) -> list[ResultT]:
    """The results, in the order of `work`. Raises the first error itself, after the others were cancelled."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
