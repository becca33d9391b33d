"""How many look-ups and creations of topics one metadata service works on, and how many wait.

    async with admission.caller():                # refused at once if too many callers are here
        async with admission.step(): ...          # one step at ZooKeeper, in the order of arrival
        ...                                       # waits, for example for an owner, without keeping others waiting
        async with admission.step(): ...

A caller that was let in is never refused later: its work would be done in vain, and its repeat would add to the load.
A refusal costs no call of ZooKeeper. It names a time after which the present work and all that was refused lately can
be done, so that the repeats come no faster than they are answered.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from oncelog.core.errors import TooManyRequests

#: Steps at ZooKeeper at once. A step takes some milliseconds, most of which are ZooKeeper's and the network's.
STEPS_MAX = 128
#: About three seconds of work, the time for which the SDK waits for an answer. What waits longer is done in vain.
CALLERS_MAX = 2_048
RETRY_AFTER_S_MAX = 10


class LookupAdmission:
    """Shared by the gRPC and REST interfaces of one process. clock: seconds, monotonic."""

    def __init__(
        self,
        *,
        steps_max: int = STEPS_MAX,
        callers_max: int = CALLERS_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps = asyncio.Semaphore(steps_max)
        self._callers_max = callers_max
        self._clock = clock
        #: of the present second, and of the second before it
        self._since_s = clock()
        self._lately = self._before = (0, 0)
        #: callers that are here now
        self.callers = 0
        #: callers that were refused since the start
        self.refused = 0

    @asynccontextmanager
    async def caller(self) -> AsyncIterator[None]:
        """Raises TooManyRequests; details: limit, retry_after_s."""
        if self.callers >= self._callers_max:
            self.refused += 1
            self._count(answered=0, refused=1)
            message = (
                f"{self.callers} look-ups and creations of topics are in progress at this metadata service, the "
                "maximum: retry later"
            )
            raise TooManyRequests(message, limit=self._callers_max, retry_after_s=self._retry_after_s())
        self.callers += 1
        try:
            yield
        finally:
            self.callers -= 1
            self._count(answered=1, refused=0)

    @asynccontextmanager
    async def step(self) -> AsyncIterator[None]:
        """A caller's work at ZooKeeper."""
        async with self._steps:
            yield

    def _count(self, *, answered: int, refused: int) -> None:
        past_s = self._clock() - self._since_s
        if past_s >= 1:
            self._before = self._lately if past_s < 2 else (0, 0)
            self._lately = (0, 0)
            self._since_s += math.floor(past_s)
        self._lately = (self._lately[0] + answered, self._lately[1] + refused)

    def _retry_after_s(self) -> int:
        """How long what is here and was refused lately takes, at the rate at which callers were answered lately."""
        answered, refused = (now + before for now, before in zip(self._lately, self._before, strict=True))
        return max(1, min(RETRY_AFTER_S_MAX, (self.callers + refused) // max(1, answered)))
