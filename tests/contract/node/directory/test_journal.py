"""The journal: nothing is durable before its sync or after a failed sync, and waiting records form a group."""

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from oncelog.core.errors import InvalidArgument, JournalFailed
from oncelog.core.node.node_ledger import RecordKind
from oncelog.log_storage.directory.segment_format import RECORD_BYTES_MAX, Body, SegmentRecord
from oncelog.log_storage.directory.segment_writer import DiskCalls
from oncelog.log_storage.directory.storage_directory import StorageDirectory
from oncelog.log_storage.serve.journal import GROUP_BYTES_MAX
from tests.contract.node.directory.held_journal import Disk, started
from tests.contract.node.directory.small_log import CLUSTER, add, as_found, crash_image, examine, replay, segment_files

pytestmark = pytest.mark.asyncio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node"


async def test_appended_records_are_there_after_a_restart(path: Path) -> None:
    """All kinds of records, small and large bodies, bytes and views, one by one and many at once."""
    large = SegmentRecord(RecordKind.ADD, 1, 1, memoryview(os.urandom(300_000)))
    records = [
        add(1, 0),
        large,
        SegmentRecord(RecordKind.FENCE, 2, 0),
        SegmentRecord(RecordKind.RECOVERY_ADD, 2, 5, b""),
    ]
    async with started(path) as node:
        assert node.journal.append(RecordKind.ADD, ledger_id=1, entry_id=0, body=records[0].body) == 1
        assert node.journal.append_many(records[1:]) == 4
        assert node.journal.append_many([]) == 4
        await node.until_synced(4)
        assert node.journal.pending_bytes == 0
        assert [node.read(record) for record in records[:2]] == [bytes(record.body) for record in records[:2]]
    assert replay(path) == as_found(records)
    async with started(path) as node:
        assert len(node.scanned) == 4
        assert node.read(large) == large.body
        assert node.read(records[3]) == b""
        assert node.journal.read(ledger_id=2, entry_id=0) is None
        assert list(node.index.ledgers()) == [1, 2]


async def test_nothing_is_reported_before_its_sync(path: Path) -> None:
    """During the sync the records are readable and pending, and no lsn is reported."""
    disk = Disk()
    async with started(path, disk=disk) as node:
        disk.gate.clear()
        lsn = node.journal.append_many([add(1, 0)])
        await disk.until_entered()
        assert (node.synced, node.journal.synced_lsn) == ([], 0)
        assert node.journal.pending_bytes == 36 + 40
        assert node.read(add(1, 0)) == add(1, 0).body
        unsynced = node.index.unsynced(1, 0)
        assert unsynced is not None
        assert unsynced.lsn == lsn
        assert node.index.location(1, 0) is None
        disk.gate.set()
        await node.until_synced(lsn)
        assert node.index.unsynced(1, 0) is None
        assert node.index.location(1, 0) is not None


async def test_records_appended_during_a_sync_form_one_group(path: Path) -> None:
    """Fifty appends during one sync make one group: one more sync, one report."""
    disk = Disk()
    async with started(path, disk=disk) as node:
        disk.gate.clear()
        node.journal.append_many([add(1, 0)])
        await disk.until_entered()
        for entry in range(1, 51):
            node.journal.append_many([add(1, entry)])
        assert node.read(add(1, 50)) == add(1, 50).body
        disk.gate.set()
        await node.until_synced(51)
        assert node.synced == [1, 51]
        assert disk.sync_count == 2


async def test_group_size_is_bounded(path: Path) -> None:
    """Waiting records are split into groups; otherwise a slow disk would cause ever larger groups and longer waits."""
    disk = Disk()
    async with started(path, disk=disk, segment_bytes=64 << 20) as node:
        disk.gate.clear()
        node.journal.append_many([add(1, 0)])
        await disk.until_entered()
        size = GROUP_BYTES_MAX // 2 - 100
        node.journal.append_many([add(1, entry, size=size) for entry in range(1, 6)])
        disk.gate.set()
        await node.until_synced(6)
        assert node.synced == [1, 3, 5, 6]


async def test_failed_sync_ends_all_acknowledgements(path: Path) -> None:
    """There is one error, and neither that group nor a later one is reported, even if the disk works again."""
    disk = Disk()
    async with started(path, disk=disk) as node:
        node.journal.append_many([add(1, 0)])
        await node.until_synced(1)
        disk.gate.clear()
        disk.sync_error = OSError(errno.EIO, "Input/output error")
        node.journal.append_many([add(1, 1)])
        await disk.until_entered()
        await disk.until_entered()
        node.journal.append_many([add(1, 2)])
        disk.gate.set()
        await node.until(lambda: bool(node.failed))
        disk.sync_error = None
        with pytest.raises(JournalFailed, match="Input/output error"):
            node.journal.append_many([add(1, 3)])
        assert node.synced == [1]
        assert disk.sync_count == 2, "the sync was tried again"
    assert len(node.failed) == 1
    assert node.synced == [1]


@pytest.mark.hazard("repeated-add-not-synced")
async def test_start_after_a_failed_sync_writes_the_tail_again(path: Path) -> None:
    """The kernel may hold the pages as clean, so reading them proves nothing: their bytes are written again."""
    disk = Disk()
    async with started(path, disk=disk) as node:
        disk.sync_error = OSError(errno.EIO, "Input/output error")
        node.journal.append_many([add(1, 0)])
        await node.until(lambda: bool(node.failed))
    written: list[bytes] = []

    def write(fd: int, parts: Sequence[Body], offset: int) -> int:
        written.append(b"".join(parts))
        return os.pwritev(fd, parts, offset)

    directory = StorageDirectory.open(path, CLUSTER)
    assert [record.entry_id for record in directory.scan()] == [0]
    directory.settle(DiskCalls(write=write)).close()
    directory.close()
    assert bytes(add(1, 0).body) in written[0]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_failed_write_ends_the_journal(path: Path, code: int) -> None:
    """Also if it fails before anything was synced. The error names a full disk."""
    disk = Disk()
    async with started(path, disk=disk) as node:
        disk.write_error = OSError(code, os.strerror(code))
        node.journal.append_many([add(1, 0)])
        await node.until(lambda: bool(node.failed))
        assert node.synced == []
        assert ("disk full" in node.failed[0].message) == (code == errno.ENOSPC)
        assert node.failed[0].details["errno"] == code


async def test_short_write_is_continued(path: Path) -> None:
    """The system may write less than requested; the rest follows at the right offset."""
    disk = Disk()
    records = [add(1, entry, size=9_000) for entry in range(4)]
    async with started(path, disk=disk) as node:
        disk.write_bytes_max = 4_099
        node.journal.append_many(records)
        await node.until_synced(4)
    assert replay(path) == as_found(records)


async def test_group_with_more_parts_than_one_call_takes_is_written(path: Path) -> None:
    """Large bodies are written without a copy, so a group of many exceeds the system's vector."""
    records = [add(1, entry, size=5_000) for entry in range(700)]
    async with started(path, segment_bytes=16 << 20) as node:
        node.journal.append_many(records)
        await node.until_synced(700)
        assert node.read(records[699]) == records[699].body
    assert replay(path) == as_found(records)


@pytest.mark.hazard("damage-like-a-torn-write")
async def test_idle_journal_writes_a_durability_marker(path: Path, tmp_path: Path) -> None:
    """After an idle period, damage in the last acknowledged batch must not look like a torn write."""
    disk = Disk()
    async with started(path, disk=disk, idle_ms=1) as node:
        node.journal.append_many([add(1, 0), add(1, 1)])
        await disk.until_entered()
        await disk.until_entered()
        await node.until_synced(2)
        image = crash_image(path, tmp_path / "image")
    flip_body(image)
    assert examine(image)[1], "a hole"


@pytest.mark.hazard("damage-like-a-torn-write")
async def test_without_the_marker_the_same_damage_is_cut(path: Path, tmp_path: Path) -> None:
    """The control of the test above: the durability marker exists for this case."""
    async with started(path) as node:
        node.journal.append_many([add(1, 0), add(1, 1)])
        await node.until_synced(2)
        image = crash_image(path, tmp_path / "image")
    flip_body(image)
    assert replay(image) == []


@pytest.mark.hazard("damage-like-a-torn-write")
async def test_stopped_journal_has_written_its_durability_marker(path: Path) -> None:
    """Also for records that were appended at the moment of the stop."""
    async with started(path) as node:
        node.journal.append_many([add(1, 0)])
    flip_body(path)
    assert examine(path)[1], "a hole"


async def test_close_syncs_what_was_appended_and_refuses_more(path: Path) -> None:
    """A stop loses nothing and accepts nothing more."""
    disk = Disk()
    async with started(path, disk=disk) as node:
        disk.gate.clear()
        node.journal.append_many([add(1, entry) for entry in range(10)])
        await disk.until_entered()
        node.journal.append_many([add(1, entry) for entry in range(10, 20)])
        closing = asyncio.ensure_future(node.journal.close())
        disk.gate.set()
        await closing
        assert node.synced[-1] == 20
        assert node.failed == []
        with pytest.raises(JournalFailed, match="closed"):
            node.journal.append_many([add(1, 20)])
    assert len(replay(path)) == 20


async def test_rolling_leaves_no_gap(path: Path) -> None:
    """Groups of many sizes over many small segments: all records are there, before and after a restart."""
    records = [add(entry % 3, entry // 3, size=(entry * 611) % 3_000) for entry in range(120)]
    async with started(path, segment_bytes=8_192, idle_ms=0) as node:
        for record in records:
            await node.until_synced(node.journal.append_many([record]))
        assert len(segment_files(path)) > 20
        assert [node.read(record) for record in records] == [record.body for record in records]
    assert replay(path) == as_found(records)


async def test_failed_roll_ends_the_journal(path: Path) -> None:
    """No space for the next segment: the error says so, and acknowledged records are there at the next start."""
    disk = Disk()
    async with started(path, disk=disk, segment_bytes=4_096) as node:
        await node.until_synced(node.journal.append_many([add(1, 0, size=2_000)]))
        disk.write_error = OSError(errno.ENOSPC, "No space left on device")
        node.journal.append_many([add(1, 1, size=2_000)])
        await node.until(lambda: bool(node.failed))
        assert node.synced == [1]
    assert replay(path) == as_found([add(1, 0, size=2_000)])


async def test_deleted_ledger_is_gone_from_the_index_after_a_restart_too(path: Path) -> None:
    """The tombstone counts once it is durable. The scan returns it, so that adds of zombie writers are refused."""
    async with started(path) as node:
        await node.until_synced(node.journal.append_many([add(1, 0), add(2, 0)]))
        lsn = node.journal.append(RecordKind.LEDGER_ERASED, ledger_id=1)
        await node.until_synced(lsn)
        assert list(node.index.ledgers()) == [2]
    async with started(path) as node:
        assert list(node.index.ledgers()) == [2]
        assert (RecordKind.LEDGER_ERASED, 1) in [(record.kind, record.ledger_id) for record in node.scanned]


async def test_entry_appended_twice_is_one_entry(path: Path) -> None:
    """The entry is added again before the first copy is synced: the index keeps the later lsn until that is synced."""
    disk = Disk()
    async with started(path, disk=disk) as node:
        disk.gate.clear()
        node.journal.append_many([add(1, 0)])
        await disk.until_entered()
        second = node.journal.append(RecordKind.RECOVERY_ADD, ledger_id=1, entry_id=0, body=add(1, 0).body)
        unsynced = node.index.unsynced(1, 0)
        assert unsynced is not None
        assert unsynced.lsn == second
        disk.gate.set()
        await node.until_synced(second)
        assert node.index.count_up_to(1, 0) == 1
        assert node.index.unsynced(1, 0) is None


async def test_list_with_an_oversized_record_is_refused(path: Path) -> None:
    """No record of the list is appended, and the journal continues."""
    async with started(path) as node:
        oversized = SegmentRecord(RecordKind.ADD, 1, 1, bytes(RECORD_BYTES_MAX + 1))
        with pytest.raises(InvalidArgument):
            node.journal.append_many([add(1, 0), oversized])
        assert node.journal.last_lsn == 0
        assert not node.index.contains(1, 0)
        await node.until_synced(node.journal.append_many([add(1, 0)]))


def flip_body(path: Path) -> None:
    """One bit of the first entry's body."""
    file = segment_files(path)[0]
    data = bytearray(file.read_bytes())
    data[512 + 24 + 36 + 3] ^= 1
    file.write_bytes(data)
