"""Rows of a DataFrame as messages: the contents of their columns (`options`), and how many fit into one call.

Whole columns are handled by Arrow or NumPy where possible; rows become Python objects only once, for the SDK.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import sub
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncelog.core.errors import InvalidArgument, InvalidSequenceId, MessageTooLarge
from oncelog.core.formats.batch import Buffer
from oncelog.core.ids import SEQUENCE_ID_MAX
from oncelog.core.names import parse_topic
from oncelog.core.sdk.producer.opening import MESSAGE_BYTES_MAX
from oncelog_spark.sink.names import producer_name, source_of

T = TypeVar("T")
#: Bytes of each row.
Sizes = np.ndarray[Any, Any]

#: Bytes of values and other columns in one call to the log. The batches of one call are in flight together.
CALL_BYTES_MAX = 4 * 1024 * 1024
_NO_SIZES = np.zeros(0, dtype=np.int64)
#: Overhead of a message.
_OVERHEAD_BYTES = 32


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows to publish, in columns of equal length; None: no row has a value. sizes: bytes of each row.

    topics, partitions: the destination of each row, where rows name it: full names, and numbers of partitions.
    """

    values: Sequence[Buffer]
    keys: Sequence[bytes | str | None] | None
    event_times_ms: Sequence[int | None] | None
    properties: Sequence[Mapping[str, str] | None] | None
    sizes: Sizes
    topics: Sequence[str] | None = None
    partitions: Sequence[int | None] | None = None

    @property
    def size_bytes(self) -> int:
        return int(self.sizes.sum())

    def __len__(self) -> int:
        return len(self.values)

    def slice(self, start: int, end: int) -> "Rows":
        piece = slice(start, end)
        return Rows(
            self.values[piece],
            None if self.keys is None else self.keys[piece],
            None if self.event_times_ms is None else self.event_times_ms[piece],
            None if self.properties is None else self.properties[piece],
            self.sizes[piece],
            None if self.topics is None else self.topics[piece],
            None if self.partitions is None else self.partitions[piece],
        )

    def take(self, numbers: Sequence[int]) -> "Rows":
        """The rows with these numbers, ascending."""
        if len(numbers) == len(self):
            return self

        def of(column: Sequence[T] | None) -> list[T] | None:
            return None if column is None else [column[at] for at in numbers]

        return Rows(
            [self.values[at] for at in numbers],
            of(self.keys),
            of(self.event_times_ms),
            of(self.properties),
            self.sizes[np.asarray(numbers, dtype=np.int64)],
            of(self.topics),
            of(self.partitions),
        )

    def calls(self) -> Iterator[tuple[int, int]]:
        """Ranges of rows with at most CALL_BYTES_MAX bytes each, or one row."""
        start = 0
        while start < len(self.sizes):
            end = start + cut(self.sizes[start:], CALL_BYTES_MAX)
            yield start, end
            start = end


def rows_of(batch: Any, *, by_columns: bool = False, by_row: bool = False) -> Rows:
    """batch: an Arrow batch with checked columns. by_columns: the column partition is part of the destination. by_row:
    the column topic is, too.

    Raises InvalidArgument, MessageTooLarge.
    """
    values = _column(batch, "value")
    if values.null_count:
        raise InvalidArgument("column value is null in a row: every message needs a value", field="value")
    _check_size("value", values)
    sizes = _lengths(values) + _OVERHEAD_BYTES
    keys = _column(batch, "key")
    listed_keys = None
    if keys is not None and keys.null_count < len(keys):
        _check_size("key", keys)
        listed_keys = keys.to_pylist()
        sizes = sizes + _lengths(keys)
    properties = _properties(_column(batch, "properties"))
    if properties is not None:
        sizes = sizes + np.array([_text_bytes(each) for each in properties], dtype=np.int64)
    largest = int(sizes.max(initial=0))
    if largest > MESSAGE_BYTES_MAX:
        message = f"value, key and properties of a row have {largest} bytes, more than the limit of {MESSAGE_BYTES_MAX}"
        raise MessageTooLarge(message, field="value", limit=MESSAGE_BYTES_MAX)
    times = _times_ms(_column(batch, "event_time"))
    topics = _topics(_column(batch, "topic")) if by_row else None
    partitions = _partitions(_column(batch, "partition")) if by_columns else None
    return Rows(_bytes_list(values), listed_keys, times, properties, sizes, topics, partitions)


def _topics(column: Any) -> list[str] | None:
    if column is None:
        return None
    if column.null_count:
        raise InvalidArgument("column topic is null in a row: destination=columns requires it", field="topic")
    listed = column.to_pylist()
    full = {name: str(parse_topic(name)) for name in set(listed)}
    return [full[name] for name in listed]


def _partitions(column: Any) -> list[int | None] | None:
    if column is None or column.null_count == len(column):
        return None
    return [None if each is None or each < 0 else each for each in column.to_pylist()]


def names_and_ids(batch: Any, scope: str, *, by_columns: bool = False) -> Iterator[tuple[str, int, Sequence[int]]]:
    """Consecutive rows of one producer: its name, the first row, the sequence ids. Raises InvalidArgument.

    Ids without gaps are a range.
    """
    by_position = not by_columns and all(
        _column(batch, column) is not None for column in ("topic", "topic_id", "index")
    )
    name_column, id_column = ("topic", "index") if by_position else ("producer_name", "sequence_id")
    for column in (name_column, id_column, *(["topic_id"] if by_position else [])):
        if _column(batch, column).null_count:
            raise InvalidArgument(f"column {column} is null in a row: mode=position requires it", field=column)
    names, partitions = _column(batch, name_column), _column(batch, "partition") if by_position else None
    topic_ids = _column(batch, "topic_id") if by_position else None
    ids = _column(batch, id_column).to_numpy()
    changes = (_starts(column) for column in (names, partitions, topic_ids) if column is not None)
    starts = sorted(set().union(*changes))
    for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
        name = names[start].as_py()
        source = name
        if topic_ids is not None:
            source = source_of(
                name, None if partitions is None else partitions[start].as_py(), topic_ids[start].as_py()
            )
        yield producer_name(scope, source), start, _plain_ids(ids[start:end])


def _starts(column: Any) -> set[int]:
    """The rows whose value differs from that of the row before."""
    ends = pc.run_end_encode(column).run_ends.to_pylist()
    return {0, *ends[:-1]} if ends else set()


def _plain_ids(ids: "np.ndarray[Any, Any]") -> Sequence[int]:
    if bool((np.diff(ids) == 1).all()):
        return range(int(ids[0]), int(ids[-1]) + 1)
    listed: list[int] = ids.tolist()
    return listed


def check_ascending(producer: str, last: int, ids: Sequence[int]) -> None:
    """last: the previous id, -1: none. Raises InvalidSequenceId, which names both ids."""
    ascend = isinstance(ids, range) or min(map(sub, ids[1:], ids), default=1) > 0
    if ids[0] > last and ascend and ids[0] >= 0 and ids[-1] <= SEQUENCE_ID_MAX:
        return
    before = [last, *ids]
    at = next(i for i in range(1, len(before)) if before[i] <= before[i - 1])
    raise InvalidSequenceId(
        f"{producer}: id {before[at]} comes after {before[at - 1]} in one task. In mode=position the ids of a producer "
        "must ascend: no repartition, sort or explode between source and sink; or use mode=batch",
        field="index",
    )


def cut(sizes: Sizes, bytes_max: int) -> int:
    """How many rows fit into bytes_max; at least one."""
    return max(1, int(np.searchsorted(np.cumsum(sizes), bytes_max, side="right")))


def _column(batch: Any, name: str) -> Any:
    at = batch.schema.get_field_index(name)
    return None if at < 0 else batch.column(at)


def _check_size(name: str, column: Any) -> None:
    largest = pc.max(pc.binary_length(column)).as_py() or 0
    if largest > MESSAGE_BYTES_MAX:
        message = f"column {name} has {largest} bytes in a row, more than the limit of {MESSAGE_BYTES_MAX}"
        raise MessageTooLarge(message, field=name, limit=MESSAGE_BYTES_MAX)


def _lengths(column: Any) -> Sizes:
    """Bytes of each value; 0 for null."""
    found: Sizes = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _bytes_list(column: Any) -> list[bytes]:
    listed: list[bytes] = column.cast(pa.binary()).to_pylist()
    return listed


def _times_ms(column: Any) -> list[int | None] | None:
    """Milliseconds since 1970; smaller units are cut off."""
    if column is None or column.null_count == len(column):
        return None
    return [
        None if each is None else each // 1000
        for each in column.cast(pa.timestamp("us", "UTC")).cast("int64").to_pylist()
    ]


def _properties(column: Any) -> list[dict[str, str] | None] | None:
    if column is None or column.null_count == len(column):
        return None
    listed = [None if each is None else dict(each) for each in column.to_pylist()]
    for each in listed:
        if each is not None and None in each.values():
            name = next(key for key, value in each.items() if value is None)
            raise InvalidArgument(
                f"column properties: {name!r} is null in a row: leave the property out", field="properties"
            )
    return listed


def _text_bytes(properties: Mapping[str, str] | None) -> int:
    return sum(len(key.encode()) + len(value.encode()) + 6 for key, value in (properties or {}).items())


def gathered(pieces: Iterable[Rows]) -> Iterator[Rows]:
    """The same rows in fewer pieces, each of about one call, because each call waits for its answer."""
    waiting: list[Rows] = []
    waiting_bytes = 0
    for rows in pieces:
        waiting.append(rows)
        waiting_bytes += rows.size_bytes
        if waiting_bytes >= CALL_BYTES_MAX // 2:
            yield _joined(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield _joined(waiting)


def joined(pieces: Sequence[tuple[Rows, Sequence[int]]]) -> tuple[Rows, Sequence[int]]:
    """All rows in one piece, with their ids, which ascend."""
    rows, lists = _joined([rows for rows, _ in pieces]), [ids for _, ids in pieces]
    dense = range(lists[0][0], lists[-1][-1] + 1) if lists else range(0)
    return rows, dense if len(dense) == len(rows) else [each for ids in lists for each in ids]


def _joined(pieces: Sequence[Rows]) -> Rows:
    if len(pieces) == 1:
        return pieces[0]

    def column(of: Callable[[Rows], Sequence[T | None] | None]) -> list[T | None] | None:
        if all(of(rows) is None for rows in pieces):
            return None
        found: list[T | None] = []
        for rows in pieces:
            found += of(rows) or [None] * len(rows)
        return found

    topics = column(lambda rows: rows.topics)
    return Rows(
        [each for rows in pieces for each in rows.values],
        column(lambda rows: rows.keys),
        column(lambda rows: rows.event_times_ms),
        column(lambda rows: rows.properties),
        np.concatenate([_NO_SIZES, *(rows.sizes for rows in pieces)]),
        None if topics is None else [each or "" for each in topics],
        column(lambda rows: rows.partitions),
    )
