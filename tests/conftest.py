"""For all tests: one ZooKeeper server; generated examples that are the same in every run, and bounded by no clock.

Python's garbage collection is set as in the services: most tests compute in this process, and the default would take a
fifth of that time. While the tests are imported there is none: a tenth of that time, and nothing to free.

A property that fails only at times hides from the commit that broke it; a machine busy with other work is no fault.

All event loops of a process share one gRPC poller. A completion that arrives after the loop of its test was closed is
reported in the loop of a later test, as an error of the asyncio logger: it is no error of that test and is not logged.

A test that hangs ends the run with a report (tests/tidy/conduct/hang_watch.py), and one that leaves work behind fails
(tests/tidy/conduct/leftovers.py).

What the environment of a user says of proxies and of a terminal is not seen.

httpx looks for the package sniffio in each asynchronous call, several times; all folders of `sys.path` are searched
for it, a twelfth of the time of the tests of REST.
"""

import gc
import logging
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from hypothesis import settings

from oncelog.runtime.memory import tune_memory
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from tests.compiled import keep_compiled
from tests.failure_report import _where_files_are, pytest_runtest_makereport  # noqa: F401  fixtures and hooks
from tests.tidy.conduct.hang_watch import HangWatch
from tests.tidy.conduct.leftovers import ENDS_WITHIN_S, Leftovers

keep_compiled()
gc.disable()

# A proxy does not reach what the tests start, and the width of a terminal changes what commands print.
for _name in ("http_proxy", "https_proxy", "all_proxy"):
    os.environ.pop(_name, None)
    os.environ.pop(_name.upper(), None)
os.environ.pop("COLUMNS", None)

if find_spec("sniffio") is None:
    sys.modules["sniffio"] = None  # type: ignore[assignment]

settings.register_profile("oncelog", deadline=None, derandomize=True, database=None)
settings.load_profile("oncelog")


def _not_of_a_closed_loop(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not ("PollerCompletionQueue" in record.getMessage() and "Event loop is closed" in str(error))


logging.getLogger("asyncio").addFilter(_not_of_a_closed_loop)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("leftovers_s", help="seconds in which the work of a test ends behind it", default=str(ENDS_WITHIN_S))


def pytest_configure(config: pytest.Config) -> None:
    """Standard error is pytest's own here: nothing is captured yet."""
    if not config.getoption("usepdb"):
        config.pluginmanager.register(HangWatch(os.dup(2)))
    config.pluginmanager.register(Leftovers(float(config.getini("leftovers_s"))))


def pytest_collection_finish() -> None:
    """All modules are imported."""
    gc.enable()
    tune_memory()


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """Shared by all tests that do not break it: each keeps to a root of its own."""
    with ZooKeeperServer.running(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
