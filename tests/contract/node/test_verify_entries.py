"""Verify: entries are read back from the disk. What is not there is missing; what cannot be proved is unreadable."""

import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from oncelog.core.formats.entry import HEADER_BYTES, EntryHeader, EntryKind, encode_header
from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch, TopicId
from oncelog.core.node.node_ledger import RecordKind
from oncelog.log_storage.directory.segment_format import SegmentRecord
from tests.contract.node.directory.held_journal import Disk, Node, started
from tests.contract.node.directory.small_log import segment_files

pytestmark = pytest.mark.asyncio


def entry(entry_id: int, body: bytes = b"x" * 50) -> SegmentRecord:
    """An ordinary add of ledger 7 whose body is a whole entry."""
    header = EntryHeader(
        EntryKind.MESSAGES, LedgerId(7), EntryId(entry_id), EntryId(entry_id - 1), 0, OwnerEpoch(1), 0, 0, 0, 1,
        len(body), TopicId("0" * 32),
    )  # fmt: skip
    return SegmentRecord(RecordKind.ADD, 7, entry_id, encode_header(header, body, crc32c) + body)


def crc(record: SegmentRecord) -> int:
    (checksum,) = struct.unpack_from("<I", record.body, 4)
    return int(checksum)


def verify(node: Node, first: int, entries_max: int, bytes_max: int = 0) -> object:
    plan = node.journal.plan_verify(ledger_id=7, first=first, entries_max=entries_max, bytes_max=bytes_max)
    return node.journal.reader.verify(plan)


async def test_sound_missing_and_damaged_entries_are_told_apart(tmp_path: Path) -> None:
    """Entry 2 was never stored, entry 1 is damaged on the disk although its pages were cached."""
    records = [entry(0), entry(1), entry(3)]
    async with started(tmp_path / "node") as node:
        await node.until_synced(node.journal.append_many(records))
        assert node.read(records[1]) == records[1].body
        location = node.index.location(7, 1)
        assert location is not None
        with segment_files(tmp_path / "node")[0].open("r+b") as file:
            file.seek(location.offset + 36 + HEADER_BYTES)
            file.write(b"y")
        sound = crc(records[0]), crc(records[2])
        assert verify(node, 0, 4) == ([sound[0], 0, 0, sound[1]], [2], [1], 4, 2 * (HEADER_BYTES + 50))
        assert node.journal.damage.ledgers() == {7: [1]}
        await node.until_synced(node.journal.append_many([records[1]]))
        assert node.journal.damage.ledgers() == {}
        assert verify(node, 1, 1) == ([crc(records[1])], [], [], 2, HEADER_BYTES + 50)


async def test_entry_that_was_damaged_before_it_was_stored_is_unreadable(tmp_path: Path) -> None:
    """The record's checksum is right; the entry's own is not."""
    good = entry(0)
    bad = good._replace(body=bytes(good.body)[:-1] + b"y")
    async with started(tmp_path / "node") as node:
        await node.until_synced(node.journal.append_many([bad]))
        assert verify(node, 0, 1) == ([0], [], [0], 1, 0)


async def test_entry_that_is_not_synced_is_unreadable(tmp_path: Path) -> None:
    """It is not proved to be on the disk, and it is not missing either."""
    disk = Disk()
    async with started(tmp_path / "node", disk=disk) as node:
        disk.gate.clear()
        node.journal.append_many([entry(0)])
        await disk.until_entered()
        assert verify(node, 0, 1) == ([0], [], [0], 1, 0)
        assert node.journal.damage.ledgers() == {}
        disk.gate.set()


async def test_bytes_of_one_call_are_bounded(tmp_path: Path) -> None:
    """At least one entry is verified; the next call goes on where this one ended."""
    async with started(tmp_path / "node") as node:
        records = [entry(at, b"x" * 1000) for at in range(4)]
        await node.until_synced(node.journal.append_many(records))
        assert verify(node, 0, 4, 2500) == ([crc(records[0]), crc(records[1])], [], [], 2, 2 * (HEADER_BYTES + 1000))
        assert verify(node, 2, 4, 1) == ([crc(records[2])], [], [], 3, HEADER_BYTES + 1000)
