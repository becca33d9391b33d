"""The interface of a server of idempotency keys; Redis implements it (`idempotency_redis`).

This module does not import the Redis client, so that a process without Redis does not load it.
"""

from typing import NamedTuple, Protocol

from oncelog.core.http_publish.key_dataset import FoundDataset
from oncelog.core.records.status import WriteStatus


class Guard(NamedTuple):
    """The conditions under which a script does anything. writes: the highest count that this process has seen."""

    marker: str
    run: str
    writes: int
    replicated: bool


class KeyReply(NamedTuple):
    """holds False: the guard did not hold, and nothing was done. value: read, or the one that prevented a write.

    writes: the count after a write that is OK.
    """

    holds: bool
    status: WriteStatus = WriteStatus.OK
    value: bytes | None = None
    writes: int = 0


class Holder(NamedTuple):
    """Shows that a live process works on the claims of a producer. Expires after `lease_ms`."""

    name: str
    lease_ms: int


class KeyServer(Protocol):
    """Redis, or a fake. All calls but `write` raise IdempotencyUnavailable if the server does not answer."""

    async def check_settings(self) -> None:
        """Raises IdempotencyUnavailable, with the settings to change, unless the server keeps what it acknowledged."""

    async def look(self) -> FoundDataset: ...

    async def install(self, marker: str, *, replaces: str | None) -> None:
        """Set the marker if there is none, or if the present one is `replaces`. Otherwise do nothing."""

    async def read(self, guard: Guard, key: str) -> KeyReply: ...

    async def write(
        self, guard: Guard, key: str, value: bytes, *, replaces: bytes | None, window_ms: int, lease: Holder | None
    ) -> KeyReply:
        """Write if there is no value, or replace `replaces`. Raises IdempotencyUnavailable: not written."""

    async def renew(self, lease: Holder) -> None: ...

    async def drop(self, name: str) -> None: ...

    async def holds(self, name: str) -> bool: ...

    async def close(self) -> None: ...
