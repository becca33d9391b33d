"""One ZooKeeper server for all contract tests, and the backends that the tests of the stores run against."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from oncelog.runtime.zookeeper_server import ZooKeeperServer
from tests.contract.store_backends import Backend, MemoryBackend, ZooKeeperBackend


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """Shared: a test keeps to a root of its own."""
    with ZooKeeperServer.running(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest_asyncio.fixture(params=["memory", "zookeeper"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    """The fake and the real thing: a test that takes this runs against both."""
    if request.param == "memory":
        yield MemoryBackend()
        return
    async with ZooKeeperBackend.running(request.getfixturevalue("zookeeper_server")) as zookeeper:
        yield zookeeper


@pytest_asyncio.fixture
async def zookeeper(zookeeper_server: ZooKeeperServer) -> AsyncIterator[ZooKeeperBackend]:
    async with ZooKeeperBackend.running(zookeeper_server) as backend:
        yield backend
