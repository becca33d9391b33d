"""What a server of idempotency keys does, and what it is told: the face of Redis (`idempotency_store`).

Rule: nothing here needs Redis, so that a process which has none does not load its client.
"""

from typing import NamedTuple, Protocol

from oncelog.core.http_publish.key_dataset import FoundDataset
from oncelog.core.store_status import WriteStatus


class Guard(NamedTuple):
    """What must hold for a script to do anything. writes: the most that this process has seen."""

    marker: str
    run: str
    writes: int
    replicated: bool


class KeyReply(NamedTuple):
    """holds: False: nothing was done. value: read, or in the way of a write. writes: after a write that is OK."""

    holds: bool
    status: WriteStatus = WriteStatus.OK
    value: bytes | None = None
    writes: int = 0


class Lease(NamedTuple):
    """That a live process works on the claims of a producer; gone by itself after `lease_ms`."""

    name: str
    lease_ms: int


class KeyServer(Protocol):
    """Redis, or what stands for it in tests. All but `write` raise IdempotencyUnavailable when it does not answer."""

    async def check_settings(self) -> None:
        """Raises IdempotencyUnavailable, naming what to set, unless the server keeps what it acknowledged."""

    async def look(self) -> FoundDataset: ...

    async def install(self, marker: str, *, replaces: str | None) -> None:
        """Make `marker` the marker where there is none, or in place of `replaces`; else nothing."""

    async def read(self, guard: Guard, key: str) -> KeyReply: ...

    async def write(
        self, guard: Guard, key: str, value: bytes, *, replaces: bytes | None, window_ms: int, lease: Lease | None
    ) -> KeyReply:
        """Write where there is no value, or in place of `replaces`. Raises IdempotencyUnavailable: not written."""

    async def renew(self, lease: Lease) -> None: ...

    async def drop(self, name: str) -> None: ...

    async def holds(self, name: str) -> bool: ...

    async def close(self) -> None: ...
