"""An owner that drains has its topics moved while nobody else is away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace

import pytest

from oncelog.core.ids import Incarnation
from oncelog.core.ledger.members import StorageNodesUpdated
from oncelog.stores import paths
from oncelog.stores.registry import StorageCookie
from oncelog.topic_owner import calm as calm_module
from oncelog.topic_owner import presence
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


async def test_it_is_looked_at_for_as_long_as_it_must_last() -> None:
    """Who stops in the same moment as this owner is still there at its first look."""
    async with listening() as one, listening() as other:
        hosts = f"{one},{other}/teams/orders"
        assert not await calm(Seen(3600.0), hosts, at_most_ms=300, calm_s=0.5)
        began = asyncio.get_running_loop().time()
        assert await calm(Seen(3600.0), hosts, at_most_ms=DEADLINE_MS, calm_s=0.5)
        assert asyncio.get_running_loop().time() - began >= 0.5


async def test_a_zookeeper_server_that_is_away_is_waited_for() -> None:
    """The session is with another one, and knows nothing of it."""
    async with listening() as one:
        async with listening() as other:
            pass
        hosts = f"{one},{other}"
        assert not await calm(Seen(3600.0), hosts, at_most_ms=500, calm_s=0.1)
        waiting = asyncio.create_task(calm(Seen(3600.0), hosts, at_most_ms=DEADLINE_MS, calm_s=0.1))
        async with listening(int(other.rpartition(":")[2])):
            assert await waiting


async def test_a_zookeeper_server_that_was_away_is_given_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back may be one of several restarts."""
    looks: list[float] = []
    now = asyncio.get_running_loop().time

    async def accepts(_: str) -> bool:
        looks.append(now())
        return len(looks) != 3

    monkeypatch.setattr(calm_module, "_accepts", accepts)
    monkeypatch.setattr(calm_module, "_LOOK_AGAIN_S", 0.1)
    assert await calm(Seen(3600.0), "zookeeper:2181", at_most_ms=DEADLINE_MS, calm_s=0.5)
    assert now() - looks[2] >= 0.5


async def test_what_came_back_a_moment_ago_is_given_that_moment() -> None:
    async with listening() as one:
        seen = Seen(0.2)
        assert not await calm(seen, one, at_most_ms=1_000, calm_s=0.3)
        seen.whole_for_s = 0.3
        assert await calm(seen, one, at_most_ms=DEADLINE_MS, calm_s=0.3)


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
    seen = view.presence
    await until(lambda: seen.whole_for_s > 0.2, 10)
    links.lose(B)
    assert (seen.whole_for_s, seen.alone) == (0, False)
    links.lose(A, B, C)
    assert (seen.whole_for_s, seen.alone) == (0, True)
    links.lose()
    assert seen.whole_for_s < 0.2
    await until(lambda: seen.whole_for_s > 0.2, 10)
    session.faults.suspend()
    assert seen.whole_for_s == 0
    session.faults.resume()
    assert 0 < seen.whole_for_s < 0.2
    await session.delete(f"{paths.STORAGE}/{C}", version=0)
    await view.first()
    assert seen.whole_for_s == 0


async def test_a_storage_node_that_is_away_for_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not restart; nobody knows when it will be back, and an owner may end meanwhile."""
    monkeypatch.setattr(presence, "RESTART_S", 0.2)
    seen = presence.Presence()
    nodes = StorageNodesUpdated((A, B), (C,), ())
    seen.see(nodes)
    assert seen.whole_for_s == 0
    await until(lambda: seen.whole_for_s > 0.3, 10)
    seen.see(replace(nodes, live=(A,), read_only=(B,)))
    assert seen.whole_for_s > 0.3
    seen.see(replace(nodes, live=(A,), absent=(B, C)))
    assert seen.whole_for_s == 0


async def test_unreachable_read_only_nodes_leave_an_owner_alone() -> None:
    seen = presence.Presence()
    nodes = StorageNodesUpdated((), (A, B), (), read_only=(C,))
    seen.see(nodes)
    assert not seen.alone
    seen.see(nodes, {C})
    assert seen.alone
