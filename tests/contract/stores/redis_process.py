"""A real redis-server for tests, with synced writes and without eviction. Tests kill, restart, empty and replicate
it."""

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from oncelog.runtime.orphan_guard import guarded
from oncelog.runtime.port_claim import claim_port, port_of
from tests.cluster.kills import end, kill_sync
from tests.cluster.until import until_sync

START_S = 60.0


class RedisProcess:
    """Keeps its port when it restarts, and while it is down."""

    def __init__(self, directory: Path, *options: str) -> None:
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is missing: install the package redis-server"
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.claim = claim_port("127.0.0.1")
        self.port = port_of(self.claim)
        self._command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(directory)]
        self._command += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        self._command += ["--maxmemory-policy", "noeviction", *options]
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextmanager
    def running(cls, directory: Path, *options: str) -> Iterator["RedisProcess"]:
        server = cls(directory, *options)
        try:
            server.start()
            yield server
        finally:
            server.end()
            server.claim.close()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Return once it answers."""
        with (self.directory / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(guarded(self._command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until_sync(self._answers, START_S, waiting_for="redis-server")

    def kill(self, *, once: Callable[[], object]) -> None:
        """SIGKILL as soon as the condition holds, see `tests.cluster.kills`."""
        assert self._process is not None
        kill_sync(self._process, once=once)
        self._process = None

    def end(self) -> None:
        """Kill it if it runs still."""
        if self._process is not None:
            end(self._process)
            self._process = None

    def lose_everything(self) -> None:
        """Delete the files of a killed server, as with a new disk."""
        shutil.rmtree(self.directory / "appendonlydir")

    def set_password(self, former: str, password: str) -> None:
        """From now on require this password. Present connections stay."""
        self._say(former, f"CONFIG SET requirepass {password}")

    def cut_clients(self, password: str) -> None:
        """Close every connection but that of this call."""
        self._say(password, "CLIENT KILL TYPE normal SKIPME yes")

    def _say(self, password: str, command: str) -> None:
        with socket.create_connection(("127.0.0.1", self.port), timeout=START_S) as connection:
            for line in (f"AUTH {password}", command):
                connection.sendall(f"{line}\r\n".encode())
                answer = connection.recv(100)
                assert answer.startswith((b"+OK", b":")), answer

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "redis.log").read_text()[-2000:]
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(100).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
