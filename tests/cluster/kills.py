"""Kills of real processes, each at a moment that the test has observed.

await kill(process, once=lambda: len(acknowledged) > 150)     # a Popen of the test, or the id of another process
await cluster.kill("owner-1", once=loads.under_way)           # the same in `Cluster`, by name

A kill after a time, or after a question to the cluster that takes a while, meets whatever state a busy machine has
reached by then, and the test may prove nothing. The condition is asked until it holds, and nothing else of this event
loop runs between its answer and the signal. The process must run at that moment.

`just_seen`, `idle` and `any_time` are conditions for what a question cannot find out. Each says what the test must have
done before.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.cluster.until import until, until_sync

#: What is awaited is work of the cluster. A process that was killed ends at once, also on a busy machine.
_DEADLINE_S = 60.0
_EVERY_S = 0.005

#: Whether the moment of the kill has come. In functions without an event loop it returns no awaitable.
Once = Callable[[], Awaitable[object] | object]
Process = subprocess.Popen[bytes] | subprocess.Popen[str]


def just_seen() -> bool:
    """The line before the kill has awaited a word of the process about what the kill is to interrupt: a line of its
    output, or a message that it has published. Nothing was awaited since."""
    return True


def idle() -> bool:
    """Every request of the test was answered in the lines before, and nothing else uses the process. The kill
    interrupts nothing: the test is about what was stored before, or about the absence of the process."""
    return True


def any_time() -> bool:
    """The kill may meet the process at any step, and the test proves the same: it draws its kills at random, or the
    process does something all the time that no client sees."""
    return True


async def moment(once: Once) -> None:
    """Return when the condition holds, for a kill in the next line."""
    await until(once, _DEADLINE_S, every_s=_EVERY_S, closely=True, waiting_for="the moment of a kill")


async def kill(process: Process | int, *, once: Once) -> None:
    """SIGKILL once the condition holds; returns when the process has ended. Raises AssertionError if it had before."""
    await moment(once)
    _signal(process)
    await until(
        lambda: _ended(process), _DEADLINE_S, every_s=_EVERY_S, closely=True, waiting_for="the end of a killed process"
    )


async def kill_unless_ended(pid: int) -> None:
    """SIGKILL for a process that a fault of the test may have ended, or ends now; returns when it has ended. The caller
    has awaited its moment."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    await until(lambda: _ended(pid), _DEADLINE_S, every_s=_EVERY_S, closely=True, waiting_for=f"the end of {pid}")


def kill_sync(process: Process | int, *, once: Callable[[], object]) -> None:
    """The same for tests without an event loop."""
    until_sync(once, _DEADLINE_S, every_s=_EVERY_S, closely=True, waiting_for="the moment of a kill")
    _signal(process)
    until_sync(
        lambda: _ended(process), _DEADLINE_S, every_s=_EVERY_S, closely=True, waiting_for="the end of a killed process"
    )


def end(process: Process) -> None:
    """At the end of a test: kill the process if it runs still."""
    if process.poll() is None:
        process.kill()
    process.wait()


def alive(pid: int) -> bool:
    """Whether the process runs, or has its files open still. A zombie does not, once its other threads have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0] not in {"Z", "X"} or int(fields[17]) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def _signal(process: Process | int) -> None:
    assert not _ended(process), f"the process had ended before the moment of its kill: {process!r}"
    os.kill(process if isinstance(process, int) else process.pid, signal.SIGKILL)


def _ended(process: Process | int) -> bool:
    return not alive(process) if isinstance(process, int) else process.poll() is not None
