"""The backends that the tests of the stores run against."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from oncelog.runtime.zookeeper_server import ZooKeeperServer
from tests.contract.stores.store_backends import Backend, MemoryBackend, ZooKeeperBackend


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
