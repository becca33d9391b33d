"""Starts programs as forks of a process that has imported their modules: the fork server.

    with ForkServer.running(["oncelog.topic_owner"]) as forks:          # before event loops and threads
        await forks.loaded()
        pid = forks.fork("oncelog.topic_owner", ["--port", "0"], os.environ, output=pipe, log=file)

Most of the CPU that a service needs to start is for imports: one to two seconds, of which a fork needs none. The
program runs as with `python -m`: main(), arguments, environment, standard streams and exit code are its own.

        caller ── request, with descriptors ──> fork server ── fork ──> middle ── fork ──> program
               <───────────── pid ─────────────             ────────── "go" ────────────>

Rules
- The fork server has one thread, no event loop, and has imported gRPC but not used it: a fork has nothing of another
  thread to wait for. It does not serve otherwise.
- The caller, and not the fork server, is the parent: it receives the exit code, and its death ends the program with
  SIGTERM, as with `orphan_guard`. That is so because the caller adopts orphans during the call, and the middle process
  has ended. If the fork server dies, programs that run do not notice.
- A program begins after "go", which follows its pid: if the fork server dies in between, it ends before it has done
  anything, and the caller knows of every program that runs.
- Nothing of the caller or of another program reaches it: no descriptor, no variable, no random state.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, Self

from oncelog.core.errors import Fatal
from oncelog.runtime.forks import grpc_is_own

#: For the answer of a fork server that has loaded: usually 10 ms.
ANSWER_TIMEOUT_S = 30.0
_LOADED = b"loaded"
_PACKET_BYTES = 4096
# linux/prctl.h
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
#: In /proc/self/stat, behind the name: where the command line begins and ends in the memory of the process.
_ARGUMENTS_BEGIN, _ARGUMENTS_END = 45, 46

_prctl = ctypes.CDLL(None).prctl


class ForkServerLost(Fatal):
    """The fork server has ended, or did not load or fork; the message says why. Start programs without it."""


class ForkServer:
    """The caller's side. Calls of several threads wait for each other."""

    def __init__(self, pid: int, connection: socket.socket, modules: Iterable[str]) -> None:
        self.pid = pid
        self.modules = frozenset(modules)
        self._connection = connection
        self._turn = threading.Lock()
        self._loaded = False
        self._code: int | None = None

    @classmethod
    @contextmanager
    def running(cls, modules: Sequence[str]) -> Iterator[Self]:
        """Fork this process, which has one thread. Inside the block the fork serves; first it imports the modules."""
        ours, its = connected()
        if sys.stderr is not None:
            sys.stderr.flush()  # or each fork would write it, too
        pid = os.fork()
        if pid == 0:
            serve(its, modules)
        its.close()
        server = cls(pid, ours, modules)
        try:
            yield server
        finally:
            server.end()

    async def loaded(self) -> None:
        """Return once it has imported all modules. One call at a time. Raises ForkServerLost."""
        if not self._loaded:
            self._connection.setblocking(False)
            self._take_loaded(await asyncio.get_running_loop().sock_recv(self._connection, _PACKET_BYTES))

    def fork(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], *, output: int, log: int
    ) -> int:
        """The process id of the program, a child of this process; the caller waits for its end (os.waitpid).

        Blocks until the fork server has loaded, then for some milliseconds. output, log: descriptors for standard
        output and standard error. The working directory is that of the fork server. Raises ForkServerLost.
        """
        request = {
            "parent": os.getpid(),
            "module": module,
            "arguments": list(arguments),
            "environment": dict(environment),
        }
        with self._turn, os.fdopen(os.memfd_create("request"), "wb") as file:
            if not self._loaded:
                self._take_loaded(self._connection.recv(_PACKET_BYTES))
            file.write(json.dumps(request).encode())
            file.flush()
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            try:
                said = self._asked([file.fileno(), output, log])
            finally:
                _prctl(_PR_SET_CHILD_SUBREAPER, 0)
        if not said.isdigit():
            raise self._lost(said)
        return int(said)

    def end(self) -> None:
        """Kill it, unless it has ended. The programs go on."""
        self._kill()
        self._connection.close()

    def _kill(self) -> int:
        """Returns its exit code, which may be an earlier one."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def _asked(self, descriptors: Sequence[int]) -> bytes:
        """The answer; b"": there is none, and never will be."""
        try:
            socket.send_fds(self._connection, [b"fork"], descriptors)
            return self._connection.recv(_PACKET_BYTES)
        except OSError:
            # Whatever it has answered until now is known after its end.
            self._kill()
            with contextlib.suppress(OSError):
                return self._connection.recv(_PACKET_BYTES)
            return b""

    def _take_loaded(self, said: bytes) -> None:
        if said != _LOADED:
            raise self._lost(said)
        self._loaded = True
        self._connection.settimeout(ANSWER_TIMEOUT_S)

    def _lost(self, said: bytes) -> ForkServerLost:
        """said: its error; b"": it ended without one."""
        code = self._kill()
        self.end()
        return ForkServerLost(said.decode(errors="replace") or f"it ended with code {code}", code=code)


def connected() -> tuple[socket.socket, socket.socket]:
    """The two ends of a connection, of which the second is for `serve`."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Where this process was started without standard streams, their numbers are free.
    ours, its = [socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3)) for end in ends]
    for end in ends:
        end.close()
    return ours, its


def serve(connection: socket.socket, modules: Sequence[str]) -> NoReturn:
    """Be the fork server at this end of the connection, until the other one is closed."""
    _end_after(lambda: _serve(connection, modules))


def _serve(connection: socket.socket, modules: Sequence[str]) -> None:
    os.setsid()  # Ctrl-C is for the parent
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    _close_others(connection.fileno())
    try:
        mains = _loaded(modules)
    except Exception as error:  # noqa: BLE001 - the caller tells of it, and goes on without this process
        connection.send(f"{type(error).__name__}: {error}".encode()[:_PACKET_BYTES])
        return
    connection.send(_LOADED)
    while True:
        packet, descriptors, _, _ = socket.recv_fds(connection, _PACKET_BYTES, 3)
        if not packet:
            return
        try:
            _fork(connection, mains, *descriptors)
        except OSError as error:
            connection.send(f"it cannot fork: {error}".encode())
        for descriptor in descriptors:
            os.close(descriptor)


def _loaded(modules: Sequence[str]) -> dict[str, Callable[[], Any]]:
    """{module: its main}. Imports leave nothing to free, so a tenth of their time would go into looking for it."""
    gc.disable()
    mains = {module: _main_of(module) for module in modules}
    if (threads := len(list(Path("/proc/self/task").iterdir()))) != 1:
        raise RuntimeError(f"the imports have started {threads - 1} thread(s), which forks would lack")
    # What is frozen is never collected, so forks do not write to it and share its memory.
    gc.collect()
    gc.freeze()
    gc.enable()
    return mains


def _main_of(module: str) -> Callable[[], Any]:
    """Of the module, or of `__main__` in a package."""
    found = importlib.import_module(module)
    if hasattr(found, "__path__"):
        found = importlib.import_module(f"{module}.__main__")
    main: Callable[[], Any] = found.main
    return main


def _fork(
    connection: socket.socket, mains: Mapping[str, Callable[[], Any]], request: int, output: int, log: int
) -> None:
    """Answer with the process id of a new program, and let it begin. Raises OSError."""
    ours, its = socket.socketpair()
    with ours:
        middle = os.fork()
        if middle == 0:
            ours.close()  # or the program would wait for itself
            _end_after(lambda: os.fork() or _begin_program(its, mains, request, output, log))
        its.close()
        pid = ours.recv(_PACKET_BYTES)
        os.waitpid(middle, 0)  # from now on the parent of the program is that of this process
        connection.send(pid or b"it cannot fork twice")
        with contextlib.suppress(OSError):
            ours.send(b"go")


def _begin_program(
    starter: socket.socket, mains: Mapping[str, Callable[[], Any]], request: int, output: int, log: int
) -> NoReturn:
    os.setsid()
    starter.send(str(os.getpid()).encode())
    if not starter.recv(_PACKET_BYTES):
        os._exit(1)  # nobody knows of this process
    with os.fdopen(request, "rb", closefd=False) as file:
        file.seek(0)
        wanted = json.load(file)
    _end_with(wanted["parent"])
    os.dup2(output, 1)
    os.dup2(log, 2)
    _close_others()
    # Those of the caller may be of a terminal, or be missing.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.argv = [wanted["module"], *wanted["arguments"]]
    _show_as(sys.argv)
    grpc_is_own()
    _end_after(mains[wanted["module"]])


def _end_after(work: Callable[[], Any]) -> NoReturn:
    """As sys.exit(work()) at the end of a program, but nothing of the caller, which is on the stack, is unwound."""
    code: Any = 1
    try:
        code = work()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - whatever it is, it must not reach the caller's handlers
        traceback.print_exc()
    try:
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        os._exit((code or 0) & 0xFF)


def _end_with(parent: int) -> None:
    """Get SIGTERM when the parent dies; end now if it has died before."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != parent:
        os._exit(0)


def _close_others(*kept: int) -> None:
    """All descriptors but those of the standard streams and these."""
    for descriptor in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if descriptor > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):  # that of the listing has gone
                os.close(descriptor)


def _show_as(arguments: Sequence[str]) -> None:
    """Let `ps` and `top` show this command line, as far as there is space for it, and not that of the caller."""
    _prctl(_PR_SET_NAME, arguments[0].encode())
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    begin, end = int(fields[_ARGUMENTS_BEGIN]), int(fields[_ARGUMENTS_END])
    if begin:
        shown = b"\0".join(map(os.fsencode, arguments))[: end - begin - 1]
        ctypes.memmove(begin, shown.ljust(end - begin, b"\0"), end - begin)
