"""Stored record batches as Fetch sends them.

    whole                   the bytes of the client; base offset and leader epoch are written, which Kafka's checksum
                            does not cover
    first messages known    without them (`skip_first`): served whole under a lower base offset, some clients deliver
                            the hidden records again (hazard hidden-records-delivered)

Both are functions of the stored batch, so that all doors send the same bytes. What is cut is not compressed again:
another version of a library could give other bytes. Records keep theirs, but the offset delta and the size in front.
"""

from struct import Struct

from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.batch import Buffer, Checksum
from oncelog.core.formats.kafka import HEAD_BYTES, LONG_BYTES, read_head, read_varint, records_of
from oncelog_doors.core.shared.varints import zigzag

#: Base offset and size; leader epoch; magic and checksum; attributes up to the count of records.
_PLACE = Struct(">qii")
_REST = Struct(">hiqqqhii")
_SIZED_FROM, _CHECKSUM_AT, _CHECKED_FROM = 12, 17, 21
_MAGIC = 2
_NO_LEADER_EPOCH = -1
_WRAP = 2**31


def at_offset(batch: Buffer, base_offset: int) -> bytes:
    """The batch as it came, with the offset of its first record. base_offset: its index in the topic."""
    size = len(batch) - _SIZED_FROM
    return _PLACE.pack(base_offset, size, _NO_LEADER_EPOCH) + bytes(memoryview(batch)[_PLACE.size :])


def without_first(batch: Buffer, count: int, base_offset: int, checksum: Checksum) -> bytes:
    """The batch without its first `count` records, at least one. base_offset: of the first one that is left.

    Raises InvalidBatch, CompressionUnavailable, and InvalidArgument if no record would be left.
    """
    head = read_head(batch)
    if not 0 < count < head.count:
        message = f"{count} records are to be cut off a batch of {head.count}"
        raise InvalidArgument(message, field="count", limit=head.count - 1)
    raw = records_of(head, batch)
    kept: list[bytes] = []
    largest_delta, at = None, 0
    for index in range(head.count):
        size, begin = read_varint(raw, at)
        at = begin + size
        if index < count:
            continue
        delta, after_time = read_varint(raw, begin + 1, LONG_BYTES)
        _, after_offset = read_varint(raw, after_time)
        record = raw[begin:after_time] + zigzag(index - count) + raw[after_offset:at]
        kept += (zigzag(len(record)), record)
        largest_delta = delta if largest_delta is None else max(largest_delta, delta)
    left = head.count - count
    sequence = (head.base_sequence + count) % _WRAP if head.producer_id >= 0 else head.base_sequence
    rest = _REST.pack(
        0, left - 1, head.base_timestamp, head.base_timestamp + (largest_delta or 0), head.producer_id,
        head.producer_epoch, sequence, left,
    )  # fmt: skip
    rest += b"".join(kept)
    place = _PLACE.pack(base_offset, len(rest) + _CHECKED_FROM - _SIZED_FROM, _NO_LEADER_EPOCH)
    return place + bytes((_MAGIC,)) + checksum(rest, 0).to_bytes(4) + rest


assert _PLACE.size + 5 + _REST.size == HEAD_BYTES
