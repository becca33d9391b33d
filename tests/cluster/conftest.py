"""A client of the cluster that the test uses, and ports for programs that are told where to listen."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack

import pytest
import pytest_asyncio

import oncelog
from oncelog.runtime.port_claim import claim_port, port_of
from tests.cluster.cluster_fixture import DEADLINE_S, Cluster


@pytest_asyncio.fixture
async def client(cluster: Cluster) -> AsyncIterator[oncelog.AsyncClient]:
    """Of the cluster that the test uses, once all of its processes serve."""
    await cluster.healed()
    async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as connected:
        yield connected


@pytest.fixture
def free_port() -> Iterator[Callable[[], int]]:
    """Each call returns a port of 127.0.0.1. Until the end of the test only a process that is told it gets it, also
    while none listens there."""
    with ExitStack() as stack:
        yield lambda: port_of(stack.enter_context(claim_port("127.0.0.1")))
