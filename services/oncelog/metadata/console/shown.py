"""How values are shown: the filters of the templates."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from oncelog.core.counted import counted as core_counted

#: A narrow space that does not break: 1 204 331.
_THIN = "\u202f"
_SHORT_MAX = 14
_STEPS = ((60, "s", 1), (3_600, "min", 60), (86_400, "h", 3_600))


#: What changes the direction of the text that follows it: a name with one reads as another name.
_DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(value: object) -> object:
    """Any value that a template inserts: with characters that change the direction of text shown as what they are.
    What is HTML was made of such values."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _DIRECTIONS.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", value)
    return value


def number(value: float | None) -> str:
    """1 204 331; unknown: –. Rates below 10 keep one digit behind the point."""
    if value is None:
        return "–"
    if abs(value) < 10 and value != int(value):
        return f"{value:.1f}"
    return f"{round(value):,}".replace(",", _THIN)


def change(value: int | None) -> str:
    """+1 200, −30, 0; unknown: –."""
    if value is None:
        return "–"
    sign = "+" if value > 0 else "−" if value < 0 else ""
    return f"{sign}{number(abs(value))}"


def counted(count: int, what: str, many: str | None = None) -> str:
    """1 message, 1 204 331 messages; see `core.counted`."""
    return core_counted(count, what, many).replace(",", _THIN)


def binary(size: float | None) -> str:
    """1.5 MiB; below 1 KiB in bytes."""
    if size is None:
        return "–"
    unit = 0
    while abs(size) >= 1024 and unit < 5:
        size, unit = size / 1024, unit + 1
    text = f"{size:.0f}" if unit == 0 or size >= 100 else f"{size:.1f}"
    return f"{text}{_THIN}{('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[unit]}"


def duration(seconds: float | None) -> str:
    """12 s, 3 min, 5 h, 2 d; the largest unit, rounded down."""
    if seconds is None:
        return "–"
    if 0 < seconds < 1:
        return f"{round(seconds * 1_000)}{_THIN}ms"
    for below, unit, size in _STEPS:
        if seconds < below:
            return f"{int(seconds // size)}{_THIN}{unit}"
    return f"{int(seconds // 86_400)}{_THIN}d"


def exact(time_ms: int | None) -> str:
    """2026-11-27 03:12:45.120 UTC."""
    if time_ms is None:
        return "–"
    try:
        at = datetime.fromtimestamp(time_ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):  # a producer may state any time
        return f"{time_ms} ms since 1970"
    return f"{at:%Y-%m-%d %H:%M:%S}.{time_ms % 1_000:03} UTC"


def ago(time_ms: int | None, now_ms: int) -> Markup:
    """`12 s ago`, with the exact time as its title."""
    if time_ms is None:
        return Markup("–")
    passed_s = (now_ms - time_ms) / 1_000
    text = (
        "now"
        if 0 <= passed_s < 1
        else f"{duration(abs(passed_s))} ago"
        if passed_s > 0
        else f"in {duration(-passed_s)}"
    )
    # Digits and words of this module only, so nothing is to be escaped; `Markup.format` takes ten times as long.
    return Markup(f'<time title="{exact(time_ms)}">{text}</time>')  # noqa: S704


def short(text: str) -> str:
    """A long id without its middle: 01234567…cdef."""
    return text if len(text) <= _SHORT_MAX else f"{text[:8]}…{text[-4:]}"


def as_json(value: object) -> str:
    """For a <pre>: indented."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def totals(topics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of the statistics of a topic, or of its partitions: their messages, and the backlog of each subscription, the
    largest first."""
    backlogs: Counter[str] = Counter()
    for each in topics:
        backlogs.update({name: one["msg_backlog"] for name, one in each.get("subscriptions", {}).items()})
    messages = sum(each["message_count"] - each.get("first_index", 0) for each in topics)
    return {"messages": messages, "backlogs": sorted(backlogs.items(), key=lambda one: (-one[1], one[0]))}
