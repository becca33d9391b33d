"""A cluster, the programs of the page in a directory of each test, and a reader of what they publish."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

import oncelog
from tests.cluster.cluster_fixture import Cluster, shared_cluster
from tests.cluster.recipes.recipe_programs import Programs, Watched

cluster = pytest.fixture(scope="package")(shared_cluster)


@pytest.fixture
def programs(cluster: Cluster, tmp_path: Path) -> Programs:
    return Programs(tmp_path, cluster)


@pytest_asyncio.fixture
async def watched(client: oncelog.AsyncClient) -> AsyncIterator[Callable[[str], Awaitable[Watched]]]:
    """Follow a topic until the end of the test."""
    tasks: list[asyncio.Task[None]] = []

    async def watch(topic: str) -> Watched:
        found = Watched(await client.create_reader(topic))
        tasks.append(asyncio.ensure_future(found.follow()))
        return found

    yield watch
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended
