"""Stored entries as clients of Kafka read them.

    a record batch of a client of Kafka                   as `batch_cuts` says
    a batch of columns, an entry of a client of Pulsar    one record batch, made of its messages

The messages of an entry have consecutive offsets, which are their indexes in the topic. Messages that the log knew
before (`skip_first`) are left out, and have no offsets.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oncelog.core.formats.batch import BatchHeader, Buffer, Checksum, PayloadFormat, payload_of
from oncelog.core.formats.columns import Columns
from oncelog.core.formats.entry import EntryHeader
from oncelog.core.formats.payload import read_columns
from oncelog_doors.core.kafka.batch_cuts import at_offset, without_first
from oncelog_doors.core.kafka.record_batches import batch_of_columns, time_of


class TimedOffset(NamedTuple):
    offset: int
    time_ms: int


def records_of(entry: EntryHeader, batch: BatchHeader, body: Buffer, checksum: Checksum) -> Buffer:
    """The record batch that is sent of an entry. Raises InvalidBatch, CompressionUnavailable, MessageEncrypted,
    ChunkedMessage."""
    payload = payload_of(batch, body)
    if goes_out_as_it_came(entry, batch):
        return at_offset(payload, entry.base_index)
    if batch.payload_format == PayloadFormat.KAFKA:
        return without_first(payload, entry.skip_first, entry.base_index, checksum)
    columns = read_columns(batch, payload)
    return batch_of_columns(
        columns, _kept(entry, batch), base_offset=entry.base_index, publish_time_ms=batch.publish_time_ms,
        checksum=checksum,
    )  # fmt: skip


def goes_out_as_it_came(entry: EntryHeader, batch: BatchHeader) -> bool:
    """Whether `records_of` only copies the bytes of the client."""
    return batch.payload_format == PayloadFormat.KAFKA and not entry.skip_first


def first_at(entry: EntryHeader, batch: BatchHeader, body: Buffer, time_ms: int) -> TimedOffset | None:
    """The first message of an entry whose time, as clients read it, is not before this one; None: there is none.
    Raises as `records_of`."""
    columns = read_columns(batch, payload_of(batch, body))
    return next((each for each in _times(entry, batch, columns) if each.time_ms >= time_ms), None)


def _times(entry: EntryHeader, batch: BatchHeader, columns: Columns) -> Iterator[TimedOffset]:
    for offset, number in enumerate(_kept(entry, batch), entry.base_index):
        yield TimedOffset(offset, time_of(columns, number, batch.publish_time_ms))


def _kept(entry: EntryHeader, batch: BatchHeader) -> Sequence[int]:
    return range(entry.skip_first, batch.count)
