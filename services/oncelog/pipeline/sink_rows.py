"""Rows of a DataFrame as messages: what their columns (`sink_columns`) hold, and how many fit a call."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import sub
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from oncelog.core.batch import Buffer
from oncelog.core.errors import InvalidArgument, InvalidSequenceId, MessageTooLarge
from oncelog.core.ids import SEQUENCE_ID_MAX
from oncelog.core.session_opening import MESSAGE_BYTES_MAX
from oncelog.pipeline.sink_names import producer_name, source_part

T = TypeVar("T")

#: Values and further columns of one call to the log.
CALL_BYTES_MAX = 1024 * 1024
#: What a message costs beside its bytes.
_OVERHEAD_BYTES = 32


@dataclass(frozen=True, slots=True)
class Rows:
    """Messages to be, in columns of equal length; None: no message has one. sizes: bytes of each."""

    values: Sequence[Buffer]
    keys: Sequence[bytes | str | None] | None
    event_times_ms: Sequence[int | None] | None
    properties: Sequence[Mapping[str, str] | None] | None
    sizes: Sequence[int]

    def __len__(self) -> int:
        return len(self.values)

    def part(self, start: int, end: int) -> "Rows":
        piece = slice(start, end)
        return Rows(
            self.values[piece],
            None if self.keys is None else self.keys[piece],
            None if self.event_times_ms is None else self.event_times_ms[piece],
            None if self.properties is None else self.properties[piece],
            self.sizes[piece],
        )

    def calls(self) -> Iterator[tuple[int, int]]:
        """Cut into stretches of at most CALL_BYTES_MAX, or one row."""
        start = size = 0
        for at, each in enumerate(self.sizes):
            if at > start and size + each > CALL_BYTES_MAX:
                yield start, at
                start, size = at, 0
            size += each
        if start < len(self.sizes):
            yield start, len(self.sizes)


def rows_of(batch: Any) -> Rows:
    """batch: Arrow's, of columns that were checked. Raises InvalidArgument, MessageTooLarge."""
    values = _column(batch, "value")
    if values.null_count:
        raise InvalidArgument("column value is null in a row: every message has a value", field="value")
    _check_size("value", values)
    sizes = [length + _OVERHEAD_BYTES for length in pc.binary_length(values).to_pylist()]
    keys = _column(batch, "key")
    listed_keys = None
    if keys is not None and keys.null_count < len(keys):
        _check_size("key", keys)
        listed_keys = keys.to_pylist()
        sizes = [size + (length or 0) for size, length in zip(sizes, pc.binary_length(keys).to_pylist(), strict=True)]
    properties = _properties(_column(batch, "properties"))
    if properties is not None:
        sizes = [size + _text_bytes(each) for size, each in zip(sizes, properties, strict=True)]
    largest = max(sizes, default=0)
    if largest > MESSAGE_BYTES_MAX:
        message = f"value, key and properties of a row have {largest} bytes together, at most {MESSAGE_BYTES_MAX} fit"
        raise MessageTooLarge(message, field="value", limit=MESSAGE_BYTES_MAX)
    return Rows(_bytes_list(values), listed_keys, _times_ms(_column(batch, "event_time")), properties, sizes)


def names_and_ids(batch: Any, scope: str) -> Iterator[tuple[str, int, list[int]]]:
    """Stretches of rows of one producer: its name, the first row, the sequence ids. Raises InvalidArgument."""
    by_position = _column(batch, "index") is not None and _column(batch, "topic") is not None
    name_column, id_column = ("topic", "index") if by_position else ("producer_name", "sequence_id")
    for column in (name_column, id_column):
        if _column(batch, column).null_count:
            raise InvalidArgument(f"column {column} is null in a row: mode=position needs it", field=column)
    ids = _column(batch, id_column).to_pylist()
    names = _column(batch, name_column).to_pylist()
    parts = _column(batch, "partition")
    sources = list(map(source_part, names, parts.to_pylist())) if by_position and parts is not None else names
    start = 0
    while start < len(sources):
        end = start + 1
        while end < len(sources) and sources[end] == sources[start]:
            end += 1
        yield producer_name(scope, sources[start]), start, ids[start:end]
        start = end


def check_ascending(producer: str, last: int, ids: Sequence[int]) -> None:
    """last: the id before, -1: none. Raises InvalidSequenceId, which names both ids."""
    if ids[0] > last and min(map(sub, ids[1:], ids), default=1) > 0 and ids[0] >= 0 and ids[-1] <= SEQUENCE_ID_MAX:
        return
    before = [last, *ids]
    at = next(i for i in range(1, len(before)) if before[i] <= before[i - 1])
    raise InvalidSequenceId(
        f"{producer}: id {before[at]} comes after {before[at - 1]} in one task. In mode=position the rows of a "
        "producer come in ascending order, each id once: no repartition, sort or explode between source and sink; or "
        "use mode=batch",
        field="index",
    )


def cut(sizes: Sequence[int], bytes_max: int) -> int:
    """How many rows fit into bytes_max, at least one."""
    return max(1, sum(total <= bytes_max for total in accumulate(sizes)))


def _column(batch: Any, name: str) -> Any:
    at = batch.schema.get_field_index(name)
    return None if at < 0 else batch.column(at)


def _check_size(name: str, column: Any) -> None:
    largest = pc.max(pc.binary_length(column)).as_py() or 0
    if largest > MESSAGE_BYTES_MAX:
        message = f"column {name} has {largest} bytes in a row, at most {MESSAGE_BYTES_MAX} fit a message"
        raise MessageTooLarge(message, field=name, limit=MESSAGE_BYTES_MAX)


def _bytes_list(column: Any) -> list[bytes]:
    listed: list[bytes] = column.cast(pa.binary()).to_pylist()
    return listed


def _times_ms(column: Any) -> list[int | None] | None:
    """Milliseconds since 1970; what is finer is cut off."""
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
                f"column properties: {name!r} has no value in a row: leave it out", field="properties"
            )
    return listed


def _text_bytes(properties: Mapping[str, str] | None) -> int:
    return sum(len(key.encode()) + len(value.encode()) + 6 for key, value in (properties or {}).items())


def joined(pieces: Sequence[tuple[Rows, list[int]]]) -> tuple[Rows, list[int]]:
    """All of them in one, with their ids."""
    if len(pieces) == 1:
        return pieces[0]

    def column(of: Callable[[Rows], Sequence[T | None] | None]) -> list[T | None] | None:
        if all(of(rows) is None for rows, _ in pieces):
            return None
        found: list[T | None] = []
        for rows, _ in pieces:
            found += of(rows) or [None] * len(rows)
        return found

    return Rows(
        [each for rows, _ in pieces for each in rows.values],
        column(lambda rows: rows.keys),
        column(lambda rows: rows.event_times_ms),
        column(lambda rows: rows.properties),
        [each for rows, _ in pieces for each in rows.sizes],
    ), [each for _, ids in pieces for each in ids]
