"""Stored batches as Arrow columns, by slicing buffers: no row is touched, but for properties, whose bytes are texts.

A batch of the log is columns already (ARCHITECTURE.md, 1.1): packed lengths, then the concatenated bytes. The bytes
become an Arrow buffer as they are, and a running sum over the lengths its offsets. A compressed payload is unfolded
once for its whole batch. What every message of an entry shares is repeated.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from oncelog.client.messages import Stored
from oncelog.core.batch import decode_ids, deltas_of, payload_of
from oncelog.core.columns import Column, decode_properties, expand_payload, split_columns
from oncelog.core.errors import CorruptEntry, InvalidBatch

#: Batches are joined up to so many rows and bytes of payload: each one costs Spark some microseconds whatever it holds.
ROWS_TARGET = 65_536
BYTES_TARGET = 8 * 1024 * 1024
_NONE_LENGTH = 0xFFFFFFFF
_NONE_TIME = -(2**63)
#: Spark counts microseconds in 64 bits: an event time beyond them is none.
_TIME_MS_MAX = (2**63 - 1) // 1000

UTC_TIME = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
#: As Spark makes it of the source's schema.
ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("ledger_id", pa.int64()),
        ("entry_id", pa.int64()),
        ("batch_index", pa.int32()),
        ("index", pa.int64()),
        ("publish_time", UTC_TIME),
        ("event_time", UTC_TIME),
        ("producer_name", pa.string()),
        ("sequence_id", pa.int64()),
        ("properties", PROPERTIES),
    ]
)
Array = Any
RecordBatch = Any


class Found(NamedTuple):
    """An entry of messages as it was read. producer_name None: not deduplicated, or not known any more."""

    stored: Stored
    producer_name: str | None


class Origin(NamedTuple):
    """topic: the name without the suffix of a part. partition: the number of the part, -1: the topic has none."""

    topic: str
    partition: int


def record_batch(found: Found, origin: Origin, *, first: int, end: int) -> RecordBatch | None:
    """The messages of one entry whose numbers are first to end - 1; None: it has none of them.

    Raises CorruptEntry where the payload contradicts its header.
    """
    entry, batch, body = found.stored
    low = entry.skip_first + max(0, first - entry.base_index)
    high = entry.skip_first + min(entry.count, end - entry.base_index)
    if low >= high:
        return None
    count = high - low
    try:
        columns = split_columns(expand_payload(batch, payload_of(batch, body)), batch.count)
        arrays = [
            _optional(_bytes_array, columns.get(Column.KEYS), pa.binary(), batch.count).slice(low, count),
            _bytes_array(columns[Column.VALUES], batch.count).slice(low, count),
            _same(origin.topic, count, pa.string()),
            _same(origin.partition, count, pa.int32()),
            _same(entry.ledger_id, count, pa.int64()),
            _same(entry.entry_id, count, pa.int64()),
            pa.array(np.arange(low, high, dtype=np.int32)),
            _from(entry.base_index - entry.skip_first + low, count),
            _same(_microseconds(batch.publish_time_ms), count, pa.int64()).cast(UTC_TIME),
            _optional(_times_array, columns.get(Column.EVENT_TIMES), UTC_TIME, batch.count).slice(low, count),
            _same(found.producer_name, count, pa.string()),
            _ids_array(found.stored, low, high),
            _optional(_properties_array, columns.get(Column.PROPERTIES), PROPERTIES, batch.count).slice(low, count),
        ]
    except InvalidBatch as error:
        raise CorruptEntry(f"entry {entry.position} cannot be read: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


class Joiner:
    """Gathers batches until they are worth a message to Spark."""

    def __init__(self) -> None:
        self._waiting: list[RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: RecordBatch) -> list[RecordBatch]:
        """What is ready with this batch: one, or none."""
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.column(1).get_total_buffer_size()
        return self.rest() if self._rows >= ROWS_TARGET or self._bytes >= BYTES_TARGET else []

    def rest(self) -> list[RecordBatch]:
        """What is left, as one batch."""
        waiting, self._waiting, self._rows, self._bytes = self._waiting, [], 0, 0
        return waiting if len(waiting) < 2 else [pa.concat_batches(waiting)]


def _optional(build: Callable[[memoryview, int], Array], content: memoryview | None, kind: Any, count: int) -> Array:
    """A column that is stored only where a message of the batch uses it."""
    return pa.nulls(count, kind) if content is None else build(content, count)


def _bytes_array(content: memoryview, count: int) -> Array:
    """A column of variable length as it is stored: count lengths, then the bytes. Keys may be absent, by their length.

    Raises InvalidBatch where the lengths do not add up: Arrow itself would read beyond the buffer.
    """
    if len(content) < 4 * count:
        raise InvalidBatch(f"a column is too short for {count} lengths", field="payload", limit=len(content))
    lengths = np.frombuffer(content, dtype="<u4", count=count)
    absent = lengths == _NONE_LENGTH
    some_absent = bool(absent.any())
    sums = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.where(absent, 0, lengths) if some_absent else lengths, dtype=np.int64, out=sums[1:])
    data = content[4 * count :]
    if sums[-1] != len(data):
        raise InvalidBatch("the lengths of a column do not add up to its bytes", field="payload", limit=len(data))
    validity = pa.py_buffer(np.packbits(~absent, bitorder="little").tobytes()) if some_absent else None
    offsets = pa.py_buffer(sums.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), count, [validity, offsets, pa.py_buffer(data)])


def _times_array(content: memoryview, count: int) -> Array:
    if len(content) != 8 * count:
        raise InvalidBatch(f"the event times are not {count} numbers of 8 bytes", field="payload", limit=len(content))
    times = np.frombuffer(content, dtype="<i8", count=count)
    beyond = (times == _NONE_TIME) | (times > _TIME_MS_MAX) | (times < -_TIME_MS_MAX)
    return pa.array(np.where(beyond, 0, times) * 1000, pa.int64(), mask=beyond).cast(UTC_TIME)


def _properties_array(content: memoryview, count: int) -> Array:
    return pa.array([list(each.items()) for each in decode_properties(content, count)], PROPERTIES)


def _microseconds(time_ms: int) -> int:
    return max(-_TIME_MS_MAX, min(time_ms, _TIME_MS_MAX)) * 1000


def _ids_array(stored: Stored, low: int, high: int) -> Array:
    batch = stored.batch
    if batch.dense:
        return _from(batch.first + low, high - low)
    deltas = deltas_of(batch, stored.body)
    steps = np.frombuffer(deltas, dtype=np.uint8)
    if len(steps) == batch.count - 1 and not (steps & 128).any():  # a byte each, the common case: a running sum
        ids = np.full(batch.count, batch.first, dtype=np.int64)
        ids[1:] += np.cumsum(steps.astype(np.int64) + 1)
    else:
        ids = np.array(decode_ids(batch, deltas), dtype=np.int64)
    return pa.array(ids[low:high])


def _from(first: int, count: int) -> Array:
    return pa.array(np.arange(first, first + count, dtype=np.int64))


def _same(value: int | str | None, count: int, kind: Any) -> Array:
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)
