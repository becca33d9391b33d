"""Commands of `oncelog` as real processes, for tests of the command line."""

import os
import subprocess
import sys

from oncelog.runtime.orphan_guard import guarded

COMMAND_TIMEOUT_S = 120.0


def command(*words: str) -> list[str]:
    """The command line, ended with the test process."""
    return guarded([sys.executable, "-m", "oncelog.cli", *words])


def environment() -> dict[str, str]:
    """Without the settings of the user who runs the tests."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ONCELOG_")}


def run_command(url: str, admin_url: str, *words: str, given: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """A command against the cluster at these addresses, to its end. given: its standard input."""
    own = environment() | {"ONCELOG_URL": url, "ONCELOG_ADMIN_URL": admin_url}
    return subprocess.run(
        command(*words), input=given, capture_output=True, env=own, timeout=COMMAND_TIMEOUT_S, check=False
    )
