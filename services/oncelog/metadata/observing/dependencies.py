"""What this replica sees of the processes that are neither topic owners nor storage nodes: the metadata services,
ZooKeeper and Redis. Answered from the last view, so that it is known also while one of them does not answer.

Redis and the list of metadata services are looked at on request. So a state is as old as the first look that found it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from oncelog.core.http_publish.idempotency import RETRY
from oncelog.metadata.owners.owners import Start
from oncelog.metadata_store.records.registry import LiveMetadata, Registry
from oncelog.metadata_store.session.store_session import SessionState, StoreSession
from oncelog.runtime.observing.last_view import LastView, Seen

#: How long a view is shown without another look.
FRESH_MS = 2_000


class StoreState(StrEnum):
    """The states of a session, and one that a session does not know."""

    CONNECTED = SessionState.CONNECTED.value
    SUSPENDED = SessionState.SUSPENDED.value
    LOST = SessionState.LOST.value
    #: connected, but a read has no answer
    SILENT = "silent"


class KeysState(StrEnum):
    OFF = "off"
    OK = "ok"
    FAILED = "failed"


StateT = TypeVar("StateT", bound=StrEnum)


class Dependency(NamedTuple, Generic[StateT]):
    """since_ms: wall clock. reason: of a failure, for people."""

    state: StateT
    since_ms: int
    reason: str | None


class SeenDependencies(NamedTuple):
    """replicas: {number of its registration: metadata service}; the one with the lowest number is elected."""

    replicas: Seen[dict[str, LiveMetadata]]
    zookeeper: Dependency[StoreState]
    redis: Dependency[KeysState]


class Dependencies:
    """Used by the REST interface."""

    def __init__(
        self,
        session: StoreSession,
        registry: Registry,
        start: Start,
        *,
        check_keys: Callable[[], Awaitable[None]] | None,
        fresh_ms: int = FRESH_MS,
    ) -> None:
        """check_keys: raises IdempotencyUnavailable, StoreUnavailable; None: keys are not configured."""
        self._session = session
        self._since_ms = _now_ms()
        session.add_listener(self._changed)
        self._replicas = LastView(registry.metadata.live, start, fresh_ms=fresh_ms)
        self._keys = None if check_keys is None else LastView(check_keys, start, fresh_ms=fresh_ms)
        self._keys_since = (KeysState.OFF, self._since_ms)

    def _changed(self, _state: SessionState) -> None:
        self._since_ms = _now_ms()

    async def seen(self) -> SeenDependencies:
        """Within a second."""
        replicas, keys = await asyncio.gather(self._replicas.get(), self._look_at_keys())
        return SeenDependencies(replicas, self._store(replicas), keys)

    def _store(self, replicas: Seen[dict[str, LiveMetadata]]) -> Dependency[StoreState]:
        state = self._session.state
        if state is SessionState.CONNECTED and replicas.silent_since_ms is not None:
            return Dependency(StoreState.SILENT, replicas.silent_since_ms, replicas.problem)
        return Dependency(StoreState(state.value), self._since_ms, None)

    async def _look_at_keys(self) -> Dependency[KeysState]:
        if self._keys is None:
            return Dependency(*self._keys_since, None)
        seen = await self._keys.get()
        state = KeysState.OK if seen.problem is None else KeysState.FAILED
        if state is not self._keys_since[0]:
            self._keys_since = state, seen.silent_since_ms or _now_ms()
        return Dependency(*self._keys_since, seen.problem and seen.problem.removesuffix(RETRY))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
