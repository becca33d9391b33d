"""The level of the cluster over REST: it is raised only when every process, also one that is away, knows it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from oncelog.core.era import Era
from oncelog.core.ids import Incarnation
from oncelog.core.node.starts import JournalEnd, StorageEnd
from oncelog.core.placement.level import KnownProcess, Level
from oncelog.core.process_version import FIRST_VERSION, PROCESS_VERSION
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata.cluster.cluster_level import ClusterLevel
from oncelog.metadata_store.records.cluster_store import CREATED, ClusterState, ClusterStore
from oncelog.metadata_store.records.registry import Decommission, LiveOwner, Registry, StorageCookie
from tests.cluster.metadata.metadata_world import Replica
from tests.contract.rest.admin.admin_world import Admin, serving
from tests.contract.storage_client.ledger_world import Node, nodes

pytestmark = pytest.mark.asyncio
LEVEL, FINALIZE = "/admin/v2/cluster/level", "/admin/v2/cluster/finalize"
NODE = Incarnation("e" * 32)
#: The level of the metadata services here: a later one than this program's.
NEXT = PROCESS_VERSION + 1


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A storage node that serves."""
    async with nodes(tmp_path, 1) as (node,):
        yield node


@pytest_asyncio.fixture
async def admin(node: Node) -> AsyncIterator[Admin]:
    """A cluster of this program's level whose metadata service is of the next one, with a storage node of the next one
    that takes the copy of its records."""
    async with serving() as admin:
        of_replica(admin.replica, NEXT)
        await admin.join(node, version=NEXT)
        yield admin


def of_replica(replica: Replica, target: int) -> ClusterLevel:
    """Its program knows this level."""
    level = replica.coordination.level
    level._target = target
    return level


async def set_level(admin: Admin, level: Level) -> None:
    store = ClusterStore(admin.replica.session)
    found = await store.find()
    assert found is not None
    await store.write(replace(found.value, level=level), version=found.version)


async def store_node(admin: Admin, version: int | None, cookie: StorageCookie | None = None) -> None:
    """A storage node that has served and is away. version: what its last process noted."""
    registry = admin.replica.coordination.registry
    await registry.write_cookie(cookie or StorageCookie(NODE, "s-2", 6660), version=ABSENT_VERSION)
    if version is not None:
        await registry.write_end(NODE, StorageEnd(1, "start", JournalEnd(1, 0), version), version=ABSENT_VERSION)


async def test_level_is_raised_once_everybody_knows_it(admin: Admin) -> None:
    """And stays there when that is repeated."""
    await store_node(admin, NEXT)
    before = await admin.get(LEVEL)
    assert (before["level"], before["announced"], before["target"]) == (PROCESS_VERSION, 0, NEXT)
    assert before["behind"] == []
    assert {"kind": "storage node", "address": "s-2:6660", "version": NEXT, "away": True} in before["processes"]
    for _ in range(2):
        answer = await admin.http.post(FINALIZE)
        assert (answer.status_code, answer.json()["level"]) == (200, NEXT), answer.text
    assert (await admin.get(LEVEL))["announced"] == 0
    backups = (await admin.get("/admin/v2/backups"))["backups"]
    assert [one["pinned"] for one in backups] == [True] * 3, (
        "before the level is raised, after it, and for the second call"
    )


async def test_without_a_copy_of_the_records_nothing_is_raised(admin: Admin, node: Node) -> None:
    """What the new level is for may be in no note: without ZooKeeper only a copy says where it belongs."""
    node.copies_room = 0
    problem = await admin.refused("POST", FINALIZE, 503, "service_unavailable")
    assert "stored on 0 of 1 storage nodes" in problem["detail"]
    assert (await admin.get(LEVEL))["level"] == PROCESS_VERSION
    node.copies_room = 1 << 20
    assert (await admin.http.post(FINALIZE)).json()["level"] == NEXT


@pytest.mark.hazard("away-node-of-an-older-version")
@pytest.mark.parametrize("noted", [None, PROCESS_VERSION])
async def test_absent_storage_node_of_an_older_version_is_in_the_way(admin: Admin, noted: int | None) -> None:
    """Unless it is decommissioned, or another one has taken its place."""
    await store_node(admin, noted)
    problem = await admin.refused("POST", FINALIZE, 409, "conflict")
    version = FIRST_VERSION if noted is None else noted
    assert f"storage node s-2:6660 (version {version}, away)" in problem["detail"]
    registry = admin.replica.coordination.registry
    cookie = await registry.read_cookie(NODE)
    assert cookie is not None
    gone = replace(cookie.value, retired=True) if noted else replace(cookie.value, decommission=Decommission.DONE)
    await registry.write_cookie(gone, version=cookie.version)
    assert (await admin.http.post(FINALIZE)).json()["level"] == NEXT


async def test_registered_node_counts_by_its_registration(admin: Admin, node: Node) -> None:
    """What it noted before its upgrade is of the past."""
    end = StorageEnd(1, "start", JournalEnd(1, 0), PROCESS_VERSION)
    await admin.replica.coordination.registry.write_end(node.incarnation, end, version=ABSENT_VERSION)
    assert (await admin.http.post(FINALIZE)).json()["level"] == NEXT


async def test_interrupted_raise_goes_on_and_that_of_a_newer_program_is_left_alone(admin: Admin) -> None:
    """The operator's program ended between the announcement and the count."""
    await set_level(admin, Level(PROCESS_VERSION, NEXT + 1))
    problem = await admin.refused("POST", FINALIZE, 409, "conflict")
    assert f"raised to level {NEXT + 1}" in problem["detail"]
    await set_level(admin, Level(PROCESS_VERSION, NEXT))
    assert (await admin.http.post(FINALIZE)).json()["level"] == NEXT


@pytest.mark.hazard("start-races-finalize")
async def test_level_that_some_do_not_know_is_not_announced(admin: Admin) -> None:
    """A running process of the older version would read it, and end. It is named."""
    registration = admin.replica.coordination.registry.register_owner(
        LiveOwner(Incarnation("f" * 32), "owner-old", {"grpc": 1}, 0, version=PROCESS_VERSION)
    )
    await registration.establish()
    store = ClusterStore(admin.replica.session)
    before = await store.find()
    problem = await admin.refused("POST", FINALIZE, 409, "conflict")
    assert f"owner owner-old:1 (version {PROCESS_VERSION})" in problem["detail"]
    assert await store.find() == before, "the record was not written, also not twice"
    assert [one["address"] for one in (await admin.get(LEVEL))["behind"]] == ["owner-old:1"]
    await registration.withdraw()
    assert (await admin.http.post(FINALIZE)).json()["level"] == NEXT


@pytest.mark.hazard("former-ignored")
async def test_last_process_that_is_upgraded_while_the_level_is_raised_does_not_save_the_copy(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is behind at the first look, and not at the next. What the new level is for may be in a copy only."""
    old = KnownProcess("owner", "owner-old:1", PROCESS_VERSION)
    looks = iter([[old]])

    async def processes(_registry: Registry) -> list[KnownProcess]:
        return next(looks, [])

    monkeypatch.setattr(Registry, "processes", processes)
    await admin.http.post(FINALIZE)
    if (await admin.get(LEVEL))["level"] == PROCESS_VERSION:
        assert (await admin.http.post(FINALIZE)).json()["level"] == NEXT
    assert {one["pinned"] for one in (await admin.get("/admin/v2/backups"))["backups"]} == {True}


@pytest.mark.hazard("start-races-finalize")
@pytest.mark.parametrize("state", list(ClusterState))
async def test_replica_of_a_former_era_writes_nothing(admin: Admin, state: ClusterState) -> None:
    """It would count the processes of its own era, where none is left. A restore stops if another one writes."""
    store = ClusterStore(admin.replica.session)
    found = await store.find()
    assert found is not None
    later = replace(found.value, level=CREATED, era=Era(2, "1" * 32), state=state)
    await store.write(later, version=found.version)
    restored = await store.find()
    problem = await admin.refused("POST", FINALIZE, 503, "service_unavailable")
    assert "ZooKeeper is in era 2" in problem["detail"]
    assert await store.find() == restored


async def test_dry_run_changes_nothing_and_bad_bodies_are_refused(admin: Admin) -> None:
    answer = await admin.http.post(FINALIZE, json={"dry_run": True})
    assert answer.json()["level"] == PROCESS_VERSION
    for body in ({"dry_run": "yes"}, {"level": 10}):
        await admin.refused("POST", FINALIZE, 422, "invalid_argument", json=body)
    assert (await admin.get(LEVEL))["level"] == PROCESS_VERSION


async def test_two_operators_at_once(admin: Admin) -> None:
    """Through two replicas; both are answered."""
    other = await admin.world.replica()
    first, second = await asyncio.gather(admin.http.post(FINALIZE), of_replica(other, NEXT).finalize())
    assert first.json()["level"] == second.level.stored == NEXT
