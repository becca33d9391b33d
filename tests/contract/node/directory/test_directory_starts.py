"""The starts of a storage node's directory: which of them is one of the past."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import StorageDirectoryRefused
from oncelog.core.ids import Incarnation
from oncelog.core.node.starts import REBUILT, JournalEnd, StorageEnd
from oncelog.core.process_version import PROCESS_VERSION
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.log_storage.directory.directory_starts import (
    NOTED,
    STARTS,
    DirectoryStarts,
    encode_start,
    mark_restored,
    read_start,
    refuse_older_than_written,
)
from oncelog.log_storage.directory.identity import TEMPORARY
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry
from oncelog.metadata_store.session import paths
from tests.contract.stores.memory_store import MemorySession, MemoryTree

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("directory-went-back")]
NODE = Incarnation("a" * 32)
FIRST = JournalEnd(1, 0)
PATH = paths.storage_end(NODE)


class World:
    """One directory, and the cluster that knows it."""

    def __init__(self, path: Path) -> None:
        self.tree = MemoryTree()
        self.session = MemorySession(self.tree)
        self.registry = Registry(self.session)
        self.path = path / "data"
        self.path.mkdir()
        #: of the last start
        self.ended: list[str] = []

    async def looked(self) -> DirectoryStarts:
        starts = DirectoryStarts(self.path, NODE, self.registry, on_superseded=self.ended.append)
        await starts.look()
        return starts

    async def started(self, end: JournalEnd = FIRST) -> DirectoryStarts:
        starts = await self.looked()
        await starts.begin(end)
        return starts

    async def known(self) -> StorageEnd:
        stored = await self.registry.read_end(NODE)
        assert stored is not None
        return stored.value

    async def version(self) -> int:
        node = await self.session.read(PATH)
        return ABSENT_VERSION if node is None else node.version

    def copy(self, name: str) -> None:
        shutil.copytree(self.path, self.path.with_name(name))

    def restore(self, name: str) -> None:
        shutil.rmtree(self.path)
        shutil.copytree(self.path.with_name(name), self.path)


async def test_starts_of_one_directory_follow_each_other(tmp_path: Path) -> None:
    world = World(tmp_path)
    for number in (1, 2, 3):
        starts = await world.started()
        assert (starts.past, (await world.known()).starts) == ("", number)


@pytest.mark.hazard("ids-hide-an-older-zookeeper")
async def test_zookeeper_that_lacks_what_the_node_has_written_is_older(tmp_path: Path) -> None:
    """Whatever it has given to others since. Not the ZooKeeper of a later era, nor one that the node knows less of."""
    world = World(tmp_path)
    starts = await world.started()
    former = dict(world.tree.nodes)
    older = Registry(MemorySession(MemoryTree(dict(former))))
    world.copy("before")
    await starts.note(JournalEnd(1, 9))
    await refuse_older_than_written(world.path, NODE, world.registry, FIRST_ERA)
    for lacking in (older, Registry(MemorySession(MemoryTree()))):
        with pytest.raises(StorageDirectoryRefused, match="ZooKeeper is older than the data: its record of this"):
            await refuse_older_than_written(world.path, NODE, lacking, FIRST_ERA)
        await refuse_older_than_written(world.path, NODE, lacking, Era(2, "a" * 32))
    for end in (JournalEnd(1, 9), JournalEnd(1, 12)):
        world.tree.nodes, newest = dict(former), world.tree.nodes
        await starts.note(end)
        ended = world.ended.pop()
        assert "ZooKeeper is older than the data" in ended, (
            "a session goes on there, also of a node that writes nothing"
        )
        world.tree.nodes = newest
        starts = await world.started(JournalEnd(1, 9))
    world.restore("before")
    await refuse_older_than_written(world.path, NODE, world.registry, FIRST_ERA)


@pytest.mark.hazard("ids-hide-an-older-zookeeper")
async def test_node_whose_record_was_deleted_starts_once_it_is_written_anew(tmp_path: Path) -> None:
    """A missing record looks like an older ZooKeeper. Nothing shows that the directory is not one of the past, so the
    start is one."""
    world = World(tmp_path)
    await (await world.started()).note(JournalEnd(1, 9))
    await world.session.delete(PATH, version=await world.version())
    with pytest.raises(StorageDirectoryRefused, match=f"write it anew by `oncelog admin backup rebuild {PATH}`"):
        await refuse_older_than_written(world.path, NODE, world.registry, FIRST_ERA)
    await world.registry.write_end(NODE, StorageEnd(0, REBUILT, JournalEnd(0, 0)), version=ABSENT_VERSION)
    for _ in range(2):
        await refuse_older_than_written(world.path, NODE, world.registry, FIRST_ERA)
        assert "its starts was lost, and was written anew" in (await world.looked()).past
    await (await world.started()).note(JournalEnd(1, 12))
    await refuse_older_than_written(world.path, NODE, world.registry, FIRST_ERA)
    assert (await world.known(), (await world.looked()).past) == (
        StorageEnd(2, read_start(world.path).start_id, JournalEnd(1, 12), PROCESS_VERSION),
        "",
    )


async def test_running_process_writes_over_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    """Nobody else writes there. Unless ZooKeeper is older, too."""
    world = World(tmp_path)
    starts = await world.started()
    older = dict(world.tree.nodes)
    await starts.note(JournalEnd(1, 9))
    await world.session.write(PATH, b"{}", version=await world.version())
    await starts.note(JournalEnd(1, 9))
    assert ((await world.known()).end, world.ended) == (JournalEnd(1, 9), [])
    await world.session.write(PATH, b'{"format":2}', version=await world.version())
    await starts.note(JournalEnd(1, 12))
    found = await world.session.read(PATH)
    assert found is not None
    assert found.data == b'{"format":2}', "a newer process has started with this directory"
    with pytest.raises(StorageDirectoryRefused, match="this version reads format 1"):
        await world.looked()
    world.tree.nodes = older
    await world.session.write(PATH, b"{}", version=await world.version())
    with pytest.raises(StorageDirectoryRefused, match="cannot be read"):
        await starts.note(JournalEnd(1, 9))


async def test_disk_that_takes_no_file_does_not_end_a_node(tmp_path: Path) -> None:
    """What the node has written to ZooKeeper is kept where it can be: a full disk must not end what serves reads."""
    world = World(tmp_path)
    starts = await world.started()
    (world.path / (NOTED + TEMPORARY)).mkdir()
    await starts.note(JournalEnd(1, 9))
    assert ((await world.known()).end, world.ended) == (JournalEnd(1, 9), [])


async def test_damaged_record_of_a_directory_does_not_stop_its_node(tmp_path: Path) -> None:
    """Nothing says whether the directory went back, so it is taken for one that did. The start writes the record anew,
    and the next one is an ordinary one."""
    world = World(tmp_path)
    await world.started()
    path = PATH
    await world.session.write(path, b"garbage", version=await world.version())
    await refuse_older_than_written(world.path, NODE, world.registry, FIRST_ERA)
    starts = await world.started()
    assert "cannot be read" in starts.past
    assert ((await world.known()).starts, world.ended) == (2, [])
    assert (await world.started()).past == ""


async def test_directory_of_an_earlier_start_is_one_of_the_past(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.started()
    world.copy("first")
    await world.started()
    world.copy("second")
    await world.started()
    for name in ("first", "second"):
        world.restore(name)
        assert "the cluster knows of 3 starts" in (await world.looked()).past
    (world.path / STARTS).unlink()
    assert "it is from start 0" in (await world.looked()).past


async def test_interrupted_start_is_not_taken_for_the_past(tmp_path: Path) -> None:
    """It has noted itself in the directory, and not in the cluster."""
    world = World(tmp_path)
    await world.started()
    before = await world.registry.read_end(NODE)
    assert before is not None
    await world.started()
    after = await world.registry.read_end(NODE)
    assert after is not None
    await world.registry.write_end(NODE, before.value, version=after.version)
    assert (await world.looked()).past == ""


async def test_end_of_the_journal_is_known_to_the_next_start(tmp_path: Path) -> None:
    """Never an end that another start has noted later."""
    world = World(tmp_path)
    first = await world.started()
    await first.note(JournalEnd(3, 4096))
    assert (await world.looked()).known_end == JournalEnd(3, 4096)
    await world.started(JournalEnd(3, 5000))
    await first.note(JournalEnd(9, 0))
    await first.note(JournalEnd(9, 1))
    assert (await world.known()).end == JournalEnd(3, 5000)


@pytest.mark.hazard("copied-directory")
async def test_older_process_learns_that_a_copy_was_started(tmp_path: Path) -> None:
    world = World(tmp_path)
    older = await world.started()
    await world.started()
    await older.watch(lambda: FIRST)
    [message] = world.ended
    assert "another process has started with a copy" in message


@pytest.mark.hazard("copied-directory")
async def test_of_two_processes_that_start_at_once_one_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    one, other = await world.looked(), await world.looked()
    await one.begin(FIRST)
    with pytest.raises(StorageDirectoryRefused, match="another process has started"):
        await other.begin(FIRST)


async def test_marked_directory_is_one_of_the_past_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.started()
    mark_restored(world.path)
    assert (await world.looked()).past == "it was marked as restored"
    assert (await world.started()).past == "it was marked as restored"
    assert (await world.looked()).past == ""


@pytest.mark.hazard("copied-directory")
async def test_copy_of_a_directory_does_not_start_beside_the_original(tmp_path: Path) -> None:
    """A process at the same address has ended, because this one has its port."""
    world = World(tmp_path)
    await ClusterStore(world.session).establish()
    registration = world.registry.register_storage_node(LiveStorageNode(NODE, "one", 7000, 1 << 30))
    await registration.establish()
    starts = await world.looked()
    await starts.wait_for_other("one:7000", wait_ms=0)
    with pytest.raises(StorageDirectoryRefused, match="is served at one:7000, and this process would serve it at two"):
        await starts.wait_for_other("two:7000", wait_ms=0)
    await registration.withdraw()
    await starts.wait_for_other("two:7000", wait_ms=0)


@pytest.mark.hazard("dropped-field")
async def test_file_of_a_newer_version_is_read(tmp_path: Path) -> None:
    """A further field in it is no damage, so no limbo; a later start keeps it."""
    world = World(tmp_path)
    await world.started()
    newer = replace(read_start(world.path), further={"x_future": [1]})
    (world.path / STARTS).write_bytes(encode_start(newer))
    assert (await world.looked()).past == ""
    await world.started()
    kept = read_start(world.path)
    assert (kept.starts, kept.further) == (2, {"x_future": [1]})
