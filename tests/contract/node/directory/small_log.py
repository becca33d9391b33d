"""A small log on disk, written group by group, and the records that a start finds in it."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from oncelog.core.node.node_ledger import RecordKind
from oncelog.log_storage.directory.holes import Hole
from oncelog.log_storage.directory.segment_format import ENTRY_KINDS, SegmentRecord, group_total
from oncelog.log_storage.directory.segment_reader import SegmentReader
from oncelog.log_storage.directory.segment_writer import DiskCalls, SegmentWriter
from oncelog.log_storage.directory.storage_directory import StorageDirectory

CLUSTER = "11111111222233334444555555555555"
DISK = DiskCalls()
#: (kind, ledger_id, entry_id, body)
Found = tuple[int, int, int, bytes]


def add(ledger_id: int, entry_id: int, size: int = 40) -> SegmentRecord:
    """An entry whose body is unique."""
    word = f"<{ledger_id}:{entry_id}>".encode()
    return SegmentRecord(RecordKind.ADD, ledger_id, entry_id, (word * (size // len(word) + 1))[:size])


def as_found(records: Sequence[SegmentRecord]) -> list[Found]:
    return [(record.kind, record.ledger_id, record.entry_id, bytes(record.body)) for record in records]


def write_groups(
    path: Path,
    groups: Sequence[Sequence[SegmentRecord]],
    *,
    marker: bool = True,
    segment_bytes: int = 8192,
    ledger_counter: int | None = None,
) -> None:
    """Append each group with a sync of its own; an empty group is a durability marker. marker: end the log with one.

    ledger_counter: for a directory with new holes, which is put into limbo.
    """
    directory = StorageDirectory.open(path, CLUSTER, segment_bytes=segment_bytes)
    for _ in directory.scan():
        pass
    if directory.new_holes and ledger_counter is not None:
        directory.enter_limbo(ledger_counter)
    segment: SegmentWriter = directory.settle(DISK)
    for group in groups:
        if not segment.has_room(group_total(group)):
            segment = directory.roll(segment, DISK, group_bytes=group_total(group))
        segment.write_group(group, DISK)
        segment.sync(DISK)
    if marker:
        segment = directory.confirm_end(segment, DISK)
    segment.close()
    directory.close()


def replay(path: Path, *, segment_bytes: int = 8192) -> list[Found]:
    """The records of a directory without new holes; see `examine`."""
    found, holes = examine(path, segment_bytes=segment_bytes)
    assert holes == (), holes
    return found


def examine(path: Path, *, segment_bytes: int = 8192) -> tuple[list[Found], tuple[Hole, ...]]:
    """Open, scan, and read every body: the records, and the new holes. Changes nothing on disk.

    Raises the errors of the start.
    """
    directory = StorageDirectory.open(path, CLUSTER, segment_bytes=segment_bytes)
    try:
        reader = SegmentReader(directory)
        found: list[Found] = [
            (
                kind,
                ledger_id,
                entry_id,
                reader.read(location, ledger_id=ledger_id, entry_id=entry_id) if kind in ENTRY_KINDS else b"",
            )
            for kind, ledger_id, entry_id, _, location, _ in directory.scan()
        ]
        reader.close()
        holes = directory.new_holes
    finally:
        directory.close()
    return found, holes


def restart(path: Path, *, ledger_counter: int | None = None) -> list[Found]:
    """The records that a start finds, after it settled the end of the log and stopped."""
    write_groups(path, [], marker=False, ledger_counter=ledger_counter)
    return replay(path)


def segment_files(path: Path) -> list[Path]:
    return sorted((path / "segments").glob("*.seg"))


def crash_image(path: Path, to: Path) -> Path:
    """A copy of the directory as if the process had ended now."""
    return Path(shutil.copytree(path, to))
