"""The pace of a proof: a share of a core, and bytes per second. A metadata service has other work."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from oncelog.storage_client.rate_limit import RateLimit


class Throttle:
    """Use: `with throttle.working(): ...` around each piece of work, then `await throttle.pause(bytes)`."""

    def __init__(self, bytes_per_s: int, cpu_percent: int) -> None:
        """cpu_percent: of one core, above 0."""
        self._limit = RateLimit(bytes_per_s, now_s=time.monotonic)
        #: seconds of rest for each second of work
        self._rest = 100 / cpu_percent - 1
        self._worked_s = 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Measures work that does not wait for anything."""
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self._worked_s += time.perf_counter() - began_s

    async def pause(self, read_bytes: int) -> None:
        """Return when the next piece of work is due."""
        rest_s, self._worked_s = self._worked_s * self._rest, 0.0
        await asyncio.sleep(max(rest_s, self._limit.take(read_bytes)))
