"""The format of a segment file.

A segment is the journal and the store at once: every record is written exactly once. All integers are little-endian.

    header   at 0, 64 bytes:  magic "ONCELOGS" 8s | version u32 | cluster_id 16s | incarnation 16s | segment_id u64
                              | previous_end u32 | file_bytes u32 | crc32c u32 over the 60 bytes before it
    group    at a multiple of 512, the first at 512, each directly after the one before:
                              magic "OLGR" 4s | crc32c u32 | record_count u32 | group_bytes u32 | durable_offset u64,
                              then `record_count` records of `group_bytes` together, then padding to a multiple of 512
    record   36 bytes:        crc32c u32 | length u32 | kind u8 | 3 zero bytes | ledger_id u64 | entry_id u64
                              | number u64, then the body; the checksum is over all but itself
    the rest                  zeros, up to file_bytes (or, in a reused file, groups of another seed)

Kinds, see `RecordKind`: the three that store an entry have it as their body, verbatim. FENCE, LIMBO_CLEARED and
SEGMENT_REMOVED (entry_id: the segment) have no body. LEDGER_ERASED has the origin of the ledger as its body, 17 bytes,
or none. FLOOR (ledger_id: the floor) has the chain as its body, in the same 17 bytes. LIMBO (ledger_id: the first
ledger that is not in limbo) has the known holes as its body, see `holes`. NOTE has a note as its body, see
`core.formats.note`. SEAL is alone in the last group. A group without records is a durability marker.

Rules
1. One group is one write and one fsync, and a group is written only after the one before it is synced. So the header of
   a group confirms every byte before it. `durable_offset`, the offset up to which everything was synced before, equals
   the group's own offset: a group header at any other place is invalid, whatever its checksum.
2. Every checksum of groups and records starts from the segment's seed, the crc32c of version, cluster, incarnation and
   segment id. Ids are never reused, and CRCs of equal bytes under two seeds always differ. So the former content of a
   reused file is never mistaken for the segment's own.
3. Groups begin at multiples of 512, so no later write touches a sector with acknowledged bytes.
4. `file_bytes` is the size of the file since its creation: a file of another size has lost something.
5. `previous_end` is where the previous segment ended when this one was created: everything below it was synced.
6. Bytes with a wrong checksum in the last segment, with no valid group after them, are a write that was never
   acknowledged, and are cut. Any other bytes with a wrong checksum are a hole: records may have been lost there.
7. `number` ascends over the whole life of the directory, in the order in which records were first written. A copy made
   by compaction keeps the number of its record, so the order of records does not depend on the order of the files
   (hazard compaction-order). The number of a seal is 0.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from oncelog.core.errors import StorageDirectoryRefused
from oncelog.core.node.node_ledger import RecordKind

MAGIC = b"ONCELOGS"
VERSION = 2
HEADER = struct.Struct("<8sI16s16sQIII")
GROUP_MAGIC = b"OLGR"
GROUP = struct.Struct("<4sIIIQ")
RECORD = struct.Struct("<IIB3xQQQ")
_GROUP_REST = struct.Struct("<IIQ")
_RECORD_REST = struct.Struct("<IB3xQQQ")
_SEED = struct.Struct("<I16s16sQ")
_CHECKSUM = struct.Struct("<I")

GROUP_ALIGN = 512  # the smallest sector; a write that is torn by a power loss damages whole sectors
FIRST_GROUP = GROUP_ALIGN
SEAL_BYTES = GROUP_ALIGN
DURABILITY_MARKER_BYTES = GROUP_ALIGN
#: Offsets are 32-bit in headers and in the index.
SEGMENT_BYTES_MAX = 0xFFFF_FFFF
RECORD_BYTES_MAX = 64 * 1024 * 1024
_JOIN_BYTES_MAX = 4096  # copying less than a page is cheaper than another element in the write's vector

Body = bytes | bytearray | memoryview


#: The kind that only segments use, beside the kinds of `RecordKind`.
SEAL = 5
_KINDS = {int(kind): kind for kind in RecordKind}
#: The kinds that store an entry.
ENTRY_KINDS = frozenset({RecordKind.ADD, RecordKind.RECOVERY_ADD, RecordKind.REPAIR_ADD})


class RecordLocation(NamedTuple):
    """Where a record is: `offset` of its header within the segment, `length` of its body in bytes."""

    segment_id: int
    offset: int
    length: int


class SegmentRecord(NamedTuple):
    """One record to be written.

    number: 0 for a new record, which gets the next number when it is written; a copy brings its own.
    source: where the original of a copy is.
    """

    kind: int
    ledger_id: int
    entry_id: int
    body: Body = b""
    number: int = 0
    source: RecordLocation | None = None


class StoredRecord(NamedTuple):
    """One record found by a scan. body: a part of the scan's window, valid while the scan goes on to its next group."""

    kind: RecordKind
    ledger_id: int
    entry_id: int
    number: int
    location: RecordLocation
    body: Body


def segment_seed(cluster_id: bytes, incarnation: bytes, segment_id: int) -> int:
    """The start value of every checksum of groups and records of this segment."""
    return crc32c(_SEED.pack(VERSION, cluster_id, incarnation, segment_id))


def aligned(size: int) -> int:
    return -(-size // GROUP_ALIGN) * GROUP_ALIGN


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The first 64 bytes; see the module's table."""

    cluster_id: bytes
    incarnation: bytes
    segment_id: int
    previous_end: int
    file_bytes: int

    @property
    def seed(self) -> int:
        return segment_seed(self.cluster_id, self.incarnation, self.segment_id)

    def encode(self) -> bytes:
        fields = (
            MAGIC,
            VERSION,
            self.cluster_id,
            self.incarnation,
            self.segment_id,
            self.previous_end,
            self.file_bytes,
        )
        head = HEADER.pack(*fields, 0)[: -_CHECKSUM.size]
        return head + _CHECKSUM.pack(crc32c(head))

    @classmethod
    def decode(cls, data: bytes, path: Path) -> "SegmentHeader | None":
        """None if it is damaged. Raises StorageDirectoryRefused if an intact header has another format."""
        if len(data) < HEADER.size or _CHECKSUM.unpack_from(data, HEADER.size - 4)[0] != crc32c(
            data[: HEADER.size - 4]
        ):
            return None
        magic, version, cluster_id, incarnation, segment_id, previous_end, file_bytes, _ = HEADER.unpack_from(data)
        if magic != MAGIC or version != VERSION:
            raise StorageDirectoryRefused(
                f"{path}: has format {magic!r} {version}, but this version reads {MAGIC!r} {VERSION}; "
                "start a version of that format"
            )
        return cls(cluster_id, incarnation, segment_id, previous_end, file_bytes)


@dataclass(frozen=True, slots=True)
class EncodedGroup:
    """A group as the vector of one write. offsets: those of its records within the segment.

    next_number: the number of the next new record.
    """

    parts: list[Body]
    total_bytes: int
    offsets: list[int]
    next_number: int


def group_total(records: Sequence[SegmentRecord]) -> int:
    """Bytes of a group in the file, padding included."""
    return aligned(GROUP.size + sum(RECORD.size + len(record.body) for record in records))


def encode_group(records: Sequence[SegmentRecord], *, seed: int, offset: int, first_number: int) -> EncodedGroup:
    """A group for `offset`. Large bodies are passed on as they are, small ones are joined.

    first_number: of the first new record; the next ones follow.
    """
    assert offset % GROUP_ALIGN == 0
    group_bytes = sum(RECORD.size + len(record.body) for record in records)
    rest = _GROUP_REST.pack(len(records), group_bytes, offset)
    run: list[Body] = [GROUP_MAGIC + _CHECKSUM.pack(crc32c(rest, seed)) + rest]
    parts: list[Body] = []
    offsets: list[int] = []
    position = offset + GROUP.size
    following = first_number
    for kind, ledger_id, entry_id, body, own_number, _ in records:
        length = len(body)
        if own_number:
            rest = _RECORD_REST.pack(length, kind, ledger_id, entry_id, own_number)
        else:
            rest = _RECORD_REST.pack(length, kind, ledger_id, entry_id, following)
            following += 1
        run.append(_CHECKSUM.pack(crc32c(body, crc32c(rest, seed))) + rest)
        if length > _JOIN_BYTES_MAX:
            parts += (b"".join(run), body)
            run = []
        elif length:
            run.append(body)
        offsets.append(position)
        position += RECORD.size + length
    run.append(bytes(aligned(position) - position))
    parts.append(b"".join(run))
    return EncodedGroup(parts, aligned(position) - offset, offsets, following)


class GroupHeader(NamedTuple):
    record_count: int
    group_bytes: int

    @property
    def total_bytes(self) -> int:
        return aligned(GROUP.size + self.group_bytes)


def decode_group_header(data: bytes, at: int, *, seed: int, offset: int) -> GroupHeader | None:
    """The group header at data[at:], which is at `offset` of the segment; None if there is none."""
    magic, checksum, count, group_bytes, durable_offset = GROUP.unpack_from(data, at)
    if magic != GROUP_MAGIC or durable_offset != offset:
        return None
    if checksum != crc32c(data[at + 8 : at + GROUP.size], seed):
        return None
    return GroupHeader(count, group_bytes)


def check_record(data: bytes | memoryview, at: int, *, seed: int) -> bool:
    """Whether a whole record with a valid checksum is at data[at:]."""
    if at + RECORD.size > len(data):
        return False
    checksum, length, kind, _, _, _ = RECORD.unpack_from(data, at)
    end = at + RECORD.size + length
    return end <= len(data) and kind in _KINDS and checksum == crc32c(memoryview(data)[at + 4 : end], seed)


def record_kind(number: int) -> RecordKind | None:
    """None for a number that is no kind of record of this version."""
    return _KINDS.get(number)
