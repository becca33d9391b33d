"""A layer between a storage node and its disk: injects errors, kills the process at a step, loses unsynced writes.

    disk = InterposedDisk(data, faults)   # before the modules of the product are imported
    disk.install()                        # from here on the calls of `os` go through the layer

It replaces functions of the module `os` in a process of the tests, so that it sees every change of the directory,
whichever part of the product makes it. Calls for other files pass through. A file of the directory that is opened for
writing in another way is an error of the layer, and is reported as such.

A step is one call that changes the directory or makes it durable. Its name is the name of the call in `STEPS`. The
product names the durable steps of a compaction (`COMPACTION_STEPS`): such a step was made when it is named. The
test writes its orders into a file, which is read again whenever it has changed:

    {"rules": [rules], "power_cuts": number, "seed": number, "trace": boolean}

A power cut is carried out at the next start of the process: `unsynced_changes` says what is lost.
"""

import errno
import fnmatch
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.fault_proof.unsynced_changes import UnsyncedChanges

#: Environment variable with the directory of the orders; one file for each storage node, by the name of its directory.
FAULTS_VARIABLE = "STORAGE_NODE_FAULTS"
STEPS = ("create", "write", "allocate", "resize", "sync", "sync_directory", "rename", "unlink", "mkdir", "rmdir")

COMPACTION_STEPS = ("copies synced", "removal synced", "unlinked", "directory synced", "first segment raised")

_WRITES = os.O_WRONLY | os.O_RDWR
#: They change files, and the product does not use them.
_UNSUPPORTED = ("link", "symlink", "truncate", "writev", "copy_file_range", "sendfile", "splice")


@dataclass(frozen=True, slots=True)
class DiskRule:
    """What happens at a step. step: a name of STEPS or COMPACTION_STEPS, or "*". path: pattern of the file name.

    error: name of an errno, for example "EIO"; the call then fails and changes nothing. kill: "before" or "after": the
    process is killed there. skip: matching steps of one process that pass first. once: only once, over all starts of
    the process.
    """

    name: str
    step: str = "*"
    path: str = "*"
    error: str = ""
    kill: str = ""
    skip: int = 0
    once: bool = True


@dataclass(frozen=True, slots=True)
class DiskOrders:
    """The content of a file of orders. power_cuts: how many there were so far. seed: 0: a power cut loses all."""

    rules: Sequence[DiskRule] = ()
    power_cuts: int = 0
    seed: int = 0
    trace: bool = False

    @classmethod
    def read(cls, path: Path) -> "DiskOrders":
        """Without a file there are no orders."""
        try:
            fields = json.loads(path.read_bytes())
        except FileNotFoundError:
            return cls()
        return cls(**{**fields, "rules": [DiskRule(**rule) for rule in fields["rules"]]})

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(asdict(self)))
        temporary.replace(path)


def orders_path(faults: Path, node: str) -> Path:
    return faults / f"{node}.json"


def used_path(faults: Path, node: str, rule: str) -> Path:
    """The file that exists once the rule has taken effect."""
    return faults / f"{node}.{rule}.used"


def trace_path(faults: Path, node: str) -> Path:
    """The steps that were made, one line each: name and path."""
    return faults / f"{node}.trace"


@dataclass(slots=True)
class _ReadOrders:
    orders: DiskOrders
    changed_ns: int
    #: {name of a rule: matching steps}
    passed: dict[str, int] = field(default_factory=dict)


class InterposedDisk:
    """data: the directory of the node. Creation carries out a power cut that was ordered for the next start."""

    def __init__(self, data: Path, faults: Path) -> None:
        self._root = str(data.resolve())
        self._node = data.name
        self._faults = faults
        self._lock = threading.RLock()
        self._known = _ReadOrders(DiskOrders(), -1)
        self._place = data.with_name(f"{data.name}.unsynced")
        self._place.mkdir(exist_ok=True)
        self._changes = UnsyncedChanges(self._place)
        self._cut_power()
        self._os: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in self.calls()}

    def calls(self) -> dict[str, Callable[..., Any]]:
        """{name in `os`: its replacement}."""
        own: dict[str, Callable[..., Any]] = {
            "open": self.open,
            "pwritev": self.pwritev,
            "pwrite": self.pwrite,
            "write": self.write,
            "posix_fallocate": self.posix_fallocate,
            "ftruncate": self.ftruncate,
            "fsync": self.fsync,
            "fdatasync": self.fdatasync,
            "rename": self.rename,
            "replace": self.replace,
            "unlink": self.unlink,
            "remove": self.unlink,
            "mkdir": self.mkdir,
            "rmdir": self.rmdir,
        }
        return own | {name: self._unsupported(name) for name in _UNSUPPORTED if hasattr(os, name)}

    def install(self) -> None:
        """Replace the functions of `os` in this process, until its end."""
        for name, call in self.calls().items():
            setattr(os, name, call)
        sys.addaudithook(self._audit)

    def close(self) -> None:
        """End a layer that is not installed."""
        self._changes.close()

    # --- the calls ----------------------------------------------------------------------------------------------------

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        name = self._own(path)
        if name is None or dir_fd is not None:
            return int(self._os["open"](path, flags, mode, dir_fd=dir_fd))
        with self._lock:
            if flags & os.O_CREAT and not os.path.lexists(name):
                return int(self._step("create", name, self._changes.create, (name,), "open", (name, flags, mode)))
            if flags & os.O_TRUNC and flags & _WRITES and os.path.lexists(name):
                fd = int(self._os["open"](name, flags & ~os.O_TRUNC, mode))
                self._step("resize", name, self._changes.write, (fd, name, 0, os.fstat(fd).st_size), "", ())
                self._changes.resize(fd, name)
                self._os["ftruncate"](fd, 0)
                return fd
            return int(self._os["open"](name, flags, mode))

    def pwritev(self, fd: int, buffers: Sequence[Any], offset: int, flags: int = 0) -> int:
        size = sum(memoryview(each).nbytes for each in buffers)
        return int(self._written(fd, offset, size, "pwritev", (fd, buffers, offset, flags)))

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        return int(self._written(fd, offset, len(data), "pwrite", (fd, data, offset)))

    def write(self, fd: int, data: Any) -> int:
        path = self._path_of(fd)
        if path is None:
            return int(self._os["write"](fd, data))
        offset = os.lseek(fd, 0, os.SEEK_CUR)
        return int(self._written(fd, offset, len(data), "write", (fd, data)))

    def _written(self, fd: int, offset: int, size: int, call: str, arguments: tuple[Any, ...]) -> Any:
        path = self._path_of(fd)
        if path is None:
            return self._os[call](*arguments)
        with self._lock:
            return self._step("write", path, self._changes.write, (fd, path, offset, size), call, arguments)

    def posix_fallocate(self, fd: int, offset: int, size: int) -> None:
        path = self._path_of(fd)
        if path is None:
            self._os["posix_fallocate"](fd, offset, size)
            return
        with self._lock:
            arguments = (fd, offset, size)
            self._step("allocate", path, self._changes.resize, (fd, path), "posix_fallocate", arguments)

    def ftruncate(self, fd: int, size: int) -> None:
        path = self._path_of(fd)
        if path is None:
            self._os["ftruncate"](fd, size)
            return
        with self._lock:
            length = os.fstat(fd).st_size
            if size < length:
                self._changes.write(fd, path, size, length - size)
            self._step("resize", path, self._changes.resize, (fd, path), "ftruncate", (fd, size))

    def fsync(self, fd: int) -> None:
        self._synced(fd, "fsync")

    def fdatasync(self, fd: int) -> None:
        self._synced(fd, "fdatasync")

    def _synced(self, fd: int, call: str) -> None:
        path = self._path_of(fd)
        if path is None:
            self._os[call](fd)
            return
        directory = Path(path).is_dir()
        inode = os.fstat(fd).st_ino
        with self._lock:
            until = self._changes.number
        try:
            # Without the lock: writes of other threads go on during a sync.
            self._step("sync_directory" if directory else "sync", path, None, (), call, (fd,))
        except OSError:
            if not directory:
                with self._lock:
                    self._changes.file_sync_failed(inode, until)
            raise
        with self._lock:
            if directory:
                self._changes.directory_synced(path, until)
            else:
                self._changes.file_synced(inode, until)

    def rename(self, source: Any, target: Any, **options: Any) -> None:
        self._renamed("rename", source, target, options)

    def replace(self, source: Any, target: Any, **options: Any) -> None:
        self._renamed("replace", source, target, options)

    def _renamed(self, call: str, source: Any, target: Any, options: dict[str, Any]) -> None:
        path, to = self._own(source), self._own(target)
        if path is None and to is None:
            self._os[call](source, target, **options)
            return
        assert path is not None, "a file of the directory is replaced from outside"
        assert to is not None, "a file of the directory is moved out of it"
        with self._lock:
            self._step("rename", to, self._changes.rename, (path, to), call, (path, to))

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        name = self._own(path)
        if name is None or dir_fd is not None:
            self._os["unlink"](path, dir_fd=dir_fd)
            return
        with self._lock:
            recorded = self._changes.unlink if os.path.lexists(name) else None
            self._step("unlink", name, recorded, (name,), "unlink", (name,))

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        name = self._own(path)
        if name in {None, self._root} or dir_fd is not None or os.path.lexists(path):
            self._os["mkdir"](path, mode, dir_fd=dir_fd)
            return
        with self._lock:
            assert name is not None
            self._step("mkdir", name, self._changes.make_directory, (name,), "mkdir", (name, mode))

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        """Not taken back by a power cut: the product removes no directory that it needs."""
        name = self._own(path)
        if name is None or dir_fd is not None:
            self._os["rmdir"](path, dir_fd=dir_fd)
            return
        with self._lock:
            self._step("rmdir", name, None, (), "rmdir", (name,))

    def _unsupported(self, name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def refuse(*arguments: Any, **options: Any) -> Any:
            for each in arguments[:2]:
                if (self._path_of(each) if isinstance(each, int) else self._own(each)) is not None:
                    raise NotImplementedError(f"the interposed disk has no os.{name}")
            return original(*arguments, **options)

        return refuse

    def named_step(self, name: str) -> None:
        """A durable step of a compaction was made. A rule can only end the process there."""
        rule = self._rule_for(name, self._root)
        if rule is not None:
            self._end()

    # --- one step -----------------------------------------------------------------------------------------------------

    def _step(
        self,
        step: str,
        path: str,
        record: Callable[..., None] | None,
        recorded: tuple[Any, ...],
        call: str,
        arguments: tuple[Any, ...],
    ) -> Any:
        """Obey the rules, record the change, make it. call: empty: the caller makes it."""
        with self._lock:
            rule = self._rule_for(step, path)
            if rule is not None and rule.error:
                raise OSError(getattr(errno, rule.error), f"injected {rule.error}", path)
            if rule is not None and rule.kill == "before":
                self._end()
            if record is not None:
                record(*recorded)
        result = self._os[call](*arguments) if call else None
        if rule is not None and rule.kill == "after":
            self._end()
        return result

    def _rule_for(self, step: str, path: str) -> DiskRule | None:
        known = self._orders()
        if known.orders.trace:
            with trace_path(self._faults, self._node).open("a") as trace:
                trace.write(f"{step} {Path(path).name}\n")
        for rule in known.orders.rules:
            if rule.step not in {step, "*"} or not fnmatch.fnmatch(Path(path).name, rule.path):
                continue
            used = used_path(self._faults, self._node, rule.name)
            if rule.once and used.exists():
                continue
            passed = known.passed.get(rule.name, 0)
            known.passed[rule.name] = passed + 1
            if passed >= rule.skip:
                used.touch()
                return rule
        return None

    def _orders(self) -> _ReadOrders:
        path = orders_path(self._faults, self._node)
        try:
            changed_ns = path.stat().st_mtime_ns
        except FileNotFoundError:
            changed_ns = 0
        if changed_ns != self._known.changed_ns:
            self._known = _ReadOrders(DiskOrders.read(path), changed_ns)
        return self._known

    @staticmethod
    def _end() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _cut_power(self) -> None:
        """Lose what is pending if a power cut was ordered since the last start."""
        orders = DiskOrders.read(orders_path(self._faults, self._node))
        seen = self._place / "power-cuts"
        if orders.power_cuts > (int(seen.read_text()) if seen.exists() else 0):
            chance = random.Random(f"{self._node} {orders.power_cuts} {orders.seed}") if orders.seed else None
            undone = self._changes.lose(chance)
            seen.write_text(str(orders.power_cuts))
            print(f"power cut {orders.power_cuts}: {undone} changes lost", file=sys.stderr)

    # --- which files --------------------------------------------------------------------------------------------------

    def _own(self, path: Any) -> str | None:
        """The absolute path if it is in the directory, or the directory itself."""
        if isinstance(path, int):
            return None
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - resolve() would follow the replaced calls
        return name if name == self._root or name.startswith(self._root + os.sep) else None

    def _path_of(self, fd: int) -> str | None:
        """The current path of an open file of the directory. None: another file, or one without a name."""
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - the text of the link is what matters
        except OSError:
            return None
        inside = name == self._root or name.startswith(self._root + os.sep)
        return name if inside and not name.endswith(" (deleted)") else None

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Report a file of the directory that is opened for writing without the layer."""
        if event == "open":
            path, mode, flags = arguments
            if mode is not None and flags & _WRITES and not isinstance(path, int) and self._own(path) is not None:
                raise NotImplementedError(f"{path} is written without the interposed disk")
