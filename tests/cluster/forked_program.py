"""Programs that are forked from a process which has imported them: the supervisors of the tests' clusters, for example.

One process serves all clusters of a run, so that none of them imports anything."""

import atexit
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import IO

from oncelog.cli.standalone.cluster_plan import MODULES
from oncelog.cli.standalone.fork_server import ForkServer, connected
from tests.cluster.commands import environment

COMMANDS = "oncelog.cli"
_SERVE = """
import importlib, socket, sys
_, descriptor, parent, early, *modules = sys.argv
for name in early.split():
    importlib.import_module(name)
from oncelog.cli.standalone.fork_server import serve
serve(socket.socket(fileno=int(descriptor)), modules, int(parent))
"""


def spawned(modules: Sequence[str], given: Mapping[str, str], *, early: str = "") -> ForkServer:
    """A fork server of its own program, because this one has threads. It ends with this process, or by `end`.

    early: further modules, which those import late.
    """
    ours, its = connected()
    os.set_inheritable(its.fileno(), True)
    words = [str(its.fileno()), str(os.getpid()), early, *modules]
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", _SERVE, *words], given)
    its.close()
    return ForkServer(pid, ours, modules)


@cache
def of_clusters() -> ForkServer:
    """For `oncelog standalone`."""
    server = spawned([COMMANDS, *MODULES], environment(), early="oncelog.cli.standalone.command")
    atexit.register(server.end)
    return server


class ForkedPopen(subprocess.Popen[bytes]):
    """A child process that a fork server has started; its standard output is a pipe."""

    def __init__(
        self, forks: ForkServer, module: str, arguments: Sequence[str], given: Mapping[str, str], log: IO[bytes]
    ) -> None:
        """Raises ForkServerLost. given: the environment."""
        self.stdin = self.stderr = None
        self.args = [module, *arguments]
        self.returncode = None
        self._child_created = False
        self._waitpid_lock = threading.Lock()
        output, its = os.pipe()
        self.stdout = os.fdopen(output, "rb")
        try:
            self.pid = forks.fork(module, arguments, given, output=its, log=log.fileno())
            self._child_created = True
        except BaseException:
            self.stdout.close()
            raise
        finally:
            os.close(its)
