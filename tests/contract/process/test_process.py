"""How a process ends: drained on a signal, with an error when it must not continue. Each test runs a process."""

import json
import os
import signal
import subprocess
import sys
from textwrap import dedent, indent
from typing import Any, NamedTuple

import pytest

from oncelog.runtime.process import ExitCode

_PROGRAM = """
import asyncio, sys, threading
from oncelog.core.errors import InvariantViolated, NotOwner
from oncelog.runtime.logs import set_up_logs
from oncelog.runtime.process import run

async def main(shutdown):
{body}

set_up_logs("info")
sys.exit(run(main, drain_timeout_ms={drain_timeout_ms}))
"""


class Ended(NamedTuple):
    code: int
    out: str
    lines: list[dict[str, Any]]


def _ended(body: str, *signals: signal.Signals, drain_timeout_ms: int = 10_000) -> Ended:
    """Run `body` as main; send each signal when a line "ready" appears on its output."""
    program = _PROGRAM.format(body=indent(dedent(body), "    "), drain_timeout_ms=drain_timeout_ms)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for number in signals:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(number)
        out, err = process.communicate(timeout=60)
    return Ended(process.returncode, out, [json.loads(line) for line in err.splitlines() if line.startswith("{")])


def test_process_exits_with_zero_when_main_returns() -> None:
    """Without output."""
    assert _ended("return") == (ExitCode.OK, "", [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_starts_the_drain_of_main(number: signal.Signals) -> None:
    """main still runs code after the request to stop."""
    ended = _ended(
        """
        print("ready", flush=True)
        await shutdown.wait()
        print("drained after", shutdown.reason, flush=True)
        """,
        number,
    )
    assert (ended.code, ended.out) == (ExitCode.OK, f"drained after {number.name}\n")


def test_drain_ends_at_its_deadline() -> None:
    """An orchestrator would kill the process without a log line."""
    ended = _ended('print("ready", flush=True); await asyncio.Event().wait()', signal.SIGTERM, drain_timeout_ms=50)
    assert ended.code == ExitCode.DRAIN_TIMED_OUT
    assert ended.lines[-1]["msg"] == "the drain exceeded its timeout"


def test_death_of_the_parent_is_no_second_signal() -> None:
    """Linux signals it once for each thread of the parent (`orphan_guard`): the drain, which the parent may have begun
    before, goes on."""
    body = """
    print(os.getpid(), flush=True)
    await shutdown.wait()
    print("draining", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print("drained", flush=True)
    """
    program = "import os\n" + _PROGRAM.format(body=indent(dedent(body), "    "), drain_timeout_ms=60_000)
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", parent],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        child = int(process.stdout.readline())
        os.kill(child, signal.SIGTERM)
        assert '"msg": "draining"' in process.stdout.readline()
        assert process.stdout.readline() == "draining\n"
        process.kill()
        process.wait()
        os.kill(child, signal.SIGTERM)
        assert "the parent process has ended, the drain goes on" in process.stdout.readline()
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.stdout.read() == "drained\n"


def test_second_signal_ends_the_process_at_once() -> None:
    """As with Ctrl-C pressed twice."""
    ended = _ended(
        """
        print("ready", flush=True)
        await shutdown.wait()
        print("ready", flush=True)
        await asyncio.Event().wait()
        """,
        signal.SIGINT,
        signal.SIGINT,
    )
    assert ended.code == ExitCode.DRAIN_TIMED_OUT


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('raise NotOwner("elsewhere")', ExitCode.FAILED),
        ('raise ExceptionGroup("g", [ExceptionGroup("h", [NotOwner("elsewhere")])])', ExitCode.FAILED),
        ('raise InvariantViolated("two owners")', ExitCode.BUG),
        ('raise ExceptionGroup("g", [NotOwner("elsewhere"), InvariantViolated("two owners")])', ExitCode.BUG),
        ('raise KeyError("x")', ExitCode.BUG),
    ],
)
def test_exception_in_main_is_reported(body: str, code: ExitCode) -> None:
    """Failures that an operator can correct have a message alone, and bugs their trace and another exit code."""
    ended = _ended(body)
    assert ended.code == code
    assert ended.lines[-1]["level"] == "critical"
    assert ("trace" in ended.lines[-1]) is (code is ExitCode.BUG)


@pytest.mark.parametrize(
    "body",
    [
        """
        async def fail():
            raise KeyError("x")
        asyncio.ensure_future(fail())
        await asyncio.Event().wait()
        """,
        """
        def fail():
            raise KeyError("x")
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.Event().wait()
        """,
        """
        def fail():
            raise KeyError("x")
        threading.Thread(target=fail, daemon=True).start()
        await asyncio.Event().wait()
        """,
        """
        error = InvariantViolated("two owners")
        asyncio.get_running_loop().call_exception_handler({"message": str(error), "exception": error})
        await asyncio.Event().wait()
        """,
    ],
    ids=["task", "callback", "thread", "invariant"],
)
def test_unhandled_error_ends_the_process_with_an_error(body: str) -> None:
    """The journal's thread or a topic's task may have ended: the process would acknowledge messages that are not
    stored.
    """
    ended = _ended(body)
    assert ended.code == ExitCode.BUG
    assert ended.lines[-1]["level"] == "critical"
    assert "trace" in ended.lines[-1]
