"""The embedded ZooKeeper server of a standalone cluster, supervised like the services."""

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from oncelog.cli.standalone.cluster_plan import Role
from oncelog.cli.standalone.supervised_process import Addresses, ProcessState
from oncelog.runtime.zookeeper_server import HOST, EmbeddedZooKeeperFailed, ZooKeeperServer

_LOOK_EVERY_S = 0.2
_RETRY_S = 0.5
#: After a supervisor was killed, its ZooKeeper server may still run for a while.
PREDECESSOR_GONE_S = 15.0
#: A server writes a snapshot when it starts, and a log. So much is kept for them until the disk is full.
SPARE_BYTES = 8 << 20


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
        #: reserved by the supervisor, which sets it before the start
        self.port = 0

    @property
    def address(self) -> str:
        assert self.port, "the port is set before"
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        return self._server.pid if self._server is not None and self._server.alive else None

    @property
    def serving(self) -> Addresses:
        return {"address": self.address} if self.state is ProcessState.SERVING else {}

    @property
    def has_data(self) -> bool:
        """Whether an earlier server has stored anything."""
        return any((self._data / "state").glob("version-2/*"))

    async def keep(self) -> None:
        """Start the server, and restart it whenever it exits, until cancelled.

        Raises EmbeddedZooKeeperMissing, EmbeddedZooKeeperFailed if the first start fails.
        """
        self._server = await self._first_start()
        self.state = ProcessState.SERVING
        while True:
            if self._server.alive:
                await asyncio.sleep(_LOOK_EVERY_S)
                continue
            self.restarts += 1
            self.state = ProcessState.WAITING
            self._watch("zookeeper exited; restarting it")
            dead = self._server
            try:
                self._make_room()
                self._server = await ZooKeeperServer.start(self._data, self.port)
            except (EmbeddedZooKeeperFailed, OSError) as error:
                self._watch(f"zookeeper does not start: {error}")
                await asyncio.sleep(_RETRY_S)
                continue
            await dead.stop()
            self.state = ProcessState.SERVING
            self._watch("zookeeper is ready again")

    async def _first_start(self) -> ZooKeeperServer:
        ends_at = time.monotonic() + PREDECESSOR_GONE_S
        while True:
            self._make_room()
            try:
                return await ZooKeeperServer.start(self._data, self.port)
            except EmbeddedZooKeeperFailed:
                # The server of a killed run may still use the directory.
                if time.monotonic() > ends_at:
                    raise
                await asyncio.sleep(_RETRY_S)

    def _make_room(self) -> None:
        """Give the spare space up on a full disk, or keep it for the next time. Raises OSError."""
        self._data.mkdir(parents=True, exist_ok=True)
        if spare_given_up(self._data / "spare", shutil.disk_usage(self._data).free):
            self._watch("the disk is full: zookeeper starts with the space that was kept for it. Free space now")

    async def stop(self) -> None:
        self.state = ProcessState.STOPPED
        if self._server is not None:
            await self._server.stop()


def spare_given_up(spare: Path, free_bytes: int) -> bool:
    """Whether the file was there, and was deleted, because so few bytes are free. With many, it is made. Raises
    OSError."""
    if free_bytes < SPARE_BYTES:
        if not spare.exists():
            return False
        spare.unlink()
        return True
    if free_bytes > 4 * SPARE_BYTES and not spare.exists():
        with spare.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, SPARE_BYTES)
    return False
