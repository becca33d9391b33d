"""An event loop of its own in a thread of its own, for callers that have none."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from oncelog.core.errors import ClientClosed

ResultT = TypeVar("ResultT")


class Portal:
    """Runs coroutines for other threads. uvloop where it is installed: it gains a fifth."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="oncelog client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def submit(self, work: Coroutine[Any, Any, ResultT]) -> "concurrent.futures.Future[ResultT]":
        """Begin it there; submissions of one thread begin in their order. Raises ClientClosed, also after a fork."""
        if not self.alive:
            work.close()
            raise ClientClosed("the client was closed, or made before this process was forked: make another one here")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Wait for it here. An interrupt of the waiting thread cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def alive(self) -> bool:
        """False in a forked child: threads are not copied, and work for one that is not there would wait for ever."""
        return self._thread.is_alive()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
