"""Equal reads of ZooKeeper that are wanted at the same time: one read answers all of them.

    names = SharedReads(topics.find)
    record = await names.get(name)

A caller gets a read that began after its call, never one that was under way: that one may be older than what the caller
knows. So there are at most two reads for a key: one runs, and one waits for its end with all who came meanwhile.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


@dataclass(eq=False, slots=True)
class _Round(Generic[ValueT]):
    """One read and who waits for it; task None: it has not begun."""

    waiters: set["asyncio.Future[ValueT]"] = field(default_factory=set)
    task: "asyncio.Task[ValueT] | None" = None


class SharedReads(Generic[KeyT, ValueT]):
    def __init__(self, read: Callable[[KeyT], Coroutine[Any, Any, ValueT]]) -> None:
        self._read = read
        self._running: dict[KeyT, _Round[ValueT]] = {}
        self._next: dict[KeyT, _Round[ValueT]] = {}

    async def get(self, key: KeyT) -> ValueT:
        """What a read that begins now, or later, returns or raises. A read that nobody waits for any more is ended."""
        waiter: asyncio.Future[ValueT] = asyncio.get_running_loop().create_future()
        joined = self._next.setdefault(key, _Round()) if key in self._running else _Round()
        joined.waiters.add(waiter)
        if key not in self._running:
            self._begin(key, joined)
        try:
            return await waiter
        finally:
            joined.waiters.discard(waiter)
            if not joined.waiters and joined.task is not None:
                joined.task.cancel()  # nothing happens if it has ended

    def waiting(self, key: KeyT) -> int:
        """How many callers wait for reads of this key."""
        rounds = (reads[key] for reads in (self._running, self._next) if key in reads)
        return sum(len(each.waiters) for each in rounds)

    def _begin(self, key: KeyT, beginning: _Round[ValueT]) -> None:
        self._running[key] = beginning
        beginning.task = asyncio.get_running_loop().create_task(self._read(key))
        beginning.task.add_done_callback(partial(self._ended, key, beginning.waiters))

    def _ended(self, key: KeyT, waiters: set["asyncio.Future[ValueT]"], task: "asyncio.Task[ValueT]") -> None:
        del self._running[key]
        following = self._next.pop(key, None)
        if following is not None and following.waiters:
            self._begin(key, following)
        for waiter in [waiter for waiter in waiters if not waiter.done()]:
            if task.cancelled():
                waiter.cancel()
            elif (error := task.exception()) is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(task.result())
        if not task.cancelled():
            task.exception()  # retrieved, also if nobody waits any more
