"""A test that leaves work behind fails: what outlives its test fails, or slows, a later one, which is then blamed.

A pytest plugin, which tests/conftest.py registers. It looks for
- asyncio tasks that have not ended when the event loop of the test ends. pytest-asyncio would cancel them in silence.
- child processes, threads that keep Python from ending, and the threads of clients of ZooKeeper and of Oncelog, beyond
  those that were there when the fixtures of the test's module and session had been set up.

What ends by itself a moment after its test, as a process that was killed, is waited for. Other daemon threads are not
looked at: libraries keep them for the whole run.
"""

import asyncio
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.until import until_sync, yield_to_loop
from tests.tidy.conduct.task_story import story_of

#: For what is about to end.
ENDS_WITHIN_S = 10.0
#: Turns of the event loop in which a task that was cancelled, or whose last answer has come, ends.
_TURNS = 20
#: In the names of daemon threads that belong to a session with ZooKeeper, or to a client without asyncio.
_OURS = ("zk_loop", "zookeeper-", "oncelog client")
#: In the command of processes that serve the whole run, and are started by the first test that needs them.
_OF_THE_RUN = ("oncelog.cli.standalone.fork_server import serve", "multiprocessing.resource_tracker")


class Leftovers:
    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        value = yield
        if isinstance(value, asyncio.Runner):
            # Called before the fixture closes the loop, and after all that use the loop.
            fixturedef.addfinalizer(partial(_refuse_tasks, value))
        return value

    @pytest.fixture(autouse=True)
    def _nothing_outlives_the_test(self) -> Iterator[None]:
        """The first of the fixtures of a test that are set up after those of the module and the session."""
        threads, processes = _threads(), _processes()
        yield
        with suppress(AssertionError):
            until_sync(lambda: not (_threads() - threads or _processes() - processes), ENDS_WITHIN_S)
        left = [f"thread {each.name}" for each in _threads() - threads]
        left += [f"process {pid}: {_command(pid)}" for pid in _processes() - processes]
        assert not left, "\n".join(["the test has left behind:", *left])


def _refuse_tasks(runner: asyncio.Runner) -> None:
    loop = runner.get_loop()
    for _ in range(_TURNS):
        if not asyncio.all_tasks(loop):
            return
        loop.run_until_complete(yield_to_loop())
    left = [story_of(each) for each in asyncio.all_tasks(loop)]
    assert not left, "\n".join(["the test has left behind:", *left])


def _threads() -> set[threading.Thread]:
    return {
        each for each in threading.enumerate() if not each.daemon or any(name in each.name for name in _OURS)
    }  # fmt: skip


def _processes() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found |= {int(pid) for pid in (task / "children").read_text().split()}
    commands = {pid: _command(pid) for pid in found}
    return {pid for pid, command in commands.items() if command and not any(each in command for each in _OF_THE_RUN)}


def _command(pid: int) -> str:
    """Empty for a process that has ended, whether or not it was waited for."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""
