"""A kill waits for its condition, and is an error if it meets no process."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cluster.kills import any_time, end, kill, kill_sync

WAITS = "import sys; sys.stdin.read()"


@pytest.fixture
def process() -> Iterator["subprocess.Popen[bytes]"]:
    started = subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE)
    yield started
    end(started)
    assert started.stdin is not None
    started.stdin.close()


class Moment:
    """Comes at the third question."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.asked: list[bool] = []
        self._process = process

    def __call__(self) -> bool:
        self.asked.append(self._process.poll() is None)
        return len(self.asked) == 3


@pytest.mark.asyncio
async def test_kill_waits_for_its_condition(process: "subprocess.Popen[bytes]") -> None:
    """Until then the process runs."""
    moment = Moment(process)
    await kill(process, once=moment)
    assert (moment.asked, process.returncode) == ([True] * 3, -signal.SIGKILL)


@pytest.mark.asyncio
async def test_condition_may_be_awaited_and_the_process_named_by_its_id(process: "subprocess.Popen[bytes]") -> None:
    """As a question to the cluster about a process of its own."""
    moment = Moment(process)

    async def asked() -> bool:
        return moment()

    await kill(process.pid, once=asked)
    assert (moment.asked, process.wait()) == ([True] * 3, -signal.SIGKILL)


def test_kill_without_an_event_loop_waits_too(process: "subprocess.Popen[bytes]") -> None:
    moment = Moment(process)
    kill_sync(process, once=moment)
    assert (moment.asked, process.returncode) == ([True] * 3, -signal.SIGKILL)


@pytest.mark.asyncio
async def test_kill_of_a_process_that_has_ended_is_an_error(process: "subprocess.Popen[bytes]") -> None:
    """The test would prove nothing."""
    process.kill()
    process.wait()
    for named in (process, process.pid):
        with pytest.raises(AssertionError, match="ended before the moment of its kill"):
            await kill(named, once=any_time)
        with pytest.raises(AssertionError, match="ended before the moment of its kill"):
            kill_sync(named, once=any_time)
