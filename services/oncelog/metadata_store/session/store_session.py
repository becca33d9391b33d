"""The interface of the metadata store, which the typed stores use. ZooKeeper and a fake in memory implement it.

Rules
- A read follows a sync, so it shows every write that was answered before, to any process. Only `read_unsynced` does
  not, and what it does not show proves nothing (hazard former-incarnation). Reads are retried until a deadline, then
  StoreUnavailable.
- A write is sent at most once and names the version that it replaces; there is no write to "any version". After a lost
  reply it is UNKNOWN: applied, not applied, or even applied later. So the caller reads again and decides (hazards
  stale-record-after-conflict, 4).
- Every call has a timeout: `timeout_ms`, or the session's own if None.
- A session that ends (LOST) removes its ephemeral nodes; the connection then continues under a new session id.
- SUSPENDED means only that no server is reached now. No state makes anything safe: only the version of a write does.
- `fired` of a read is a one-shot watch: called once, on the event loop, when the result may have changed, or when the
  connection broke so that a change could be missed. `stores.watch` builds lasting watches on it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus

T = TypeVar("T")


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class Znode(NamedTuple):
    """holder: the session id that an ephemeral node belongs to; None for a lasting node. modified_ms: the store's time
    of the last write. created: number of the store's transaction that created the node; it ascends, so that a node that
    was deleted and made again has a higher one. children_changed: number of the one that last created or deleted a
    child of the node; its own before the first."""

    data: bytes
    version: int
    holder: int | None = None
    modified_ms: int = 0
    created: int = 0
    children_changed: int = 0


class WriteResult(NamedTuple):
    """version: the node's new version, valid when OK."""

    status: WriteStatus
    version: int = ABSENT_VERSION


class Versioned(NamedTuple, Generic[T]):
    """A record as read, with the version that its next write must name."""

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
    """Changes nothing. The transaction fails unless the node exists in this version."""

    path: str
    version: int


Step = CreateStep | WriteStep | DeleteStep | CheckStep
Fired = Callable[[], None]
StateListener = Callable[[SessionState], None]


class StoreSession(Protocol):
    """Paths are below the session's root and begin with `/`. Any call may raise PermissionDenied, Unauthenticated, and
    StoreUnavailable once closed."""

    def below(self, root: str) -> "StoreSession":
        """The same session with paths below `root`, which is empty or begins with `/`; what belongs to no era stays
        where it is (`rooted_session`)."""

    @property
    def state(self) -> SessionState: ...

    @property
    def session_id(self) -> int | None:
        """The session in which ephemeral nodes are created now; None while not connected."""

    @property
    def closed(self) -> bool: ...

    def add_listener(self, listener: StateListener) -> None:
        """`listener` is called on the event loop at each change of state."""

    def remove_listener(self, listener: StateListener) -> None: ...

    async def read(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> Znode | None:
        """The node after a sync, None if there is none. Raises StoreUnavailable at the deadline."""

    async def read_unsynced(self, path: str, *, timeout_ms: int | None = None) -> Znode | None:
        """The node as the connected server has it, possibly an old one; only for hints and listings."""

    async def children(self, path: str, *, fired: Fired | None = None, timeout_ms: int | None = None) -> list[str]:
        """Names of the children after a sync, sorted. Raises NotFound if there is no such node."""

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, timeout_ms: int | None = None
    ) -> WriteStatus:
        """CONFLICT: it exists. Raises NotFound if the parent does not."""

    async def create_sequential(
        self, path: str, data: bytes, *, timeout_ms: int | None = None
    ) -> tuple[WriteStatus, str | None]:
        """An ephemeral node of this session at `path` + ten ascending digits. Returns its path when OK."""

    async def write(self, path: str, data: bytes, *, version: int, timeout_ms: int | None = None) -> WriteResult:
        """CONFLICT: another version, or no node; a read tells which."""

    async def delete(self, path: str, *, version: int, timeout_ms: int | None = None) -> WriteStatus:
        """CONFLICT: another version, no node, or it has children."""

    async def transact(self, steps: Sequence[Step], *, timeout_ms: int | None = None) -> WriteStatus:
        """All steps or none. Raises NotFound if the parent of a created node does not exist."""

    async def ensure_path(self, path: str, *, timeout_ms: int | None = None) -> None:
        """Create the lasting, empty node and its parents, each only if absent."""

    async def note(self, records: Sequence[str], *, deleted: bool = False) -> None:
        """For a session that notes (`notes.noting_session`): return when what these records are is noted. Others do
        nothing. deleted: those that are missing were deleted, and not lost. Raises StoreUnavailable."""

    async def close(self) -> None:
        """End the session, which removes its ephemeral nodes. May be called again."""


async def create_or_write(session: StoreSession, path: str, data: bytes, *, version: int) -> WriteResult:
    """One compare-and-set; ABSENT_VERSION creates. Raises NotFound if the parent of a created node is missing."""
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
        """allowed_ms: a shorter absence is no reason. now_ms: a monotonic clock."""
        self._allowed_ms = allowed_ms
        self._now_ms = now_ms
        #: when the session lost its server; None while it has one
        self._since_ms: int | None = None
        self._heard(session.state)
        session.add_listener(self._heard)

    def reason(self) -> str | None:
        """For `Health.ready_when`: None, or how long there has been no session."""
        if self._since_ms is None:
            return None
        absent_ms = self._now_ms() - self._since_ms
        return f"no session for {absent_ms // 1000} s" if absent_ms > self._allowed_ms else None

    def _heard(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._since_ms = None
        elif self._since_ms is None:
            self._since_ms = self._now_ms()
