"""Commands of `oncelog`, in the process of a test or in one of their own."""

import os
import signal
import subprocess
import sys
import threading

from typer.testing import CliRunner

from oncelog.cli.app import app
from oncelog.runtime.orphan_guard import guarded
from oncelog.testing.local_cluster import without_settings
from tests.cluster.forked_program import run_forked

COMMAND_TIMEOUT_S = 120.0


def command(*words: str) -> list[str]:
    """The command line, ended with the test process."""
    return guarded([sys.executable, "-m", "oncelog.cli", *words])


def environment() -> dict[str, str]:
    """Without the settings of the user who runs the tests."""
    return without_settings(os.environ)


def run_command(url: str, admin_url: str, *words: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """A command against the cluster at these addresses, to its end. given: its standard input.

    It runs in this process, because the start of an interpreter costs more than most commands. One that takes too long
    gets Ctrl-C. One that is given standard input has a process of its own: it reads the descriptor.
    """
    own = {"ONCELOG_URL": url, "ONCELOG_ADMIN_URL": admin_url}
    if given:
        return run_forked(words, environment() | own, stdin=given, timeout_s=COMMAND_TIMEOUT_S)
    changed: dict[str, str | None] = {name: None for name in os.environ if name.startswith("ONCELOG_")}
    late = threading.Timer(COMMAND_TIMEOUT_S, os.kill, (os.getpid(), signal.SIGINT))
    late.start()
    try:
        done = CliRunner().invoke(app, words, env=changed | own | {"COLUMNS": "80"}, prog_name="oncelog")
    finally:
        late.cancel()
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout_bytes, done.stderr_bytes)
