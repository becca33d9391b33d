"""An owner that drains has its topics moved while nobody else is away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass

import pytest

from oncelog.core.ids import Incarnation
from oncelog.stores import paths
from oncelog.stores.registry import StorageCookie
from oncelog.topic_owner import calm as calm_module
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


@dataclass
class Seen:
    """Storage nodes that have all been there for so long; or none at all."""

    whole_for_s: float
    alone: bool = False


async def test_nobody_away_costs_no_time() -> None:
    async with listening() as one, listening() as other:
        assert await calm(Seen(3600.0), f"{one},{other}/teams/orders", at_most_ms=DEADLINE_MS)


async def test_a_zookeeper_server_that_is_away_is_waited_for() -> None:
    """The session is with another one, and knows nothing of it."""
    async with listening() as one:
        async with listening() as other:
            pass
        hosts = f"{one},{other}"
        assert not await calm(Seen(3600.0), hosts, at_most_ms=500)
        waiting = asyncio.create_task(calm(Seen(3600.0), hosts, at_most_ms=DEADLINE_MS, calm_s=0.1))
        async with listening(int(other.rpartition(":")[2])):
            assert await waiting


async def test_a_zookeeper_server_that_was_away_is_given_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back may be one of several restarts; what is there at the first look costs no time."""
    looks: list[bool] = []

    async def accepts(_: str) -> bool:
        looks.append(len(looks) > 0)
        return looks[-1]

    monkeypatch.setattr(calm_module, "_accepts", accepts)
    began = asyncio.get_running_loop().time()
    assert await calm(Seen(3600.0), "zookeeper:2181", at_most_ms=DEADLINE_MS, calm_s=0.5)
    assert asyncio.get_running_loop().time() - began >= 0.5


async def test_what_came_back_a_moment_ago_is_given_that_moment() -> None:
    async with listening() as one:
        seen = Seen(7.9)
        assert not await calm(seen, one, at_most_ms=500)
        waiting = asyncio.create_task(calm(seen, one, at_most_ms=DEADLINE_MS))
        seen.whole_for_s = 8.0
        assert await waiting


async def test_where_the_whole_cluster_ends_nobody_is_waited_for() -> None:
    async with listening() as one, listening() as other:
        pass
    async with asyncio.timeout(DEADLINE_MS / 1000):
        assert not await calm(Seen(0.0, alone=True), f"{one},{other}", at_most_ms=3_600_000)


@pytest.mark.parametrize("alone", [True, False])
async def test_while_anybody_answers_the_others_are_waited_for(alone: bool) -> None:
    """A ZooKeeper server without storage nodes, or a storage node without ZooKeeper: the others may be back soon."""
    async with listening() as one, listening() as other:
        pass
    began = asyncio.get_running_loop().time()
    async with listening(int(one.rpartition(":")[2])) if alone else nullcontext():
        assert not await calm(Seen(0.0, alone=alone), f"{one},{other}", at_most_ms=500)
    assert asyncio.get_running_loop().time() - began >= 0.5


async def test_storage_nodes_and_the_session_are_whole_together() -> None:
    """From when the last of them is back; one that is unreachable, absent or without ZooKeeper breaks it."""
    links, session = SeenLinks(), await session_with_a_cluster()
    nodes = [node_of(A), node_of(B), node_of(C)]
    view = await storage_view(session, [], nodes, *(StorageCookie(n, "127.0.0.1", 1) for n in (A, B, C)), links=links)
    assert view.whole_for_s > 0
    links.lose(B)
    assert (view.whole_for_s, view.alone) == (0, False)
    links.lose(A, B, C)
    assert (view.whole_for_s, view.alone) == (0, True)
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
