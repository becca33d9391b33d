"""Starts a command again and again until it succeeds, and injects the faults of its schedule on the way.

start -> a fault is due -> its victims are killed: owners of topics, and the command goes on; or the command itself
      -> the command ends: with 0 it is done; otherwise it has failed, and is started again, as a user would
"""

import sys
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from tests.cluster.cluster_fixture import Cluster
from tests.cluster.kills import any_time, just_seen
from tests.cluster.until import until
from tests.proofs.session_process import SessionProcess

#: Much longer than a command takes from one fault to the next, including its start.
COMMAND_S = 900
#: Starts that failed because an owner died or the machine was busy.
FAILURES_MAX = 6
_LOOK_S = 0.003

FaultT = TypeVar("FaultT")


class Killed(Protocol[FaultT]):
    """A command with its schedule."""

    @property
    def name(self) -> str: ...

    async def start(self, number: int) -> SessionProcess:
        """number: of this start, from 1."""

    async def due(self) -> FaultT | None:
        """The fault whose condition holds now. None: no fault's."""

    async def owners(self, fault: FaultT) -> Sequence[str]:
        """The processes that the fault kills. None of them: it kills the command."""

    async def injected(self, fault: FaultT, *, hit: bool) -> None:
        """hit: whether the command still ran when the fault was injected."""

    def may_repeat(self, code: int) -> bool:
        """Whether a user would start the command again after this exit code."""


class KilledRun(Generic[FaultT]):
    """starts: of the command. failures: starts that ended with an error."""

    def __init__(self, command: Killed[FaultT], cluster: Cluster) -> None:
        self.starts = self.failures = 0
        self._command = command
        self._cluster = cluster

    async def to_its_end(self) -> None:
        """Raises AssertionError when the command fails again and again, or hangs."""
        while not await self._one_start():
            """Killed, or failed: start it again."""

    async def _one_start(self) -> bool:
        """Whether the command came to its end."""
        await self._cluster.healed()
        self.starts += 1
        process = await self._command.start(self.starts)
        try:
            while (fault := await self._due(process)) is not None:
                owners = await self._command.owners(fault)
                if not owners:
                    await self._command.injected(fault, hit=await process.killed(once=just_seen))
                    return False
                for name in owners:
                    await self._cluster.kill(name, once=any_time)
                await self._command.injected(fault, hit=process.code is None)
            return self._succeeded(process)
        finally:
            process.end()

    async def _due(self, process: SessionProcess) -> FaultT | None:
        """The next fault; None once the command has ended."""

        async def found() -> tuple[FaultT | None] | None:
            if process.code is not None:
                return (None,)
            fault = await self._command.due()
            return None if fault is None else (fault,)

        waiting_for = f"a fault or the end of {self._command.name}: see {process.log}"
        due = await until(found, COMMAND_S, every_s=_LOOK_S, waiting_for=waiting_for)
        assert due is not None
        return due[0]

    def _succeeded(self, process: SessionProcess) -> bool:
        code = process.code
        assert code is not None
        if code == 0:
            return True
        self.failures += 1
        told = f"{self._command.name}: start {self.starts} ended with code {code}: {process.log.read_text()[-3000:]}"
        print(told, file=sys.stderr)
        assert self._command.may_repeat(code), told
        assert self.failures <= FAILURES_MAX, f"{self._command.name} fails again and again: {told}"
        return False
