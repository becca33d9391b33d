"""An event loop of its own in a thread of its own, for callers that have none.

A loop is never closed: the next portal runs it. gRPC has one poller for all loops of a process, and may have an event
of a call that was cancelled when its client was closed; it is handed to that client's loop by whichever loop reads it,
for which "Event loop is closed" would be an error in the midst of other calls' events. Loops are as many as clients are
open at once; gRPC itself forgets none that it has seen.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from oncelog.core.errors import ClientClosed

ResultT = TypeVar("ResultT")

#: For so long what was begun and not waited for may take to hear that it is cancelled.
SETTLE_TIMEOUT_S = 5.0
#: {process: loops that nobody runs now}; a forked child shares those of its parent with it, and must touch none.
_idle: dict[int, list[asyncio.AbstractEventLoop]] = {}


class Portal:
    """Runs coroutines for other threads. uvloop where it is installed: it gains a fifth."""

    def __init__(self) -> None:
        self._loop = _idle_loop()
        #: between the last submission and the end
        self._lock = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="oncelog client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            asyncio.set_event_loop(None)
            _idle.setdefault(os.getpid(), []).append(self._loop)

    def submit(self, work: Coroutine[Any, Any, ResultT]) -> "concurrent.futures.Future[ResultT]":
        """Begin it there; submissions of one thread begin in their order. Raises ClientClosed, also after a fork."""
        if self.alive:
            with self._lock:
                if not self._stopped:
                    return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise ClientClosed("the client was closed, or made before this process was forked: make another one here")

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
        """End the thread; what was submitted and has not ended is cancelled. Stopping twice is no error."""
        with self._lock:
            stopped, self._stopped = self._stopped, True
        if not stopped:
            asyncio.run_coroutine_threadsafe(_settle(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


async def _settle() -> None:
    """Nothing of this portal goes on in the next one's time."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=SETTLE_TIMEOUT_S)


def _idle_loop() -> asyncio.AbstractEventLoop:
    try:
        return _idle[os.getpid()].pop()
    except (KeyError, IndexError):
        return _new_loop()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
