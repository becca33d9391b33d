"""For all tests: one ZooKeeper server; generated examples that are the same in every run, and bounded by no clock.

A property that fails only at times hides from the commit that broke it; a machine busy with other work is no fault.
"""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from oncelog.runtime.zookeeper_server import ZooKeeperServer

settings.register_profile("oncelog", deadline=None, derandomize=True, database=None)
settings.load_profile("oncelog")


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """Shared by all tests that do not break it: each keeps to a root of its own."""
    with ZooKeeperServer.running(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
