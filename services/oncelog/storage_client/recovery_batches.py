"""Requests of many recoveries to one storage node, sent together.

A takeover asks each member of a ledger three times: a fence, a read, and the adds that complete the copies. A call
costs 0.3 to 0.5 ms of CPU on each side whatever it carries. An owner that takes over a thousand topics has many such
requests at the same time: what is asked while a call is under way goes out with the next one.

Rules
- Every request stands alone: its answer, its failure and its cancellation concern no other one. A call that fails fails
  each of its requests, and each is repeated by its own caller.
- At most CALLS_MAX calls are under way. So a request that waits for a slow disk delays later ones by little, and a node
  that is busy gets larger calls, not more of them.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.runtime.tasks import start

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")

CALLS_MAX = 2


class Batches(Generic[RequestT, AnswerT]):
    """Sends requests of one kind to one node."""

    def __init__(
        self,
        call: Callable[[Sequence[RequestT]], Awaitable[Sequence[AnswerT]]],
        *,
        requests_max: int,
        weight_max: int | None = None,
        weigh: Callable[[RequestT], int] = lambda _: 0,
    ) -> None:
        """call: performs some requests; its answers are parallel to them. requests_max, weight_max: of one call, which
        takes at least one request."""
        self._call = call
        self._requests_max = requests_max
        self._weight_max = weight_max
        self._weigh = weigh
        self._waiting: deque[tuple[RequestT, asyncio.Future[AnswerT]]] = deque()
        self._calls: set[asyncio.Task[None]] = set()
        #: whether the last of them has not taken its requests yet
        self._beginning = False

    async def ask(self, request: RequestT) -> AnswerT:
        """Raises what the call raises."""
        answer: asyncio.Future[AnswerT] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        self._begin()
        return await answer

    def _begin(self) -> None:
        """The call takes its requests after this step of the event loop: all that are asked in it."""
        if self._beginning or len(self._calls) >= CALLS_MAX:
            return
        self._beginning = True
        task = start(self._run(), what="requests of recoveries to a storage node")
        self._calls.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._calls.discard(task)
        if self._waiting:
            self._begin()

    async def _run(self) -> None:
        self._beginning = False
        some = self._take()
        if self._waiting:
            self._begin()
        if not some:
            return
        try:
            answers = await self._call([request for request, _ in some])
        except (asyncio.CancelledError, InvariantViolated):
            for _, waiting in some:
                waiting.cancel()
            raise
        except OncelogError as error:
            for _, waiting in some:
                if not waiting.done():
                    waiting.set_exception(error)
            return
        for (_, waiting), answer in zip(some, answers, strict=True):
            if not waiting.done():
                waiting.set_result(answer)

    async def close(self) -> None:
        """Whoever still waits is cancelled."""
        calls, waiting = list(self._calls), list(self._waiting)
        self._waiting.clear()
        for _, answer in waiting:
            answer.cancel()
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)

    def _take(self) -> list[tuple[RequestT, "asyncio.Future[AnswerT]"]]:
        some: list[tuple[RequestT, asyncio.Future[AnswerT]]] = []
        weight = 0
        while self._waiting and len(some) < self._requests_max:
            request, answer = self._waiting[0]
            if not answer.done():  # not cancelled meanwhile
                weight += self._weigh(request)
                if some and self._weight_max is not None and weight > self._weight_max:
                    break
                some.append((request, answer))
            self._waiting.popleft()
        return some
