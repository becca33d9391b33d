"""gRPC, of which a forked child gets a copy of its own, and a process that has imported gRPC before oncelog.

    from oncelog.rpc import library
    library.own()                                   # before a channel is made
    library.grpc.aio.insecure_channel(address)

gRPC keeps its threads, its poller and its locks in variables of the loaded library. In a forked child these describe
threads that the child does not have, so every channel would wait for ever, and gRPC has no way to begin again. The
child therefore loads the library a second time, from a copy of its file: the loader takes the same file for the same
library. That takes some 50 ms and 20 MB, once, and only in a child that uses gRPC after its parent has loaded it.

gRPC that was imported before oncelog has fork handlers, which end children with SIGSEGV once it is used
(`runtime.forks`). It is left to those who have imported it: `grpc` here is a copy without handlers.

Whoever uses gRPC on the side of clients reads `library.grpc` when he needs it, and keeps none of its classes.
"""

import importlib
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType

import grpc

from oncelog.core.errors import Fatal
from oncelog.runtime.forks import GRPC_CAME_FIRST, GRPC_CORE, grpc_is_inherited, grpc_is_own, keep_for_ever, when_forked

__all__ = ["grpc", "own"]

logger = logging.getLogger(__name__)
#: the file of the library; a copy's own path is gone when it is loaded
_FILE = Path(str(sys.modules[GRPC_CORE].__file__))


class _Loading:
    """One thread loads it. Another thread of the parent may have held the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def forked(self) -> None:
        self.lock = threading.Lock()


_loading = _Loading()
when_forked(_loading)


def own() -> None:
    """Make `grpc` this process's own library. Call it before a channel is made; it costs nothing but after a fork.

    Raises Fatal if the library cannot be loaded a second time.
    """
    if not grpc_is_inherited():
        return
    with _loading.lock:
        if grpc_is_inherited():
            globals()["grpc"] = _second_copy()
            grpc_is_own()


def _second_copy() -> ModuleType:
    """Import the package `grpc` again, with a copy of its library. Later imports of other programs get it, too."""
    inherited = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "grpc"}
    for name, module in inherited.items():
        keep_for_ever(module)
        del sys.modules[name]
    try:
        with _copied_library() as path:
            sys.meta_path.insert(0, _CoreFinder(path))
            try:
                return importlib.import_module("grpc")
            finally:
                del sys.meta_path[0]
    except (ImportError, OSError) as error:
        sys.modules.update(inherited)
        raise Fatal(
            f"this process was forked after gRPC was loaded, and gRPC cannot be loaded again: {error}. Import oncelog "
            "after the fork, or start processes by the method spawn"
        ) from error


def _copy_beside() -> ModuleType:
    """A copy that other programs do not see; where that is not possible, theirs, and a warning."""
    theirs = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "grpc"}
    try:
        copy = _second_copy()
        importlib.import_module("grpc.aio")
    except Fatal as error:
        logger.warning(
            "gRPC was imported before oncelog, with fork handlers that may end forked children with SIGSEGV, and it "
            "cannot be loaded again (%s): import oncelog before gRPC, or set GRPC_ENABLE_FORK_SUPPORT=false",
            error.__cause__,
        )
        return theirs["grpc"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "grpc"]:
        keep_for_ever(sys.modules.pop(name))
    sys.modules.update(theirs)
    return copy


class _CoreFinder:
    """Finds gRPC's library at another path."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name != GRPC_CORE:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=ExtensionFileLoader(name, self._path))


@contextmanager
def _copied_library() -> Iterator[str]:
    """The path of a copy, which need not outlive the loading."""
    if hasattr(os, "memfd_create"):  # Linux; also where no directory for temporary files allows executable ones
        with _FILE.open("rb") as source, os.fdopen(os.memfd_create(_FILE.name), "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
            copy.flush()
            # With the process id, because the loader takes the same path for the same library, also a grandchild's.
            yield f"/proc/{os.getpid()}/fd/{copy.fileno()}"
        return
    with tempfile.TemporaryDirectory(prefix="oncelog-grpc-") as directory:
        yield shutil.copy(_FILE, directory)


if GRPC_CAME_FIRST:
    grpc = _copy_beside()
