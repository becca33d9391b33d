"""What the directory of a stopped storage node holds, as values for tools. Nothing is changed.

A directory whose identity is damaged is read, too: the headers of its segments state cluster and incarnation.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crc32c import crc32c

from oncelog.core.errors import CorruptEntry, StorageDirectoryRefused
from oncelog.core.formats.entry import HEADER_BYTES, EntryKind, decode_entry, peek_header
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.node.node_ledger import DELETED, RecordKind
from oncelog.log_storage.directory import directory_starts
from oncelog.log_storage.directory.holes import WHOLE_FILE, Hole
from oncelog.log_storage.directory.identity import IDENTITY, Identity
from oncelog.log_storage.directory.replay import DirectoryReplay, Replayed
from oncelog.log_storage.directory.segment_format import ENTRY_KINDS, HEADER, RECORD, Body, SegmentHeader, StoredRecord
from oncelog.log_storage.directory.storage_directory import SEGMENTS, StorageDirectory

_NOT_OF_LEDGERS = frozenset({RecordKind.LIMBO, RecordKind.SEGMENT_REMOVED, RecordKind.ERA, RecordKind.NOTE})


@contextmanager
def opened(path: Path) -> Iterator[tuple[StorageDirectory, str]]:
    """The directory, and what is wrong with its identity. Raises StorageDirectoryRefused."""
    identity, wrong = _identity(path)
    directory = StorageDirectory.open_stopped(path, identity)
    try:
        yield directory, wrong
    finally:
        directory.close()


def _identity(path: Path) -> tuple[Identity, str]:
    try:
        if (path / IDENTITY).exists():
            return Identity.decode((path / IDENTITY).read_bytes(), path / IDENTITY), ""
        wrong = f"{path}: no {IDENTITY}"
    except StorageDirectoryRefused as error:
        wrong = error.message
    for file in sorted((path / SEGMENTS).glob("*.seg")):
        with file.open("rb") as segment:
            header = SegmentHeader.decode(segment.read(HEADER.size), file)
        if header is not None:
            lowest = int(min((path / SEGMENTS).glob("*.seg")).stem, 16)
            return Identity(header.cluster_id.hex(), header.incarnation.hex(), 0, lowest), wrong
    raise StorageDirectoryRefused(f"{wrong}; and no segment with a sound header: not the directory of a storage node")


def mark_restored(path: Path) -> None:
    """The next start puts all ledgers into limbo, and repair restores what it lacks.

    Raises StorageDirectoryRefused, OSError.
    """
    with opened(path):
        directory_starts.mark_restored(path)


def inspect(path: Path) -> dict[str, Any]:
    """Identity, segments, ledgers, holes and limbo. Raises StorageDirectoryRefused."""
    with opened(path) as (directory, wrong):
        taken = DirectoryReplay()
        for record in directory.scan():
            taken.take(record)
        replayed = taken.result()
        return _summary(directory, replayed, wrong) | {"ledgers": list(_ledgers(replayed))}


def check(path: Path) -> dict[str, Any]:
    """Read everything. As `inspect`, with the entries that are no sound entries, and `sound`: nothing is wrong.

    Raises StorageDirectoryRefused.
    """
    bad: list[dict[str, Any]] = []
    with opened(path) as (directory, wrong):
        taken = DirectoryReplay()
        for record in directory.scan():
            taken.take(record)
            if record.kind in ENTRY_KINDS:
                reason = _damage_of(record)
                if reason:
                    bad.append({"ledger_id": record.ledger_id, "entry_id": record.entry_id, "reason": reason})
        summary = _summary(directory, taken.result(), wrong)
    return summary | {"bad_entries": bad, "sound": not (bad or summary["holes"] or wrong)}


def records_of(path: Path, ledger_id: int) -> list[dict[str, Any]]:
    """Every record of a ledger in the order of the files. Raises StorageDirectoryRefused."""
    found: list[StoredRecord] = []
    with opened(path) as (directory, _):
        taken = DirectoryReplay()
        for record in directory.scan():
            taken.take(record)
            if record.ledger_id == ledger_id and record.kind not in _NOT_OF_LEDGERS:
                found.append(record._replace(body=bytes(record.body[:HEADER_BYTES])))
        index = taken.result().index
        return [
            {
                "kind": record.kind.name.lower(),
                "number": record.number,
                "segment": f"{record.location.segment_id:016x}",
                "offset": record.location.offset,
                "bytes": RECORD.size + record.location.length,
            }
            | (
                _entry_fields(record.entry_id, record.body)
                | {"live": index.location(ledger_id, record.entry_id) == record.location}
                if record.kind in ENTRY_KINDS
                else {"deleted": record.entry_id == DELETED}
                if record.kind is RecordKind.LEDGER_ERASED
                else {}
            )
            for record in found
        ]


def _damage_of(record: StoredRecord) -> str:
    """Why the bytes of a sound record are no sound entry; empty if they are one."""
    try:
        decode_entry(
            bytes(record.body),
            ledger_id=LedgerId(record.ledger_id),
            entry_id=EntryId(record.entry_id),
            checksum=crc32c,
        )
    except CorruptEntry as error:
        return error.message
    return ""


def _entry_fields(entry_id: int, head: Body) -> dict[str, Any]:
    try:
        header = peek_header(head)
    except CorruptEntry as error:
        return {"entry_id": entry_id, "damaged": error.message}
    kinds = {int(kind): kind.name.lower() for kind in EntryKind}
    return {
        "entry_id": entry_id,
        "entry_kind": kinds.get(header.kind, str(header.kind)),
        "last_add_confirmed": header.last_add_confirmed,
        "base_index": header.base_index,
        "count": header.count,
        "owner_epoch": header.owner_epoch,
        "append_time_ms": header.append_time_ms,
        "topic_id": header.topic_id,
    }


def _summary(directory: StorageDirectory, replayed: Replayed, wrong: str) -> dict[str, Any]:
    identity, live = directory.identity, replayed.index.live_bytes
    segments = [
        {
            "segment": f"{segment_id:016x}",
            "file_bytes": directory.header(segment_id).file_bytes,
            "live_bytes": live.get(segment_id, 0),
            "holes": sum(hole.segment_id == segment_id for hole in directory.holes),
        }
        for segment_id in directory.segment_ids
    ]
    return {
        "path": str(directory.path),
        "cluster_id": identity.cluster_id,
        "incarnation": identity.incarnation,
        "created_ms": identity.created_ms,
        "identity_damage": wrong,
        "file_bytes": sum(directory.header(segment_id).file_bytes for segment_id in directory.segment_ids),
        "live_bytes": sum(live.values()),
        "note_count": len(replayed.index.notes),
        "ledger_count": sum(1 for _ in replayed.index.ledgers()),
        "era": str(replayed.era.era),
        "limbo_below": int(replayed.limbo_below),
        "limbo_cleared": sorted(replayed.limbo_cleared),
        "segments": segments,
        "holes": [_hole(hole, known=hole not in directory.new_holes) for hole in directory.holes],
    }


def _hole(hole: Hole, *, known: bool) -> dict[str, Any]:
    """known: a LIMBO record lists it, so the node has started with it."""
    end = None if hole.end == WHOLE_FILE else hole.end
    return {"segment": f"{hole.segment_id:016x}", "start": hole.start, "end": end, "what": hole.what, "known": known}


def _ledgers(replayed: Replayed) -> Iterator[dict[str, Any]]:
    index = replayed.index
    held = set(index.ledgers())
    for ledger_id in sorted(held | replayed.fenced | replayed.erased.keys()):
        entries = [(entry_id, location.length) for entry_id, location in index.entries(ledger_id)]
        yield {
            "ledger_id": ledger_id,
            "entries": len(entries),
            "first_entry": entries[0][0] if entries else None,
            "last_entry": entries[-1][0] if entries else None,
            "bytes": sum(length for _, length in entries),
            "fenced": ledger_id in replayed.fenced,
            "erased": ledger_id in replayed.erased,
            "deleted": ledger_id in replayed.deleted,
            "limbo": ledger_id < replayed.limbo_below and ledger_id not in replayed.limbo_cleared,
        }
