"""An event loop in a thread of its own, for callers without an event loop.

A loop is never closed: the next portal reuses it. gRPC has one poller for all event loops of a process. It may hold an
event of a call that was cancelled when its client closed, and any loop that reads the event passes it to that client's
loop. If that loop were closed, the "Event loop is closed" error would disturb the events of other calls. There are as
many loops as clients are open at once.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from oncelog.client.callers_future import CallbackThread, CallersFuture, check_may_wait, check_not_in
from oncelog.client.values.process import used_after_fork
from oncelog.core.errors import ClientClosed
from oncelog.runtime.descriptors import fill_descriptors

ResultT = TypeVar("ResultT")

#: How long cancelled tasks may take to end.
SETTLE_TIMEOUT_S = 5.0
#: {process id: idle loops}; a forked child must not touch the loops of its parent.
_idle: dict[int, list[asyncio.AbstractEventLoop]] = {}


class Portal:
    """Runs coroutines for other threads. Uses uvloop when it is installed, which is about a fifth faster."""

    def __init__(self) -> None:
        self._loop = _idle_loop()
        #: held while work is submitted, and while the portal is stopped
        self._lock = threading.Lock()
        self._stopped = False
        #: unfinished work: the loop itself keeps none
        self._tasks: set[asyncio.Task[Any]] = set()
        self._process = os.getpid()
        self._callbacks = CallbackThread()
        self._thread = threading.Thread(target=self._run, name="oncelog client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            asyncio.set_event_loop(None)
            _idle.setdefault(os.getpid(), []).append(self._loop)

    def submit(
        self,
        work: Coroutine[Any, Any, ResultT],
        done: "Callable[[concurrent.futures.Future[ResultT]], object] | None" = None,
    ) -> "concurrent.futures.Future[ResultT]":
        """Start a coroutine on the loop; those of one thread start in order. Callbacks of the future run in a thread of
        their own; so does `done`, also if the work ends before this returns. Raises ClientClosed and ClientForked."""
        if not self.inherited:
            with self._lock:
                if not self._stopped:
                    future = CallersFuture[ResultT](self._thread, self._callbacks)
                    if done is not None:
                        future.add_done_callback(done)
                    self._loop.call_soon_threadsafe(self._start, work, future)
                    return future
        work.close()
        if self.inherited:
            raise used_after_fork()
        raise client_closed()

    def _start(self, work: Coroutine[Any, Any, ResultT], future: CallersFuture[ResultT]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        future.follow(task)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call it on the loop. After `stop` nothing is called."""
        with self._lock:
            if not self._stopped:
                self._loop.call_soon_threadsafe(callback)

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine and wait for it. An interrupt of the waiting thread cancels it. Raises as `submit`, also when
        the portal is stopped meanwhile, and as `check_caller`."""
        return self._wait(work, self.check_caller)

    def end(self, work: Coroutine[Any, Any, object]) -> None:
        """As `run`, for what closes an object: also in a coroutine, where a program may end. In a forked child it does
        nothing."""
        if self.inherited:
            work.close()
        else:
            self._wait(work, partial(check_not_in, self._thread))

    def _wait(self, work: Coroutine[Any, Any, ResultT], check: Callable[[], None]) -> ResultT:
        try:
            check()
        except BaseException:
            work.close()
            raise
        future = self.submit(work)
        try:
            return concurrent.futures.Future.result(future)  # a CallersFuture would check again
        except concurrent.futures.CancelledError as error:
            raise client_closed() from error  # nobody but `stop` cancels it
        except BaseException:
            future.cancel()
            raise

    @property
    def inherited(self) -> bool:
        """Whether this process was forked since: threads are not copied, and submitted work would wait for ever."""
        return os.getpid() != self._process

    def check_caller(self) -> None:
        """Raises ClientForked in a forked child, RuntimeError in the portal's own thread and in a coroutine. To be
        called before a lock that another thread may hold."""
        if self.inherited:
            raise used_after_fork()
        check_may_wait(self._thread)

    @property
    def alive(self) -> bool:
        """Whether it runs, in this process."""
        return self._thread.is_alive() and not self.inherited

    def stop(self) -> None:
        """End the thread and cancel unfinished work; callbacks of what has ended are called before this returns. May be
        called twice. In a forked child it does nothing. Raises RuntimeError in the portal's own thread."""
        if self.inherited:
            return
        check_not_in(self._thread)
        with self._lock:
            stopped, self._stopped = self._stopped, True
        if not stopped:
            asyncio.run_coroutine_threadsafe(_settle(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._callbacks.stop()


def client_closed() -> ClientClosed:
    return ClientClosed("the client was closed: create a new one")


async def _settle() -> None:
    """Cancel all tasks, so that none runs on in the next portal."""
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
    fill_descriptors()
    return uvloop.new_event_loop()
