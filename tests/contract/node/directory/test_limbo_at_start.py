"""Holes in a directory: a start finds each once, goes on behind it, and writes down that it was found (hazard
damaged-fence)."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.core.node.node_ledger import RecordKind
from oncelog.log_storage.directory.holes import LISTED_PER_SEGMENT_MAX, Hole, decode_holes, encode_holes, new_holes
from oncelog.log_storage.directory.replay import replay as replayed
from oncelog.log_storage.directory.segment_format import FIRST_GROUP, SegmentRecord
from oncelog.log_storage.directory.segment_scan import SECTOR_BYTES
from oncelog.log_storage.directory.segment_writer import DiskCalls
from oncelog.log_storage.directory.storage_directory import NUMBERS_LEFT_OUT, StorageDirectory
from tests.contract.node.directory.small_log import (
    CLUSTER,
    DISK,
    Found,
    add,
    as_found,
    examine,
    restart,
    segment_files,
    write_groups,
)

SEGMENT_BYTES = 8192
COUNTER = 77
Damage = Callable[[Path], object]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node"


def flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)


def records(found: list[Found]) -> list[tuple[int, int]]:
    """(ledger, entry) of the adds."""
    return [(ledger_id, entry_id) for kind, ledger_id, entry_id, _ in found if kind == RecordKind.ADD]


KINDS_OF_DAMAGE: dict[str, Damage] = {
    "a record": lambda path: flip(segment_files(path)[0], FIRST_GROUP + 24 + 40),
    "a group header": lambda path: flip(segment_files(path)[0], FIRST_GROUP + 512),
    "a segment header": lambda path: flip(segment_files(path)[1], 20),
    "a seal": lambda path: flip(segment_files(path)[0], segment_files(path)[0].read_bytes().rindex(b"OLGR") + 5),
    "a missing first file": lambda path: segment_files(path)[0].unlink(),
    "a missing file": lambda path: segment_files(path)[1].unlink(),
    "a missing last file": lambda path: segment_files(path)[-1].unlink(),
    "a file that was cut": lambda path: os.truncate(segment_files(path)[-1], 600),
}


@pytest.mark.hazard("damaged-fence")
@pytest.mark.parametrize("damage", KINDS_OF_DAMAGE.values(), ids=KINDS_OF_DAMAGE.keys())
def test_each_kind_of_damage_starts_limbo_once(path: Path, damage: Damage) -> None:
    """The next start finds the same holes, but they are known: limbo does not begin again for newer ledgers."""
    write_groups(path, [[add(7, entry, size=1500)] for entry in range(12)], segment_bytes=SEGMENT_BYTES)
    assert len(segment_files(path)) == 4
    damage(path)
    found, holes = examine(path)
    assert holes
    assert restart(path, ledger_counter=COUNTER) == [
        *found,
        (RecordKind.LIMBO, COUNTER, 0, b""),
    ]
    write_groups(path, [[add(90, 0)]], segment_bytes=SEGMENT_BYTES)
    again, new = examine(path)
    assert new == ()
    assert again == [*found, (RecordKind.LIMBO, COUNTER, 0, b""), *as_found([add(90, 0)])]


@pytest.mark.hazard("damaged-fence")
def test_second_damage_starts_limbo_again(path: Path) -> None:
    """A fence that was taken since the first limbo may be in the new hole."""
    write_groups(path, [[add(7, entry, size=1500)] for entry in range(12)], segment_bytes=SEGMENT_BYTES)
    flip(segment_files(path)[0], FIRST_GROUP + 70)
    restart(path, ledger_counter=COUNTER)
    write_groups(path, [[SegmentRecord(RecordKind.FENCE, 80, 0)], [add(81, 0)]], segment_bytes=SEGMENT_BYTES)
    last = segment_files(path)[-1]
    flip(last, last.read_bytes().rindex(b"OLGR", 0, last.read_bytes().rindex(b"OLGR")) + 30)
    _, holes = examine(path)
    assert {hole.segment_id for hole in holes} == {len(segment_files(path))}
    restart(path, ledger_counter=COUNTER + 9)
    directory = StorageDirectory.open(path, CLUSTER)
    result = replayed(directory)
    directory.close()
    assert result.limbo_below == COUNTER + 9
    assert directory.new_holes == ()


def test_lost_seal_is_a_hole_if_the_next_segment_is_not_there(path: Path) -> None:
    """Nothing else says where the segment ended: its last groups may be lost with the seal."""
    write_groups(path, [[add(7, entry, size=1500)] for entry in range(12)], segment_bytes=SEGMENT_BYTES)
    first, second, *_ = segment_files(path)
    flip(first, first.read_bytes().rindex(b"OLGR") + 5)
    second.unlink()
    assert {hole.segment_id for hole in examine(path)[1]} == {1, 2}


def test_records_around_a_hole_are_found(path: Path) -> None:
    """Also those of the damaged group itself whose own checksums are right."""
    group = [add(7, entry) for entry in range(4)]
    write_groups(path, [group, [add(7, 4)], [add(7, 5)]])
    flip(segment_files(path)[0], FIRST_GROUP + 24 + 76 + 36 + 3)
    found, holes = examine(path)
    assert records(found) == [(7, 0), (7, 2), (7, 3), (7, 4), (7, 5)]
    assert (holes[0].start, holes[0].end) == (FIRST_GROUP, FIRST_GROUP + 512)


def test_damaged_segment_is_not_written_again(path: Path) -> None:
    """A record behind damage may be lost with it. The node continues in a new segment."""
    write_groups(path, [[add(7, 0)], [add(7, 1)]])
    (file,) = segment_files(path)
    flip(file, FIRST_GROUP + 80)
    before = file.read_bytes()
    write_groups(path, [[add(7, 2)]], ledger_counter=COUNTER)
    assert file.read_bytes() == before
    assert len(segment_files(path)) == 2
    assert records(examine(path)[0]) == [(7, 1), (7, 2)]


def test_numbers_jump_behind_damage(path: Path) -> None:
    """A lost file that is put back later holds numbers that the start could not see."""
    write_groups(path, [[add(7, 0)], [add(7, 1)]])
    flip(segment_files(path)[0], FIRST_GROUP + 80)
    write_groups(path, [[add(7, 2)]], ledger_counter=COUNTER)
    directory = StorageDirectory.open(path, CLUSTER)
    numbers = [record.number for record in directory.scan()]
    directory.close()
    assert numbers[0] == 2
    assert numbers[1] > NUMBERS_LEFT_OUT
    assert numbers == sorted(numbers)


def test_damaged_directory_is_not_written_before_limbo(path: Path) -> None:
    """The LIMBO record is the first that is written: no answer may come before it."""
    write_groups(path, [[add(7, 0)], [add(7, 1)]])
    flip(segment_files(path)[0], FIRST_GROUP + 80)
    directory = StorageDirectory.open(path, CLUSTER)
    list(directory.scan())
    with pytest.raises(AssertionError, match="enter_limbo"):
        directory.settle(DISK)
    directory.close()


@pytest.mark.hazard("damage-like-a-torn-write")
@pytest.mark.hazard("damaged-fence")
def test_torn_write_does_not_start_limbo(path: Path) -> None:
    """Otherwise a power cut would put every node into limbo at once."""
    write_groups(path, [[add(7, 0)], [add(7, 1)]], marker=False)
    (file,) = segment_files(path)
    file.write_bytes(file.read_bytes()[: FIRST_GROUP + 512 + 30].ljust(8192, b"\0"))
    found, holes = examine(path)
    assert (records(found), holes) == ([(7, 0)], ())
    assert records(restart(path)) == [(7, 0)]


@pytest.mark.parametrize("sector", range(8))
def test_unreadable_sector_is_a_hole(path: Path, sector: int) -> None:
    """EIO for one sector: what the rest of the file holds is found. Also at the end, where a torn write would be."""
    size = 8 * SECTOR_BYTES
    groups = [[add(7, entry, size=3000)] for entry in range(8)]
    write_groups(path, groups, segment_bytes=size)
    whole = examine(path)[0]
    bad = range(sector * SECTOR_BYTES, (sector + 1) * SECTOR_BYTES)

    def failing(fd: int, count: int, offset: int) -> bytes:
        if offset < bad.stop and offset + count > bad.start:
            raise OSError(errno.EIO, "Input/output error")
        return os.pread(fd, count, offset)

    disk = DiskCalls(read=failing)
    directory = StorageDirectory.open(path, CLUSTER)
    found = list(directory.scan(disk))
    assert [hole for hole in directory.new_holes if hole.start <= max(bad.start, FIRST_GROUP) and hole.end >= bad.stop]
    assert len(whole) - 3 <= len(found) <= len(whole)
    assert len(found) < len(whole) or bad.start >= 25_600, "the last sectors hold no record"
    directory.enter_limbo(COUNTER)
    directory.settle(disk).close()
    directory.close()
    assert len(segment_files(path)) == 2
    assert examine(path)[1] == (), "what can be read again later is no new hole"


def test_holes_round_trip() -> None:
    """As the body of a LIMBO record. Very many holes of one segment are listed as one."""
    holes = (Hole(1, 512, 1024), Hole(1 << 40, 0, 0xFFFF_FFFF))
    assert decode_holes(encode_holes(holes)) == holes
    many = [Hole(3, 512 * at, 512 * at + 512) for at in range(LISTED_PER_SEGMENT_MAX + 1)]
    listed = decode_holes(encode_holes(many))
    assert listed == (Hole(3, 0, 512 * (LISTED_PER_SEGMENT_MAX + 1)),)
    assert new_holes([*many, Hole(4, 0, 1)], listed) == (Hole(4, 0, 1),)


@pytest.mark.hazard("older-disk-is-missing")
def test_hole_stays_known_when_limbo_is_over(path: Path) -> None:
    """The record that ends limbo lists the holes, as the one that began it did: the next start finds no new one."""
    write_groups(path, [[add(7, entry)] for entry in range(3)])
    flip(segment_files(path)[0], FIRST_GROUP + 24 + 40)
    restart(path, ledger_counter=COUNTER)
    directory = StorageDirectory.open(path, CLUSTER, segment_bytes=SEGMENT_BYTES)
    assert replayed(directory).limbo_below == COUNTER
    over = SegmentRecord(RecordKind.LIMBO, 0, 0, encode_holes(directory.holes))
    directory.close()
    write_groups(path, [[over]])
    directory = StorageDirectory.open(path, CLUSTER, segment_bytes=SEGMENT_BYTES)
    assert replayed(directory).limbo_below == 0
    assert directory.holes
    assert directory.new_holes == ()
    directory.close()
