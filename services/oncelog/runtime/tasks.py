"""Tasks that nothing awaits. A task that raises is a bug: whatever waits for its work would wait for ever.

The exception therefore goes to the event loop's exception handler, which ends a service's process (`runtime.process`).
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class CancelledByNobody(RuntimeError):
    """Work was cancelled, and whoever runs it did not ask for that. As a CancelledError it would end a task, and
    everything that the task is to do from now on, without a word."""


async def asked_cancellations_only(work: Coroutine[Any, Any, ResultT], *, what: str) -> ResultT:
    """Await `work`. It is cancelled each time that the caller is cancelled.

    Raises CancelledError if the caller was cancelled, also if `work` raises just then: a caller that tries again after
    errors would never end. Else what `work` raises, and CancelledByNobody if it ends by another cancellation. what:
    names the work in that error.
    """
    task = asyncio.ensure_future(work)
    asked: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])  # it never raises what ends the task
        except asyncio.CancelledError as error:
            asked = error
            task.cancel()
    if asked is not None:
        raise asked from None if task.cancelled() else task.exception()
    return result_of(task, what=what)


def result_of(task: "asyncio.Task[ResultT]", *, what: str) -> ResultT:
    """Of a task that has ended, and that nobody has cancelled. Raises its error, CancelledByNobody."""
    try:
        return task.result()
    except asyncio.CancelledError as error:
        raise CancelledByNobody(f"{what} was cancelled, and this program did not ask for it") from error


def start(work: Coroutine[Any, Any, None], *, what: str) -> "asyncio.Task[None]":
    """Run `work` on this loop. what: its name in error reports, as in "the check of a ledger".

    Keep a reference to the task: a task without one may be garbage collected while it runs.
    """
    task = asyncio.get_running_loop().create_task(work, name=what)
    task.add_done_callback(_report)
    return task


def _report(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        context = {"message": f"{task.get_name()} failed", "exception": error, "task": task}
        task.get_loop().call_exception_handler(context)


class BackgroundTasks:
    """The tasks of one owner, such as a client: referenced while they run, cancelled when the owner closes."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], *, what: str) -> "asyncio.Task[None]":
        task = start(work, what=what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def ended(self) -> None:
        """Wait until all tasks have ended by themselves."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
