"""Bodies as clients of Pulsar send them: which fields they may have. Unknown fields are refused, by name: their sender
believes that they have an effect."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from oncelog_doors.core.rest.refusals import Refused, refused_field

_SHOWN_CHARACTERS = 60
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_KINDS = {bool: "true or false", int: "a whole number", str: "a text", list: "a list", dict: "an object"}


class Ignored(NamedTuple):
    """A field that a client sends although it says nothing: with another value, it asks for what is not offered."""

    values: Sequence[Any]
    instead: str = "leave it out"


Field = type | Ignored


def read_fields(body: Any, fields: Mapping[str, Field], *, required: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of the object that have a value. fields: those that it may have. Raises Refused."""
    if not isinstance(body, dict):
        raise Refused(400, f"the body must be an object with {', '.join(sorted(fields)) or 'no fields'}")
    found = {}
    for name, value in body.items():
        field = fields.get(name)
        if field is None:
            raise refused_field(name[:_SHOWN_CHARACTERS], "unknown field")
        if value is None:
            continue
        if isinstance(field, Ignored):
            if value not in field.values:
                raise refused_field(name, f"{shown(value)} is not offered here: {field.instead}")
            continue
        if field is not int:
            check_kind(name, value, field)
        found[name] = check_number(name, value) if field is int else value
    for name in required:
        if name not in found:
            raise refused_field(name, "this field is required")
    return found


def check_kind(name: str, value: Any, kind: type) -> None:
    """Raises Refused. A truth value is no number."""
    if type(value) is not kind:
        raise refused_field(name, f"must be {_KINDS[kind]}, not {shown(value)}")


def check_number(name: str, value: Any) -> int:
    """A number, also as a text: Pulsar takes both. Raises Refused."""
    if type(value) is str and _NUMBER.fullmatch(value):
        return int(value)
    check_kind(name, value, int)
    number: int = value
    return number


def check_range(name: str, text: str, maximum: int) -> int:
    """A number of a path or a query, from 0 to the maximum. Raises Refused."""
    number = check_number(name, text)
    if not 0 <= number <= maximum:
        raise refused_field(name, f"must be 0 to {maximum}, not {number}")
    return number


def texts(name: str, value: Any) -> list[str]:
    """A list of texts. Raises Refused."""
    check_kind(name, value, list)
    for index, each in enumerate(value):
        check_kind(f"{name}.{index}", each, str)
    return list(value)


def properties_of(value: Any, name: str = "properties") -> dict[str, str]:
    """Text to text. Raises Refused."""
    check_kind(name, value, dict)
    for key, each in value.items():
        check_kind(f"{name}.{key[:_SHOWN_CHARACTERS]}", each, str)
    return dict(value)


def shown(value: Any) -> str:
    """A value of a request, for an error."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
