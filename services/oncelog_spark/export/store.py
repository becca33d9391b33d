"""The directory of an export: on a file system of this machine (including NFS), or on HDFS.

An export needs a store where a manifest is created atomically, and only under a free name; other stores are refused.
Locally a hard link does this (a rename would replace); on HDFS a rename, which refuses a name that is taken. Both hold
across machines. Data files do not need this: no two runs use the same names.
"""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from oncelog.core.errors import InvalidArgument
from oncelog_spark.export.clean import DirectorySize
from oncelog_spark.export.manifest import (
    MANIFESTS,
    RUN,
    RUNS,
    ExportManifest,
    check_dense,
    decode_manifest,
    encode_claim,
    encode_manifest,
    is_claim,
    manifest_name,
    manifest_number,
)
from oncelog_spark.export.options import ExportLocation
from oncelog_spark.locations import LOCAL

#: The manifest of a run before it gets its final name: in the directory of the run, under a name that Spark skips.
_DRAFT = "_manifest.json"


class FileStore(Protocol):
    """Files below one directory. Paths are relative to it, with slashes."""

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty where it does not exist."""

    def read(self, path: str) -> bytes:
        """A whole file."""

    def write(self, path: str, data: bytes) -> None:
        """Create a file durably, with the directories above it. No other process uses this name."""

    def publish(self, draft: str, path: str) -> bool:
        """Give the draft this name, atomically, in addition or instead; False: the name is taken."""

    def sizes(self, path: str) -> dict[str, int]:
        """{path of each file in or below a directory: its bytes}."""

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with its contents, if it exists."""


def store_of(directory: ExportLocation, session: SparkSession) -> FileStore:
    """Raises InvalidArgument where the location is not a directory."""
    if directory.scheme == LOCAL:
        return LocalStore(Path(directory.path))
    return HadoopStore(session, directory.uri)


class ExportStore:
    """Manifests and runs in a store.

    Directories of other programs are never deleted: a run claims its name by a file in RUNS before it makes its
    directory, and only claimed directories are removed. Another directory whose name begins like a run's is kept.
    """

    def __init__(self, store: FileStore) -> None:
        self._store = store

    def manifests(self) -> list[ExportManifest]:
        """All manifests, by number. Raises CorruptEntry, LogHole."""
        numbers = self._numbers()
        found = [self._manifest(number) for number in numbers]
        check_dense(found)
        return found

    def last(self) -> ExportManifest | None:
        """The last manifest; None: there is none. Raises CorruptEntry, LogHole."""
        numbers = self._numbers()
        if numbers and numbers != list(range(len(numbers))):
            check_dense([self._manifest(number) for number in numbers])
        return self._manifest(numbers[-1]) if numbers else None

    def commit(self, manifest: ExportManifest) -> str | None:
        """Store the manifest, and return None. If another run has its number: return the name of that run, and delete
        this manifest's run."""
        draft, path = f"{manifest.run}/{_DRAFT}", f"{MANIFESTS}/{manifest_name(manifest.number)}"
        self.claim(manifest.run)
        self._store.write(draft, encode_manifest(manifest))
        published = self._store.publish(draft, path)
        stored = manifest.run if published else self._manifest(manifest.number).run
        # When the answer of a successful link was lost, the retry reports that the name is taken.
        if stored != manifest.run:
            self.remove(manifest.run)
            return stored
        with suppress(OSError, Py4JError):  # it is not needed any more, and harmless
            self._store.remove(f"{RUNS}/{manifest.run}")
        return None

    def claim(self, run: str) -> None:
        """Claim the directory of this run for the export, before it is made. Idempotent."""
        if run not in self._store.names(RUNS):
            self._store.write(f"{RUNS}/{run}", encode_claim(run))

    def runs(self) -> list[str]:
        """Names of runs that were begun and neither committed nor removed; may include a run that has just
        committed."""
        return [name for name in self._store.names(RUNS) if self._is_claimed(name)]

    def foreign(self) -> list[str]:
        """Names in the directory that begin like a run's, but belong to no claim and no manifest."""
        named = [name for name in self._store.names("") if name.startswith(RUN)]
        known = {*self.runs(), *(manifest.run for manifest in self.manifests())} if named else set()
        return [name for name in named if name not in known]

    def size_of(self, run: str) -> DirectorySize:
        sizes = self.sizes(run)
        return DirectorySize(len(sizes), sum(sizes.values()))

    def sizes(self, run: str) -> Mapping[str, int]:
        """{path of a data file: its bytes}; without hidden files."""
        found = self._store.sizes(run)
        return {path: size for path, size in found.items() if not path.rpartition("/")[2].startswith(("_", "."))}

    def remove(self, run: str) -> None:
        """Remove the run's files. The claim is removed last, so that an interrupted removal can be repeated."""
        if run in self._store.names(RUNS) and self._is_claimed(run):
            self._store.remove(run)
            self._store.remove(f"{RUNS}/{run}")

    def _is_claimed(self, name: str) -> bool:
        return is_claim(name, self._store.read(f"{RUNS}/{name}"))

    def _numbers(self) -> list[int]:
        found = (manifest_number(name) for name in self._store.names(MANIFESTS))
        return sorted(number for number in found if number is not None)

    def _manifest(self, number: int) -> ExportManifest:
        return decode_manifest(number, self._store.read(f"{MANIFESTS}/{manifest_name(number)}"))


class LocalStore:
    """On a file system of this machine."""

    def __init__(self, root: Path) -> None:
        if root.exists() and not root.is_dir():
            raise InvalidArgument(f"{root} is not a directory", field="directory")
        self._root = root

    def names(self, path: str) -> list[str]:
        directory = self._root / path
        return sorted(each.name for each in directory.iterdir()) if directory.is_dir() else []

    def read(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def publish(self, draft: str, path: str) -> bool:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(self._root / draft, target)
        except FileExistsError:
            return False
        _sync_directory(target.parent)
        _sync_directory(self._root)
        return True

    def sizes(self, path: str) -> dict[str, int]:
        found = {}
        for directory, _, names in os.walk(self._root / path):
            for name in names:
                file = Path(directory) / name
                found[file.relative_to(self._root).as_posix()] = file.stat().st_size
        return found

    def remove(self, path: str) -> None:
        target = self._root / path
        if target.is_symlink() or target.is_file():
            target.unlink()
        elif target.exists():
            shutil.rmtree(target)


class HadoopStore:
    """A directory that Hadoop's FileContext can access. Of its schemes only HDFS is allowed, for its kind of rename."""

    def __init__(self, session: SparkSession, uri: str) -> None:
        # PySpark's own access to Java; it has no public name.
        spark: Any = session.sparkContext
        jvm, configuration = spark._jvm, spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self._hadoop: Any = jvm.org.apache.hadoop
        self._io: Any = jvm.org.apache.commons.io.IOUtils
        self._root = self._hadoop.fs.Path(uri)
        self._files: Any = self._root.getFileSystem(configuration)
        self._context: Any = self._hadoop.fs.FileContext.getFileContext(self._root.toUri(), configuration)
        self._prefix = self._files.makeQualified(self._root).toUri().getPath().rstrip("/")
        found = self._files.exists(self._root)
        if found and not self._files.getFileStatus(self._root).isDirectory():
            raise InvalidArgument(f"{uri} is not a directory", field="directory")
        # NONE: a rename fails where the name is taken.
        self._refusing = spark._gateway.new_array(self._hadoop.fs.Options.Rename, 1)  # noqa: SLF001
        self._refusing[0] = self._hadoop.fs.Options.Rename.NONE

    def names(self, path: str) -> list[str]:
        directory = self._path(path)
        if not self._files.exists(directory):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(directory))

    def read(self, path: str) -> bytes:
        stream = self._files.open(self._path(path))
        try:
            return bytes(self._io.toByteArray(stream))
        finally:
            stream.close()

    def write(self, path: str, data: bytes) -> None:
        stream = self._files.create(self._path(path), False)
        try:
            stream.write(bytearray(data))
            stream.hsync()
        finally:
            stream.close()

    def publish(self, draft: str, path: str) -> bool:
        from py4j.protocol import Py4JJavaError

        self._files.mkdirs(self._path(MANIFESTS))
        try:
            self._context.rename(self._path(draft), self._path(path), self._refusing)
        except Py4JJavaError as error:
            if "FileAlreadyExistsException" in str(error.java_exception):
                return False
            raise
        return True

    def sizes(self, path: str) -> dict[str, int]:
        directory = self._path(path)
        if not self._files.exists(directory):
            return {}
        listed, found = self._files.listFiles(directory, True), {}
        while listed.hasNext():
            status = listed.next()
            found[status.getPath().toUri().getPath().removeprefix(self._prefix + "/")] = int(status.getLen())
        return found

    def remove(self, path: str) -> None:
        self._files.delete(self._path(path), True)

    def _path(self, path: str) -> Any:
        return self._hadoop.fs.Path(self._root, path) if path else self._root


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
