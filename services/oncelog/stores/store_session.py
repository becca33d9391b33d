"""The low-level face of the metadata store: what the typed stores stand on, ZooKeeper or a fake in memory alike.

Rules
- A read follows a sync, so that it shows every write answered before it, by whomever; `read_unsynced` alone does not,
  and proves nothing by what it fails to show (hazard 2). Reads are repeated until a deadline, then StoreUnavailable.
- A write is sent at most once and names the version it replaces; there is no write to "any version". A lost reply is
  UNKNOWN: it may have been applied, or even be applied later, so the caller reads again and decides (hazards 1, 4).
- Every call has a deadline: `timeout_ms`, or the session's own when None.
- A session that ends (LOST) takes its ephemeral nodes with it; the connection then goes on under a new session id.
- SUSPENDED means only that no server is reached now. No state proves anything safe: the version of a write decides.
- `fired` of a read is a one-shot watch: called once, on the event loop, when what was read may have changed, or the
  connection broke so that a change could be missed. `stores.watch` makes lasting watches of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from oncelog.core.coordination.id_claim import ABSENT_VERSION
from oncelog.core.store_status import WriteStatus

T = TypeVar("T")


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Znode(NamedTuple):
    """holder: the session id an ephemeral node lives with; None: it stays."""

    data: bytes
    version: int
    holder: int | None = None


class WriteResult(NamedTuple):
    """version: the node's new one, meaningful when OK."""

    status: WriteStatus
    version: int = ABSENT_VERSION


class Versioned(NamedTuple, Generic[T]):
    """A record as read, and the version that its next write names."""

    value: T
    version: int


@dataclass(frozen=True, slots=True)
class CreateStep:
    path: str
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class WriteStep:
    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class DeleteStep:
    path: str
    version: int


@dataclass(frozen=True, slots=True)
class CheckStep:
    """Changes nothing: the node is there in this version, or nothing of the transaction is done."""

    path: str
    version: int


Step = CreateStep | WriteStep | DeleteStep | CheckStep
Fired = Callable[[], None]
StateListener = Callable[[SessionState], None]


class StoreSession(Protocol):
    """Paths are below the session's root and begin with `/`. Any call: PermissionDenied, Unauthenticated, and
    StoreUnavailable once closed."""

    @property
    def state(self) -> SessionState: ...

    @property
    def session_id(self) -> int | None:
        """Of the session in which ephemeral nodes are made now; None while not connected."""

    @property
    def closed(self) -> bool: ...

    def add_listener(self, listener: StateListener) -> None:
        """`listener` is called on the event loop at each change of state."""

    def remove_listener(self, listener: StateListener) -> None: ...

    async def read(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> Znode | None:
        """The node after a sync, None when there is none. Raises StoreUnavailable at the deadline."""

    async def read_unsynced(self, path: str, *, timeout_ms: int | None = None) -> Znode | None:
        """The node as the nearest server has it, perhaps an old one; for hints and listings alone."""

    async def children(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> list[str]:
        """Names of the children after a sync, sorted. Raises NotFound when there is no such node."""

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, timeout_ms: int | None = None
    ) -> WriteStatus:
        """CONFLICT: it exists. Raises NotFound when the parent does not."""

    async def create_sequential(
        self, path: str, data: bytes, *, timeout_ms: int | None = None
    ) -> tuple[WriteStatus, str | None]:
        """An ephemeral node of this session at `path` + ten digits that ascend; its path when OK."""

    async def write(self, path: str, data: bytes, *, version: int, timeout_ms: int | None = None) -> WriteResult:
        """CONFLICT: another version, or no node; a read tells which."""

    async def delete(self, path: str, *, version: int, timeout_ms: int | None = None) -> WriteStatus:
        """CONFLICT: another version, no node, or it has children."""

    async def transact(self, steps: Sequence[Step], *, timeout_ms: int | None = None) -> WriteStatus:
        """All steps or none. Raises NotFound when the parent of a created node does not exist."""

    async def ensure_path(self, path: str, *, timeout_ms: int | None = None) -> None:
        """Create the node and its parents, each only if absent, empty and lasting."""

    async def close(self) -> None:
        """End the session, and with it its ephemeral nodes. May be called again."""


async def create_or_write(session: StoreSession, path: str, data: bytes, *, version: int) -> WriteResult:
    """One compare-and-set; ABSENT_VERSION creates. Raises NotFound when the parent to create it below is missing."""
    if version != ABSENT_VERSION:
        return await session.write(path, data, version=version)
    status = await session.create(path, data)
    return WriteResult(status, 0) if status is WriteStatus.OK else WriteResult(status)


class SessionAbsence:
    """How long a session has had no server: the reason that a process gives for not being ready.

    A process that serves without ZooKeeper, as a storage node does, tolerates an absence for a while: an election takes
    seconds and affects all processes at once, and must not fail a rollout.
    """

    def __init__(self, session: StoreSession, *, allowed_ms: int, now_ms: Callable[[], int]) -> None:
        """allowed_ms: an absence is no reason before it is longer. now_ms: a clock that only goes forward."""
        self._allowed_ms = allowed_ms
        self._now_ms = now_ms
        #: when the session was last seen to leave its server; None while it has one
        self._since_ms: int | None = None
        self._heard(session.state)
        session.add_listener(self._heard)

    def reason(self) -> str | None:
        """For `Health.ready_when`: None, or for how long there has been no session."""
        if self._since_ms is None:
            return None
        absent_ms = self._now_ms() - self._since_ms
        return f"no session for {absent_ms // 1000} s" if absent_ms > self._allowed_ms else None

    def _heard(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._since_ms = None
        elif self._since_ms is None:
            self._since_ms = self._now_ms()
