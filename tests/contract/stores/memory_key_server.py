"""Redis in memory, as far as keys need it: the same interface, with faults by name."""

from uuid import uuid4

from oncelog.core.errors import IdempotencyUnavailable
from oncelog.core.http_publish.key_dataset import FoundDataset
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.keys.idempotency_backend import Guard, Holder, KeyReply


class MemoryKeyServer:
    """down: no call is answered. lose_replies: this many writes are applied but not answered."""

    def __init__(self) -> None:
        self.down = False
        self.lose_replies = 0
        self.replicas = 0
        self.writes = 0
        self.run = uuid4().hex
        self.marker: str | None = None
        self.values: dict[str, bytes] = {}
        self.leases: set[str] = set()

    def restart(self) -> None:
        self.run = uuid4().hex

    def lose_everything(self) -> None:
        self.restart()
        self.marker, self.writes, self.values, self.leases = None, 0, {}, set()

    async def check_settings(self) -> None:
        self._answer()

    async def look(self) -> FoundDataset:
        self._answer()
        return FoundDataset(self.marker, self.run, self.writes, self.replicas)

    async def install(self, marker: str, *, replaces: str | None) -> None:
        self._answer()
        if self.marker == replaces:
            self.marker = marker

    async def read(self, guard: Guard, key: str) -> KeyReply:
        self._answer()
        return KeyReply(True, value=self.values.get(key)) if self._holds(guard) else KeyReply(False)

    async def write(
        self, guard: Guard, key: str, value: bytes, *, replaces: bytes | None, window_ms: int, lease: Holder | None
    ) -> KeyReply:
        if self.down:
            return KeyReply(True, WriteStatus.UNKNOWN)
        if not self._holds(guard):
            return KeyReply(False)
        if self.values.get(key) != replaces:
            return KeyReply(True, WriteStatus.CONFLICT, self.values.get(key))
        self.values[key] = value
        if lease is not None:
            self.leases.add(lease.name)
        self.writes += 1
        if self.lose_replies:
            self.lose_replies -= 1
            return KeyReply(True, WriteStatus.UNKNOWN)
        return KeyReply(True, writes=self.writes)

    async def renew(self, lease: Holder) -> None:
        self._answer()
        self.leases.add(lease.name)

    async def drop(self, name: str) -> None:
        self._answer()
        self.leases.discard(name)

    async def holds(self, name: str) -> bool:
        self._answer()
        return name in self.leases

    async def close(self) -> None:
        """Nothing is open."""

    def _holds(self, guard: Guard) -> bool:
        fresh = guard.replicated or not self.replicas
        return fresh and guard[:2] == (self.marker, self.run) and self.writes >= guard.writes

    def _answer(self) -> None:
        if self.down:
            raise IdempotencyUnavailable("the server in memory is down")
