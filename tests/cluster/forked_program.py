"""Services, commands and supervisors that are forked from a process which has imported them, for the whole run.

Other tests start the same programs with `python -m`, as users do.
"""

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from tempfile import TemporaryFile
from typing import IO

from oncelog.cli.extras import is_installed
from oncelog.cli.standalone.cluster_plan import MODULES
from oncelog.cli.standalone.fork_server import ForkServer, connected
from oncelog.testing.local_cluster import without_settings

CLI, COMMAND = "oncelog.cli", "tests.cluster.forked_command"
_OTHERS = ("oncelog_doors",)
PROGRAMS = (
    *(CLI, COMMAND, "tests.fault_proof.faulty_standalone", *MODULES),
    *(each for each in _OTHERS if is_installed(each)),
)
#: What commands import when they run, of distributions that are installed.
_LATE = """
    oncelog.cli.standalone.command oncelog.cli.produce.command oncelog.cli.read.command oncelog.cli.consume.command
    oncelog.client.client oncelog_effects.cli.mirror.app oncelog_effects.cli.relay.app
"""
LATE = " ".join(each for each in _LATE.split() if is_installed(each.partition(".")[0]))
_SERVE = """
import importlib, socket, sys
_, descriptor, early, *modules = sys.argv
for name in early.split():
    importlib.import_module(name)
from oncelog.cli.standalone.fork_server import serve
serve(socket.socket(fileno=int(descriptor)), modules)
"""


def spawned(modules: Sequence[str], given: Mapping[str, str], *, early: str = "") -> ForkServer:
    """A fork server of its own program, because this one has threads. It ends with this process, or by `end`.

    early: further modules, which those import late.
    """
    ours, its = connected()
    os.set_inheritable(its.fileno(), True)
    words = [str(its.fileno()), early, *modules]
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", _SERVE, *words], given)
    its.close()
    return ForkServer(pid, ours, modules)


@cache
def of_the_run() -> ForkServer:
    """For services and commands. A part of the suite has one from its beginning: `tests.suite.forked_part`."""
    if _begun:
        return _begun[0]
    server = spawned(PROGRAMS, without_settings(os.environ), early=LATE)
    atexit.register(server.end)
    return server


#: the one of the run, if it was begun before this process had threads
_begun: list[ForkServer] = []


@contextmanager
def begun_for_the_run() -> Iterator[None]:
    """Inside the block `of_the_run` is a fork of this process, which has one thread, and has imported the programs."""
    with ForkServer.running(PROGRAMS) as server:
        _begun.append(server)
        yield


class ForkedPopen(subprocess.Popen[bytes]):
    """A child process that a fork server has started."""

    def __init__(
        self,
        forks: ForkServer,
        module: str,
        arguments: Sequence[str],
        given: Mapping[str, str],
        log: IO[bytes],
        output: IO[bytes] | None = None,
    ) -> None:
        """given: the environment. log: for standard error. output: None for a pipe. Raises ForkServerLost."""
        self.stdin = self.stderr = self.stdout = None
        self.args = [module, *arguments]
        self.returncode = None
        self._child_created = False
        self._waitpid_lock = threading.Lock()
        if output is None:
            read, write = os.pipe()
            self.stdout = os.fdopen(read, "rb")
        else:
            write = os.dup(output.fileno())
        try:
            self.pid = forks.fork(module, arguments, given, output=write, log=log.fileno())
            self._child_created = True
        except BaseException:
            if self.stdout is not None:
                self.stdout.close()
            raise
        finally:
            os.close(write)


def start_forked(words: Sequence[str], given: Mapping[str, str], log: IO[bytes]) -> ForkedPopen:
    """`oncelog` with these words, which writes to the log and reads nothing. given: the environment."""
    return ForkedPopen(of_the_run(), CLI, words, given, log, log)


def run_forked(
    words: Sequence[str], given: Mapping[str, str], *, stdin: bytes = b"", timeout_s: float
) -> "subprocess.CompletedProcess[bytes]":
    """`oncelog` with these words, to its end, as subprocess.run does it. given: the environment."""
    with TemporaryFile() as file, TemporaryFile() as output, TemporaryFile() as log:
        file.write(stdin)
        file.flush()
        path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        process = ForkedPopen(of_the_run(), COMMAND, [path, *words], given, log, output)
        try:
            code = process.wait(timeout_s)
        except BaseException:
            process.kill()
            process.wait()
            raise
        output.seek(0)
        log.seek(0)
        return subprocess.CompletedProcess(words, code, output.read(), log.read())
