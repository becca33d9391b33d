"""An archive of the classes that ZooKeeper loads: half the CPU of a server that starts, of which the suite starts 70.

Java ignores an archive that another Java or other jars have made, and starts as without it.
"""

import hashlib
import os
import shlex
import tempfile
from pathlib import Path

from kazoo.client import KazooClient

from oncelog.runtime.zookeeper_server import ZooKeeperServer, find_java, find_server_jars

#: which ZooKeeper's own start script reads, too
FLAGS = "SERVER_JVMFLAGS"


def use_class_archive(folder: Path) -> None:
    """All servers that this process and its children start from now on use the archive; it is made if it is missing.

    Raises EmbeddedZooKeeperMissing, EmbeddedZooKeeperFailed.
    """
    archive = folder / f"zookeeper-{_origin()}.jsa"
    given = os.environ.get(FLAGS, "")
    if not archive.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as made:
            _make(Path(made), given)
            (Path(made) / "archive").replace(archive)
    os.environ[FLAGS] = f"{given} {shlex.quote(f'-XX:SharedArchiveFile={archive}')}"


def _make(folder: Path, given: str) -> None:
    """A server writes the classes that it has loaded when it ends."""
    os.environ[FLAGS] = f"{given} {shlex.quote(f'-XX:ArchiveClassesAtExit={folder}/archive')}"
    with ZooKeeperServer.running(folder / "server") as server:
        client = KazooClient(server.address)
        client.start(30)
        client.create("/an/example", b"", makepath=True)
        client.delete("/an", recursive=True)
        client.stop()
        client.close()


def _origin() -> str:
    """Of the Java and the jars that are installed."""
    files = [find_java().resolve(), *find_server_jars()]
    versions = [(str(each), each.stat().st_size, each.stat().st_mtime_ns) for each in files]
    return hashlib.sha256(repr(versions).encode()).hexdigest()[:16]
