"""A run whose test hangs ends with a report. Each run is a pytest of its own, with the conftest of all tests."""

from pathlib import Path

import pytest

from tests.tidy.conduct.inner_run import run_pytest

HANGS_IN_A_TASK = """
import asyncio, pytest

async def waits_for_ever():
    await asyncio.Event().wait()

@pytest.mark.limit_s(1)
@pytest.mark.asyncio
async def test_hangs():
    print("captured, and not the report")
    task = asyncio.create_task(waits_for_ever(), name="the one that hangs")
    await asyncio.gather(task)

def test_never_begins():
    pass
"""
HANGS_IN_A_THREAD = """
import pytest, threading

@pytest.fixture
def blocked():
    threading.Event().wait()

@pytest.mark.limit_s(1)
def test_hangs_in_a_fixture(blocked):
    pass
"""
ENDS = """
import pytest

@pytest.mark.limit_s(1)
def test_ends():
    pass

def test_outlives_the_limit_of_the_former():
    import time
    ends = time.monotonic() + 1.5
    while time.monotonic() < ends:
        pass
"""


def test_hang_names_the_test_and_says_where_its_tasks_stand(tmp_path: Path) -> None:
    """The chain of calls down to the one that waits: a task's own stack ends at the outermost."""
    done = run_pytest(tmp_path, HANGS_IN_A_TASK)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "::test_hangs has not ended within 1 s" in done.stderr
    assert "task the one that hangs runs waits_for_ever" in done.stderr
    assert "locks.py" in done.stderr.partition("runs waits_for_ever")[2]
    assert "Thread 0x" in done.stderr
    assert "captured, and" not in done.stderr
    assert "passed" not in done.stdout


def test_hang_in_a_fixture_says_where_its_thread_stands(tmp_path: Path) -> None:
    """No event loop runs, and the fixture blocks the main thread for ever."""
    done = run_pytest(tmp_path, HANGS_IN_A_THREAD)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "::test_hangs_in_a_fixture has not ended within 1 s" in done.stderr
    assert " in blocked" in done.stderr


def test_test_that_ends_in_time_ends_no_run(tmp_path: Path) -> None:
    """Its limit is its own: the next test may take longer."""
    done = run_pytest(tmp_path, ENDS)
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    assert "2 passed" in done.stdout
