"""The pytest of a part, as a fork of a process that has imported what most tests do.

    make test ──> imports ── fork for each part ──> pytest ── fork before it has threads ──> services and commands

These imports take three seconds of CPU, and a part that starts clusters needs them twice. The rest of a part is as with
`python -m pytest`: it imports its own tests, and what only they need.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from oncelog.cli.standalone.fork_server import ForkServer
from oncelog.testing.local_cluster import without_settings
from tests.cluster.forked_program import begun_for_the_run, spawned

MODULE = "tests.suite.forked_part"
#: Of the plugins of pytest, which are imported before pytest rewrites what they assert.
_IMPORTED_BEFORE = ["-W", "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"]


@contextmanager
def forks_of_parts() -> Iterator[ForkServer]:
    server = spawned([MODULE], without_settings(os.environ), early="tests.suite.common_imports")
    try:
        yield server
    finally:
        server.end()


def main() -> int:
    # A shell starts a command in the background with this signal ignored. A fork gets it from `Running.interrupt` only.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with begun_for_the_run():
        return pytest.main([*sys.argv[1:], *_IMPORTED_BEFORE])
