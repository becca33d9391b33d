"""Calls an application's function, whether it is `async` or not."""

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeVar

ConnectionT = TypeVar("ConnectionT")


async def call(run: Callable[[ConnectionT], Awaitable[None] | None], connection: ConnectionT) -> None:
    """In a thread, so that a function that is not `async` stops nothing else."""
    result = await asyncio.to_thread(run, connection)
    if isawaitable(result):
        await result
