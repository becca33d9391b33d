"""Records of the stores as JSON with a format number, so that a later version can tell what it reads."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.record_fields import parse_json
from oncelog.stores.damaged_records import DAMAGED

T = TypeVar("T")

FORMAT = 1


def encode_record(fields: Mapping[str, object]) -> bytes:
    return json.dumps({"format": FORMAT, **fields}, separators=(",", ":")).encode()


def decode_record(data: bytes, what: str, build: Callable[[dict[str, Any]], T]) -> T:
    """Return build(fields). Raises CorruptEntry naming `what` when the bytes are no such record of this format.

    Whatever goes wrong is the record's fault, for nothing but its bytes is looked at; it is counted.
    """
    try:
        fields = parse_json(data)
        if fields["format"] != FORMAT:
            raise CorruptEntry(f"{what} of format {fields['format']!r}: this version reads format {FORMAT}")
        return build(fields)
    except Exception as error:
        DAMAGED.note(what, data, str(error))
        if isinstance(error, CorruptEntry):
            raise
        raise CorruptEntry(f"{what} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


def noted(what: str, data: bytes, decode: Callable[[bytes], T]) -> T:
    """decode(data), of a record whose layout is the core's. Raises CorruptEntry, counted."""
    try:
        return decode(data)
    except CorruptEntry as error:
        DAMAGED.note(what, data, error.message)
        raise
