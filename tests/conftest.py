"""For all tests: one ZooKeeper server; generated examples that are the same in every run, and bounded by no clock.

A property that fails only at times hides from the commit that broke it; a machine busy with other work is no fault.

All event loops of a process share one gRPC poller. A completion that arrives after the loop of its test was closed is
reported in the loop of a later test, as an error of the asyncio logger: it is no error of that test and is not logged.
"""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

from oncelog.runtime.zookeeper_server import ZooKeeperServer

settings.register_profile("oncelog", deadline=None, derandomize=True, database=None)
settings.load_profile("oncelog")


def _not_of_a_closed_loop(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not ("PollerCompletionQueue" in record.getMessage() and "Event loop is closed" in str(error))


logging.getLogger("asyncio").addFilter(_not_of_a_closed_loop)


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """Shared by all tests that do not break it: each keeps to a root of its own."""
    with ZooKeeperServer.running(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
