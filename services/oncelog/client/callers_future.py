"""Futures for threads without an event loop. Their callbacks run in a thread of their own: on the client's event loop,
a callback that calls the client would wait for itself, and all other threads with it."""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

logger = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")


def check_not_in(thread: threading.Thread) -> None:
    """thread: that of a client's event loop. Raises RuntimeError in it."""
    if threading.current_thread() is thread:
        raise RuntimeError(
            "a blocking call of oncelog.Client in its own thread would wait for itself for ever: code that runs there, "
            "such as a handler of logging or the function that returns the token, must not call the client"
        )


def check_may_wait(thread: threading.Thread) -> None:
    """thread: that of a client's event loop. Raises RuntimeError in it and in a coroutine, whose event loop would stop.

    A notebook is a coroutine of its event loop, and its cells block; so does a prompt. A running event loop alone says
    nothing: the synchronous API of Playwright leaves its own behind in the caller's thread.
    """
    check_not_in(thread)
    loop = asyncio._get_running_loop()  # noqa: SLF001  # the public one raises where there is none: slow
    if loop is not None and asyncio.current_task(loop) is not None and not hasattr(sys, "ps1"):
        raise RuntimeError(
            "a blocking call of oncelog.Client in a coroutine would stop its event loop: use "
            "`await oncelog.connect(...)`, or make the call in a thread with `await asyncio.to_thread(...)`"
        )


class CallbackThread:
    """Calls one callback after the other. The thread begins with the first one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        #: None: the end
        self._given: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    def give(self, callback: Callable[[], object]) -> None:
        """Call it in the thread; it must not raise."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="oncelog callbacks", daemon=True)
                self._thread.start()
        self._given.put(callback)

    def _run(self) -> None:
        while (callback := self._given.get()) is not None:
            callback()

    def stop(self) -> None:
        """End the thread behind the callbacks that were given, and wait for that, unless one of them calls this. May be
        called twice."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            self._given.put(None)
            if thread is not threading.current_thread():
                thread.join()


class _Waiters(list[Any]):
    """Those who wait for a future by `concurrent.futures.wait`: only where `check_may_wait` allows it."""

    def __init__(self, loop_thread: threading.Thread) -> None:
        super().__init__()
        self._loop_thread = loop_thread

    def append(self, waiter: Any, /) -> None:
        check_may_wait(self._loop_thread)
        super().append(waiter)


class CallersFuture(Future[ResultT]):
    """The result of a coroutine on a client's event loop."""

    def __init__(self, loop_thread: threading.Thread, callbacks: CallbackThread) -> None:
        super().__init__()
        self._loop_thread = loop_thread
        self._callbacks = callbacks
        # `concurrent.futures.wait` and `as_completed` call no method of a future: each adds itself to this list.
        self._waiters: list[Any] = _Waiters(loop_thread)

    def result(self, timeout: float | None = None) -> ResultT:
        """Raises RuntimeError where `check_may_wait` does, unless it is done."""
        if not self.done():
            check_may_wait(self._loop_thread)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Raises as `result`."""
        if not self.done():
            check_may_wait(self._loop_thread)
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[ResultT]], object]) -> None:
        """Call fn(future) when it is done, in the client's thread of callbacks, or here if it is done. Callbacks are
        called one after the other; they may call the client."""
        super().add_done_callback(partial(self._call_back, fn))

    def _call_back(self, callback: Callable[[Future[ResultT]], object], _future: Future[ResultT]) -> None:
        if threading.current_thread() is self._loop_thread:
            self._callbacks.give(partial(_call, callback, self))
        else:
            callback(self)

    # --- on the event loop --------------------------------------------------------------------------------------------

    def follow(self, task: "asyncio.Task[ResultT]") -> None:
        """Take the result of a task; cancel it if this future is cancelled."""
        task.add_done_callback(self._take)
        loop = task.get_loop()

        def cancel(_future: Future[ResultT]) -> None:
            if self.cancelled():
                loop.call_soon_threadsafe(task.cancel)

        super().add_done_callback(cancel)

    def _take(self, task: "asyncio.Task[ResultT]") -> None:
        error = None if task.cancelled() else task.exception()
        if task.cancelled():
            self.cancel()
        if not self.set_running_or_notify_cancel():
            return
        if error is None:
            self.set_result(task.result())
        else:
            self.set_exception(error)


def _call(callback: Callable[[Future[Any]], object], future: Future[Any]) -> None:
    try:
        callback(future)
    except BaseException:  # the application's: the other callbacks are called all the same
        logger.exception("the callback %r of a future failed", callback)
