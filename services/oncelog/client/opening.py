"""What `connect` and the calls of a client that open something return: to be awaited, or to be entered.

    client = await oncelog.connect(url)              # the client, which its user closes
    async with oncelog.connect(url) as client: ...   # the same, closed at the end of the block

It is a coroutine in every respect: it begins when it is awaited, may be given to `create_task`, `gather` or
`asyncio.run`, and Python warns of one that is never awaited.
"""

from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from functools import wraps
from inspect import CORO_CREATED, getcoroutinestate
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

OpenedT = TypeVar("OpenedT", bound=AbstractAsyncContextManager[Any])
ArgumentsT = ParamSpec("ArgumentsT")


class Opening(Coroutine[Any, Any, OpenedT]):
    """One call that opens something; used once, as a coroutine."""

    __slots__ = ("_name", "_opened", "_work")

    def __init__(self, name: str, work: Coroutine[Any, Any, OpenedT]) -> None:
        """name: of the call."""
        self._name = name
        self._work = work

    def __repr__(self) -> str:
        return f"<{self._name}(...), to be awaited>"

    def __await__(self) -> Generator[Any, Any, OpenedT]:
        return self._work.__await__()

    async def __aenter__(self) -> OpenedT:
        self._opened = await self._work
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._opened.__aexit__(kind, error, traceback)

    def send(self, value: Any, /, **more: Any) -> Any:
        """Of a coroutine. Raises TypeError for the `send` of a producer that was not awaited."""
        if (value is not None or more) and getcoroutinestate(self._work) == CORO_CREATED:
            raise TypeError(self._not_awaited)
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    @property
    def _not_awaited(self) -> str:
        return (
            f"{self._name}(...) was not awaited: write `await {self._name}(...)` or `async with {self._name}(...) as`"
        )

    if not TYPE_CHECKING:

        def __enter__(self) -> None:
            """Raises TypeError: `with` instead of `async with`."""
            raise TypeError(self._not_awaited)

        def __exit__(self, *_: object) -> None:
            """Without it, `with` would not ask for `__enter__`."""

        def __getattr__(self, name: str) -> Any:
            """Those of the coroutine, for debuggers; others belong to what it would open."""
            try:
                return getattr(self._work, name)
            except AttributeError:
                raise AttributeError(f"no attribute {name!r}: {self._not_awaited}", name=name, obj=self) from None


def opening(
    function: Callable[ArgumentsT, Coroutine[Any, Any, OpenedT]],
) -> Callable[ArgumentsT, Opening[OpenedT]]:
    """Make a coroutine function return an Opening."""

    @wraps(function)
    def call(*args: ArgumentsT.args, **kwargs: ArgumentsT.kwargs) -> Opening[OpenedT]:
        return Opening(function.__name__, function(*args, **kwargs))

    return call
