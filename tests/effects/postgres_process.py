"""A real PostgreSQL server for the recipe "Outbox", and sessions of psql."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from oncelog.runtime.orphan_guard import guarded
from oncelog.runtime.port_claim import claim_port, port_of
from tests.cluster.until import until_sync

START_S = 60.0
USER = "oncelog"


def program(name: str) -> str:
    """Debian keeps the server's programs outside the search path."""
    places = [os.environ.get("PATH", ""), *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    found = shutil.which(name, path=os.pathsep.join(places))
    assert found is not None, f"{name} is missing: install the package postgresql"
    return found


class PostgresProcess:
    """One server on a free port of the loopback interface, without any password."""

    def __init__(self, directory: Path, port: int) -> None:
        self._data = directory / "data"
        self._log = directory / "log"
        self.port = port
        self.url = f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Self]:
        """The directory is not below pytest's, which only its owner may enter: PostgreSQL refuses to run as root."""
        with tempfile.TemporaryDirectory(prefix="oncelog-postgres-") as directory, claim_port("127.0.0.1") as claim:
            if os.geteuid() == 0:
                shutil.chown(directory, "postgres", "postgres")
            server = cls(Path(directory), port_of(claim))
            process = server._start()
            try:
                yield server
            finally:
                process.send_signal(signal.SIGQUIT)  # at once; its own processes end, too
                process.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        made = [program("initdb"), "--pgdata", str(self._data), "--username", USER, "--auth", "trust", "--no-sync"]
        # Without a locale in its environment a database has no encoding, and SQLAlchemy cannot use it.
        made += ["--locale", "C", "--encoding", "UTF8"]
        subprocess.run(_as_other_user(made), check=True, capture_output=True, cwd="/")
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off", "port": self.port}
        command = [
            program("postgres"),
            "-D",
            str(self._data),
            *(f"--{name}={value}" for name, value in options.items()),
        ]
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                _as_other_user(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
            )
        until_sync(lambda: self._answers(process), START_S, waiting_for="PostgreSQL")
        return process

    def _answers(self, process: "subprocess.Popen[bytes]") -> bool:
        assert process.poll() is None, self._log.read_text()
        return subprocess.run([program("pg_isready"), "-q", "-d", self.url], check=False).returncode == 0

    def query(self, sql: str) -> list[str]:
        """The lines of the answer."""
        command = [program("psql"), *_QUIET, "-c", sql, self.url]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()

    def begin_script(self, sql: str) -> "subprocess.Popen[bytes]":
        """A session that performs the script and ends; returns at once."""
        with tempfile.TemporaryFile() as script:
            script.write(sql.encode())
            script.seek(0)
            return subprocess.Popen(self._session(), stdin=script)

    def begin_session(self) -> "subprocess.Popen[str]":
        """A session that waits for statements on its standard input."""
        return subprocess.Popen(self._session(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _session(self) -> list[str]:
        return guarded([program("psql"), *_QUIET, self.url])


_QUIET = ("--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set=ON_ERROR_STOP=1")


def _as_other_user(command: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root. Either way it ends with the test process."""
    if os.geteuid():
        return guarded(command)
    user = ["--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=INT"]
    return [shutil.which("setpriv") or "setpriv", *user, *command]
