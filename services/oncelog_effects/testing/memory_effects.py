"""A store of effects in memory, for tests of a program's logic."""

import copy
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from oncelog_effects.core.effects.ordered import Source, StoredPosition, is_expected
from oncelog_effects.functions import call
from oncelog_effects.store import ClaimLost, SourceNames


class MemoryEffects:
    """The function gets a dict, and what it changes there is kept when it returns. Nothing outlives the process.

    Attributes:
        data: the dict, as the last function left it.
    """

    def __init__(self) -> None:
        self.data: dict[Any, Any] = {}
        self._store_id = uuid.uuid4().hex
        self._rows: dict[Source, StoredPosition] = {}
        #: how many functions have changed `data`
        self._commits = 0

    async def store_id(self) -> str:
        return self._store_id

    async def claim(
        self, source: Source, names: SourceNames, decide: Callable[[StoredPosition | None], StoredPosition]
    ) -> StoredPosition:
        self._rows[source] = decided = decide(self._rows.get(source))
        return decided

    async def apply(
        self,
        source: Source,
        claimed: StoredPosition,
        following: StoredPosition,
        run: Callable[[dict[Any, Any]], Awaitable[None] | None] | None,
    ) -> None:
        """The function runs again if another source has changed the dict meanwhile."""
        while True:
            commits, data = self._commits, copy.deepcopy(self.data)
            self._check(source, claimed)
            if run is not None:
                await call(run, data)
            self._check(source, claimed)
            if commits == self._commits:
                break
        self.data, self._rows[source] = data, following
        self._commits += 1

    def backup(self) -> Callable[[], Awaitable[None]]:
        """Returns what brings back the data and the positions of now."""
        saved = copy.deepcopy((self.data, self._rows))

        async def restore() -> None:
            self.data, self._rows = copy.deepcopy(saved)

        return restore

    def _check(self, source: Source, claimed: StoredPosition) -> None:
        if not is_expected(self._rows.get(source), claimed):
            raise ClaimLost
