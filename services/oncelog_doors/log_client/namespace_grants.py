"""The rights of namespaces, for the readers of a door: one question for all readers of a namespace that ask at once."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence

#: {role: its rights}
Grants = Mapping[str, Sequence[str]]


class NamespaceGrants:
    """Of one door. It keeps one answer for each namespace that had a reader."""

    def __init__(self, ask: Callable[[str], Awaitable[Grants]]) -> None:
        """ask: for the rights of a namespace, by its name."""
        self._ask = ask
        #: {namespace: (when it was asked for, in s, the answer)}
        self._known: dict[str, tuple[float, Grants]] = {}
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def of(self, namespace: str, *, age_s: float = 0.0) -> Grants:
        """age_s: how old the answer may be; 0: it was asked for after this call. Raises as `ask`."""
        called_s = time.monotonic()
        async with self._asking[namespace]:
            known = self._known.get(namespace)
            if known is not None and known[0] >= called_s - age_s:
                return known[1]
            asked_s = time.monotonic()
            grants = await self._ask(namespace)
            self._known[namespace] = asked_s, grants
            return grants
