"""The registry of live processes: the same tests for the fake in memory and for a real ZooKeeper."""

import asyncio
from dataclasses import replace

import pytest

from oncelog.core.errors import StoreUnavailable
from oncelog.core.ids import Incarnation
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.registry import (
    Decommission,
    LiveMetadata,
    LiveOwner,
    LiveStorageNode,
    Registry,
    StorageCookie,
)
from oncelog.metadata_store.session import paths
from tests.cluster.until import until
from tests.contract.stores.store_backends import DEADLINE_S, Backend, new_cluster

OK, CONFLICT = WriteStatus.OK, WriteStatus.CONFLICT
OWNER = Incarnation("a" * 32)

pytestmark = pytest.mark.asyncio


async def test_registered_owner_is_listed_until_its_session_ends(backend: Backend) -> None:
    """The list says where to connect."""
    session, other = await new_cluster(backend), await backend.open()
    owner = LiveOwner(OWNER, "10.0.0.1", {"grpc": 6651}, 1_000)
    registration = Registry(session).register_owner(owner)
    await registration.establish()
    await registration.establish()
    assert await Registry(other).owners.live() == {OWNER: owner}
    moved = replace(owner, ports={"grpc": 6652}, advertised="logs.example:31000")
    await registration.update(moved)
    assert await Registry(other).owners.live() == {OWNER: moved}
    await session.close()
    assert await Registry(other).owners.live() == {}


async def test_withdrawn_record_is_gone_while_the_session_continues(backend: Backend) -> None:
    """An owner that drains gets no new topics, but still writes its records."""
    session = await new_cluster(backend)
    registration = Registry(session).register_owner(LiveOwner(OWNER, "10.0.0.1", {}, 0))
    await registration.establish()
    await registration.withdraw()
    await registration.withdraw()
    assert await Registry(session).owners.live() == {}


async def test_kept_record_is_created_again_in_the_next_session(backend: Backend) -> None:
    """The server deletes it with the lost session, and only its process creates it again."""
    session, other = await new_cluster(backend), await backend.open()
    node = LiveStorageNode(OWNER, "10.0.0.1", 6660, 10**12)
    registration = Registry(session).register_storage_node(node)
    await registration.establish()
    former = session.session_id
    keeping = asyncio.ensure_future(registration.keep())
    await backend.expire(session)

    async def back() -> bool:
        found = await other.read(f"{paths.STORAGE}/{OWNER}")
        return found is not None and found.holder not in {None, former}

    await until(back, DEADLINE_S)
    assert await Registry(other).storage_nodes.live() == {OWNER: node}
    await session.close()
    with pytest.raises(StoreUnavailable):
        await keeping


async def test_restarted_process_replaces_the_record_of_its_former_session(backend: Backend) -> None:
    """Otherwise it would disappear with that session, seconds after the restart of a living process."""
    former, present = await new_cluster(backend), await backend.open()
    node = LiveStorageNode(OWNER, "10.0.0.1", 6660, 10**12)
    former_registration = Registry(former).register_storage_node(node)
    await former_registration.establish()
    restarted = replace(node, port=6661)
    await Registry(present).register_storage_node(restarted).establish()
    await former_registration.withdraw()
    await former.close()
    assert await Registry(present).storage_nodes.live() == {OWNER: restarted}


async def test_registering_survives_lost_replies(backend: Backend) -> None:
    """The process finds its own record."""
    session = await new_cluster(backend)
    registry = Registry(session)
    owner = LiveOwner(OWNER, "10.0.0.1", {}, 0)
    backend.lose_next_reply(session)
    await registry.register_owner(owner).establish()
    backend.lose_next_reply(session)
    await registry.register_metadata(LiveMetadata("10.0.0.2", {"rest": 8080})).establish()
    assert await registry.owners.live() == {OWNER: owner}
    assert len(await registry.metadata.live()) == 1


async def test_metadata_replica_with_the_lowest_number_is_the_oldest(backend: Backend) -> None:
    """It rebalances and repairs. When it leaves, the next oldest does; a new replica comes last."""
    first, second = await new_cluster(backend), await backend.open()
    one, two = LiveMetadata("10.0.0.1", {"rest": 8080}), LiveMetadata("10.0.0.2", {"rest": 8080})
    registration = Registry(first).register_metadata(one)
    await registration.establish()
    await Registry(second).register_metadata(two).establish()
    live = await Registry(second).metadata.live()
    assert list(live.values()) == [one, two]
    assert registration.name == min(live)
    await first.close()
    third = await backend.open()
    await Registry(third).register_metadata(one).establish()
    assert list((await Registry(second).metadata.live()).values()) == [two, one]


async def test_watch_of_live_records_shows_creations_changes_and_deletions(backend: Backend) -> None:
    """The items contain the data, so no further reads are needed."""
    session, other = await new_cluster(backend), await backend.open()
    watch = Registry(other).storage_nodes.watch()
    node = LiveStorageNode(OWNER, "10.0.0.1", 6660, 10**12)
    async with asyncio.timeout(DEADLINE_S):
        assert await anext(watch) == {}
        registration = Registry(session).register_storage_node(node)
        await registration.establish()
        assert await anext(watch) == {OWNER: node}
        full = replace(node, free_bytes=0, read_only=True)
        await registration.update(full)
        assert await anext(watch) == {OWNER: full}
        await session.close()
        assert await anext(watch) == {}
    await watch.aclose()


async def test_cookie_stays_when_its_node_leaves(backend: Backend) -> None:
    """A directory that joined once stays known, and can be retired for ever."""
    session, other = await new_cluster(backend), await backend.open()
    cookie = StorageCookie(OWNER, "10.0.0.1", 6660, own_filesystem=True)
    assert await Registry(session).write_cookie(cookie, version=ABSENT_VERSION) == (OK, 0)
    assert (await Registry(session).write_cookie(cookie, version=ABSENT_VERSION)).status is CONFLICT
    await session.close()
    assert await Registry(other).cookies() == {OWNER: cookie}
    retired = replace(cookie, retired=True)
    assert (await Registry(other).write_cookie(retired, version=0)).status is OK
    assert await Registry(other).read_cookie(OWNER) == (retired, 1)


async def test_cookie_keeps_its_successor_its_debt_and_its_decommission(backend: Backend) -> None:
    """A new cookie has none of them."""
    session = await new_cluster(backend)
    registry = Registry(session)
    successor = Incarnation("b" * 32)
    cookie = StorageCookie(
        OWNER, "10.0.0.1", 6660, retired=True, replaced_by=successor, debt=3, decommission=Decommission.DRAINING
    )
    assert (await registry.write_cookie(cookie, version=ABSENT_VERSION)).status is OK
    new = StorageCookie(successor, "10.0.0.2", 1)
    assert (await registry.write_cookie(new, version=ABSENT_VERSION)).status is OK
    assert await registry.cookies() == {OWNER: cookie, successor: new}
    assert (await registry.cookies())[successor].debt is None
