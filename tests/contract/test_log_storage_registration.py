"""A storage node's records: kept through sessions, and a wiped directory retires the one that it replaces."""

import asyncio
from dataclasses import replace

import pytest

from oncelog.core.ids import Incarnation
from oncelog.log_storage.node_registration import NodeRegistration
from oncelog.stores.registry import LiveStorageNode, Registry
from tests.cluster.until import until
from tests.contract.ledger_world import DEADLINE_S, A, B
from tests.contract.store_backends import Backend, new_cluster

pytestmark = pytest.mark.asyncio

GIB = 1 << 30


def live(incarnation: Incarnation, port: int = 7000, *, free_bytes: int = 8 * GIB) -> LiveStorageNode:
    return LiveStorageNode(incarnation, "127.0.0.1", port, free_bytes)


async def retired(registry: Registry) -> list[Incarnation]:
    return sorted(cookie.incarnation for cookie in (await registry.cookies()).values() if cookie.retired)


@pytest.mark.hazard(8)
async def test_wiped_directory_retires_the_one_before_it(backend: Backend) -> None:
    """No new ledger waits for a directory that is gone (hazard 8); one that merely moved is not gone."""
    registry = Registry(await new_cluster(backend))
    await NodeRegistration(registry, live(A), address_is_chosen=True).join()
    await NodeRegistration(registry, live(A), address_is_chosen=True).join()
    assert not await retired(registry)
    await NodeRegistration(registry, live(B), address_is_chosen=True).join()
    assert await retired(registry) == [A]
    assert (await registry.cookies())[B].port == 7000


async def test_address_by_chance_retires_nobody(backend: Backend) -> None:
    """A free port of today may have been another node's yesterday."""
    registry = Registry(await new_cluster(backend))
    await NodeRegistration(registry, live(A), address_is_chosen=False).join()
    await NodeRegistration(registry, live(B), address_is_chosen=False).join()
    assert not await retired(registry)


async def test_moved_directory_leaves_its_old_address(backend: Backend) -> None:
    """Whoever takes the old address has replaced nobody."""
    registry = Registry(await new_cluster(backend))
    await NodeRegistration(registry, live(A), address_is_chosen=True).join()
    await NodeRegistration(registry, live(A, 7001), address_is_chosen=True).join()
    await NodeRegistration(registry, live(B), address_is_chosen=True).join()
    assert not await retired(registry)


async def test_live_record_comes_back_in_a_new_session(backend: Backend) -> None:
    """A node whose session ended serves all the same, and must be found again."""
    session = await new_cluster(backend)
    registry = Registry(session)
    membership = NodeRegistration(registry, live(A), address_is_chosen=True)
    await membership.join()
    keeping = asyncio.create_task(membership.keep())
    former = session.session_id
    await backend.expire(session)

    async def is_back() -> bool:
        return session.session_id != former and A in await registry.storage_nodes.live()

    await until(is_back, DEADLINE_S)
    keeping.cancel()
    await asyncio.wait([keeping])
    await membership.leave()
    assert not await registry.storage_nodes.live()


async def test_free_space_is_told_when_it_has_changed_much(backend: Backend) -> None:
    """Each change wakes every owner; that adds are refused is told at once."""
    registry = Registry(await new_cluster(backend))
    membership = NodeRegistration(registry, live(A), address_is_chosen=True)
    await membership.join()
    told = [
        (8 * GIB - 1, False, 8 * GIB),
        (6 * GIB, False, 6 * GIB),
        (6 * GIB - 1, True, 6 * GIB - 1),
        (6 * GIB, True, 6 * GIB - 1),
    ]
    for free_bytes, read_only, shown in told:
        await membership.tell(free_bytes=free_bytes, read_only=read_only)
        node = (await registry.storage_nodes.live())[A]
        assert (node.free_bytes, node.read_only) == (shown, read_only)


async def order(registry: Registry, incarnation: Incarnation, *, read_only: bool) -> None:
    stored = await registry.read_cookie(incarnation)
    assert stored is not None
    await registry.write_cookie(replace(stored.value, read_only=read_only), version=stored.version)


async def test_order_to_be_read_only_is_passed_on_and_outlives_the_node(backend: Backend) -> None:
    """By its cookie: the next life of the node tells it from its first word on, and so does the life after a move."""
    registry = Registry(await new_cluster(backend))
    membership = NodeRegistration(registry, live(A), address_is_chosen=True)
    await membership.join()
    following = asyncio.create_task(membership.follow_order())

    async def shown() -> bool:
        return (await registry.storage_nodes.live())[A].read_only

    await order(registry, A, read_only=True)
    await until(shown, DEADLINE_S)
    following.cancel()
    await asyncio.wait([following])
    await membership.leave()

    again = NodeRegistration(registry, live(A, 7001), address_is_chosen=True)
    await again.join()
    assert await shown()
    assert (await registry.cookies())[A].read_only
    following = asyncio.create_task(again.follow_order())
    await again.tell(free_bytes=8 * GIB, read_only=True)
    await order(registry, A, read_only=False)
    await again.tell(free_bytes=8 * GIB, read_only=True)
    assert await shown(), "there is no room, whatever is ordered"
    await again.tell(free_bytes=8 * GIB, read_only=False)

    async def cleared() -> bool:
        return not await shown()

    await until(cleared, DEADLINE_S)
    following.cancel()
    await asyncio.wait([following])
