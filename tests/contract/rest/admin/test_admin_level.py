"""The level of the cluster over REST: it is raised only when every process, also one that is away, knows it."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from oncelog.core.era import Era
from oncelog.core.ids import Incarnation
from oncelog.core.node.starts import JournalEnd, StorageEnd
from oncelog.core.placement.level import UNSTORED, KnownProcess, Level
from oncelog.core.process_version import BEFORE_LEVELS, PROCESS_VERSION
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.metadata_store.records.cluster_store import CREATED, ClusterState, ClusterStore
from oncelog.metadata_store.records.registry import Decommission, LiveOwner, Registry, StorageCookie
from oncelog.metadata_store.session import paths
from tests.contract.rest.admin.admin_world import Admin, serving
from tests.contract.storage_client.ledger_world import Node, nodes

pytestmark = pytest.mark.asyncio
LEVEL, FINALIZE = "/admin/v2/cluster/level", "/admin/v2/cluster/finalize"
NODE = Incarnation("e" * 32)


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A storage node that serves."""
    async with nodes(tmp_path, 1) as (node,):
        yield node


@pytest_asyncio.fixture
async def admin(node: Node) -> AsyncIterator[Admin]:
    """A cluster that was created before levels, with a storage node that takes the copy of its records."""
    async with serving() as admin:
        await set_level(admin, UNSTORED)
        await admin.join(node)
        yield admin


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
    await store_node(admin, PROCESS_VERSION)
    before = await admin.get(LEVEL)
    assert (before["level"], before["announced"], before["target"]) == (BEFORE_LEVELS, 0, PROCESS_VERSION)
    assert before["behind"] == []
    assert {"kind": "storage node", "address": "s-2:6660", "version": PROCESS_VERSION, "away": True} in before[
        "processes"
    ]
    for _ in range(2):
        answer = await admin.http.post(FINALIZE)
        assert (answer.status_code, answer.json()["level"]) == (200, PROCESS_VERSION), answer.text
    assert (await admin.get(LEVEL))["announced"] == 0
    backups = (await admin.get("/admin/v2/backups"))["backups"]
    assert [one["pinned"] for one in backups] == [True] * 3, (
        "before the level is raised, after it, and for the second call"
    )


async def test_without_a_copy_of_the_records_nothing_is_raised(admin: Admin, node: Node) -> None:
    """Ledgers of before have no heads: without ZooKeeper only a copy says where they belong."""
    node.copies_room = 0
    problem = await admin.refused("POST", FINALIZE, 503, "service_unavailable")
    assert "stored on 0 of 1 storage nodes" in problem["detail"]
    assert (await admin.get(LEVEL))["level"] == BEFORE_LEVELS
    node.copies_room = 1 << 20
    assert (await admin.http.post(FINALIZE)).json()["level"] == PROCESS_VERSION


async def test_old_process_is_named_and_nothing_is_changed(admin: Admin) -> None:
    """The old process may start again."""
    registration = admin.replica.coordination.registry.register_owner(
        LiveOwner(Incarnation("f" * 32), "owner-old", {"grpc": 1}, 0, version=BEFORE_LEVELS)
    )
    await registration.establish()
    problem = await admin.refused("POST", FINALIZE, 409, "conflict")
    assert "owner owner-old:1 (version 7)" in problem["detail"]
    report = await admin.get(LEVEL)
    assert (report["level"], report["announced"]) == (BEFORE_LEVELS, 0)
    assert [one["address"] for one in report["behind"]] == ["owner-old:1"]
    await registration.withdraw()
    assert (await admin.http.post(FINALIZE)).json()["level"] == PROCESS_VERSION


@pytest.mark.hazard("away-node-of-an-older-version")
@pytest.mark.parametrize("noted", [None, BEFORE_LEVELS])
async def test_absent_storage_node_of_an_older_version_is_in_the_way(admin: Admin, noted: int | None) -> None:
    """Unless it is decommissioned, or another one has taken its place."""
    await store_node(admin, noted)
    problem = await admin.refused("POST", FINALIZE, 409, "conflict")
    assert "storage node s-2:6660 (version 7, away)" in problem["detail"]
    registry = admin.replica.coordination.registry
    cookie = await registry.read_cookie(NODE)
    assert cookie is not None
    gone = replace(cookie.value, retired=True) if noted else replace(cookie.value, decommission=Decommission.DONE)
    await registry.write_cookie(gone, version=cookie.version)
    assert (await admin.http.post(FINALIZE)).json()["level"] == PROCESS_VERSION


@pytest.mark.hazard("away-node-of-an-older-version")
async def test_node_that_an_older_program_served_last_is_in_the_way(admin: Admin) -> None:
    """It was upgraded, and went back. The older program does not know the field, and keeps it as it was."""
    await store_node(admin, PROCESS_VERSION)
    session, path = admin.replica.session, paths.storage_end(NODE)
    stored = await session.read(path)
    assert stored is not None
    fields = json.loads(stored.data)
    fields |= {"starts": fields["starts"] + 1, "start_id": "of the older program", "offset": fields["offset"] + 100}
    await session.write(path, json.dumps(fields).encode(), version=stored.version)
    problem = await admin.refused("POST", FINALIZE, 409, "conflict")
    assert "storage node s-2:6660 (version 7, away)" in problem["detail"]


async def test_registered_node_counts_by_its_registration(admin: Admin, node: Node) -> None:
    """What it noted before its upgrade is of the past."""
    end = StorageEnd(1, "start", JournalEnd(1, 0), BEFORE_LEVELS)
    await admin.replica.coordination.registry.write_end(node.incarnation, end, version=ABSENT_VERSION)
    assert (await admin.http.post(FINALIZE)).json()["level"] == PROCESS_VERSION


async def test_interrupted_raise_goes_on_and_that_of_a_newer_program_is_left_alone(admin: Admin) -> None:
    """The operator's program ended between the announcement and the count."""
    await set_level(admin, Level(BEFORE_LEVELS, PROCESS_VERSION + 1))
    problem = await admin.refused("POST", FINALIZE, 409, "conflict")
    assert f"raised to level {PROCESS_VERSION + 1}" in problem["detail"]
    await set_level(admin, Level(BEFORE_LEVELS, PROCESS_VERSION))
    assert (await admin.http.post(FINALIZE)).json()["level"] == PROCESS_VERSION


@pytest.mark.hazard("start-races-finalize")
async def test_level_that_some_do_not_know_is_not_announced(admin: Admin) -> None:
    """A running process of the older version would read it, and end."""
    await store_node(admin, BEFORE_LEVELS)
    store = ClusterStore(admin.replica.session)
    before = await store.find()
    await admin.refused("POST", FINALIZE, 409, "conflict")
    assert await store.find() == before, "the record was not written, also not twice"


@pytest.mark.hazard("former-ignored")
async def test_last_process_that_is_upgraded_while_the_level_is_raised_does_not_save_the_copy(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is behind at the first look, and not at the next. Without the copy nothing places the ledgers of before."""
    old = KnownProcess("owner", "owner-old:1", BEFORE_LEVELS)
    looks = iter([[old]])

    async def processes(_registry: Registry) -> list[KnownProcess]:
        return next(looks, [])

    monkeypatch.setattr(Registry, "processes", processes)
    await admin.http.post(FINALIZE)
    if (await admin.get(LEVEL))["level"] == BEFORE_LEVELS:
        assert (await admin.http.post(FINALIZE)).json()["level"] == PROCESS_VERSION
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
    assert answer.json()["level"] == BEFORE_LEVELS
    for body in ({"dry_run": "yes"}, {"level": 9}):
        await admin.refused("POST", FINALIZE, 422, "invalid_argument", json=body)
    assert (await admin.get(LEVEL))["level"] == BEFORE_LEVELS


async def test_two_operators_at_once(admin: Admin) -> None:
    """Through two replicas; both are answered."""
    other = await admin.world.replica()
    first, second = await asyncio.gather(admin.http.post(FINALIZE), other.coordination.level.finalize())
    assert first.json()["level"] == second.level.stored == PROCESS_VERSION
