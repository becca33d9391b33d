"""A draining owner keeps its topics until no other process of the cluster is restarting."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass

import pytest

from oncelog.core.ids import Incarnation
from oncelog.metadata_store.records.registry import StorageCookie
from oncelog.metadata_store.session import paths
from oncelog.runtime.port_claim import claim_port, port_of
from oncelog.topic_owner.cluster_stability import until_stable
from tests.cluster.until import until
from tests.contract.owner.storage_views import SeenLinks, node_of, session_with_a_cluster, storage_view

pytestmark = pytest.mark.asyncio

A, B, C = Incarnation("a" * 32), Incarnation("b" * 32), Incarnation("c" * 32)
DEADLINE_MS = 30_000


@asynccontextmanager
async def listening(port: int = 0) -> AsyncIterator[str]:
    """A server that takes connections, as "host:port"."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
def absent() -> Iterator[socket.socket]:
    """Its port refuses connections, and no other process gets it."""
    with claim_port("127.0.0.1") as claim:
        yield claim


@dataclass
class Seen:
    """Storage nodes that have been present for this long; isolated: none can be reached."""

    present_s: float
    isolated: bool = False

    def stable_for_s(self, _now_s: float) -> float:
        return self.present_s


async def test_cluster_is_observed_for_the_whole_stable_time() -> None:
    """A process that stops at the same moment as this owner is still present at the first check."""
    async with listening() as one, listening() as other:
        hosts = f"{one},{other}/teams/orders"
        assert not await until_stable(Seen(3600.0), hosts, timeout_ms=300, stable_s=0.5)
        began = asyncio.get_running_loop().time()
        assert await until_stable(Seen(3600.0), hosts, timeout_ms=DEADLINE_MS, stable_s=0.5)
        assert asyncio.get_running_loop().time() - began >= 0.5


async def test_wait_lasts_until_an_absent_zookeeper_server_is_back(absent: socket.socket) -> None:
    """The session uses another server, so it does not notice the absent one."""
    async with listening() as one:
        port = port_of(absent)
        hosts = f"{one},127.0.0.1:{port}"
        assert not await until_stable(Seen(3600.0), hosts, timeout_ms=500, stable_s=0.1)
        waiting = asyncio.create_task(until_stable(Seen(3600.0), hosts, timeout_ms=DEADLINE_MS, stable_s=0.1))
        async with listening(port):
            assert await waiting


async def test_stable_time_restarts_when_a_zookeeper_server_was_absent() -> None:
    """Its restart may be one of several."""
    looks: list[float] = []
    now = asyncio.get_running_loop().time

    async def accepts(_: str) -> bool:
        looks.append(now())
        return len(looks) != 3

    assert await until_stable(
        Seen(3600.0), "zookeeper:2181", timeout_ms=DEADLINE_MS, stable_s=0.5, check_interval_s=0.1, accepts=accepts
    )
    assert now() - looks[2] >= 0.5


async def test_storage_nodes_that_just_came_back_are_not_stable_yet() -> None:
    async with listening() as one:
        seen = Seen(0.2)
        assert not await until_stable(seen, one, timeout_ms=1_000, stable_s=0.3)
        seen.present_s = 0.3
        assert await until_stable(seen, one, timeout_ms=DEADLINE_MS, stable_s=0.3)


async def test_wait_ends_at_once_when_the_whole_cluster_ends(absent: socket.socket) -> None:
    hosts = f"127.0.0.1:{port_of(absent)}"
    async with asyncio.timeout(DEADLINE_MS / 1000):
        assert not await until_stable(Seen(0.0, isolated=True), f"{hosts},{hosts}", timeout_ms=3_600_000)


@pytest.mark.parametrize("isolated", [True, False])
async def test_wait_goes_on_while_one_process_can_be_reached(isolated: bool, absent: socket.socket) -> None:
    """A ZooKeeper server without storage nodes, or a storage node without ZooKeeper: the others may be back soon."""
    hosts = f"127.0.0.1:{port_of(absent)}"
    began = asyncio.get_running_loop().time()
    async with listening() if isolated else nullcontext(hosts) as one:
        assert not await until_stable(Seen(0.0, isolated=isolated), f"{one},{hosts}", timeout_ms=500)
    assert asyncio.get_running_loop().time() - began >= 0.5


async def test_session_and_all_storage_nodes_must_be_present() -> None:
    """The time counts from the last return; an unreachable or absent node, or a lost session, resets it."""
    links, session = SeenLinks(), await session_with_a_cluster()
    nodes = [node_of(A), node_of(B), node_of(C)]
    view = await storage_view(session, [], nodes, *(StorageCookie(n, "127.0.0.1", 1) for n in (A, B, C)), links=links)
    seen = view.stability
    now = asyncio.get_running_loop().time
    await until(lambda: seen.stable_for_s(now()) > 0.2, 30)
    links.lose(B)
    assert (seen.stable_for_s(now()), seen.isolated) == (0, False)
    links.lose(A, B, C)
    assert (seen.stable_for_s(now()), seen.isolated) == (0, True)
    reset_s = now()
    links.lose()
    assert seen.stable_for_s(now()) <= now() - reset_s
    await until(lambda: seen.stable_for_s(now()) > 0.2, 30)
    session.faults.suspend()
    assert seen.stable_for_s(now()) == 0
    reset_s = now()
    session.faults.resume()
    assert 0 < seen.stable_for_s(now()) <= now() - reset_s
    await session.delete(f"{paths.STORAGE}/{C}", version=0)
    await view.first()
    assert seen.stable_for_s(now()) == 0
