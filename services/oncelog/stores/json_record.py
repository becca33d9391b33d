"""Records of the stores as JSON with a format number, so that a later version can tell what it reads."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from oncelog.core.errors import CorruptEntry

T = TypeVar("T")

FORMAT = 1


def encode_record(fields: Mapping[str, object]) -> bytes:
    return json.dumps({"format": FORMAT, **fields}, separators=(",", ":")).encode()


def decode_record(data: bytes, what: str, build: Callable[[dict[str, Any]], T]) -> T:
    """Return build(fields). Raises CorruptEntry naming `what` when the bytes are no such record of this format."""
    try:
        fields = json.loads(data)
        if fields["format"] != FORMAT:
            raise CorruptEntry(f"{what} of format {fields['format']}: this version reads format {FORMAT}")
        return build(fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptEntry(f"{what} cannot be read: {error!r}") from error
