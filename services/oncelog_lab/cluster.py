"""The launcher: `oncelog standalone` as a child process. Or a running cluster that the user names by its URL.

A cluster of the lab has the default settings of the product, unless a benchmark names others. Only its processes may
be killed.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from oncelog.cli.admin.rest_paths import topic_path
from oncelog.cli.standalone.status import read_status
from oncelog.client.client import AsyncClient
from oncelog.client.connecting import connect
from oncelog.runtime.port_claim import claim_port, port_of
from oncelog_lab.access import ClusterAccess, RestClient
from oncelog_lab.child_process import LabChild, Line
from oncelog_lab.failures import LabFailed
from oncelog_lab.waiting import until

START_DEADLINE_S = 120.0
SERVING_DEADLINE_S = 60.0
STATS_DEADLINE_S = 120.0
_CONNECT_TIMEOUT_S = 10.0
STORAGE_NODES = 3
_HOST = "127.0.0.1"


class ClusterProcess(NamedTuple):
    """One process of the cluster. pid: None while it is down. address: of its gRPC port, empty before it serves."""

    name: str
    role: str
    pid: int | None
    serving: bool
    address: str


class LabCluster:
    """data: directory of a cluster that the lab has started; None for a cluster that was there before."""

    def __init__(self, access: ClusterAccess, data: Path | None = None) -> None:
        self.access = access
        self._data = data

    @property
    def url(self) -> str:
        return self.access.url

    @property
    def admin_url(self) -> str:
        return self.access.admin_url

    @property
    def pulsar_url(self) -> str:
        """For clients of Pulsar; empty without a door. Raises LabFailed as `processes`."""
        return str(self._status()["pulsar_url"])

    @property
    def kafka_servers(self) -> str:
        """host:port, for clients of Kafka; empty without a door. Raises LabFailed as `processes`."""
        return str(self._status()["kafka_servers"])

    @property
    def console(self) -> str:
        """The address of the console, or that it is off. Raises LabFailed as `processes`."""
        return str(self._status()["console_url"]) or "off: ONCELOG_CONSOLE is false"

    async def connect(self, *, storage_reads: bool = True, keep_memory: bool = True) -> AsyncClient:
        """A client with a short timeout: the lab does not wait for a cluster that is not there."""
        return await connect(
            self.url, operation_timeout=_CONNECT_TIMEOUT_S, storage_reads=storage_reads, keep_memory=keep_memory
        )

    @asynccontextmanager
    async def rest(self) -> AsyncIterator[RestClient]:
        rest = self.access.rest()
        try:
            yield rest
        finally:
            await rest.close()

    def directory_of(self, process: ClusterProcess) -> Path:
        """The data directory of a storage node. Raises LabFailed for a cluster that the lab has not started."""
        if self._data is None:
            raise LabFailed("this command changes data directories and needs a cluster of its own: leave out --url")
        return self._data / process.name

    def processes(self) -> list[ClusterProcess]:
        """All processes. Raises LabFailed for a cluster that the lab has not started."""
        return [
            ClusterProcess(
                each["name"],
                each["role"],
                each["pid"],
                each["state"] == "serving" and each["pid"] is not None,
                str(each["serving"].get("address", "")),
            )
            for each in self._status()["processes"]
        ]

    def _status(self) -> dict[str, Any]:
        if self._data is None:
            raise LabFailed("this command kills processes and needs a cluster of its own: leave out --url")
        return read_status(self._data / "standalone.json")

    def serving(self, role: str) -> list[ClusterProcess]:
        """The processes of a role that serve now."""
        return [process for process in self.processes() if process.serving and process.role == role]

    async def until_serving(self, counts: Mapping[str, int]) -> None:
        """Wait until so many processes of each role serve. Raises LabFailed."""
        await until(
            lambda: all(len(self.serving(role)) >= count for role, count in counts.items()),
            SERVING_DEADLINE_S,
            f"the processes to serve again: {dict(counts)}",
        )

    async def stats(self, topic: str) -> dict[str, Any]:
        """The statistics of a topic, as REST shows them, once an owner serves it. Raises LabFailed."""
        async with self.rest() as rest:

            async def served() -> dict[str, Any] | None:
                answer = await rest.call("GET", f"{topic_path(topic)}/stats")
                if answer.ok and isinstance(answer.body, dict):
                    return answer.body if answer.body["phase"] == "serving" else None
                if not answer.retriable:
                    raise LabFailed(f"no statistics of {topic}: REST answers {answer.status}: {answer.detail}")
                return None

            return await until(served, STATS_DEADLINE_S, f"an owner to serve {topic}")

    async def owner_of(self, topic: str) -> ClusterProcess:
        """The process that serves a topic. Raises LabFailed."""
        address = (await self.stats(topic))["owner_address"]
        for process in self.serving("owner"):
            if process.address == address:
                return process
        raise LabFailed(f"no process of the cluster has the address of the owner of {topic}, {address}")


def signal_process(process: ClusterProcess, number: signal.Signals) -> None:
    """Send a signal to a process of the cluster. Raises LabFailed if it is down."""
    try:
        if process.pid is None:
            raise ProcessLookupError
        os.kill(process.pid, number)
    except ProcessLookupError as error:
        raise LabFailed(f"{process.name} is down already") from error


@asynccontextmanager
async def standalone_cluster(
    data: Path,
    *,
    owners: int = 2,
    metadata: int = 1,
    storage_nodes: int = STORAGE_NODES,
    log: Path | None = None,
    on_line: Line | None = None,
    settings: Mapping[str, str] | None = None,
    door: bool = False,
) -> AsyncIterator[LabCluster]:
    """Start a cluster on free ports, and drain it at the end of the block. Raises LabFailed.

    log, on_line: see `LabChild.start`; without both, the log is beside `data`.
    settings: environment variables of all processes, besides the defaults. door: one for clients of Pulsar and
    of Kafka.
    """
    counts: tuple[str, ...] = (
        "--storage-nodes",
        str(storage_nodes),
        "--owners",
        str(owners),
        "--metadata",
        str(metadata),
    )
    if door:
        # The ports of a standalone door must be named. The cluster claims them itself, at once.
        with claim_port(_HOST) as pulsar, claim_port(_HOST) as kafka:
            counts += ("--pulsar-port", str(port_of(pulsar)), "--kafka-port", str(port_of(kafka)))
    child = await LabChild.start(
        "the standalone cluster",
        (
            *(sys.executable, "-m", "oncelog.cli", "standalone", "--data", str(data), *counts),
            *("--port", "0", "--http-port", "0", "-o", "json"),
        ),
        log=log if log is not None or on_line is not None else data.with_suffix(".log"),
        on_line=on_line or (lambda _: None),
        announces="url",
        deadline_s=START_DEADLINE_S,
        environment=settings,
    )
    try:
        access = ClusterAccess(str(child.announced["url"]), str(child.announced["admin_url"]))
        yield LabCluster(access, data)
    finally:
        await child.stop()
