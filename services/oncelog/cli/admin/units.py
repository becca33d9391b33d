"""Durations and sizes as users type them: 30m, 7d, 500M, 10G."""

import re

from oncelog.core.errors import InvalidArgument

#: What -1 means.
NO_LIMIT = -1
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def seconds_of(typed: str, field: str) -> int:
    """Without a unit: seconds. -1: NO_LIMIT. Raises InvalidArgument, which names the field."""
    return _number(typed, _SECONDS, field, "30m, 12h, 7d")


def bytes_of(typed: str, field: str) -> int:
    """Without a unit: bytes. -1: NO_LIMIT. Raises InvalidArgument, which names the field."""
    return _number(typed, _BYTES, field, "500M, 10G")


def _number(typed: str, units: dict[str, int], field: str, examples: str) -> int:
    if typed == "-1":
        return NO_LIMIT
    match = re.fullmatch(r"(\d{1,18})([A-Za-z]?)", typed)
    if match is None or match[2] not in units:
        raise InvalidArgument(f"{field}: {typed!r} is no number with a unit, such as {examples}, or -1", field=field)
    return int(match[1]) * units[match[2]]


def shown_seconds(seconds: int) -> str:
    """As it is typed, in the largest unit that is exact: `7d`."""
    return _shown(seconds, _SECONDS)


def shown_bytes(size_bytes: int) -> str:
    """As it is typed, in the largest unit that is exact: `10G`."""
    return _shown(size_bytes, _BYTES)


def _shown(value: int, units: dict[str, int]) -> str:
    exact = [(factor, unit) for unit, factor in units.items() if unit != "w" and value % factor == 0]
    factor, unit = max(exact) if value > 0 else (1, "")
    return f"{value // factor}{unit}"
