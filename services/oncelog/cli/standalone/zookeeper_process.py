"""The embedded ZooKeeper server of a standalone cluster, supervised like the services."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from oncelog.cli.standalone.cluster_plan import Role
from oncelog.cli.standalone.supervised_process import Addresses, ProcessState
from oncelog.runtime.zookeeper_server import EmbeddedZooKeeperFailed, ZooKeeperServer

_LOOK_EVERY_S = 0.2
_RETRY_S = 0.5
#: After a supervisor was killed, its ZooKeeper server may still run for a while.
PREDECESSOR_GONE_S = 15.0


class ZooKeeperProcess:
    """Keeps the server running on one port. `watch` is called with a sentence at each change."""

    name = "zookeeper"
    role = Role.ZOOKEEPER

    def __init__(self, data: Path, watch: Callable[[str], None]) -> None:
        self.state = ProcessState.STARTING
        self.restarts = 0
        self._data = data
        self._watch = watch
        self._server: ZooKeeperServer | None = None

    @property
    def address(self) -> str:
        assert self._server is not None, "`start` was called before"
        return self._server.address

    @property
    def pid(self) -> int | None:
        return self._server.pid if self._server is not None and self._server.alive else None

    @property
    def serving(self) -> Addresses:
        return {} if self._server is None else {"address": self._server.address}

    @property
    def has_data(self) -> bool:
        """Whether an earlier server has stored anything."""
        return any((self._data / "state").glob("version-2/*"))

    async def start(self) -> None:
        """Return when the server is ready. Raises EmbeddedZooKeeperMissing, EmbeddedZooKeeperFailed."""
        ends_at = time.monotonic() + PREDECESSOR_GONE_S
        while True:
            try:
                self._server = await ZooKeeperServer.start(self._data)
                break
            except EmbeddedZooKeeperFailed:
                # The server of a killed run may still use the directory.
                if time.monotonic() > ends_at:
                    raise
                await asyncio.sleep(_RETRY_S)
        self.state = ProcessState.SERVING

    async def keep(self) -> None:
        """Restart the server whenever it exits, until cancelled."""
        assert self._server is not None, "`start` was called before"
        while True:
            if self._server.alive:
                await asyncio.sleep(_LOOK_EVERY_S)
                continue
            self.restarts += 1
            self.state = ProcessState.WAITING
            self._watch("zookeeper exited; restarting it")
            dead = self._server
            try:
                self._server = await ZooKeeperServer.start(self._data, dead.port)
            except EmbeddedZooKeeperFailed as error:
                self._watch(f"zookeeper does not start: {error}")
                await asyncio.sleep(_RETRY_S)
                continue
            await dead.stop()
            self.state = ProcessState.SERVING
            self._watch("zookeeper is ready again")

    async def stop(self) -> None:
        self.state = ProcessState.STOPPED
        if self._server is not None:
            await self._server.stop()
