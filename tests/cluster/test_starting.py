"""Processes that start before the services that they need: they report what is missing, and are not ready."""

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.log_storage.directory import StorageDirectory
from oncelog.runtime.process import ExitCode
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from oncelog.stores.registry import Registry
from oncelog.stores.zookeeper import ZooKeeperSession
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

DEADLINE_S = 30.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """One service at a known health port, advertised as localhost."""

    def __init__(self, folder: Path, module: str, zookeeper: str, *arguments: str, **environment: str) -> None:
        self.health_port = free_port()
        self._log = folder / f"{module}-{self.health_port}.log"
        self._output = self._log.with_suffix(".out")
        command = [sys.executable, "-m", f"oncelog.{module}", "--zookeeper", zookeeper, "--host", "0.0.0.0"]
        command += ["--port", "0", "--health-port", str(self.health_port), "--advertised-host", "localhost", *arguments]
        own = {name: value for name, value in os.environ.items() if not name.startswith("ONCELOG_")}
        with self._output.open("wb") as output, self._log.open("wb") as log:
            self.popen = subprocess.Popen(command, stdout=output, stderr=log, env=own | environment)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def health(self, path: str) -> tuple[int, dict[str, str]]:
        """Status, and the reasons by name. The status is 0 before the port is open."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}{path}", timeout=5) as answer:
                return answer.status, json.load(answer)["reasons"]
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)["reasons"]
        except OSError:
            return 0, {}

    async def says(self, words: str) -> None:
        await until(lambda: words in self.log, DEADLINE_S, waiting_for=words)

    async def serving(self) -> dict[str, str]:
        await until(lambda: self._output.read_bytes().endswith(b"\n"), DEADLINE_S, waiting_for=str(self._log))
        serving: dict[str, str] = json.loads(self._output.read_text())["serving"]
        return serving

    async def ended(self) -> int:
        await until(lambda: self.popen.poll() is not None, DEADLINE_S)
        return self.popen.returncode

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait()


@contextmanager
def processes(folder: Path, zookeeper: str) -> Iterator[Any]:
    """start(module, …) inside the block; all are killed at its end."""
    with ExitStack() as stack:

        def start(module: str, *arguments: str, **environment: str) -> Process:
            process = Process(folder, module, zookeeper, *arguments, **environment)
            stack.callback(process.end)
            return process

        yield start


async def test_processes_wait_for_missing_services_at_start(tmp_path: Path) -> None:
    """Owner, storage node and metadata first, then ZooKeeper, then the cluster. A waiting process reports what it waits
    for, stays alive and is not ready. All register their advertised names. If ZooKeeper never returns, the storage node
    reports that, too."""
    port = free_port()
    with processes(tmp_path, f"127.0.0.1:{port}") as start, ExitStack() as stack:
        node = start("log_storage", "--data", str(tmp_path / "node"), ONCELOG_SESSION_TIMEOUT_MS="2000")
        metadata = start("metadata", "--http-port", "0")
        early = [start("topic_owner"), node, metadata]
        for process in early:
            await until(lambda p=process: p.health("/livez")[0] == 200, DEADLINE_S)  # type: ignore[misc]
            assert process.health("/readyz")[0] == 503
        hasty = start("topic_owner", ONCELOG_START_TIMEOUT_MS="1")
        assert await hasty.ended() == ExitCode.FAILED
        assert f"no ZooKeeper answered at 127.0.0.1:{port} within" in hasty.log
        assert "correct ONCELOG_ZOOKEEPER_HOSTS" in hasty.log

        stack.enter_context(ZooKeeperServer.running(tmp_path / "zookeeper", port=port))
        for process in early:
            await process.says("waiting for the cluster's record")
            code, reasons = process.health("/readyz")
            assert (code, list(reasons)) == (503, ["state"])
            assert "ZooKeeper has no record of a cluster: if this cluster is new, create it with" in reasons["state"]
        creation = start("metadata", "--create-cluster")
        assert await creation.ended() == ExitCode.OK
        for serving in [await process.serving() for process in early]:
            assert serving["address"].startswith("localhost:")
        session = await ZooKeeperSession.connect(f"127.0.0.1:{port}")
        registry = Registry(session)
        hosts = [record.host for record in (await registry.owners.live()).values()]
        hosts += [record.host for record in (await registry.storage_nodes.live()).values()]
        hosts += [record.host for record in (await registry.metadata.live()).values()]
        assert hosts == ["localhost"] * 3
        await session.close()

        await early[0].says("lower ONCELOG_WRITE_QUORUM")
        code, reasons = early[0].health("/readyz")
        assert (code, list(reasons)) == (503, ["storage"]), "one storage node is too few for three copies"
        await until(lambda: node.health("/readyz")[0] == metadata.health("/readyz")[0] == 200, DEADLINE_S)

        cluster_id = json.loads((tmp_path / "node" / "identity.json").read_text())["cluster_id"]
        foreign = tmp_path / "foreign"
        StorageDirectory.open(foreign, "0" * 32, segment_bytes=8 << 20).close()
        stranger = start("log_storage", "--data", str(foreign))
        assert await stranger.ended() == ExitCode.FAILED
        assert f"belongs to cluster {'0' * 32}, but ZooKeeper has cluster {cluster_id}" in stranger.log
        assert "keep this directory" in stranger.log

        stack.close()
        reasons = await until(lambda: node.health("/readyz")[1], DEADLINE_S, waiting_for="a node without ZooKeeper")
        assert list(reasons) == ["zookeeper"]
        assert reasons["zookeeper"].startswith("no session for ")
        assert node.health("/livez") == (200, {}), "starting again would not bring ZooKeeper back"
