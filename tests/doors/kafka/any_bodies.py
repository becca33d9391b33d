"""Bodies of any message, with any values."""

from random import Random
from typing import Any

from oncelog_doors.kafka.codec import Body
from oncelog_doors.wire.kafka_tables import Field

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def any_body(fields: tuple[Field, ...], version: int, random: Random) -> Body:
    """A body with a value for each field; tagged ones are sometimes left out."""
    return {
        field.name: _value(field, version, random)
        for field in fields
        if field.since <= version <= field.until and (version < field.tagged or random.random() < 0.5)
    }


def _value(field: Field, version: int, random: Random) -> Any:
    if version >= field.nullable and random.random() < 0.2:
        return None
    if field.array:
        return [_one(field, version, random) for _ in range(random.choice((0, 1, 2, 3)))]
    return _one(field, version, random)


def _one(field: Field, version: int, random: Random) -> Any:
    if isinstance(field.type, tuple):
        return any_body(field.type, version, random)
    if field.type == "bool":
        return random.random() < 0.5
    if field.type == "string":
        return random.choice(("", "orders", "größe", "x" * 200))
    if field.type in _BITS:
        bits = _BITS[field.type]
        return random.choice((0, 1, -1, random.randrange(1 << (bits - 1)), -(1 << (bits - 1))))
    return random.choice((b"", random.randbytes(5), random.randbytes(300)))
