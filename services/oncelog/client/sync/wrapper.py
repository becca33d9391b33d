"""What all synchronous objects are: an asyncio object, and the event loop in a thread of its own that it belongs to.

Each method has a signature of its own, which a test holds equal to that of its asyncio original, and the original's
docstring. It runs on the loop while the caller waits. All may be used from several threads.
"""

from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from oncelog.client.portal import Portal

InnerT = TypeVar("InnerT", bound=AbstractAsyncContextManager[Any])
ResultT = TypeVar("ResultT")
MethodT = TypeVar("MethodT", bound=Callable[..., Any])


class Wrapper(Generic[InnerT]):
    """An asyncio object and its loop."""

    def __init__(self, inner: InnerT, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._inner).removeprefix("Async")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it; wait for what is pending unless the block was left by an exception."""
        self._portal.end(self._inner.__aexit__(kind, error, traceback))


def run_on(wrapper: Wrapper[InnerT], work: Callable[[InnerT], Coroutine[Any, Any, ResultT]]) -> ResultT:
    """Run a coroutine of the asyncio object on its loop, and wait for it."""
    return wrapper._portal.run(work(wrapper._inner))  # noqa: SLF001  # of this module


def documented_by(original: object) -> Callable[[MethodT], MethodT]:
    """Give a method or the getter of a property the docstring of its asyncio original, whose arguments, results and
    errors are the same."""

    def document(method: MethodT) -> MethodT:
        method.__doc__ = original.__doc__
        return method

    return document
