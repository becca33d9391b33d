"""The registration of a storage node: kept through sessions; a wiped directory retires the one that it replaces."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.errors import StorageDirectoryRefused
from oncelog.core.ids import Incarnation
from oncelog.log_storage.serve.node_registration import NodeRegistration, refuse_decommissioned
from oncelog.metadata_store.records.registry import Decommission, LiveStorageNode, Registry
from oncelog.runtime.observing.events import EventKind, EventRing
from tests.cluster.until import until
from tests.contract.noted import noted
from tests.contract.storage_client.ledger_world import DEADLINE_S, A, B
from tests.contract.stores.store_backends import Backend, new_cluster

pytestmark = pytest.mark.asyncio

GIB = 1 << 30


def live(incarnation: Incarnation, port: int = 7000, *, free_bytes: int = 8 * GIB) -> LiveStorageNode:
    return LiveStorageNode(incarnation, "127.0.0.1", port, free_bytes)


async def retired(registry: Registry) -> list[Incarnation]:
    return sorted(cookie.incarnation for cookie in (await registry.cookies()).values() if cookie.retired)


@pytest.mark.hazard("members-lost-in-turn")
async def test_wiped_directory_retires_its_predecessor(backend: Backend) -> None:
    """No new ledger waits for a directory that is gone (hazard members-lost-in-turn). A directory that only moved is
    not gone."""
    registry = Registry(await new_cluster(backend))
    await NodeRegistration(registry, live(A), address_is_chosen=True).join()
    await NodeRegistration(registry, live(A), address_is_chosen=True).join()
    assert not await retired(registry)
    await NodeRegistration(registry, live(B), address_is_chosen=True).join()
    assert await retired(registry) == [A]
    cookies = await registry.cookies()
    assert (cookies[A].replaced_by, cookies[B].port) == (B, 7000)
    assert cookies[A].debt is None, "the repairer has not counted yet"


@pytest.mark.hazard("unmounted-volume")
async def test_fresh_directory_is_no_member_before_its_predecessor_was_away_for_a_while(backend: Backend) -> None:
    """Perhaps the volume is only not mounted. A predecessor that registers again begins the delay again; a restart of
    the new node does not shorten it."""
    registry = Registry(await new_cluster(backend))
    former = NodeRegistration(registry, live(A), address_is_chosen=True, replace_delay_ms=1_000)
    await former.join()
    assert not former.joining
    before = NodeRegistration(registry, live(B), address_is_chosen=True, replace_delay_ms=1_000)
    fresh = NodeRegistration(registry, live(B), address_is_chosen=True, replace_delay_ms=1_000)
    for each in (before, fresh):
        await each.join()
        assert (await registry.storage_nodes.live())[B].joining
        assert set(await registry.cookies()) == {A}
    assert fresh.reason() == "waits until the node that had this address was unregistered for 1000 ms"
    now_ms, looks = 0, 0

    def clock() -> int:
        nonlocal looks
        looks += 1
        return now_ms

    replacing = asyncio.create_task(fresh.replace_former(clock))
    await fresh.update_space(free_bytes=6 * GIB, read_only=False)
    assert (await registry.storage_nodes.live())[B].joining
    now_ms = 5_000
    assert not looks, "the predecessor is registered"
    await former.leave()
    await until(lambda: looks >= 4, DEADLINE_S)
    assert not await retired(registry)
    now_ms = 6_000
    await asyncio.wait_for(replacing, DEADLINE_S)
    assert fresh.reason() is None
    assert not (await registry.storage_nodes.live())[B].joining
    cookies = await registry.cookies()
    assert (cookies[A].retired, cookies[A].replaced_by, cookies[B].retired) == (True, B, False)


@pytest.mark.hazard("unmounted-volume")
async def test_fresh_directory_joins_at_once_when_an_operator_removes_its_predecessor(backend: Backend) -> None:
    registry = Registry(await new_cluster(backend))
    await NodeRegistration(registry, live(A), address_is_chosen=True).join()
    fresh = NodeRegistration(registry, live(B), address_is_chosen=True, replace_delay_ms=1_000_000)
    await fresh.join()
    replacing = asyncio.create_task(fresh.replace_former(lambda: 0))
    stored = await registry.read_cookie(A)
    assert stored is not None
    await registry.write_cookie(replace(stored.value, retired=True), version=stored.version)
    await asyncio.wait_for(replacing, DEADLINE_S)
    assert not (await registry.storage_nodes.live())[B].joining


@pytest.mark.hazard("removed-cookie")
async def test_decommissioned_directory_is_refused(backend: Backend) -> None:
    """Its ledgers may be deleted since. While it is drained it still serves (hazard removed-cookie). The error names
    another directory for a new node, and no command that deletes data (hazard emptied-zookeeper)."""
    registry = Registry(await new_cluster(backend))
    path = Path("/data/log_storage")
    await refuse_decommissioned(path, A, registry)
    await NodeRegistration(registry, live(A), address_is_chosen=True).join()
    for decommission in (Decommission.NO, Decommission.DRAINING, Decommission.DONE):
        stored = await registry.read_cookie(A)
        assert stored is not None
        await registry.write_cookie(replace(stored.value, decommission=decommission), version=stored.version)
        if decommission is not Decommission.DONE:
            await refuse_decommissioned(path, A, registry)
    with pytest.raises(StorageDirectoryRefused, match="start it with another directory, which is empty"):
        await refuse_decommissioned(path, A, registry)


async def test_random_address_retires_no_directory(backend: Backend) -> None:
    """A free port of today may have been another node's yesterday."""
    registry = Registry(await new_cluster(backend))
    await NodeRegistration(registry, live(A), address_is_chosen=False).join()
    await NodeRegistration(registry, live(B), address_is_chosen=False).join()
    assert not await retired(registry)


async def test_moved_directory_gives_up_its_old_address(backend: Backend) -> None:
    """A node that gets the old address has replaced no other node."""
    registry = Registry(await new_cluster(backend))
    await NodeRegistration(registry, live(A), address_is_chosen=True).join()
    await NodeRegistration(registry, live(A, 7001), address_is_chosen=True).join()
    await NodeRegistration(registry, live(B), address_is_chosen=True).join()
    assert not await retired(registry)


async def test_live_record_is_created_again_in_a_new_session(backend: Backend) -> None:
    """A node whose session ended still serves, and must be found again."""
    session = await new_cluster(backend)
    registry = Registry(session)
    registration = NodeRegistration(registry, live(A), address_is_chosen=True)
    await registration.join()
    keeping = asyncio.create_task(registration.keep())
    former = session.session_id
    await backend.expire(session)

    async def is_back() -> bool:
        return session.session_id != former and A in await registry.storage_nodes.live()

    await until(is_back, DEADLINE_S)
    keeping.cancel()
    await asyncio.wait([keeping])
    await registration.leave()
    assert not await registry.storage_nodes.live()


async def test_free_space_is_registered_after_a_large_change(backend: Backend) -> None:
    """Each change wakes every owner. That adds are refused is registered at once."""
    registry = Registry(await new_cluster(backend))
    registration = NodeRegistration(registry, live(A), address_is_chosen=True)
    await registration.join()
    told = [
        (8 * GIB - 1, False, 8 * GIB),
        (6 * GIB, False, 6 * GIB),
        (6 * GIB - 1, True, 6 * GIB - 1),
        (6 * GIB, True, 6 * GIB - 1),
    ]
    for free_bytes, read_only, shown in told:
        await registration.update_space(free_bytes=free_bytes, read_only=read_only)
        node = (await registry.storage_nodes.live())[A]
        assert (node.free_bytes, node.read_only) == (shown, read_only)


async def order(registry: Registry, incarnation: Incarnation, *, read_only: bool) -> None:
    stored = await registry.read_cookie(incarnation)
    assert stored is not None
    await registry.write_cookie(replace(stored.value, read_only=read_only), version=stored.version)


async def test_read_only_request_is_registered_and_outlives_the_node(backend: Backend) -> None:
    """The cookie keeps the request: the next run of the node registers it at once, and so does a run after a move."""
    registry = Registry(await new_cluster(backend))
    events = EventRing("log_storage", A)
    registration = NodeRegistration(registry, live(A), address_is_chosen=True, events=events)
    await registration.join()
    following = asyncio.create_task(registration.follow_read_only_requests())

    async def shown() -> bool:
        return (await registry.storage_nodes.live())[A].read_only

    await order(registry, A, read_only=True)
    await until(shown, DEADLINE_S)
    assert [one.fields for one in noted(events, EventKind.NODE)] == [{"read_only": True}]
    following.cancel()
    await asyncio.wait([following])
    await registration.leave()

    again = NodeRegistration(registry, live(A, 7001), address_is_chosen=True)
    await again.join()
    assert await shown()
    assert (await registry.cookies())[A].read_only
    following = asyncio.create_task(again.follow_read_only_requests())
    await again.update_space(free_bytes=8 * GIB, read_only=True)
    await order(registry, A, read_only=False)
    await again.update_space(free_bytes=8 * GIB, read_only=True)
    assert await shown(), "there is no room, whatever is ordered"
    await again.update_space(free_bytes=8 * GIB, read_only=False)

    async def cleared() -> bool:
        return not await shown()

    await until(cleared, DEADLINE_S)
    following.cancel()
    await asyncio.wait([following])
