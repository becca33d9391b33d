"""The AsyncConnection of a function of effects: it notices calls whose result was never awaited.

Such a statement does not run, and without an error its message would pass without an effect.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import CORO_CREATED, getcoroutinestate
from types import CoroutineType
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from oncelog.core.effect_errors import EffectMisuse


class WatchedConnection(AsyncConnection):
    """The same connection as the one that it is made of."""

    __slots__ = ("_calls",)

    def __init__(self, connection: AsyncConnection) -> None:
        super().__init__(connection.engine, connection.sync_connection)
        #: of the methods below: those that had not begun when the next one was called
        self._calls: list[CoroutineType[Any, Any, Any]] = []

    def watched(self, call: "CoroutineType[Any, Any, Any]") -> "CoroutineType[Any, Any, Any]":
        self._calls = [*self._waiting(), call]
        return call

    def _waiting(self) -> "list[CoroutineType[Any, Any, Any]]":
        return [call for call in self._calls if getcoroutinestate(call) == CORO_CREATED]

    @contextmanager
    def all_awaited(self) -> Iterator[None]:
        """Raises EffectMisuse at the end of the block if a call was never awaited."""
        try:
            yield
            if waiting := self._waiting():
                name = waiting[0].__name__
                raise EffectMisuse(
                    f"the function has called {name} of its connection without await, so nothing ran: write "
                    f"`await connection.{name}(…)`"
                )
        finally:
            for call in self._waiting():
                call.close()
            self._calls = []


def _watched(method: Callable[..., "CoroutineType[Any, Any, Any]"]) -> Callable[..., "CoroutineType[Any, Any, Any]"]:
    @wraps(method)
    def call(self: WatchedConnection, *args: Any, **options: Any) -> "CoroutineType[Any, Any, Any]":
        return self.watched(method(self, *args, **options))

    return call


for _name in ("execute", "exec_driver_sql", "scalar", "scalars", "run_sync"):
    setattr(WatchedConnection, _name, _watched(getattr(AsyncConnection, _name)))
