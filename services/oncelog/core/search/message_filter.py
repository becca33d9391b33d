"""Which messages a search wants: by key, by text, by a condition on a JSON value. Pure.

    .order == 17        .lines[0].sku == "x-1"        .customer.name contains "Ann"        .total >= 100        .refund

A condition is a path and a comparison with a JSON value; a path alone asks whether there is such a value. A message
whose value is no JSON does not meet a condition; nor does one that has nothing at the path, whatever is asked of it.
Numbers are compared as numbers and texts as texts: `"17"` is not 17.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from oncelog.core.errors import InvalidArgument

#: Of a condition, a text or a key that is searched for.
SEARCHED_BYTES_MAX = 1024
#: A larger value is not parsed: it does not meet a condition. It may take many times its size of memory.
JSON_BYTES_MAX = 1 << 20
_STEP = re.compile(r"""\.([A-Za-z_][A-Za-z0-9_-]*)|\[(0|[1-9][0-9]{0,8})\]|\[("(?:[^"\\]|\\.)*")\]""")
_COMPARISON = re.compile(r"\s*(==|!=|<=|>=|<|>|contains)\s*")
_ORDERED: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_EQUAL: dict[str, Callable[[Any, Any], bool]] = {"==": eq, "!=": ne}
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Condition:
    """steps: names of fields and numbers of elements. comparison: empty: whether there is such a value."""

    steps: tuple[str | int, ...]
    comparison: str = ""
    operand: object = None

    def holds(self, value: object) -> bool:
        """value: as `json.loads` gives it."""
        for step in self.steps:
            value = _inside(value, step)
        if value is _MISSING or not self.comparison:
            return value is not _MISSING
        if self.comparison in _EQUAL:
            same = _kind(value) is _kind(self.operand)
            return _EQUAL[self.comparison](value, self.operand) if same else self.comparison == "!="
        if self.comparison in _ORDERED:
            comparable = _kind(value) is _kind(self.operand) and isinstance(value, int | float | str)
            return comparable and not isinstance(value, bool) and _ORDERED[self.comparison](value, self.operand)
        if isinstance(value, str):
            return isinstance(self.operand, str) and self.operand in value
        return isinstance(value, list) and any(
            _kind(each) is _kind(self.operand) and each == self.operand for each in value
        )


def parse_condition(text: str) -> Condition:
    """Raises InvalidArgument, which says where the text cannot be read."""
    if len(text.encode()) > SEARCHED_BYTES_MAX:
        raise InvalidArgument(
            f"filter: has more than {SEARCHED_BYTES_MAX} bytes", field="filter", limit=SEARCHED_BYTES_MAX
        )
    steps: list[str | int] = []
    at = len(text) - len(text.lstrip())
    if text[at : at + 1] == "." and text[at + 1 : at + 2] in {"", "[", " "}:
        at += 1  # the whole value
    else:
        _require(_STEP.match(text, at), text, at, "a path such as .order or .lines[0].sku")
    while (step := _STEP.match(text, at)) is not None:
        name, number, quoted = step.groups()
        steps.append(name if name is not None else int(number) if number is not None else str(json.loads(quoted)))
        at = step.end()
    if not text[at:].strip():
        return Condition(tuple(steps))
    comparison = _COMPARISON.match(text, at)
    _require(comparison, text, at, "==, !=, <, <=, >, >= or contains")
    assert comparison is not None
    try:
        operand = json.loads(text[comparison.end() :], parse_constant=_no_constant)
    except (ValueError, RecursionError):
        _require(None, text, comparison.end(), 'a JSON value such as 17, "text" or true')
        raise AssertionError("it has raised") from None
    return Condition(tuple(steps), comparison[1], operand)


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """What all must be true of a message. key: it has this one. text: these bytes are in its value. producer_id: of the
    batch; the ids of messages that were stored without deduplication are 0. first_id, last_id: its sequence id is
    between them."""

    key: bytes | None = None
    text: bytes = b""
    condition: Condition | None = None
    producer_id: int | None = None
    first_id: int = -1
    last_id: int = (1 << 63) - 1

    @property
    def needs_values(self) -> bool:
        return bool(self.text) or self.condition is not None

    def wants_ids(self, producer_id: int, first_id: int, last_id: int) -> bool:
        """Whether a batch with these first and last ids may have a message that is wanted."""
        return self.producer_id in {None, producer_id} and first_id <= self.last_id and self.first_id <= last_id

    def wants(self, value: bytes | memoryview, key: bytes | None, sequence_id: int) -> bool:
        """Of a message of a batch that `wants_ids`."""
        if self.key is not None and key != self.key:
            return False
        if not self.first_id <= sequence_id <= self.last_id:
            return False
        if not self.needs_values:
            return True
        whole = bytes(value)
        return self.text in whole and (self.condition is None or _meets(self.condition, whole))


def _meets(condition: Condition, value: bytes) -> bool:
    if len(value) > JSON_BYTES_MAX:
        return False
    try:
        return condition.holds(json.loads(value))
    except (ValueError, RecursionError):
        return False


def _inside(value: object, step: str | int) -> object:
    if isinstance(step, str):
        return value.get(step, _MISSING) if isinstance(value, dict) else _MISSING
    return value[step] if isinstance(value, list) and step < len(value) else _MISSING


def _kind(value: object) -> type:
    """1 is not true, and 1.0 is 1."""
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)


def _require(found: object, text: str, at: int, wanted: str) -> None:
    if found is None:
        here = f"{text[at : at + 20]!r}" if text[at:].strip() else "the end"
        raise InvalidArgument(f"filter: {wanted} is expected at {here}, character {at + 1}", field="filter")


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
