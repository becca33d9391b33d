"""One run of the application's function: what it raises is told from what the store raises, and it ends in order."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from inspect import isawaitable
from types import TracebackType
from typing import Any

from oncelog.core.errors import OncelogError
from oncelog.runtime.tasks import result_of

#: As `exc_info` of a logger takes it.
ErrorInfo = tuple[type[BaseException], BaseException, TracebackType | None]
_OWN = __name__.partition(".")[0]


class FunctionFailedError(Exception):
    """The application's function raised.

    Its error itself cannot be raised through a store: asyncio makes another object of a TimeoutError of a thread and a
    cancellation of a CancelledError, and never delivers a StopIteration (hazard cancelled-by-nobody).

    Attributes:
        error: what the function raised; also the cause.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"the function raised {type(error).__name__}")
        self.error = self.__cause__ = error


def is_retriable(error: BaseException) -> bool:
    """Whether the cluster says that a repetition helps: then the message is not to blame."""
    return isinstance(error, OncelogError) and error.retriable


def of_the_function(error: BaseException) -> ErrorInfo:
    """What the function raised, from its own first frame on. If it has none, as after a call with wrong arguments: from
    the call on."""
    own = error.__traceback__
    while own is not None and str(own.tb_frame.f_globals.get("__name__")).partition(".")[0] == _OWN:
        own = own.tb_next
    return type(error), error, own or error.__traceback__


@contextmanager
def functions_errors() -> Iterator[None]:
    """Inside is the application's function. Raises FunctionFailedError for what it raises.

    A CancelledError is a failure, too, whoever has cancelled what: if this program ends the function, `to_its_end`
    raises the cancellation.
    """
    try:
        yield
    except FunctionFailedError:
        raise
    except (Exception, asyncio.CancelledError) as error:
        raise FunctionFailedError(error) from error


def called(call: Callable[[], Awaitable[None] | None]) -> Awaitable[None] | None:
    """Call the function. It, and what it returns when that is awaited, raise FunctionFailedError."""
    with functions_errors():
        result = call()
    return _Called(result) if isawaitable(result) else None


class _Called:
    """What an async function returned. A store that cannot await it closes it."""

    def __init__(self, result: Awaitable[None]) -> None:
        self._result = result

    def __await__(self) -> Generator[Any, None, None]:
        return self._awaited().__await__()

    async def _awaited(self) -> None:
        with functions_errors():
            await self._result

    def close(self) -> None:
        if isinstance(self._result, Coroutine):
            self._result.close()


async def to_its_end(applying: Coroutine[Any, Any, None]) -> asyncio.CancelledError | None:
    """A transaction that is under way ends before a process that is asked to: what it commits is acknowledged. Returns
    the cancellation that came meanwhile; a second one ends the transaction.

    Raises what `applying` raises; CancelledByNobody if that was cancelled and this was not: the outcome is unknown.
    """
    task = asyncio.ensure_future(applying)
    try:
        await asyncio.wait([task])  # it never raises what ends the task, so a cancellation is of this task
    except asyncio.CancelledError as cancelled:
        try:
            await asyncio.wait([task])
        finally:
            task.add_done_callback(_retrieve)
            task.cancel()
        if task.cancelled() or task.exception() is not None:
            raise
        return cancelled
    result_of(task, what="a transaction of the store")
    return None


def _retrieve(task: "asyncio.Task[None]") -> None:
    """Nobody waits for it any more, so its error is not reported as one that was never retrieved."""
    if not task.cancelled():
        task.exception()
