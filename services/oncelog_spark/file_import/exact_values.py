"""Values of Arrow in forms that JSON and text have, exactly.

Python's own types cannot keep all of them: its times have microseconds, its calendar 9999 years. What has no exact form
raises InvalidArgument.

    times, dates      ISO 8601, with as many digits as the value has
    durations         ISO 8601 in seconds, PT1.5S
    decimals          text
    bytes             base64
    NaN, infinite     text: JSON has no such numbers
    maps              a list of [key, value]
"""

import math
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from oncelog.core.errors import InvalidArgument

_DAY_MS = 86_400_000
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def json_values(column: Any, name: str) -> list[Any]:
    """A value for each element of an Arrow array. name: of the column. Raises InvalidArgument, ArrowInvalid,
    OverflowError."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return json_values(column.storage, name)
    if pa.types.is_dictionary(kind):
        return json_values(column.dictionary_decode(), name)
    if pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind) or _is_text(kind):
        return column.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_floating(kind):
        return [each if each is None or math.isfinite(each) else str(float(each)) for each in column.to_pylist()]
    if pa.types.is_decimal(kind):
        return [each if each is None else str(each) for each in column.to_pylist()]
    if is_bytes(kind):
        return [each if each is None else b64encode(each).decode() for each in column.to_pylist()]
    if pa.types.is_temporal(kind):
        return _temporal(column, kind, name)
    return _nested(column, kind, name)


def is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def texts_of(column: Any, name: str) -> Any:
    """Strings and bytes as they are, numbers and times as strings: an array of bytes. Raises InvalidArgument,
    ArrowInvalid."""
    kind = column.type
    if pa.types.is_nested(kind):
        message = f"column {name} is {kind}, which cannot be a message: use all columns, as JSON"
        raise InvalidArgument(message, field=name)
    if isinstance(kind, pa.BaseExtensionType):
        return texts_of(column.storage, name)
    if pa.types.is_dictionary(kind):
        return texts_of(column.dictionary_decode(), name)
    if not is_bytes(kind):
        try:
            column = column.cast(pa.string())
        except pa.ArrowNotImplementedError as error:
            raise _no_form(kind, name) from error
    return column.cast(pa.binary())


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _no_form(kind: Any, name: str) -> InvalidArgument:
    return InvalidArgument(f"column {name} is {kind}, which has no exact form in a message: convert it", field=name)


def _temporal(column: Any, kind: Any, name: str) -> list[Any]:
    if pa.types.is_duration(kind):
        numbers = column.cast(pa.int64()).to_pylist()
        return [None if each is None else _duration(each, _PER_SECOND[kind.unit]) for each in numbers]
    if pa.types.is_interval(kind):
        raise _no_form(kind, name)
    if pa.types.is_date64(kind):
        beside = [each for each in column.cast(pa.int64()).to_pylist() if each is not None and each % _DAY_MS]
        if beside:
            raise InvalidArgument(f"column {name}: {beside[0]} ms since 1970 is no date", field=name)
    if getattr(kind, "unit", "") == "ns":
        return _of_nanoseconds(column, kind)
    return [None if each is None else each.isoformat() for each in column.to_pylist()]


def _of_nanoseconds(column: Any, kind: Any) -> list[Any]:
    """Times of which Python keeps all but the last three digits."""
    numbers = column.cast(pa.int64()).to_pylist()
    shorter = pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.time64("us")
    rounded = pa.array([None if each is None else each // 1000 for each in numbers], pa.int64()).cast(shorter)
    found: list[Any] = []
    for number, moment in zip(numbers, rounded.to_pylist(), strict=True):
        if number is None or number % 1000 == 0:
            found.append(None if number is None else moment.isoformat())
            continue
        text = moment.isoformat(timespec="microseconds")
        digits = text.index(".") + 7
        found.append(f"{text[:digits]}{number % 1000:03d}{text[digits:]}")
    return found


def _duration(number: int, per_second: int) -> str:
    seconds, rest = divmod(abs(number), per_second)
    digits = f".{rest:0{len(str(per_second)) - 1}d}".rstrip("0") if rest else ""
    return f"{'-' if number < 0 else ''}PT{seconds}{digits}S"


def _nested(column: Any, kind: Any, name: str) -> list[Any]:
    if pa.types.is_struct(kind):
        names = [kind.field(number).name for number in range(kind.num_fields)]
        if len(set(names)) != len(names):
            raise InvalidArgument(f"column {name} is {kind}, which has a field twice", field=name)
        fields = [json_values(each, name) for each in column.flatten()]
        rows: Sequence[Any] = list(zip(*fields, strict=True)) if fields else [()] * len(column)
        valid = column.is_valid().to_pylist()
        return [dict(zip(names, row, strict=True)) if has else None for row, has in zip(rows, valid, strict=True)]
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [None if not each.is_valid else _items(each.values, kind, name) for each in column]
    if pa.types.is_fixed_size_list(kind):
        return [None if not each.is_valid else json_values(each.values, name) for each in column]
    raise _no_form(kind, name)


def _items(values: Any, kind: Any, name: str) -> list[Any]:
    if not pa.types.is_map(kind):
        return json_values(values, name)
    keys, items = (json_values(each, name) for each in values.flatten())
    return [list(pair) for pair in zip(keys, items, strict=True)]
