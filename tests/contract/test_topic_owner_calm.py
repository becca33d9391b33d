"""An owner that drains has its topics moved while nobody else is away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from oncelog.core.ids import Incarnation
from oncelog.stores import paths
from oncelog.stores.registry import StorageCookie
from oncelog.topic_owner.calm import calm
from tests.cluster.until import until
from tests.contract.storage_views import SeenLinks, node_of, session_with_a_cluster, storage_view

pytestmark = pytest.mark.asyncio

A, B, C = Incarnation("a" * 32), Incarnation("b" * 32), Incarnation("c" * 32)
DEADLINE_MS = 10_000


@asynccontextmanager
async def listening(port: int = 0) -> AsyncIterator[str]:
    """A server that takes connections, as "host:port"."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_nobody_away_costs_no_time() -> None:
    async with listening() as one, listening() as other:
        assert await calm(lambda: 3600.0, f"{one},{other}/teams/orders", at_most_ms=DEADLINE_MS)


async def test_a_zookeeper_server_that_is_away_is_waited_for() -> None:
    """The session is with another one, and knows nothing of it."""
    async with listening() as one:
        async with listening() as other:
            pass
        hosts = f"{one},{other}"
        assert not await calm(lambda: 3600.0, hosts, at_most_ms=500)
        waiting = asyncio.create_task(calm(lambda: 3600.0, hosts, at_most_ms=DEADLINE_MS))
        async with listening(int(other.rpartition(":")[2])):
            assert await waiting


async def test_what_came_back_a_moment_ago_is_given_that_moment() -> None:
    async with listening() as one:
        assert not await calm(lambda: 0.1, one, at_most_ms=500)
        ages = iter([0.0, 1.9])
        assert await calm(lambda: next(ages, 2.0), one, at_most_ms=DEADLINE_MS)


async def test_storage_nodes_and_the_session_are_whole_together() -> None:
    """From when the last of them is back; one that is unreachable, absent or without ZooKeeper breaks it."""
    links, session = SeenLinks(), await session_with_a_cluster()
    nodes = [node_of(A), node_of(B), node_of(C)]
    view = await storage_view(session, [], nodes, *(StorageCookie(n, "127.0.0.1", 1) for n in (A, B, C)), links=links)
    assert view.whole_for_s > 0
    links.lose(B)
    assert view.whole_for_s == 0
    links.lose()
    before = view.whole_for_s
    await until(lambda: view.whole_for_s > before, 10)
    session.faults.suspend()
    assert view.whole_for_s == 0
    session.faults.resume()
    assert view.whole_for_s > 0
    await session.delete(f"{paths.STORAGE}/{C}", version=0)
    await view.first()
    assert view.whole_for_s == 0
