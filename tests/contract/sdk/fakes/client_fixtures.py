"""The fixtures of the SDK's tests: a fake cluster, and a client of it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

import oncelog
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.fake_offers import FakeMembers


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """The SDK's other end: see fake_cluster."""
    async with FakeCluster.running() as running:
        yield running


@pytest_asyncio.fixture(params=["owner", "storage"])
async def both_ways(request: pytest.FixtureRequest, cluster: FakeCluster) -> AsyncIterator[None]:
    """Readers get entries from the owner, and then from storage nodes but for the first one."""
    if request.param == "owner":
        yield
        return
    async with FakeMembers.running(cluster.by_id) as cluster.knobs.offered:
        yield


@pytest_asyncio.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[oncelog.AsyncClient]:
    connected = await oncelog.connect(cluster.url, operation_timeout=30)
    yield connected
    await connected.close(flush=False)  # a test may have left an owner that answers nothing
