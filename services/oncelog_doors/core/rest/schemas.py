"""Schemas as Pulsar's REST has them: JSON, with the definition as a text.

    type         a name, such as AVRO
    schema       the definition, of a schema that is uploaded; `data`, of one that is shown
    properties   text to text

A schema of keys and values is one JSON object as a text, {"key": …, "value": …}, and in the log two definitions, each
behind its size in four bytes. A definition of a simple type is empty.
"""

import json
from collections.abc import Mapping
from struct import Struct
from typing import Any, NamedTuple

from oncelog_doors.core.pulsar.schemas import TYPES, is_compared, type_name
from oncelog_doors.core.rest.fields import properties_of, read_fields, shown
from oncelog_doors.core.rest.refusals import not_offered, refused_field

#: Every new schema of the type of the others is taken.
STRATEGY = "ALWAYS_COMPATIBLE"
_SIZE = Struct(">i")
_KEY_VALUE = "KEY_VALUE"
#: Types whose definition is JSON. A definition that is none would be the newest one for ever.
_IN_JSON = frozenset({"JSON", "AVRO", "PROTOBUF", "PROTOBUF_NATIVE"})
_STORED = tuple(name for number, name in enumerate(TYPES) if is_compared(number))


class GivenSchema(NamedTuple):
    """type: its number in Pulsar's protocol. data: the definition."""

    type: int
    data: bytes
    properties: Mapping[str, str]


def schema_of(body: Any) -> GivenSchema:
    """The schema of an upload. Raises Refused."""
    given = read_fields(body, {"type": str, "schema": str, "properties": dict}, required=("type",))
    kind, text = given["type"], given.get("schema", "")
    if kind not in _STORED:
        raise refused_field("type", f"{shown(kind)} is not stored: use one of {', '.join(_STORED)}")
    if kind in _IN_JSON:
        _parsed("schema", text)
    data = _key_and_value(text) if kind == _KEY_VALUE else _encoded("schema", text)
    properties = properties_of(given.get("properties", {}))
    for name, value in properties.items():
        _encoded("properties", name + value)
    return GivenSchema(TYPES.index(kind), data, properties)


def shown_schema(schema: GivenSchema, version: int, stored_ms: int) -> dict[str, Any]:
    """Raises Refused for a definition that is no text."""
    try:
        data = _shown_key_and_value(schema.data) if type_name(schema.type) == _KEY_VALUE else schema.data.decode()
    except ValueError as error:  # also of bytes that are no text
        what = f"version {version} of the schema, of {len(schema.data)} bytes that are no text, is"
        raise not_offered(what, "read it with a client whose service URL begins with pulsar://") from error
    return {
        "version": version,
        "type": type_name(schema.type),
        "timestamp": stored_ms,
        "data": data,
        "properties": dict(schema.properties),
    }


def _parsed(field: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refused_field(field, f"a definition of this type is JSON, not {shown(text)}") from error


def _encoded(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise refused_field(field, "has half of a surrogate pair, which is no character") from error


def _key_and_value(text: str) -> bytes:
    both = _parsed("schema", text)
    if not isinstance(both, dict) or set(both) != {"key", "value"}:
        raise refused_field("schema", f"a definition of KEY_VALUE has `key` and `value`, not {shown(text)}")
    out = b""
    for name in ("key", "value"):
        one = "" if both[name] == "" else json.dumps(both[name], ensure_ascii=False, separators=(",", ":"))
        data = _encoded(f"schema.{name}", one)
        out += _SIZE.pack(len(data)) + data
    return out


def _shown_key_and_value(data: bytes) -> str:
    """Raises ValueError for other bytes."""
    found = []
    for _ in range(2):
        size = _SIZE.unpack(data[: _SIZE.size])[0] if len(data) >= _SIZE.size else -1
        one, data = data[_SIZE.size :][:size], data[_SIZE.size + size :]
        if size < 0 or len(one) < size:
            raise ValueError("the definitions of key and value are cut off")
        text = one.decode() or '""'
        json.loads(text)
        found.append(text)
    if data:
        raise ValueError("bytes follow the definitions of key and value")
    return f'{{"key":{found[0]},"value":{found[1]}}}'
