"""One cluster for all tests that need no settings of their own: its start costs as much as many of them."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

import oncelog
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster
from tests.contract.stores.redis_process import RedisProcess


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two storage nodes and two owners, and a Redis for keys. Each test has topics of its own, and restores what else
    it changes."""
    place = tmp_path_factory.mktemp("shared")
    with (
        RedisProcess.running(place / "redis") as redis,
        Cluster.running(place, storage_nodes=2, owners=2, redis_url=redis.url) as running,
    ):
        yield running


@pytest_asyncio.fixture
async def client(cluster: Cluster) -> AsyncIterator[oncelog.AsyncClient]:
    """Of the cluster that the test uses, once all of its processes serve."""
    await cluster.healed()
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as connected:
        yield connected
