"""Formats values of REST responses for people: times, sizes, and short ids. Pure.

The name of a field shows its type: `..._ms` is a time if the number is one since 1970, else a duration; `..._bytes` is
a size. Incarnations and topic ids have 32 hexadecimal digits. A short id is a prefix that is unique in the response.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from ipaddress import ip_address

#: Digits of a short id, unless that is ambiguous.
SHORT_CHARACTERS = 8
_ID = re.compile(r"[0-9a-f]{32}")
#: Times since 1973 are above this, in ms since 1970; durations are below.
_TIME_MS_MIN = 10**11
_ADDRESS = re.compile(r"[A-Za-z0-9.-]+:[0-9]{1,5}")
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
_AGO_DAYS_MAX = 30
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def is_time(name: str, value: object) -> bool:
    """Whether the field is a time, in ms since 1970."""
    return name.endswith("_ms") and isinstance(value, int | float) and value >= _TIME_MS_MIN


def is_size(name: str, value: object) -> bool:
    """Whether the field is a number of bytes."""
    # Pulsar's name of a number of bytes has no unit.
    return name.endswith(("bytes", "backlog_size")) and isinstance(value, int) and not isinstance(value, bool)


def label(name: str, value: object) -> str:
    """The name of a field, without the unit if its formatted value has one, or if there is no value."""
    if value is None or is_time(name, value):
        return name.removesuffix("_ms").removesuffix("_bytes")
    return name.removesuffix("_bytes") if is_size(name, value) else name


def size(size_bytes: int) -> str:
    """`9 B`, `1.5 KiB`, `20.0 GiB`."""
    if abs(size_bytes) < 1024:
        return f"{size_bytes} B"
    # The units cover all 64-bit numbers.
    power = min((abs(size_bytes).bit_length() - 1) // 10, len(_UNITS))
    return f"{size_bytes / 1024**power:.1f} {_UNITS[power - 1]}"


def ago(time_ms: float, now_ms: float) -> str:
    """`12 s ago`, `3 min ago`; the date if it is long ago or in the future."""
    seconds = (now_ms - time_ms) / 1000
    if not 0 <= seconds < _AGO_DAYS_MAX * _DAY_S:
        return _moment(time_ms).strftime("%Y-%m-%d")
    return f"{duration(now_ms - time_ms)} ago"


def duration(duration_ms: float) -> str:
    """`12 s`, `3 min`, `5 h`, `2 d`."""
    for unit_s, unit in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if duration_ms >= unit_s * 1000:
            return f"{duration_ms // (unit_s * 1000):.0f} {unit}"
    return f"{duration_ms / 1000:.0f} s"


def moment(time_ms: float) -> str:
    """`2026-03-01 12:00:00 UTC`."""
    return _moment(time_ms).strftime("%Y-%m-%d %H:%M:%S UTC")


def _moment(time_ms: float) -> datetime:
    # Limited to the years that datetime supports.
    return datetime.fromtimestamp(max(-62_135_596_800, min(time_ms / 1000, 253_402_300_799)), tz=UTC)


def short_names(answer: object) -> dict[str, str]:
    """{id: its short id} of all incarnations and topic ids in a response."""
    ids = sorted(set(_ids(answer)))
    length = SHORT_CHARACTERS
    while len({one[:length] for one in ids}) < len(ids):
        length += 1
    return {one: one[:length] for one in ids}


def _ids(answer: object) -> Iterator[str]:
    if isinstance(answer, str):
        if _ID.fullmatch(answer):
            yield answer
    elif isinstance(answer, Mapping):
        for value in answer.values():
            yield from _ids(value)
    elif isinstance(answer, list | tuple):
        for value in answer:
            yield from _ids(value)


def short_address(address: str) -> str:
    """host:port with only the first label of a host name; an IP address is unchanged."""
    if _ADDRESS.fullmatch(address) is None:
        return address
    host, _, port = address.rpartition(":")
    try:
        ip_address(host)
    except ValueError:
        return f"{host.partition('.')[0]}:{port}"
    return address
