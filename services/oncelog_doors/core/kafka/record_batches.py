"""Record batches of format 2, as Fetch sends them, made of batches of columns.

    offset   8 base offset                27 8 base timestamp       57 4 count of records
             8 4 bytes behind here        35 8 max timestamp        61   records
            12 4 leader epoch             43 8 producer id
            16 1 format, 2                51 2 producer epoch
            17 4 CRC32C of all behind it  53 4 base sequence
            21 2 attributes
            23 4 offset of the last record from the base

Numbers are big-endian. A record has varints: [bytes][0][timestamp - base timestamp][offset - base offset][key][value]
[headers], where -1 for a length is null.

A batch of columns is one record batch: it is a function of the stored entry alone, so that all doors send the same
bytes for an entry (hazard converted-in-two-ways). Its records are not compressed. Properties are headers; the time of a
record is its event time, else the time when it was published.
"""

from collections.abc import Sequence
from struct import Struct

from oncelog.core.formats.batch import Buffer, Checksum
from oncelog.core.formats.columns import Columns
from oncelog_doors.core.shared.varints import zigzag

_HEAD = Struct(">qiibI")
_BODY = Struct(">hiqqqhii")
HEADER_BYTES = _HEAD.size + _BODY.size
_FORMAT = 2
_NO_LEADER_EPOCH = -1
_NO_PRODUCER = (-1, -1, -1)
#: Of what is behind the length.
_UNCOUNTED_BYTES = 12


def batch_of_columns(
    columns: Columns, kept: Sequence[int], *, base_offset: int, publish_time_ms: int, checksum: Checksum
) -> bytes:
    """kept: the numbers of the messages that are sent, ascending from 0, not empty."""
    times = [time_of(columns, number, publish_time_ms) for number in kept]
    base_ms = times[0]
    records = b"".join(_record(columns, number, offset, times[offset] - base_ms) for offset, number in enumerate(kept))
    body = _BODY.pack(0, len(kept) - 1, base_ms, max(times), *_NO_PRODUCER, len(kept)) + records
    size = HEADER_BYTES - _UNCOUNTED_BYTES + len(records)
    return _HEAD.pack(base_offset, size, _NO_LEADER_EPOCH, _FORMAT, checksum(body, 0)) + body


def time_of(columns: Columns, number: int, publish_time_ms: int) -> int:
    """Of a message: its event time, else when it was published; ms since 1970."""
    time_ms = None if columns.event_times_ms is None else columns.event_times_ms[number]
    # Kafka knows no times before 1970: clients read them as "no timestamp" or fail.
    return publish_time_ms if time_ms is None or time_ms < 0 else time_ms


def _record(columns: Columns, number: int, offset: int, after_base_ms: int) -> bytes:
    key = None if columns.keys is None else columns.keys[number]
    value = None if columns.nulls is not None and columns.nulls[number] else columns.values[number]
    properties = {} if columns.properties is None else columns.properties[number]
    parts = [b"\0", zigzag(after_base_ms), zigzag(offset), _sized(key), _sized(value), zigzag(len(properties))]
    for name, content in properties.items():
        parts += (_sized(name.encode()), _sized(content.encode()))
    record = b"".join(parts)
    return zigzag(len(record)) + record


def _sized(data: Buffer | None) -> bytes:
    return zigzag(-1) if data is None else zigzag(len(data)) + bytes(data)
