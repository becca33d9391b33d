"""Runs a command: one coroutine on an event loop, with handling of Ctrl-C, SIGTERM and errors.

If the command has set `Interrupt.first`, then the first signal calls it, and the second signal cancels the command.
Otherwise the first signal cancels the command.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine

import uvloop
from rich.console import Console

from oncelog.cli.failures import Exit, explain


class Interrupt:
    """The effect of signals on the running command."""

    def __init__(self) -> None:
        #: called at the first signal, instead of cancelling
        self.first: Callable[[], None] | None = None
        self._seen = False
        self._command: asyncio.Task[Exit] | None = None

    def watch(self, command: "asyncio.Task[Exit]") -> None:
        """Handle SIGINT and SIGTERM for this command."""
        self._command = command
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        first = None if self._seen else self.first
        self._seen = True
        if first is not None:
            first()
        elif self._command is not None:
            self._command.cancel()


def run_command(main: Callable[[Interrupt], Coroutine[None, None, Exit]], errors: Console) -> Exit:
    """Run the command; returns the exit code. Errors are printed to `errors`."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_watched(main))
    except ExceptionGroup as error:
        return explain(error, errors)


async def _watched(main: Callable[[Interrupt], Coroutine[None, None, Exit]]) -> Exit:
    interrupt = Interrupt()
    async with asyncio.TaskGroup() as tasks:
        command = tasks.create_task(main(interrupt))
        interrupt.watch(command)
    return Exit.INTERRUPTED if command.cancelled() else command.result()
