"""The fixtures of the SDK's tests: a fake cluster, and a client of it."""

from collections.abc import AsyncIterator

import pytest_asyncio

import oncelog
from tests.contract.fake_cluster import FakeCluster


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """The SDK's other end: see fake_cluster."""
    async with FakeCluster.running() as running:
        yield running


@pytest_asyncio.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[oncelog.AsyncClient]:
    connected = await oncelog.connect(cluster.url, operation_timeout=30)
    yield connected
    await connected.close(flush=False)  # a test may have left an owner that answers nothing
