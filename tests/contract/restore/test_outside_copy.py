"""A restore uses a copy of the records that is outside of the cluster."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from oncelog.core.era import ERA_JUMP_MAX, FIRST_ERA, Era
from oncelog.core.errors import Conflict, InvalidArgument, OncelogError, ServiceUnavailable
from oncelog.core.formats.topic_record import FORMAT_WITH_HEADS, LedgerLink, TopicRecord, encode_topic
from oncelog.core.ids import EntryId, LedgerId, Position
from oncelog.core.ledger.metadata import LedgerMetadata, encode_ledger
from oncelog.core.names import parse_topic
from oncelog.core.process_version import FIRST_VERSION, PROCESS_VERSION
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.log_storage.directory.metadata_copies import FOLDER
from oncelog.metadata.restore.drill import live_records
from oncelog.metadata.restore.node_reader import NodeReader
from oncelog.metadata.restore.outside_copy import store_copy
from oncelog.metadata.restore.progress import RestoreState
from oncelog.metadata.restore.record_copies import KeptCopy
from oncelog.metadata_store.copies.copy_file import MAGIC, CopiedRecord, CopyHeader, copy_of
from oncelog.metadata_store.copies.copy_folder import name_by_content
from oncelog.metadata_store.copies.copy_keys import CopyKey
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterStore, encode_cluster
from oncelog.metadata_store.records.policies import Policies, encode_policies
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.records.topic_store import NameRecord, encode_name
from oncelog.metadata_store.session import paths
from tests.contract.node.directory.small_log import CLUSTER
from tests.contract.restore.restoring_world import NAME, TOPIC, RestoringWorld, cookie_of, restoring_world
from tests.contract.stores.memory_store import MemoryTree

pytestmark = pytest.mark.asyncio
NAMESPACE = parse_topic(NAME).namespace_name
KEY, OTHER_KEY = CopyKey(b"k" * 32), CopyKey(b"o" * 32)
HEADER = CopyHeader(CLUSTER, ClusterRecord(CLUSTER).era, PROCESS_VERSION, 1_764_200_000_000)
RECORD = encode_cluster(ClusterRecord(CLUSTER))
#: Whole files of this cluster that no restore uses: header, record of the cluster, why.
UNUSABLE = [
    (replace(HEADER, level=PROCESS_VERSION + 1), RECORD, f"of level {PROCESS_VERSION + 1}"),
    (replace(HEADER, level=FIRST_VERSION - 1), RECORD, f"of level {FIRST_VERSION - 1}, below {FIRST_VERSION}"),
    (HEADER, RECORD.replace(b'"format":2', b'"format":1'), f"the cluster is below level {FIRST_VERSION}"),
    (replace(HEADER, era=Era(ERA_JUMP_MAX + 2, "9" * 32)), RECORD, f"of era {ERA_JUMP_MAX + 2}"),
    (HEADER, b"\xff", "cannot read the cluster record"),
    (HEADER, RECORD.replace(b'"format":2', b'"format":9'), "format 9"),
]


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[RestoringWorld]:
    """Two ledgers, and no notes."""
    async with restoring_world(tmp_path) as world:
        await world.write(4, 3, to=world.nodes)
        await world.write(9, 2, former=Position(LedgerId(4), EntryId(3)), to=world.nodes)
        session = world.session()
        for folder in ("", *paths.FOLDERS):
            await session.ensure_path(folder)
        await ClusterStore(session).write(ClusterRecord(CLUSTER), version=ABSENT_VERSION)
        links = (LedgerLink(LedgerId(4), 0), LedgerLink(LedgerId(9), 0))
        closed = LedgerMetadata(LedgerId(4), TOPIC, world.members, 2).closed(end=EntryId(3), length=300)
        name = parse_topic(NAME)
        for path, value in {
            paths.topic(TOPIC): encode_topic(TopicRecord(TOPIC, NAME, ledgers=links, format=FORMAT_WITH_HEADS)),
            paths.ledger(LedgerId(4)): encode_ledger(closed),
            paths.ledger(LedgerId(9)): encode_ledger(LedgerMetadata(LedgerId(9), TOPIC, world.members, 2)),
            paths.namespace_policies(name.namespace_name): encode_policies(Policies(permissions={"ann": ("produce",)})),
            paths.topic_name(name): encode_name(NameRecord(TOPIC)),
        }.items():
            await session.ensure_path(path.rpartition("/")[0])
            await session.create(path, value)
        for node in world.nodes:
            await Registry(session).write_cookie(cookie_of(node), version=ABSENT_VERSION)
        yield world


async def copied(
    world: RestoringWorld, header: CopyHeader = HEADER, key: CopyKey | None = None, **changed: bytes
) -> bytes:
    """A copy that was taken, and is nowhere in the cluster. changed: records at the root of the era."""
    records = await live_records(world.session()) | {f"/{name}": value for name, value in changed.items()}
    return copy_of(header, [key] if key else [], [CopiedRecord(*each, 0, 1) for each in records.items()])


async def given(world: RestoringWorld, file: bytes, name: str | None = None) -> KeptCopy:
    """As the command names it."""
    addresses = [world.nodes[0].address]
    return await store_copy(world.sources(), name or name_by_content(HEADER, file), file, given=addresses)


def stored(world: RestoringWorld) -> list[Path]:
    return [path for node in world.nodes for path in node.path.glob(f"{FOLDER}/*")]


async def test_records_that_did_not_change_are_in_memory_once(world: RestoringWorld) -> None:
    """A restore reads the copies of two weeks. Each of a large cluster has 100 MB of records."""
    header = replace(HEADER, created_ms=HEADER.created_ms + 86_400_000)
    addresses = [node.address for node in world.nodes]
    for head, file in ((HEADER, await copied(world)), (header, await copied(world, header, idempotency=b"{}"))):
        await store_copy(world.sources(), name_by_content(head, file), file, given=addresses)
    async with NodeReader() as reader:
        seen, _ = await reader.survey(addresses)
        eras = {node: each.era for node, each in seen.items()}
        (first, second), unused = await reader.copies(eras, CLUSTER, (), committed={FIRST_ERA})
    assert unused == {}
    same = [path for path, record in second.records.items() if record is first.records.get(path)]
    assert sorted(same) == sorted({*second.records} - {paths.KEY_DATASET})


@pytest.mark.hazard("half-a-copy")
async def test_records_without_notes_come_back_from_a_copy_from_outside_alone(world: RestoringWorld) -> None:
    """ZooKeeper and the copies of the nodes are gone, and no node has a note."""
    file = await copied(world)
    world.tree = MemoryTree()
    without = await world.restore(dry_run=True)
    assert (without.state, without.copies) == (RestoreState.DONE, [])
    kept = await store_copy(
        world.sources(), name_by_content(HEADER, file), file, given=[node.address for node in world.nodes]
    )
    assert set(kept.nodes) == set(world.members), "one more than the ack quorum"
    restored = await world.restore()
    assert (restored.state, restored.reviews, len(restored.copies)) == (RestoreState.DONE, [], 1)
    topic = world.record(f"/era-2/topics/{TOPIC}")
    assert (topic["name"], topic["ledgers"]) == (NAME, [[4, 0], [9, 0]])
    assert world.record(f"/era-2{paths.namespace_policies(NAMESPACE)}")["permissions"] == {"ann": ["produce"]}


async def test_repeated_upload_is_one_pinned_file(world: RestoringWorld) -> None:
    """The command is repeated with each restore that was refused. Nodes are found by their records, if there are."""
    file = await copied(world)
    first, second = await given(world, file), await given(world, file)
    assert (first.name, first.pinned, set(first.nodes)) == (second.name, True, set(world.members))
    assert {(path.name, path.read_bytes()) for path in stored(world)} == {(f"{first.name}.pinned", file)}


@pytest.mark.hazard("half-a-copy")
async def test_file_that_a_restore_would_not_use_is_refused_before_anything_is_stored(world: RestoringWorld) -> None:
    """With what is wrong. The name of another file would replace that one."""
    whole = await copied(world)
    foreign = await copied(world, CopyHeader("d" * 32, HEADER.era, PROCESS_VERSION, HEADER.created_ms))
    newer = whole.replace(b'"format":1', b'"format":2')
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    cases: list[tuple[bytes, type[OncelogError], str]] = [
        (whole[:-20], InvalidArgument, "half a copy"),
        (whole[:10], InvalidArgument, "half a copy"),
        (b"", InvalidArgument, "half a copy"),
        (bytes(flipped), InvalidArgument, "damaged"),
        (whole + b"x", InvalidArgument, "bytes follow"),
        (newer, InvalidArgument, "format 2"),
        (json.dumps({"a": 1}).encode() * 9, InvalidArgument, "is not a copy"),
        (await copied(world, key=OTHER_KEY), InvalidArgument, f"key {OTHER_KEY.key_id}, and the given keys are: none"),
        (foreign, Conflict, f"cluster {'d' * 32}, and storage nodes have data of cluster {CLUSTER}"),
    ]
    for file, error, message in cases:
        with pytest.raises(error, match=message):
            await given(world, file)
    world.copy_keys = (KEY,)
    for file in (whole, await copied(world, key=OTHER_KEY)):
        with pytest.raises(InvalidArgument, match="encrypted"):
            await given(world, file)
    world.copy_keys = ()
    for header, record, message in UNUSABLE:
        file = await copied(world, header, cluster=record)
        with pytest.raises(Conflict, match=f"the copy is refused: .*{message}"):
            await given(world, file, name_by_content(header, file))
    world.copy_keys = (KEY,)
    with pytest.raises(InvalidArgument, match="the name of this copy is"):
        await given(world, await copied(world, key=KEY), "2026-11-27t06-00-00z-era1-00000000")
    assert stored(world) == []
    await given(world, await copied(world, key=KEY))
    assert len(stored(world)) == len(world.members)


@pytest.mark.parametrize(("header", "record", "message"), UNUSABLE)
async def test_copy_that_cannot_be_used_stops_no_restore(
    world: RestoringWorld, header: CopyHeader, record: bytes, message: str
) -> None:
    """It is on a disk, pinned, so it is there at each attempt."""
    await world.note_cluster()
    file = await copied(world, header, cluster=record)
    folder = world.nodes[0].path / FOLDER
    folder.mkdir()
    (folder / f"{name_by_content(header, file)}.pinned").write_bytes(file)
    world.tree = MemoryTree()
    done = await world.restore(accepted=("all",))
    assert (done.state, done.era, done.copies) == (RestoreState.DONE, 2, [])
    assert any("is not used" in warning and message in warning for warning in done.warnings), done.warnings


@pytest.mark.hazard("revoked-right-returns")
async def test_right_that_was_revoked_after_a_copy_of_a_later_era_stays_revoked(world: RestoringWorld) -> None:
    """The disks of all nodes are older than the copy. It is pinned, so each later restore reads it."""
    header = CopyHeader(CLUSTER, Era(7, "9" * 32), PROCESS_VERSION, HEADER.created_ms)
    file = await copied(world, header, cluster=RECORD)
    world.tree = MemoryTree()
    await given(world, file, name_by_content(header, file))
    done = await world.restore()
    assert (done.state, done.era, done.reviews) == (RestoreState.DONE, 8, [])
    policies = "/policies/namespaces/public/default"
    assert world.record(f"/era-8{policies}")["permissions"] == {"ann": ["produce"]}
    for node in world.nodes:  # they have joined the cluster
        await node.runner.join_era(Era(8, done.restore_id))
    await world.note(policies, encode_policies(Policies()), era=Era(8, done.restore_id))
    world.tree = MemoryTree()
    again = await world.restore(restore_id="2" * 32)
    assert (again.state, again.era, len(again.copies)) == (RestoreState.DONE, 9, 2)
    assert "permissions" not in world.record(f"/era-9{policies}")


async def test_no_storage_node_that_answers_is_named_an_error(world: RestoringWorld) -> None:
    """With the option that helps, also if ZooKeeper is empty."""
    file = await copied(world)
    world.tree = MemoryTree()
    with pytest.raises(ServiceUnavailable, match="--nodes HOST:PORT"):
        await store_copy(world.sources(), name_by_content(HEADER, file), file, given=["127.0.0.1:1"])


@pytest.mark.parametrize("created_ms", [0, -1, 10**30])
async def test_time_that_no_copy_has_is_refused(created_ms: int) -> None:
    """A name is made of it."""
    with pytest.raises(InvalidArgument, match="has the time"):
        name_by_content(CopyHeader(CLUSTER, HEADER.era, PROCESS_VERSION, created_ms), MAGIC)
