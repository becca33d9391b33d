"""Every byte of a segment is damaged in turn. An acknowledged record is there, or the start finds a hole.

A hole puts the node into limbo: then it calls no entry missing (hazard damaged-fence).
"""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.core.errors import CorruptEntry, OncelogError
from oncelog.core.node.node_ledger import RecordKind
from oncelog.log_storage.directory.damage import KnownDamage
from oncelog.log_storage.directory.segment_format import (
    FIRST_GROUP,
    RecordLocation,
    SegmentHeader,
    SegmentRecord,
    aligned,
    encode_group,
    segment_seed,
)
from oncelog.log_storage.directory.segment_reader import SegmentReader
from oncelog.log_storage.directory.segment_writer import DiskCalls
from oncelog.log_storage.directory.storage_directory import StorageDirectory
from tests.contract.node.directory.small_log import (
    CLUSTER,
    DISK,
    Found,
    add,
    as_found,
    examine,
    replay,
    restart,
    segment_files,
    write_groups,
)

FIRST = [add(7, 0), add(7, 1), add(9, 0)]
SECOND = [
    SegmentRecord(RecordKind.FENCE, 9, 0),
    SegmentRecord(RecordKind.LEDGER_ERASED, 5, 0),
    SegmentRecord(RecordKind.RECOVERY_ADD, 9, 1, b"r"),
    SegmentRecord(RecordKind.REPAIR_ADD, 9, 2, b"p"),
    SegmentRecord(RecordKind.LIMBO, 3, 0),
    SegmentRecord(RecordKind.LIMBO_CLEARED, 2, 0),
    SegmentRecord(RecordKind.SEGMENT_REMOVED, 0, 900),
]
THIRD = [add(7, 2, size=700)]
ALL = as_found(FIRST + SECOND + THIRD)
#: Where the third group begins, and where the log ends.
THIRD_AT = FIRST_GROUP + 512 + 512
END = THIRD_AT + 1024
SEGMENT_BYTES = 4608


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node"


def damaged_copies(file: Path, start: int, end: int) -> Iterator[int]:
    """Flip one bit in each byte of [start, end), one byte at a time. The file is intact again afterwards."""
    whole = file.read_bytes()
    with file.open("r+b", buffering=0) as handle:
        for offset in range(start, end):
            handle.seek(offset)
            handle.write(bytes([whole[offset] ^ (1 << offset % 8)]))
            yield offset
            handle.seek(offset)
            handle.write(whole[offset : offset + 1])


def outcome(path: Path) -> tuple[list[Found], bool]:
    """The records that a start finds, and whether it finds a hole. No record is found that was not written."""
    found, holes = examine(path, segment_bytes=SEGMENT_BYTES)
    return found, bool(holes)


def test_scan_returns_records_of_every_kind_in_order(path: Path) -> None:
    """The scan is the only source of the index: fences and tombstones come with the entries, in the order of
    writing."""
    write_groups(path, [FIRST, SECOND, THIRD])
    assert replay(path) == ALL


@pytest.mark.hazard("damaged-fence")
def test_damage_in_any_byte_of_a_confirmed_log_is_a_hole(path: Path) -> None:
    """A durability marker follows the last group: no byte of any record may be damaged without a hole.

    Only the marker itself is no hole: without it, the last group is intact, and nothing is lost.
    """
    write_groups(path, [FIRST, SECOND, THIRD], segment_bytes=SEGMENT_BYTES)
    file = segment_files(path)[0]
    assert file.stat().st_size == SEGMENT_BYTES
    loud = 0
    for offset in damaged_copies(file, 0, SEGMENT_BYTES):
        found, hole = outcome(path)
        assert found == ALL or hole, offset
        assert set(found) <= set(ALL)
        loud += hole
    used_bytes = 64 + 3 * 24 + 11 * 36 + 3 * 40 + 1 + 1 + 700
    assert loud == used_bytes, "bytes in use were damaged without a hole"


def test_damage_in_any_byte_of_an_unconfirmed_group_is_cut(path: Path) -> None:
    """Nothing was written after the third group: damage in it looks like a torn write, and all of it is cut."""
    write_groups(path, [FIRST, SECOND, THIRD], marker=False, segment_bytes=SEGMENT_BYTES)
    file = segment_files(path)[0]
    cut = as_found(FIRST + SECOND)
    for offset in damaged_copies(file, FIRST_GROUP, SEGMENT_BYTES):
        found, hole = outcome(path)
        if offset >= THIRD_AT:
            assert found in (ALL, cut), offset
            assert not hole, "a torn write is no hole"
        else:
            assert found == ALL or hole, offset


@pytest.mark.parametrize("behind", [b"\x00", b"\xff", b"OLGR"], ids=["zeros", "ones", "magic"])
def test_torn_tail_is_cut_at_every_byte(path: Path, behind: bytes) -> None:
    """A power loss leaves any prefix of the last write. None of it was acknowledged; all before it was."""
    write_groups(path, [FIRST, SECOND, THIRD], marker=False, segment_bytes=SEGMENT_BYTES)
    file = segment_files(path)[0]
    whole = file.read_bytes()
    for kept in range(1025):
        torn = whole[: THIRD_AT + kept] + (behind * 1024)[: 1024 - kept] + whole[END:]
        file.write_bytes(torn)
        complete = torn[THIRD_AT : THIRD_AT + 24 + 36 + 700] == whole[THIRD_AT : THIRD_AT + 24 + 36 + 700]
        assert outcome(path) == (ALL if complete else as_found(FIRST + SECOND), False), kept


def test_sectors_of_the_last_write_may_arrive_in_any_order(path: Path) -> None:
    """A disk may write the second sector of a torn group and lose the first: no group begins, yet bytes follow."""
    write_groups(path, [FIRST, SECOND, THIRD], marker=False, segment_bytes=SEGMENT_BYTES)
    file = segment_files(path)[0]
    whole = file.read_bytes()
    file.write_bytes(whole[:THIRD_AT] + bytes(512) + whole[THIRD_AT + 512 :])
    assert outcome(path) == (as_found(FIRST + SECOND), False)


def test_cut_bytes_do_not_come_back(path: Path) -> None:
    """After the cut the log continues there. Bytes of the torn group after a shorter new one must stay invalid."""
    write_groups(path, [FIRST, [add(7, 2, size=1_600_000)]], marker=False, segment_bytes=4 << 20)
    file = segment_files(path)[0]
    torn = bytearray(file.read_bytes())
    torn[FIRST_GROUP + 512 + 30] ^= 1
    file.write_bytes(torn)
    assert restart(path) == as_found(FIRST)
    assert file.read_bytes()[FIRST_GROUP + 1024 :].strip(b"\0") == b"", "the torn bytes are still there"
    write_groups(path, [[add(8, 0)]])
    assert replay(path) == as_found([*FIRST, add(8, 0)])


@pytest.mark.hazard("damage-like-a-torn-write")
def test_start_confirms_what_it_replayed(path: Path) -> None:
    """Otherwise damage after the start would cut a group whose entries the start has already served."""
    write_groups(path, [FIRST, THIRD], marker=False)
    assert restart(path) == as_found(FIRST + THIRD)
    file = segment_files(path)[0]
    flipped = bytearray(file.read_bytes())
    flipped[FIRST_GROUP + 512 + 60] ^= 1
    file.write_bytes(flipped)
    found, (hole, behind) = examine(path)
    assert found == as_found(FIRST)
    assert behind.start >= hole.end, "the segment is not written again"
    assert (hole.segment_id, hole.start) == (1, FIRST_GROUP + 512)
    assert hole.what == "record 0 of 1 of a group, labelled ADD of ledger 7, entry 2"


def test_truncated_file_is_a_hole(path: Path) -> None:
    """The file has its full size from the start, so a lost end does not look like the end of the log."""
    write_groups(path, [FIRST, SECOND, THIRD], segment_bytes=SEGMENT_BYTES)
    file = segment_files(path)[0]
    whole = file.read_bytes()
    edges = {edge + by for edge in range(0, len(whole), 512) for by in (-1, 0, 1)}
    for kept in sorted({*range(0, len(whole), 23), *edges} - {-1}):
        file.write_bytes(whole[:kept])
        found, hole = outcome(path)
        assert hole, kept
        assert set(found) <= set(ALL)
    file.write_bytes(whole + bytes(512))
    assert outcome(path) == (ALL, True), "a longer file is another file"


def test_loss_of_any_sector_of_a_confirmed_log_is_a_hole(path: Path) -> None:
    """A sector that reads as zeros is damage while a later group confirms it."""
    write_groups(path, [FIRST, SECOND, THIRD], segment_bytes=SEGMENT_BYTES)
    file = segment_files(path)[0]
    whole = file.read_bytes()
    for start in range(0, END, 512):
        file.write_bytes(whole[:start] + bytes(512) + whole[start + 512 :])
        found, hole = outcome(path)
        assert hole, start
        assert set(found) <= set(ALL)


def test_damage_in_any_byte_of_a_sealed_segment_is_a_hole(path: Path) -> None:
    """A sealed segment has no torn tail: all of it was synced before the next one accepted anything."""
    groups = [[add(7, entry, size=500)] for entry in range(5)]
    write_groups(path, groups, segment_bytes=SEGMENT_BYTES, marker=True)
    files = segment_files(path)
    assert len(files) == 2
    all_of_it = as_found([record for group in groups for record in group])
    loud = 0
    for offset in damaged_copies(files[0], 0, SEGMENT_BYTES):
        found, hole = outcome(path)
        assert found == all_of_it or hole, offset
        loud += hole
    assert loud == 64 + 3 * (24 + 36 + 500) + 24 + 36


@pytest.mark.hazard("damaged-fence")
def test_loss_of_any_segment_is_a_hole(path: Path) -> None:
    """Ids are consecutive and a seal has a successor, so the first, a middle and even the last file are missed."""
    write_groups(path, [[add(7, entry, size=1500)] for entry in range(9)], segment_bytes=SEGMENT_BYTES)
    files = segment_files(path)
    assert len(files) >= 4
    for file in files:
        aside = file.rename(path / "aside")
        found, hole = outcome(path)
        assert hole, file.name
        assert len(found) < 9
        aside.rename(file)
    assert len(replay(path)) == 9


@pytest.mark.hazard("reused-file")
def test_groups_of_the_former_segment_in_a_reused_file_are_ignored(path: Path) -> None:
    """A reused file holds intact records of another segment at the same offsets: the seed distinguishes them."""
    write_groups(path, [[add(7, entry, size=1500)] for entry in range(4)], segment_bytes=SEGMENT_BYTES)
    first, second = segment_files(path)[:2]
    old, new = first.read_bytes(), second.read_bytes()
    end = len(new.rstrip(b"\0")) // 512 * 512 + 512
    assert end < 4096
    second.write_bytes(new[:end] + old[end:])
    before = replay(path, segment_bytes=SEGMENT_BYTES)
    assert [entry_id for _, _, entry_id, _ in before] == [0, 1, 2, 3]
    write_groups(path, [[add(7, 4)]], segment_bytes=SEGMENT_BYTES)
    assert [entry_id for _, _, entry_id, _ in replay(path)] == [0, 1, 2, 3, 4]


@pytest.mark.hazard("reused-file")
def test_equal_bytes_under_two_seeds_never_have_equal_checksums() -> None:
    """That is a property of CRCs, not luck; so the segment ids, which the seeds contain, need only differ."""
    cluster, node = bytes(16), bytes(range(16))
    seeds = {segment_seed(cluster, node, segment_id) for segment_id in range(2000)}
    assert len(seeds) == 2000
    groups = {bytes(encode_group(THIRD, seed=seed, offset=512, first_number=1).parts[0])[4:8] for seed in seeds}
    assert len(groups) == 2000


def test_group_copied_into_a_body_is_not_found_as_a_group(path: Path) -> None:
    """A user may publish the bytes of a segment. A group header is valid only at the offset that it names."""
    write_groups(path, [FIRST, SECOND], marker=False)
    stolen = segment_files(path)[0].read_bytes()[FIRST_GROUP : FIRST_GROUP + 1024]
    pad = bytes(512 - 24 - 36)
    write_groups(path, [[SegmentRecord(RecordKind.ADD, 1, 0, pad + stolen)]], marker=False)
    file = segment_files(path)[0]
    torn = bytearray(file.read_bytes())
    body_at = bytes(torn).rindex(stolen)
    assert body_at % 512 == 0
    torn[body_at - 10] ^= 1
    file.write_bytes(torn)
    assert replay(path) == as_found(FIRST + SECOND)


def test_interrupted_roll_is_completed_at_the_next_start(path: Path) -> None:
    """The successor exists, the seal does not: nothing is lost, and the second start finds the seal."""
    write_groups(path, [FIRST], marker=False)
    directory = StorageDirectory.open(path, CLUSTER, segment_bytes=8192)
    list(directory.scan())
    segment = directory.settle(DISK)
    end = segment.offset
    directory.roll(segment, DISK, group_bytes=512).close()
    directory.close()
    first, second = segment_files(path)
    sealed = first.read_bytes()
    for torn in (bytes(512), sealed[end : end + 30] + bytes(482), b"\xff" * 512):
        first.write_bytes(sealed[:end] + torn + sealed[end + 512 :])
        assert restart(path) == as_found(FIRST)
        assert first.read_bytes() == sealed
    first.write_bytes(sealed[: end - 512] + bytes(1024) + sealed[end + 512 :])
    found, (hole,) = examine(path)
    assert (hole.segment_id, hole.start, found) == (1, end - 512, as_found(FIRST))
    first.write_bytes(sealed)
    write_groups(path, [SECOND])
    first.write_bytes(sealed[:end] + bytes(512) + sealed[end + 512 :])
    found, (hole,) = examine(path)
    assert (hole.segment_id, hole.start, found) == (1, end, as_found(FIRST + SECOND))
    assert second.exists()


def test_group_larger_than_a_segment_gets_its_own_segment(path: Path) -> None:
    """A group is never split, so the file is created large enough."""
    large = add(7, 0, size=20_000)
    write_groups(path, [FIRST, [large], SECOND])
    assert replay(path) == as_found([*FIRST, large, *SECOND])
    sizes = [file.stat().st_size for file in segment_files(path)]
    assert sizes == [8192, 512 + aligned(24 + 36 + 20_000) + 512, 8192]


def test_body_damaged_later_is_corrupt_and_never_missing(path: Path) -> None:
    """Damage after the start: the caller must ask another node, and must not conclude that the entry is missing."""
    write_groups(path, [FIRST])
    directory = StorageDirectory.open(path, CLUSTER)
    places = {(record.ledger_id, record.entry_id): record.location for record in directory.scan()}
    reader = SegmentReader(directory)
    file = segment_files(path)[0]
    target = places[7, 1]
    for _ in damaged_copies(file, target.offset, target.offset + 36 + target.length):
        with pytest.raises(CorruptEntry):
            reader.read(target, ledger_id=7, entry_id=1)
    assert reader.read(target, ledger_id=7, entry_id=1) == FIRST[1].body
    with pytest.raises(CorruptEntry):
        reader.read(target, ledger_id=7, entry_id=0)
    with pytest.raises(CorruptEntry):
        reader.read(RecordLocation(9, target.offset, target.length), ledger_id=7, entry_id=1)
    reader.close()
    directory.close()


@pytest.mark.parametrize(("code", "noted"), [(errno.EIO, {7: [1]}), (errno.EMFILE, {})])
def test_failed_read_is_damage_only_if_the_disk_failed(path: Path, code: int, noted: dict[int, list[int]]) -> None:
    """A process without free descriptors knows nothing of the bytes: repair must not begin."""
    write_groups(path, [FIRST])
    directory = StorageDirectory.open(path, CLUSTER)
    places = {(record.ledger_id, record.entry_id): record.location for record in directory.scan()}

    def failing(_fd: int, _size: int, _offset: int) -> bytes:
        raise OSError(code, os.strerror(code))

    damage = KnownDamage()
    reader = SegmentReader(directory, damage, DiskCalls(read=failing))
    with pytest.raises(CorruptEntry):
        reader.read(places[7, 1], ledger_id=7, entry_id=1)
    assert damage.ledgers() == noted
    reader.close()
    directory.close()


def test_start_does_not_read_what_was_never_written(path: Path) -> None:
    """A segment has its full size from the start. Reading its zeros was most of the work of a node's first start."""
    read: list[int] = []

    def counted(fd: int, size: int, offset: int) -> bytes:
        read.append(size)
        return os.pread(fd, size, offset)

    segment_bytes = 256 << 20
    write_groups(path, [FIRST], segment_bytes=segment_bytes)
    directory = StorageDirectory.open(path, CLUSTER, segment_bytes=segment_bytes)
    disk = DiskCalls(read=counted)
    assert len(list(directory.scan(disk))) == len(FIRST)
    directory.settle(disk).close()
    directory.close()
    assert sum(read) < 32 << 20


def test_header_round_trips_in_64_bytes(tmp_path: Path) -> None:
    """The documented layout, byte for byte."""
    header = SegmentHeader(bytes(range(16)), bytes(range(16, 32)), 0x0102, 0x2000, 0x1000_0000)
    data = header.encode()
    assert len(data) == 64
    assert data[:12] == b"ONCELOGS\x02\0\0\0"
    assert data[12:44] == bytes(range(32))
    assert data[44:60] == b"\x02\x01" + bytes(6) + b"\x00\x20\0\0" + b"\0\0\0\x10"
    assert SegmentHeader.decode(data, tmp_path) == header


def test_segment_of_another_directory_is_refused(path: Path, tmp_path: Path) -> None:
    """A file restored from the wrong backup is intact; its header names another incarnation."""
    write_groups(path, [FIRST])
    write_groups(tmp_path / "other", [SECOND])
    shutil.copy(segment_files(tmp_path / "other")[0], segment_files(path)[0])
    with pytest.raises(OncelogError, match="a file of another directory"):
        replay(path)
