"""Reads through the journal: in order, bounded, verified, as soon as the records are appended."""

import asyncio
from pathlib import Path

import pytest

from oncelog.core.errors import CorruptEntry
from tests.contract.node.directory.held_journal import Disk, started
from tests.contract.node.directory.small_log import add, segment_files

pytestmark = pytest.mark.asyncio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node"


async def test_range_is_read_in_order_and_ends_before_a_gap(path: Path) -> None:
    """Stored and unsynced entries alike; at least one, whatever the byte limit."""
    disk = Disk()
    async with started(path, disk=disk) as node:
        stored = [add(ledger_id, entry) for entry in range(10) for ledger_id in (1, 2)]
        await node.until_synced(node.journal.append_many(stored))
        disk.gate.clear()
        node.journal.append_many([add(1, 10), add(1, 12)])

        def read(first: int, entries_max: int = 100, bytes_max: int = 1 << 20) -> list[tuple[int, bytes]]:
            return node.journal.read_range(ledger_id=1, first=first, entries_max=entries_max, bytes_max=bytes_max)

        assert read(0) == [(entry, add(1, entry).body) for entry in range(11)]
        assert [entry for entry, _ in read(3, entries_max=4)] == [3, 4, 5, 6]
        assert [entry for entry, _ in read(3, bytes_max=100)] == [3, 4]
        assert [entry for entry, _ in read(3, bytes_max=0)] == [3]
        assert [entry for entry, _ in read(12)] == [12]
        assert read(11) == []
        assert node.index.last_entry(1) == 12
        assert node.index.count_up_to(1, 12) == 12
        plan = node.journal.plan_range(ledger_id=1, first=0, entries_max=100, bytes_max=1 << 20)
        assert await asyncio.to_thread(node.journal.reader.fetch, plan) == read(0)


async def test_corrupt_entry_in_a_range_is_an_error(path: Path) -> None:
    """It is neither skipped nor treated as the end of the range."""
    async with started(path) as node:
        await node.until_synced(node.journal.append_many([add(1, entry) for entry in range(5)]))
        location = node.index.location(1, 3)
        assert location is not None
        with segment_files(path)[0].open("r+b") as file:
            file.seek(location.offset + 28)
            file.write(b"?")
        with pytest.raises(CorruptEntry) as caught:
            node.journal.read_range(ledger_id=1, first=0, entries_max=10, bytes_max=1 << 20)
        assert caught.value.details["entry_id"] == 3
