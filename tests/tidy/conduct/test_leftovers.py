"""A test that leaves work behind fails, and the report says what it is. Each run is a pytest of its own."""

from pathlib import Path

import pytest

from tests.tidy.conduct.inner_run import run_pytest

TASK = """
import asyncio, pytest

async def goes_on():
    await asyncio.Event().wait()

@pytest.mark.asyncio
async def test_leaves_a_task():
    asyncio.create_task(goes_on(), name="left")
"""
PROCESS = """
import subprocess

kept = []

def test_leaves_a_process():
    kept.append(subprocess.Popen(["sleep", "300"]))

def test_is_innocent():
    pass

def teardown_module():
    kept[0].kill()
    kept[0].wait()
"""
THREAD = """
import pytest, threading

kept = []

def test_leaves_a_thread():
    kept.append(threading.Event())
    threading.Thread(target=kept[0].wait, name="lingers").start()

def test_is_innocent():
    pass

def teardown_module():
    kept[0].set()
"""
SESSION = """
import pytest
from oncelog.metadata_store.session.zookeeper import ZooKeeperSession

@pytest.mark.asyncio
async def test_leaves_a_session(zookeeper_server):
    await ZooKeeperSession.connect(zookeeper_server.address)
"""
INNOCENT = """
import asyncio, subprocess, threading
from concurrent.futures import ThreadPoolExecutor
import pytest, pytest_asyncio

kept = []

async def serves():
    await asyncio.Event().wait()

@pytest.fixture(scope="module")
def server():
    process = subprocess.Popen(["sleep", "300"])
    yield process
    process.kill()
    process.wait()

@pytest_asyncio.fixture
async def serving():
    task = asyncio.create_task(serves())
    yield
    task.cancel()

@pytest.fixture(scope="module")
def late():
    process = subprocess.Popen(["sleep", "299"])
    yield process
    process.kill()
    process.wait()

def test_asks_for_a_server_late(request):
    request.getfixturevalue("late")

def test_restarts_a_server_of_the_module(server):
    server.kill()
    server.wait()
    server.__init__(["sleep", "300"])

@pytest.mark.asyncio
async def test_cancels_what_it_has_begun(server, serving):
    await asyncio.to_thread(lambda: None)
    asyncio.create_task(serves()).cancel()

def test_ends_its_processes(server):
    ends = subprocess.Popen(["sleep", "298"])
    ends.kill()
    with ends:
        threading.Thread(target=lambda: None).start()

def test_leaves_an_executor_that_has_nothing_to_do():
    kept.append(ThreadPoolExecutor())
    kept[0].submit(lambda: None).result()
"""


@pytest.mark.parametrize(
    ("text", "test", "says"),
    [
        pytest.param(TASK, "test_leaves_a_task", "task left runs goes_on", id="task"),
        pytest.param(PROCESS, "test_leaves_a_process", ": sleep 300", id="process"),
        pytest.param(THREAD, "test_leaves_a_thread", "thread lingers", id="thread"),
        pytest.param(SESSION, "test_leaves_a_session", "(zk_loop)", id="session"),
    ],
)
def test_test_that_leaves_work_behind_fails(tmp_path: Path, text: str, test: str, says: str) -> None:
    """It alone fails: the next test begins with what the former has left."""
    done = run_pytest(tmp_path, text, "-o", "leftovers_s=0.3")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "the test has left behind:" in done.stdout
    assert says in done.stdout
    assert f"::{test}" in done.stdout.partition("short test summary info")[2]
    assert "1 error" in done.stdout


def test_test_that_ends_its_work_passes(tmp_path: Path) -> None:
    """What a fixture of the module serves, and what ends a moment later, is not left behind."""
    done = run_pytest(tmp_path, INNOCENT)
    assert done.returncode == pytest.ExitCode.OK, done.stdout
