"""Conditions on JSON values, and what a filter wants of a message."""

import json

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog.core.search.message_filter import JSON_BYTES_MAX, SEARCHED_BYTES_MAX, MessageFilter, parse_condition

ORDER = {
    "order": 17, "paid": True, "total": 99.5, "note": None, "customer": {"name": "Ann Smith", "e-mail": "a@b"},
    "lines": [{"sku": "x-1", "count": 2}, {"sku": "y"}], "tags": ["new", 1], "odd name": 1, "empty": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        (".order == 17", True),
        (".order==17.0", True),
        ('.order == "17"', False),
        ('.order != "17"', True),
        (".paid == true", True),
        (".paid == 1", False),
        (".paid > 0", False),
        (".order > 16 ", True),
        (".order >= 18", False),
        ('.order < "z"', False),
        ('.customer.name contains "Smith"', True),
        ('.customer.e-mail == "a@b"', True),
        ('.customer["name"] < "B"', True),
        ('["odd name"] == 1', True),
        ('.lines[0].sku == "x-1"', True),
        ('.lines[2].sku == "x-1"', False),
        ('.lines[2].sku != "x-1"', False),
        (".lines[1].count", False),
        (".lines[0].count", True),
        ('.tags contains "new"', True),
        (".tags contains true", False),
        (".tags contains 1", True),
        (".note == null", True),
        (".note", True),
        (".nothing", False),
        (".order.inside", False),
        (".order contains 1", False),
        ('.empty == ""', True),
        (". contains 1", False),
        ('.["order"] == 17', True),
    ],
)
def test_condition_holds(text: str, holds: bool) -> None:
    """Numbers are compared as numbers and texts as texts; what is missing meets nothing."""
    assert parse_condition(text).holds(ORDER) is holds
    wants = MessageFilter(condition=parse_condition(text)).wants(json.dumps(ORDER).encode(), None, 0)
    assert wants is holds


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a path such as .order"),
        ("order == 1", "at 'order == 1', character 1"),
        (".order = 1", "==, !=, <, <=, >, >= or contains is expected at ' = 1', character 7"),
        (".order == ", "a JSON value such as 17"),
        (".order == x", "a JSON value such as 17"),
        (".order == NaN", "a JSON value such as 17"),
        (".order == 1 and .paid", "a JSON value such as 17"),
        ('.a == "' + "x" * SEARCHED_BYTES_MAX + '"', f"more than {SEARCHED_BYTES_MAX} bytes"),
        (".a == " + "[" * 900, "a JSON value such as 17"),
    ],
)
def test_condition_that_cannot_be_read_is_told(text: str, told: str) -> None:
    """With the place in it."""
    with pytest.raises(InvalidArgument, match="filter: ") as caught:
        parse_condition(text)
    assert told in caught.value.message


@pytest.mark.parametrize(
    "value", [b"", b"no JSON", b"{", b"[" * 100_000, b'{"order": 17}'.ljust(JSON_BYTES_MAX + 1), b"\xff\xfe", b"NaN"]
)
def test_value_that_is_no_json_meets_no_condition(value: bytes) -> None:
    """Nor does one that would take too much memory, or that is nested without end."""
    assert MessageFilter(condition=parse_condition(".order")).wants(memoryview(value), None, 0) is False
    assert MessageFilter().wants(value, None, 0)


def test_all_parts_of_a_filter_must_be_true() -> None:
    """Without one, each message is wanted."""
    wanted = MessageFilter(key=b"k", text="ü".encode(), producer_id=7, first_id=3, last_id=5)
    value = "für".encode()
    assert wanted.wants(value, b"k", 3)
    assert not any((wanted.wants(b"fur", b"k", 3), wanted.wants(value, None, 3), wanted.wants(value, b"kk", 3)))
    assert not any((wanted.wants(value, b"k", 2), wanted.wants(value, b"k", 6)))
    assert wanted.wants_ids(7, 5, 9)
    assert not any((wanted.wants_ids(8, 3, 5), wanted.wants_ids(7, 6, 9), wanted.wants_ids(7, 0, 2)))
    assert MessageFilter().wants_ids(0, 0, 0)
    assert (MessageFilter(key=b"k").needs_values, wanted.needs_values) == (False, True)
