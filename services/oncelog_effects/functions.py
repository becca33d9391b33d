"""Calls an application's function, whether it is `async` or not."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from inspect import isawaitable
from typing import TypeVar

ConnectionT = TypeVar("ConnectionT")
ResultT = TypeVar("ResultT")

#: More than any `concurrency`; a thread is made when none is free. Those of `asyncio.to_thread` end at cores + 4.
THREADS_MAX = 1_024
_THREADS = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="effects")


async def in_thread(work: Callable[[], ResultT]) -> ResultT:
    """As `asyncio.to_thread`, in one of THREADS_MAX threads of effects alone."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, copy_context().run, work)


async def call(run: Callable[[ConnectionT], Awaitable[None] | None], connection: ConnectionT) -> None:
    """In a thread, so that a function that is not `async` stops nothing else."""
    result = await in_thread(lambda: run(connection))
    if isawaitable(result):
        await result
