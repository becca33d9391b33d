"""A view of something that may not answer: read again on request, and shown as it was last while it cannot be read.

    replicas = LastView(registry.metadata.live, start, fresh_ms=2_000)
    seen = await replicas.get()         # seen.value, seen.as_of_ms, seen.silent_since_ms, seen.problem

Rules
- All callers share one read. A caller waits for it for `wait_ms` at most; then the read goes on, and the caller gets
  what was read before it.
- What was never read is None, with the reason: unknown is not empty.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from oncelog.core.errors import InvariantViolated, OncelogError

ValueT = TypeVar("ValueT")
WAIT_MS = 1_000


@dataclass(frozen=True, slots=True)
class Seen(Generic[ValueT]):
    """value, as_of_ms: the last answer and when it came, wall clock; None: there was none. silent_since_ms, problem:
    since when reads fail or go unanswered, and why; None: the value is fresh."""

    value: ValueT | None = None
    as_of_ms: int | None = None
    silent_since_ms: int | None = None
    problem: str | None = None


class LastView(Generic[ValueT]):
    def __init__(
        self,
        read: Callable[[], Awaitable[ValueT]],
        start: Callable[[Coroutine[None, None, None]], "asyncio.Task[None]"],
        *,
        fresh_ms: int,
        wait_ms: int = WAIT_MS,
    ) -> None:
        """read: raises OncelogError. start: begins work in the background. fresh_ms: how long a value is shown without
        another read, and how long a failed read is not repeated."""
        self._read = read
        self._start = start
        self._fresh_ms = fresh_ms
        self._wait_ms = wait_ms
        self._seen: Seen[ValueT] = Seen()
        self._began_ms = 0
        self._reading: asyncio.Task[None] | None = None

    async def get(self) -> Seen[ValueT]:
        """The value, at most `fresh_ms` old, or the last one with the reason why there is no other."""
        if self._reading is None and _now_ms() >= self._began_ms + self._fresh_ms:
            self._began_ms = _now_ms()
            self._reading = self._start(self._renew())
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=self._wait_ms / 1000)
        if self._reading is None or self._seen.problem is not None:
            return self._seen
        return replace(
            self._seen, silent_since_ms=self._began_ms, problem=f"no answer after {_now_ms() - self._began_ms} ms"
        )

    async def _renew(self) -> None:
        try:
            self._seen = Seen(await self._read(), _now_ms())
        except InvariantViolated:
            raise
        except OncelogError as error:
            since_ms = self._seen.silent_since_ms or self._began_ms
            self._seen = replace(self._seen, silent_since_ms=since_ms, problem=error.message)
        finally:
            self._reading = None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
