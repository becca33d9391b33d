"""What a door asks the cluster about a namespace: one question for all that ask at once."""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from oncelog.core.errors import OncelogError

T = TypeVar("T")

#: Answers that are kept, about the namespaces that were asked for last. Clients choose the names.
KEPT_MAX = 1_000


class _Answer(NamedTuple, Generic[T]):
    """asked_s: when it was asked for."""

    asked_s: float
    value: T | None
    error: OncelogError | None


class NamespaceAnswers(Generic[T]):
    """Of one door and one question."""

    def __init__(self, ask: Callable[[str], Awaitable[T]], *, keeps: bool = True) -> None:
        """ask: about a namespace, by its name. keeps: keep the last answer about KEPT_MAX namespaces, for callers that
        take an older one; False: it is dropped when nothing waits for it."""
        self._ask = ask
        self._keeps = keeps
        self._known: dict[str, _Answer[T]] = {}
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._callers: Counter[str] = Counter()

    async def of(self, namespace: str, *, age_s: float = 0.0) -> T:
        """age_s: how old the answer may be; 0: it was asked for after this call. Raises as `ask`."""
        called_s = time.monotonic()
        self._callers[namespace] += 1
        try:
            async with self._asking[namespace]:
                known = self._known.get(namespace)
                if known is None or known.asked_s < (called_s if known.error else called_s - age_s):
                    known = await self._asked(namespace)
                    self._known.pop(namespace, None)
                    self._known[namespace] = known  # the last one
        finally:
            self._left(namespace)
        if known.error is not None:
            raise known.error
        return known.value  # type: ignore[return-value]  # an answer has no value only if it has an error

    async def _asked(self, namespace: str) -> _Answer[T]:
        asked_s = time.monotonic()
        try:
            return _Answer(asked_s, await self._ask(namespace), None)
        except OncelogError as error:
            return _Answer(asked_s, None, error)

    def _left(self, namespace: str) -> None:
        self._callers[namespace] -= 1
        if not self._callers[namespace]:
            del self._callers[namespace]
            if not self._keeps:
                self._drop(namespace)
            elif len(self._known) > KEPT_MAX:
                self._drop(next(each for each in self._known if each not in self._callers))

    def _drop(self, namespace: str) -> None:
        self._known.pop(namespace, None)
        del self._asking[namespace]
