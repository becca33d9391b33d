"""Ends sessions with ZooKeeper by command, so that no test waits until one times out.

A short session timeout ends the sessions of living processes, too, on a machine that is busy with other work. So tests
give their processes a long one, and end the session of a process that they have stopped or killed: ZooKeeper lets
another connection take over a session by its id and password, and close it. The process, if it lives, is told that its
session has expired when it next speaks to ZooKeeper.
"""

import asyncio
import json
import struct
from collections.abc import Mapping

from kazoo.client import KazooClient

from oncelog.core.errors import StoreUnavailable
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession
from tests.cluster.until import until

#: No pause of a busy machine lasts so long: a session ends only where a test ends it.
SESSION_TIMEOUT_MS = 30_000
#: For a process that loses its connection for good: after so long without one it looks whether ZooKeeper has lost its
#: data, or says that ZooKeeper is away. That is a clock of the process, which no command can advance.
AWAY_MS = 2_000
_DEADLINE_S = 40.0
_FOLDERS = (paths.OWNERS, paths.STORAGE, paths.METADATA)
# java.util.Random, and the secret of ZooKeeperServer.generatePasswd.
_MULTIPLIER, _INCREMENT, _MASK, _SECRET = 0x5DEECE66D, 0xB, (1 << 48) - 1, 0xB3415C00


def password_of(session_id: int) -> bytes:
    """Of the session, as the server computes it: `new Random(id ^ secret).nextBytes` of 16 bytes."""
    state = (session_id ^ _SECRET ^ _MULTIPLIER) & _MASK
    words = []
    for _ in range(4):
        state = (state * _MULTIPLIER + _INCREMENT) & _MASK
        words.append(state >> 16)
    return struct.pack("<4I", *words)


async def end_session(zookeeper: str, session_id: int) -> None:
    """Return once the server has ended the session. zookeeper: "host:port". Raises AssertionError if it had ended."""
    await asyncio.to_thread(_end_session, zookeeper, session_id)


async def session_of(zookeeper: str, serving: Mapping[str, str]) -> int:
    """Id of the session that holds the registration of a process. serving: what the process has reported.

    Of two registrations of a metadata service at one address, the newest: the other is of its predecessor.
    """
    async with asyncio.timeout(_DEADLINE_S):
        session = await ZooKeeperSession.connect(zookeeper)
        try:
            found = await until(lambda: _holder(session, serving), _DEADLINE_S, waiting_for=f"the session of {serving}")
        finally:
            await session.close()
    assert found is not None
    return found


async def _holder(session: StoreSession, serving: Mapping[str, str]) -> int | None:
    record = await ClusterStore(session).read()
    if record is None:
        raise StoreUnavailable("there is no cluster")
    era = session.below(paths.era_root(record.era.number))
    for folder in _FOLDERS:
        for name in reversed(await era.children(folder)):
            node = await era.read(f"{folder}/{name}")
            if node is not None and (name == serving.get("incarnation") or _address(node.data) == serving["address"]):
                return node.holder
    return None


def _address(data: bytes) -> str:
    """Of a metadata service, which has no other name."""
    record = json.loads(data)
    return f"{record['host']}:{record.get('ports', {}).get('grpc')}"


def _end_session(zookeeper: str, session_id: int) -> None:
    client_id = (session_id, password_of(session_id))
    other = KazooClient(zookeeper, timeout=SESSION_TIMEOUT_MS / 1000, client_id=client_id)
    try:
        other.start(timeout=_DEADLINE_S)
        assert other.client_id == client_id, f"session {session_id:#x} has ended before, or its password is another"
    finally:
        other.stop()
        other.close()
