"""Stored batches as Arrow columns, by joining buffers. Only properties are decoded row by row, because they are texts.

A stored batch consists of columns already (`core.formats.columns`): packed lengths, then the concatenated bytes. The
bytes of many entries are joined into one Arrow buffer, or those of one entry are used as they are; a running sum over
the lengths gives the offsets. A compressed payload is decompressed once for its batch. A value that all messages of an
entry share is repeated.

Each column is built for all entries of a batch at once, because a column for one entry costs as much as twenty rows.

Arrays are made of buffers, never by `pa.array`, which imports pandas: for a worker of Spark that would take longer than
all its other imports, and a small batch cannot afford it.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from oncelog.client.values.messages import StoredBatch
from oncelog.core.errors import CorruptEntry, InvalidBatch
from oncelog.core.format_errors import MessageEncrypted
from oncelog.core.formats.batch import AS_IT_CAME, BatchHeader, Buffer, PayloadFormat, decode_ids, deltas_of, payload_of
from oncelog.core.formats.batch_check import check_columns
from oncelog.core.formats.columns import (
    COLUMN_HEADER_BYTES,
    Column,
    decode_properties,
    encode_event_times,
    encode_keys,
    encode_properties,
    split_columns,
)
from oncelog.core.formats.payload import expand_columns, ids_within, read_columns, shown_columns
from oncelog.core.ids import NOT_DEDUPLICATED

#: Batches are joined up to this many rows and bytes of payload: each batch has a fixed cost in Spark.
ROWS_TARGET = 65_536
BYTES_TARGET = 8 * 1024 * 1024
_NONE_LENGTH = 0xFFFFFFFF
_NONE_TIME = -(2**63)
_NONE_LENGTH_BYTES = b"\xff\xff\xff\xff"
_NONE_TIME_BYTES = _NONE_TIME.to_bytes(8, "little", signed=True)
#: Spark stores times as microseconds in 64 bits: an event time beyond them becomes null.
_TIME_MS_MAX = (2**63 - 1) // 1000

UTC_TIME = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
#: As Spark derives it from the source's schema.
ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("topic_id", pa.string()),
        ("ledger_id", pa.int64()),
        ("entry_id", pa.int64()),
        ("batch_index", pa.int32()),
        ("index", pa.int64()),
        ("publish_time", UTC_TIME),
        ("event_time", UTC_TIME),
        ("producer_name", pa.string()),
        ("sequence_id", pa.int64()),
        ("properties", PROPERTIES),
        ("producer_id", pa.int64()),
    ]
)
#: Set on an encrypted message that is passed on: the names of the keys that it is encrypted with.
ENCRYPTED_PROPERTY = "oncelog.encrypted"
#: Columns that are in the payload of an entry.
_PAYLOAD = frozenset({"key", "value", "event_time", "properties"})
Array = Any
RecordBatch = Any


class FoundEntry(NamedTuple):
    """An entry of messages as it was read. producer_name None: not deduplicated, or, if its
    batch has a producer id, the producer has expired."""

    stored: StoredBatch
    producer_name: str | None


class RowOrigin(NamedTuple):
    """topic: the name without the suffix of a partition. partition: its number, -1: the topic has no partitions.
    topic_id: of the topic, or of the partition; a topic that is deleted and created anew has another one."""

    topic: str
    partition: int
    topic_id: str = ""


class EntrySlice(NamedTuple):
    """An entry with wanted messages: low to high - 1 of its own. columns: {id: content}; of an entry of a client of
    Pulsar, made of it, and a null value has the length of an absent key."""

    found: FoundEntry
    low: int
    high: int
    columns: dict[int, memoryview]

    @property
    def size(self) -> int:
        """Messages of the whole entry, wanted or not."""
        return self.found.stored.batch.count


def entry_slice(
    found: FoundEntry,
    *,
    first: int,
    end: int,
    check: bool = False,
    unpack: bool = True,
    passes_encrypted: bool = False,
) -> EntrySlice | None:
    """The entry, if it has messages whose numbers are first to end - 1. Raises CorruptEntry, in any case
    ChunkedMessage, and MessageEncrypted.

    check: verify all lengths now, so that `record_batch` cannot fail on it. unpack: False where no column of the
    payload is wanted; then the payload is not decompressed. passes_encrypted: an encrypted message has a null value and
    ENCRYPTED_PROPERTY, and no error is raised for it.
    """
    entry, batch, body = found.stored
    low = entry.skip_first + max(0, first - entry.base_index)
    high = entry.skip_first + min(entry.count, end - entry.base_index)
    if low >= high:
        return None
    if not unpack:
        return EntrySlice(found, low, high, {})
    try:
        columns = _columns_of(batch, payload_of(batch, body), passes_encrypted=passes_encrypted)
        if check and batch.payload_format not in AS_IT_CAME:
            check_columns(columns, batch.count)
        return EntrySlice(found, low, high, columns)
    except InvalidBatch as error:
        raise _corrupt(found, error) from error
    except MessageEncrypted as error:
        raise _encrypted(found) from error


def _columns_of(batch: BatchHeader, payload: memoryview, *, passes_encrypted: bool) -> dict[int, memoryview]:
    """Raises InvalidBatch, ChunkedMessage, MessageEncrypted, CompressionUnavailable."""
    if batch.payload_format == PayloadFormat.COLUMNS:
        return split_columns(expand_columns(batch, payload), batch.count)
    passes = passes_encrypted and batch.payload_format == PayloadFormat.PULSAR
    found = shown_columns(batch, payload) if passes else read_columns(batch, payload)
    values = found.values.to_list()
    nulls = found.nulls or [False] * batch.count
    if found.encryption is not None:
        nulls = [True] * batch.count
        keys = {ENCRYPTED_PROPERTY: ", ".join(sorted(found.encryption.keys))}
        given = found.properties or [{}] * batch.count
        found = found._replace(properties=[{**each, **keys} for each in given])
    contents = {
        Column.VALUES: encode_keys([None if null else value for value, null in zip(values, nulls, strict=True)])
    }
    if found.keys is not None:
        contents[Column.KEYS] = encode_keys(found.keys)
    if found.event_times_ms is not None:
        contents[Column.EVENT_TIMES] = encode_event_times(found.event_times_ms)
    if found.properties is not None:
        contents[Column.PROPERTIES] = encode_properties(found.properties)
    return {column: memoryview(content)[COLUMN_HEADER_BYTES:] for column, content in contents.items()}


def needs_payload(columns: Sequence[str] | None) -> bool:
    """Whether any of the columns is in the payload; None: all columns."""
    return columns is None or not _PAYLOAD.isdisjoint(columns)


def record_batch(pieces: Sequence[EntrySlice], origin: RowOrigin, columns: Sequence[str] | None = None) -> RecordBatch:
    """The wanted messages of some entries, in order. pieces: at least one. columns: those to make; None: all.

    Raises CorruptEntry where a payload contradicts its header.
    """
    entries = [each.found.stored.entry for each in pieces]
    batches = [each.found.stored.batch for each in pieces]
    counts = np.array([each.count for each in batches], dtype=np.int64)
    rows = int(counts.sum())
    starts = np.cumsum(counts) - counts
    numbers = np.arange(rows, dtype=np.int64)
    places = numbers - np.repeat(starts, counts)

    def each_of(values: Sequence[int]) -> np.ndarray[Any, Any]:
        return np.repeat(np.array(values, dtype=np.int64), counts)

    makers: dict[str, Callable[[], Array]] = {
        "key": lambda: _bytes_array(pieces, Column.KEYS, counts, starts),
        "value": lambda: _bytes_array(pieces, Column.VALUES, counts, starts),
        "topic": lambda: _texts_array([origin.topic], [rows]),
        "partition": lambda: _numbers_array(np.full(rows, origin.partition, dtype=np.int32), pa.int32()),
        "topic_id": lambda: _texts_array([origin.topic_id], [rows]),
        "ledger_id": lambda: _numbers_array(each_of([each.ledger_id for each in entries]), pa.int64()),
        "entry_id": lambda: _numbers_array(each_of([each.entry_id for each in entries]), pa.int64()),
        "batch_index": lambda: _numbers_array(places.astype(np.int32), pa.int32()),
        "index": lambda: _numbers_array(
            places + each_of([each.base_index - each.skip_first for each in entries]), pa.int64()
        ),
        "publish_time": lambda: _numbers_array(
            each_of([_microseconds(each.publish_time_ms) for each in batches]), UTC_TIME
        ),
        "event_time": lambda: _times_array(pieces, rows),
        "producer_name": lambda: _texts_array([each.found.producer_name for each in pieces], counts.tolist()),
        "sequence_id": lambda: _ids_array(pieces, places + each_of([each.first for each in batches]), starts),
        "properties": lambda: _properties_array(pieces, rows),
        "producer_id": lambda: _producer_ids_array(each_of([each.producer_id for each in batches])),
    }
    names = ARROW_SCHEMA.names if columns is None else columns
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in names])
    return _wanted(pa.RecordBatch.from_arrays([makers[name]() for name in names], schema=schema), pieces, starts)


class BatchJoiner:
    """Gathers entries until there are enough for one batch for Spark."""

    def __init__(self, origin: RowOrigin, columns: Sequence[str] | None = None) -> None:
        self._origin = origin
        self._columns = columns
        self._waiting: list[EntrySlice] = []
        self._rows = 0
        self._bytes = 0

    def add(self, piece: EntrySlice) -> list[RecordBatch]:
        """The batch that this entry completes, or none. Raises CorruptEntry."""
        self._waiting.append(piece)
        self._rows += piece.high - piece.low
        self._bytes += len(piece.columns.get(Column.VALUES, b""))
        return self.rest() if self._rows >= ROWS_TARGET or self._bytes >= BYTES_TARGET else []

    def rest(self) -> list[RecordBatch]:
        """The remaining entries, as one batch. Raises CorruptEntry."""
        waiting, self._waiting, self._rows, self._bytes = self._waiting, [], 0, 0
        return [record_batch(waiting, self._origin, self._columns)] if waiting else []


def _wanted(batch: RecordBatch, pieces: Sequence[EntrySlice], starts: np.ndarray[Any, Any]) -> RecordBatch:
    """Only the wanted messages: a slice, where the others are at the ends."""
    if all(each.high - each.low == each.size for each in pieces[1:-1]) and (
        len(pieces) == 1 or (pieces[0].high == pieces[0].size and pieces[-1].low == 0)
    ):
        low, high = pieces[0].low, int(starts[-1]) + pieces[-1].high
        return batch if low == 0 and high == batch.num_rows else batch.slice(low, high - low)
    keep = np.zeros(batch.num_rows, dtype=bool)
    for start, each in zip(starts.tolist(), pieces, strict=True):
        keep[start + each.low : start + each.high] = True
    return batch.filter(pa.Array.from_buffers(pa.bool_(), len(keep), [None, _bits(keep)]))


def _encrypted(found: FoundEntry) -> MessageEncrypted:
    entry = found.stored.entry
    return MessageEncrypted(
        f"entry {entry.position} (messages {entry.base_index} to {entry.next_index - 1}) is encrypted by its producer "
        f"{found.producer_name!r}, a client of Pulsar. Queries and exports with onEncrypted=pass get such messages "
        f"with a null value and the property {ENCRYPTED_PROPERTY}; leave the topic out of other jobs"
    )


def _corrupt(found: FoundEntry, error: InvalidBatch) -> CorruptEntry:
    entry = found.stored.entry
    return CorruptEntry(
        f"entry {entry.position} (messages {entry.base_index} to {entry.next_index - 1}) cannot be read: {error}. "
        "Set onCorrupt=skip to pass over such entries"
    )


def _bytes_array(
    pieces: Sequence[EntrySlice], column: Column, counts: np.ndarray[Any, Any], starts: np.ndarray[Any, Any]
) -> Array:
    """A column of variable length as it is stored: the lengths, then the bytes. A special length marks an absent key.

    Raises CorruptEntry where the lengths do not add up: Arrow itself would read beyond the buffer.
    """
    contents = [each.columns.get(column) for each in pieces]
    if all(each is None for each in contents):
        return pa.nulls(int(counts.sum()), pa.binary())
    lengths = np.frombuffer(_joined([_lengths_of(*each) for each in zip(contents, pieces, strict=True)]), dtype="<u4")
    data = [
        b"" if content is None else content[4 * each.size :] for content, each in zip(contents, pieces, strict=True)
    ]
    absent = lengths == _NONE_LENGTH
    some_absent = bool(absent.any())
    sums = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(np.where(absent, 0, lengths) if some_absent else lengths, dtype=np.int64, out=sums[1:])
    wrong = sums[starts + counts] - sums[starts] != [len(each) for each in data]
    if wrong.any():
        error = InvalidBatch("the lengths of a column do not add up to its bytes", field="payload")
        raise _corrupt(pieces[int(np.argmax(wrong))].found, error)
    validity = _bits(~absent) if some_absent else None
    offsets = pa.py_buffer(sums.astype(np.int32))
    return pa.Array.from_buffers(pa.binary(), len(lengths), [validity, offsets, pa.py_buffer(_joined(data))])


def _lengths_of(content: memoryview | None, piece: EntrySlice) -> Buffer:
    if content is None:
        return _NONE_LENGTH_BYTES * piece.size
    if len(content) < 4 * piece.size:
        error = InvalidBatch(f"a column is too short for {piece.size} lengths", field="payload", limit=len(content))
        raise _corrupt(piece.found, error)
    return content[: 4 * piece.size]


def _joined(parts: Sequence[Buffer]) -> Buffer:
    """A single part is not copied."""
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _times_array(pieces: Sequence[EntrySlice], rows: int) -> Array:
    contents = [each.columns.get(Column.EVENT_TIMES) for each in pieces]
    if all(each is None for each in contents):
        return pa.nulls(rows, UTC_TIME)
    for content, each in zip(contents, pieces, strict=True):
        if content is not None and len(content) != 8 * each.size:
            error = InvalidBatch(
                f"the event times are not {each.size} numbers of 8 bytes", field="payload", limit=len(content)
            )
            raise _corrupt(each.found, error)
    parts = [_NONE_TIME_BYTES * each.size if content is None else content
             for content, each in zip(contents, pieces, strict=True)]  # fmt: skip
    times = np.frombuffer(_joined(parts), dtype="<i8")
    beyond = (times == _NONE_TIME) | (times > _TIME_MS_MAX) | (times < -_TIME_MS_MAX)
    validity = _bits(~beyond) if beyond.any() else None
    return _numbers_array(np.where(beyond, 0, times) * 1000, UTC_TIME, validity)


def _properties_array(pieces: Sequence[EntrySlice], rows: int) -> Array:
    if not any(Column.PROPERTIES in each.columns for each in pieces):
        return pa.nulls(rows, PROPERTIES)
    counts = np.zeros(rows + 1, dtype=np.int32)
    absent = np.zeros(rows, dtype=bool)
    names: list[str] = []
    texts: list[str] = []
    at = 0
    for piece in pieces:
        content = piece.columns.get(Column.PROPERTIES)
        if content is None:
            absent[at : at + piece.size] = True
        else:
            try:
                found = decode_properties(content, piece.size)
            except InvalidBatch as error:
                raise _corrupt(piece.found, error) from error
            counts[at + 1 : at + 1 + piece.size] = [len(each) for each in found]
            for each in found:
                names += each.keys()
                texts += each.values()
        at += piece.size
    once = [1] * len(names)
    pairs = pa.Array.from_buffers(
        pa.struct([PROPERTIES.key_field, PROPERTIES.item_field]),
        len(names),
        [None],
        children=[_texts_array(names, once), _texts_array(texts, once)],
    )
    offsets = pa.py_buffer(np.cumsum(counts, dtype=np.int32))
    validity = _bits(~absent) if absent.any() else None
    return pa.Array.from_buffers(PROPERTIES, rows, [validity, offsets], children=[pairs])


def _texts_array(texts: Sequence[str | None], counts: Sequence[int]) -> Array:
    """Each text as many times as its count says, one after the other."""
    absent = [text is None for text in texts]
    rows = sum(counts)
    if all(absent):
        return pa.nulls(rows, pa.string())
    data = [b"" if text is None else text.encode() for text in texts]
    offsets = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(np.repeat([len(each) for each in data], counts), out=offsets[1:])
    whole = b"".join(each * count for each, count in zip(data, counts, strict=True))
    validity = _bits(~np.repeat(absent, counts)) if any(absent) else None
    return pa.Array.from_buffers(pa.string(), rows, [validity, pa.py_buffer(offsets), pa.py_buffer(whole)])


def _numbers_array(numbers: np.ndarray[Any, Any], kind: Any, validity: Any = None) -> Array:
    """numbers: of the width that the kind has."""
    return pa.Array.from_buffers(kind, len(numbers), [validity, pa.py_buffer(numbers)])


def _producer_ids_array(ids: np.ndarray[Any, Any]) -> Array:
    """Null for messages that were stored without deduplication."""
    return _numbers_array(ids, pa.int64(), _bits(ids != NOT_DEDUPLICATED))


def _bits(flags: np.ndarray[Any, Any]) -> Any:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _microseconds(time_ms: int) -> int:
    return max(-_TIME_MS_MAX, min(time_ms, _TIME_MS_MAX)) * 1000


def _ids_array(pieces: Sequence[EntrySlice], ids: np.ndarray[Any, Any], starts: np.ndarray[Any, Any]) -> Array:
    """ids: dense ones for each entry; those of entries with gaps are replaced."""
    for start, piece in zip(starts.tolist(), pieces, strict=True):
        stored = piece.found.stored
        if not stored.batch.dense:
            try:
                ids[start : start + piece.size] = _ids_with_holes(stored)
            except InvalidBatch as error:
                raise _corrupt(piece.found, error) from error
    return _numbers_array(ids, pa.int64())


def _ids_with_holes(stored: StoredBatch) -> "np.ndarray[Any, Any] | Sequence[int]":
    batch = stored.batch
    if batch.unit:
        return ids_within(batch, stored.body)
    deltas = deltas_of(batch, stored.body)
    steps = np.frombuffer(deltas, dtype=np.uint8)
    if len(steps) != batch.count - 1 or (steps & 128).any():
        return decode_ids(batch, deltas)
    ids = np.full(batch.count, batch.first, dtype=np.int64)  # one byte for each, the common case: a running sum
    ids[1:] += np.cumsum(steps.astype(np.int64) + 1)
    return ids
