"""A restore uses a copy of the records that is outside of the cluster."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from oncelog.core.errors import Conflict, InvalidArgument, OncelogError, ServiceUnavailable
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord, encode_topic
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, encode_ledger
from oncelog.core.names import parse_topic
from oncelog.core.placement.level import Level
from oncelog.core.rebuild.result import ReviewReason
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.log_storage.directory.metadata_copies import FOLDER
from oncelog.metadata.restoring.drill import live_records
from oncelog.metadata.restoring.outside_copy import store_copy
from oncelog.metadata.restoring.progress import RestoreState
from oncelog.metadata.restoring.record_copies import KeptCopy
from oncelog.metadata_store.copies.copy_file import MAGIC, CopiedRecord, CopyHeader, CopyWriter
from oncelog.metadata_store.copies.copy_folder import name_by_content
from oncelog.metadata_store.copies.copy_keys import CopyKey
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterStore
from oncelog.metadata_store.records.policies import Policies, encode_policies
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.records.topic_store import NameRecord, encode_name
from oncelog.metadata_store.session import paths
from tests.contract.node.directory.small_log import CLUSTER
from tests.contract.repair.restoring_world import NAME, TOPIC, RestoringWorld, cookie_of, restoring_world
from tests.contract.stores.memory_store import MemoryTree

pytestmark = pytest.mark.asyncio
KEY, OTHER_KEY = CopyKey(b"k" * 32), CopyKey(b"o" * 32)
HEADER = CopyHeader(CLUSTER, ClusterRecord(CLUSTER).era, 7, 1_764_200_000_000)


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[RestoringWorld]:
    """Of level 7: two ledgers without heads, and no notes."""
    async with restoring_world(tmp_path) as world:
        await world.write(4, 3, to=world.nodes, has_head=False)
        await world.write(9, 2, to=world.nodes, has_head=False)
        session = world.session()
        for folder in ("", *paths.FOLDERS):
            await session.ensure_path(folder)
        await ClusterStore(session).write(ClusterRecord(CLUSTER, Level(7)), version=ABSENT_VERSION)
        links = (LedgerLink(LedgerId(4), 0), LedgerLink(LedgerId(9), 0))
        closed = LedgerMetadata(LedgerId(4), TOPIC, world.members, 2).closed(end=EntryId(2), length=300)
        name = parse_topic(NAME)
        for path, value in {
            paths.topic(TOPIC): encode_topic(TopicRecord(TOPIC, NAME, ledgers=links)),
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


async def copied(world: RestoringWorld, header: CopyHeader = HEADER, key: CopyKey | None = None) -> bytes:
    """A copy that was taken, and is nowhere in the cluster."""
    parts: list[bytes] = []
    writer = CopyWriter(header, key, parts.append)
    writer.add(CopiedRecord(path, value, 0, 1) for path, value in (await live_records(world.session())).items())
    writer.finish()
    return b"".join(parts)


async def given(world: RestoringWorld, file: bytes, name: str | None = None) -> KeptCopy:
    """As the command names it."""
    addresses = [world.nodes[0].address]
    return await store_copy(world.sources(), name or name_by_content(HEADER, file), file, given=addresses)


def stored(world: RestoringWorld) -> list[Path]:
    return [path for node in world.nodes for path in node.path.glob(f"{FOLDER}/*")]


@pytest.mark.hazard("half-a-copy")
async def test_ledgers_without_heads_are_placed_by_a_copy_from_outside_alone(world: RestoringWorld) -> None:
    """ZooKeeper and the copies of the nodes are gone. Without the file the review lists what has no head."""
    file = await copied(world)
    world.tree = MemoryTree()
    refused = await world.restore()
    assert refused.state is RestoreState.REFUSED
    assert {review.reason for review in refused.reviews} == {ReviewReason.NO_HEAD}
    kept = await store_copy(
        world.sources(), name_by_content(HEADER, file), file, given=[node.address for node in world.nodes]
    )
    assert set(kept.nodes) == set(world.members), "one more than the ack quorum"
    restored = await world.restore()
    assert (restored.state, restored.reviews, len(restored.copies)) == (RestoreState.DONE, [], 1)
    topic = world.record(f"/era-2/topics/{TOPIC}")
    assert (topic["name"], topic["ledgers"]) == (NAME, [[4, 0], [9, 0]])
    assert world.record("/era-2/policies/namespaces/public/default")["permissions"] == {"ann": ["produce"]}


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
    foreign = await copied(world, CopyHeader("d" * 32, HEADER.era, 7, HEADER.created_ms))
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
    with pytest.raises(InvalidArgument, match="the name of this copy is"):
        await given(world, await copied(world, key=KEY), "2026-11-27t06-00-00z-era1-00000000")
    assert stored(world) == []
    await given(world, await copied(world, key=KEY))
    assert len(stored(world)) == len(world.members)


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
        name_by_content(CopyHeader(CLUSTER, HEADER.era, 7, created_ms), MAGIC)
