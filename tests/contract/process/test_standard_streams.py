"""Programs whose standard streams are full or closed: an error that names the stream, or nothing; never a signal."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import oncelog
from oncelog.cli.failures import Exit
from oncelog.runtime.process import ExitCode
from oncelog.testing.local_cluster import without_settings
from tests.cluster.until import until

_PACKAGE = Path(oncelog.__file__).parent
_CLOSED = "<&- >&- 2>&-"
DEADLINE_S = 60.0
#: Nothing listens there.
_NOWHERE = "127.0.0.1:1"


def _programs() -> list[str]:
    """The modules that `python -m` runs."""
    found = sorted(path.parent.relative_to(_PACKAGE.parent) for path in _PACKAGE.rglob("__main__.py"))
    return [".".join(path.parts) for path in found]


def _ended(redirections: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run Python with these words, under redirections of the shell."""
    line = ["/bin/sh", "-c", f'exec "$@" {redirections}', "sh", sys.executable, *words]
    return subprocess.run(
        line,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=without_settings(os.environ),
        check=False,
    )


@pytest.mark.parametrize("program", _programs())
def test_full_output_is_an_error_that_names_it(program: str) -> None:
    """`/dev/full` answers every write as a disk without a free byte does."""
    done = _ended(">/dev/full", "-m", program, "--help")
    assert done.returncode == Exit.FAILED
    assert "No space left on device: standard output" in done.stderr
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr


@pytest.mark.parametrize("program", _programs())
def test_closed_output_is_an_error_that_names_it(program: str) -> None:
    """The output of such a command is lost, so it has not succeeded."""
    done = _ended(">&-", "-m", program, "--help")
    assert done.returncode == Exit.FAILED
    assert "Bad file descriptor: standard output" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["context", "list"], ["--version"], ["admin", "--help"], ["admin", "topics", "-h"]])
def test_errors_that_cannot_be_written_do_not_change_the_exit_code(words: list[str]) -> None:
    """Nobody can be told that standard error is full."""
    wanted = _ended("", "-m", "oncelog.cli", *words)
    assert _ended("2>/dev/full", "-m", "oncelog.cli", *words).returncode == wanted.returncode
    assert _ended("2>&-", "-m", "oncelog.cli", *words).returncode == wanted.returncode


@pytest.mark.parametrize(
    "words",
    [["read", "t", "--url", f"oncelog://{_NOWHERE}"], ["admin", "topics", "list", "--admin-url", f"http://{_NOWHERE}"]],
)
def test_command_connects_without_standard_streams(words: list[str]) -> None:
    """Sockets that take the numbers 0 to 2 end the process inside of uvloop, which never closes those."""
    assert _ended(_CLOSED, "-m", "oncelog.cli", *words, "--timeout", "0.5").returncode == Exit.UNAVAILABLE


@pytest.mark.parametrize("program", ["topic_owner", "metadata", "log_storage"])
def test_service_starts_without_standard_streams(program: str, tmp_path: Path) -> None:
    """It waits for ZooKeeper then, until a signal; no socket has one of the numbers 0 to 2."""
    words = ["-m", f"oncelog.{program}", "--zookeeper", _NOWHERE, "--port", "0", "--health-port", "0"]
    words += {"log_storage": ["--data", str(tmp_path)], "metadata": ["--http-port", "0"]}.get(program, [])
    line = ["/bin/sh", "-c", f'exec "$@" {_CLOSED}', "sh", sys.executable, *words]
    with subprocess.Popen(line, env=without_settings(os.environ)) as process:
        try:
            descriptors = Path(f"/proc/{process.pid}/fd")

            def listens() -> bool:
                opened = {path.name: _link(path) for path in list(descriptors.iterdir())}
                return any("socket" in place for place in opened.values()) and {
                    opened.get(str(number)) for number in range(3)
                } == {os.devnull}

            asyncio.run(until(listens, DEADLINE_S, waiting_for="sockets above the standard streams"))
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == ExitCode.OK
        finally:
            process.kill()


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except FileNotFoundError:
        return ""


def test_client_connects_without_standard_streams() -> None:
    """The SDK has an event loop of uvloop in a thread of other people's programs."""
    program = f"""
import os, oncelog
try:
    with oncelog.Client("oncelog://{_NOWHERE}", operation_timeout=0.5) as client:
        client.create_producer("t")
except oncelog.errors.OncelogError:
    os._exit(3)
"""
    assert _ended(_CLOSED, "-c", program).returncode == 3


def test_service_whose_output_is_full_serves() -> None:
    """The line that says where it serves is for the program that has started it."""
    program = """
import sys
from oncelog.runtime.logs import announce_serving, set_up_logs
from oncelog.runtime.process import run
from oncelog.runtime.descriptors import guard_streams
import logging

async def main(shutdown):
    announce_serving(logging.getLogger("x"), {"address": "a:1"})
    logging.getLogger("x").info("goes on")

guard_streams()
set_up_logs("info")
sys.exit(run(main, drain_timeout_ms=1000))
"""
    for redirection in (">/dev/full", ">&-"):
        done = _ended(redirection, "-c", program)
        assert done.returncode == ExitCode.OK, done.stderr
        assert "goes on" in done.stderr
