"""Rows of files as messages.

An Arrow batch becomes the columns that the sink takes. An error names the file and the row: the first row of data is
row 1; a header is not counted.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from oncelog.core.errors import InvalidArgument, MessageTooLarge
from oncelog.core.formats.columns import check_event_times
from oncelog_spark.file_import.exact_values import is_bytes, json_values, texts_of
from oncelog_spark.file_import.options import ColumnMapping, FileFormat
from oncelog_spark.sink.rows import Rows, rows_of

_TIME = pa.timestamp("us", "UTC")
_MILLISECONDS_MAX = 2**53


def messages_of(path: str, batches: Iterator[Any], mapped: ColumnMapping) -> Iterator[Rows]:
    """batches: of one file, in order. Raises InvalidArgument, MessageTooLarge, which name the file and the row."""
    at = 0
    for batch in batches:
        if not at:
            _check_columns(path, batch.schema.names, mapped)
        if batch.num_rows:
            yield _rows(path, at, batch, mapped)
        at += batch.num_rows


def _rows(path: str, at: int, batch: Any, mapped: ColumnMapping) -> Rows:
    try:
        return rows_of(_message_columns(batch, mapped))
    except (InvalidArgument, pa.ArrowInvalid, ValueError, OverflowError) as error:
        for number in range(batch.num_rows):
            _try_row(path, at + number + 1, batch.slice(number, 1), mapped)
        # Each row is valid alone: together they exceed the size of such a column in Arrow.
        raise InvalidArgument(f"{path}, rows {at + 1} to {at + batch.num_rows}: {error}", field=path) from error


def _try_row(path: str, row: int, batch: Any, mapped: ColumnMapping) -> None:
    try:
        rows_of(_message_columns(batch, mapped))
    except MessageTooLarge as error:
        raise MessageTooLarge(f"{path}, row {row}: {error.message}", **error.details) from error
    except (InvalidArgument, pa.ArrowInvalid, ValueError, OverflowError) as error:
        raise InvalidArgument(f"{path}, row {row}: {error}", field=path) from error


def _check_columns(path: str, names: Sequence[str], mapped: ColumnMapping) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArgument(f"{path} has two columns named {twice[0]}", field=path)
    for name in (mapped.value, mapped.key, mapped.event_time, *mapped.properties):
        if name is not None and name not in names:
            raise InvalidArgument(f"{path} has no column {name}; its columns are {', '.join(names)}", field=path)


def _message_columns(batch: Any, mapped: ColumnMapping) -> Any:
    columns = {"value": _json(batch, mapped) if mapped.value is None else texts_of(batch.column(mapped.value), "value")}
    if mapped.key is not None:
        columns["key"] = _empty_as_null(texts_of(batch.column(mapped.key), mapped.key), mapped)
    if mapped.event_time is not None:
        columns["event_time"] = _times(batch.column(mapped.event_time), mapped.event_time)
    if mapped.properties:
        columns["properties"] = _properties(batch, mapped)
    return pa.RecordBatch.from_pydict(columns)


def _empty_as_null(column: Any, mapped: ColumnMapping) -> Any:
    """CSV has no null: an empty field becomes null."""
    if mapped.format is not FileFormat.CSV:
        return column
    return pa.array([each or None for each in column.to_pylist()], pa.binary())


def _times(column: Any, name: str) -> Any:
    """Times and dates as they are, in UTC where they have no zone; numbers are ms since 1970; strings are either. What
    is finer than a millisecond is cut off, as in every event time."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _times(column.dictionary_decode(), name)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        # To less digits it cannot overflow, to more it must not wrap.
        finer = getattr(kind, "unit", "") == "ns"
        found = column.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=not finer).cast(_TIME)
    elif pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind) or is_bytes(kind):
        found = pa.array([_time(each, name) for each in column.to_pylist()], _TIME)
    else:
        message = f"column {name} is {kind}; it must be a time, a number of ms since 1970, or a string"
        raise InvalidArgument(message, field=name)
    try:
        check_event_times([None if each is None else each // 1000 for each in found.cast(pa.int64()).to_pylist()])
    except InvalidArgument as error:
        raise InvalidArgument(f"column {name}: {error.message}", field=name) from error
    return found


def _time(value: int | str | bytes | None, name: str) -> int | None:
    """Microseconds since 1970."""
    text = value.decode() if isinstance(value, bytes) else value
    if text is None or text == "":
        return None
    if isinstance(text, str) and text.removeprefix("-").isascii() and text.removeprefix("-").isdigit():
        text = int(text)
    if isinstance(text, int):
        if abs(text) > _MILLISECONDS_MAX:
            raise InvalidArgument(f"column {name}: {text} ms since 1970 is beyond {_MILLISECONDS_MAX}", field=name)
        return text * 1000
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"column {name} must be ms since 1970 or ISO 8601, as 2026-03-01T12:00:00Z, not {text[:40]!r}"
        raise InvalidArgument(message, field=name) from error
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


def _properties(batch: Any, mapped: ColumnMapping) -> Any:
    """A column is a property of the same name; null: none. A map is several properties."""
    found: list[list[tuple[str, str]]] = [[] for _ in range(batch.num_rows)]
    for name in mapped.properties:
        column = batch.column(name)
        if pa.types.is_map(column.type):
            for properties, entries in zip(found, column, strict=True):
                if entries.is_valid:
                    keys, values = (texts_of(each, name).to_pylist() for each in entries.values.flatten())
                    properties += [
                        (_text(key, name), _text(value, name))
                        for key, value in zip(keys, values, strict=True)
                        if value is not None
                    ]
            continue
        for properties, value in zip(found, _empty_as_null(texts_of(column, name), mapped).to_pylist(), strict=True):
            if value is not None:
                properties.append((name, _text(value, name)))
    for properties in found:
        if len({key for key, _ in properties}) != len(properties):
            raise InvalidArgument(f"a row has a property twice: {', '.join(key for key, _ in properties)}")
    return pa.array(found, pa.map_(pa.string(), pa.string()))


def _text(value: bytes, name: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        message = f"column {name}: {value[:40]!r} is not UTF-8, and properties are text"
        raise InvalidArgument(message, field=name) from error


def _json(batch: Any, mapped: ColumnMapping) -> Any:
    """All columns of each row."""
    columns = batch.columns
    if mapped.format is FileFormat.CSV:
        columns = [column.cast(pa.string()) for column in columns]
    names = batch.schema.names
    values = [json_values(column, name) for column, name in zip(columns, names, strict=True)]
    rows = zip(*values, strict=True) if values else iter([()] * batch.num_rows)
    return pa.array([_object(dict(zip(names, row, strict=True))) for row in rows], pa.binary())


def _object(row: dict[str, Any]) -> bytes:
    return json.dumps(row, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
