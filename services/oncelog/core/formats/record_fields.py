"""Reading the JSON of records that other processes or administrators wrote. Every error is ValueError, KeyError or
TypeError, which a decoder turns into a CorruptEntry of that record.

    fields = parse_json(data)
    host, port = text(fields, "host"), number(fields, "port")
    owner = built(LiveOwner, fields, incarnation=name)

Rules
- A value of the wrong type is refused here, where the record is known, not where the value is used. Nesting and numbers
  are bounded, because later code recurses, prints and calculates.
- A record that several versions of the program change keeps the fields that it does not know, in `further`, and writes
  them back unchanged (hazard dropped-field). So a new fact is a new field of the object, never a further element of a
  list in it: readers of lists know how long they are.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

#: The fields of a record that this version does not know.
Further = Mapping[str, object]
_NO_FIELDS: Further = {}
#: Name of the dataclass field that has them.
FURTHER = "further"

#: Deeper than any record of ours.
DEPTH_MAX = 16
NUMBER_MAX = 2**63 - 1
#: Only a number with this many digits can exceed the limit.
_LONG_NUMBER = re.compile(rb"[0-9]{19}")
_SHOWN_CHARACTERS = 60


def parse_json(data: bytes, *, number_max: int = NUMBER_MAX) -> Any:
    """The value of JSON text. Raises ValueError, also for nesting and numbers beyond the limits."""
    # UTF-8 only, because the counts below are of bytes.
    text_ = data.decode("utf-8")
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX or _LONG_NUMBER.search(data):
        try:
            value = json.loads(text_)
        except RecursionError as error:
            raise ValueError(f"JSON nested deeper than {DEPTH_MAX}") from error
        _check_limits(value, number_max)
        return value
    return json.loads(text_)


def _check_limits(value: object, number_max: int) -> None:
    level: list[object] = [value]
    for _ in range(DEPTH_MAX + 1):
        below: list[object] = []
        for each in level:
            if isinstance(each, dict):
                below += each.values()
            elif isinstance(each, list):
                below += each
            elif isinstance(each, int) and not -number_max <= each <= number_max:
                raise ValueError("a number of more than 63 bits")
        if not below:
            return
        level = below
    raise ValueError(f"JSON nested deeper than {DEPTH_MAX}")


def no_fields() -> Further:
    """No unknown fields; one object for all records, since a cluster has many and few have any."""
    return _NO_FIELDS


def rest(fields: Mapping[str, object], known: Collection[str]) -> Further:
    """The fields of other names."""
    return {name: value for name, value in fields.items() if name not in known} or _NO_FIELDS


def text(fields: Mapping[str, Any], name: str) -> str:
    """Raises KeyError, ValueError."""
    value = fields[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, not {_shown(value)}")
    return value


def number(fields: Mapping[str, Any], name: str) -> int:
    """Raises KeyError, ValueError; true and false are not numbers."""
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number, not {_shown(value)}")
    return value


def flag(fields: Mapping[str, Any], name: str) -> bool:
    """Raises KeyError, ValueError."""
    value = fields[name]
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, not {_shown(value)}")
    return value


def texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Raises KeyError, ValueError."""
    value = fields[name]
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{name} must be a list of texts, not {_shown(value)}")
    return tuple(value)


def numbers(fields: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Raises KeyError, ValueError."""
    value = fields[name]
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        raise ValueError(f"{name} must be a list of whole numbers, not {_shown(value)}")
    return tuple(value)


def pairs(fields: Mapping[str, Any], name: str) -> list[tuple[int, int]]:
    """A list of lists of two whole numbers. Raises KeyError, ValueError, TypeError."""
    found = [(first, second) for first, second in fields[name]]
    if not {kind for pair in found for kind in map(type, pair)} <= {int}:
        raise ValueError(f"{name} must be a list of pairs of whole numbers")
    return found


def numbers_by_name(fields: Mapping[str, Any], name: str) -> dict[str, int]:
    """Raises KeyError, ValueError."""
    value = fields[name]
    if not isinstance(value, dict) or not set(map(type, value.values())) <= {int}:
        raise ValueError(f"{name} must be an object of whole numbers, not {_shown(value)}")
    return dict(value)


def built(record: type[T], fields: Mapping[str, Any], **known: object) -> T:
    """A dataclass from the fields of the same names, each of the type that its annotation says. known: the values of
    fields that are not in the record. No other field may be missing, so add what older versions did not write. A field
    `further` of the dataclass gets all that no other one has, but for `format`.

    Raises KeyError, ValueError, TypeError.
    """
    readers = _readers(record)  # type: ignore[arg-type]
    values = {name: read(fields, name) for name, read in readers.items() if name not in known and name != FURTHER}
    if FURTHER in readers:
        values[FURTHER] = rest(fields, {*readers, "format"})
    return record(**known, **values)


@cache
def _readers(record: type) -> dict[str, Callable[[Mapping[str, Any], str], Any]]:
    return {name: _reader(annotation) for name, annotation in get_type_hints(record).items()}


_PLAIN: Mapping[type, Callable[[Mapping[str, Any], str], Any]] = {int: number, str: text, bool: flag}


def _reader(annotation: Any) -> Callable[[Mapping[str, Any], str], Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        (one,) = (each for each in arguments if each is not NoneType)
        read = _reader(one)
        return lambda fields, name: None if fields[name] is None else read(fields, name)
    if origin is tuple:
        (one, _) = arguments
        if is_dataclass(one):
            of: type = one  # type: ignore[assignment]  # an annotation names the class
            return lambda fields, name: tuple(built(of, each) for each in fields[name])
        return numbers if _plain(one) is int else texts
    if origin is Mapping:
        return numbers_by_name
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return lambda fields, name: annotation(text(fields, name))
    return _PLAIN[_plain(annotation)]


def _plain(annotation: Any) -> Any:
    """The type under a NewType."""
    return getattr(annotation, "__supertype__", annotation)


def _shown(value: object) -> str:
    return repr(value)[:_SHOWN_CHARACTERS]
