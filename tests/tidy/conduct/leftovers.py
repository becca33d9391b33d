"""A test that leaves work behind fails: what outlives its test fails, or slows, a later one, which is then blamed.

A pytest plugin, which tests/conftest.py registers. It looks for
- asyncio tasks that have not ended when the event loop of the test ends. pytest-asyncio would cancel them in silence.
- child processes, threads that keep Python from ending, and the threads of clients of ZooKeeper and of Oncelog, beyond
  those that were there before, or that a fixture of the test's module or session has begun. A process that runs the
  same command as one of these takes its place: a test has restarted it.

What ends by itself a moment after its test, as a process that was killed, is waited for. Other daemon threads are not
looked at: libraries keep them for the whole run.
"""

import asyncio
import sys
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Self

import pytest

from tests.cluster.until import until, until_sync
from tests.tidy.conduct.task_story import story_of

#: For what is about to end, unless the option `leftovers_s` says something else.
ENDS_WITHIN_S = 10.0
#: Tasks of one report.
_TOLD_MAX = 10
#: How often a process is asked for its command.
_ASKED_AGAIN = 1_000
#: In the names of daemon threads that belong to a session with ZooKeeper, or to a client without asyncio.
_OURS = ("zk_loop", "zookeeper-", "oncelog client")
#: In the command of processes that serve the whole run, and are started by the first test that needs them.
_OF_THE_RUN = ("oncelog.cli.standalone.fork_server import serve", "multiprocessing.resource_tracker")


class Leftovers:
    def __init__(self, ends_within_s: float) -> None:
        self._ends_within_s = ends_within_s
        #: begun by fixtures that outlive a test, also where a test asks for them late
        self._lasting = _Work()
        #: what there was when the last test ended, and so when the next one begins, but for what lasts
        self._left: _Work | None = None

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        lasts = fixturedef.scope != "function"
        before = _Work.of_now() if lasts else _Work()
        value = yield
        if lasts:
            self._lasting += _Work.of_now() - before
        if isinstance(value, asyncio.Runner):
            # Called before the fixture closes the loop, and after all that use the loop.
            fixturedef.addfinalizer(partial(_refuse_tasks, value, self._ends_within_s))
        return value

    @pytest.fixture(autouse=True)
    def _nothing_outlives_the_test(self) -> Iterator[None]:
        """The first of the fixtures of a test that are set up after those of the module and the session."""
        before = _Work.of_now() if self._left is None else self._left
        yield
        with suppress(AssertionError):
            until_sync(lambda: not (self._look() - before - self._lasting), self._ends_within_s)
        assert self._left is not None, "it was looked at"
        left = self._left - before - self._lasting
        assert not left, f"the test has left behind:\n{left}"

    def _look(self) -> "_Work":
        self._left = _Work.of_now()
        return self._left


@dataclass(frozen=True, slots=True)
class _Work:
    """processes: their commands, by their ids."""

    threads: frozenset[threading.Thread] = frozenset()
    processes: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of_now(cls) -> Self:
        return cls(frozenset(_threads()), _processes())

    def __add__(self, other: "_Work") -> "_Work":
        return _Work(self.threads | other.threads, {**self.processes, **other.processes})

    def __sub__(self, other: "_Work") -> "_Work":
        """A program may change the command that it shows, so either is enough to know a process again."""
        ids, commands = other.processes.keys(), set(other.processes.values())
        processes = {pid: each for pid, each in self.processes.items() if pid not in ids and each not in commands}
        return _Work(self.threads - other.threads, processes)

    def __bool__(self) -> bool:
        return bool(self.threads or self.processes)

    def __str__(self) -> str:
        lines = [f"thread {each.name}" for each in self.threads]
        return "\n".join([*lines, *(f"process {pid}: {each}" for pid, each in self.processes.items())])


def _refuse_tasks(runner: asyncio.Runner, ends_within_s: float) -> None:
    """Those of gRPC end with their call, which may need a moment after the client was closed."""
    loop = runner.get_loop()
    if not asyncio.all_tasks(loop):
        return
    try:
        loop.run_until_complete(until(lambda: len(asyncio.all_tasks(loop)) == 1, ends_within_s))
    except AssertionError:
        left = [story_of(each) for each in asyncio.all_tasks(loop)]
        more = [f"and {len(left) - _TOLD_MAX} more tasks"] if len(left) > _TOLD_MAX else []
        assert not left, "\n".join(["the test has left behind:", *left[:_TOLD_MAX], *more])


def _threads() -> set[threading.Thread]:
    """Without those of executors that have nothing to do: they end with their executor, which nobody has to close."""
    ours = {each for each in threading.enumerate() if not each.daemon or any(name in each.name for name in _OURS)}
    frames = sys._current_frames()
    return {each for each in ours if (frame := frames.get(each.ident or 0)) is None or not _is_idle(frame)}


def _is_idle(frame: FrameType) -> bool:
    """Whether the innermost call of a thread is the loop of an executor, which takes what to do next."""
    return (frame.f_globals.get("__name__"), frame.f_code.co_name) == ("concurrent.futures.thread", "_worker")


def _processes() -> dict[int, str]:
    """The child processes that run."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    commands = {pid: _command(pid) for pid in found}
    return {pid: each for pid, each in commands.items() if each and not any(known in each for known in _OF_THE_RUN)}


def _command(pid: int) -> str:
    """Empty for a process that has ended, whether or not it was waited for."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for _ in range(_ASKED_AGAIN):
            # The state first: a process that becomes another program has no command for a moment.
            ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if command or ended:
                return command
    return ""
