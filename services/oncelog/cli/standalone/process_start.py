"""Starts the processes of a cluster: as forks of one that has imported their modules, or else as programs."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO, Protocol, Self

from oncelog.cli.standalone.fork_server import ForkServer, ForkServerLost
from oncelog.runtime.orphan_guard import guarded


class Process(Protocol):
    """A process that was started: the part of asyncio's that is needed."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None:
        """None while it runs; negative for a signal."""

    @property
    def stdout(self) -> asyncio.StreamReader | None: ...
    def send_signal(self, signal: int) -> None: ...
    def kill(self) -> None: ...
    async def wait(self) -> int: ...


class ProcessStarter:
    """Starts processes. Each ends with this one, and has its own session, so that Ctrl-C does not reach it."""

    def __init__(self, forks: ForkServer | None = None, tell: Callable[[str], None] = lambda _sentence: None) -> None:
        """forks: for modules that it has imported; None: none."""
        self._forks = forks
        self._tell = tell
        self._turn = asyncio.Lock()

    async def start(self, command: Sequence[str], environment: Mapping[str, str], log: BinaryIO) -> Process:
        """command: its first item is the absolute path of a program. log: for standard error."""
        async with self._turn:
            forks = self._forks
            if forks is not None and _module(command) in forks.modules:
                try:
                    await forks.loaded()
                    return await ForkedProcess.start(forks, command[2:], environment, log)
                except ForkServerLost as error:
                    self._forks = None
                    self._tell(
                        f"the process that starts the others is lost: {error}. Each start takes some seconds from now "
                        "on, until this command is started again"
                    )
        return await asyncio.create_subprocess_exec(
            *guarded(command), stdin=DEVNULL, stdout=PIPE, stderr=log, env=dict(environment), start_new_session=True
        )


class ForkedProcess:
    """A child process that the fork server has started."""

    def __init__(self, pid: int, stdout: asyncio.StreamReader) -> None:
        """Raises OSError."""
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = stdout
        self._ended = asyncio.Event()
        self._watched = os.pidfd_open(pid)
        asyncio.get_running_loop().add_reader(self._watched, self._reap)

    @classmethod
    async def start(
        cls, forks: ForkServer, program: Sequence[str], environment: Mapping[str, str], log: BinaryIO
    ) -> Self:
        """program: its module and arguments. Raises ForkServerLost."""
        loop = asyncio.get_running_loop()
        stdout = asyncio.StreamReader()
        output, its = os.pipe()
        try:
            transport, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(output, "rb", buffering=0)
            )
            # From here on nothing can be cancelled: each process that there is becomes known.
            try:
                pid = forks.fork(program[0], program[1:], environment, output=its, log=log.fileno())
            except ForkServerLost:
                transport.close()
                raise
        finally:
            os.close(its)
        try:
            return cls(pid, stdout)
        except OSError as error:
            _kill_unwatched(pid)
            raise ForkServerLost(f"its processes cannot be watched: {error}") from error

    def send_signal(self, signal: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._watched)
        os.close(self._watched)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set()


def _kill_unwatched(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _module(command: Sequence[str]) -> str:
    """That `python -m` runs; "" for another program."""
    return command[2] if tuple(command[:2]) == (sys.executable, "-m") else ""
