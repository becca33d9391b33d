"""A client of the cluster that the test uses."""

from collections.abc import AsyncIterator

import pytest_asyncio

import oncelog
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster


@pytest_asyncio.fixture
async def client(cluster: Cluster) -> AsyncIterator[oncelog.AsyncClient]:
    """Of the cluster that the test uses, once all of its processes serve."""
    await cluster.healed()
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as connected:
        yield connected
