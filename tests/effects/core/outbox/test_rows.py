"""What can be sent of a row, and what never can."""

import json

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog_effects.core.outbox.rows import EVENT_ID, EXTRAS_BYTES_MAX, Checked, RowHead, check_row, sent_properties

ROW = RowHead(1, "e1", "orders", b"key", 10, '{"a": "b"}', 5)


def test_row_is_sent_with_its_event_id() -> None:
    assert sent_properties(ROW.properties, ROW.event_id) == {"a": "b", EVENT_ID: "e1"}
    assert sent_properties(None, "e1") == {EVENT_ID: "e1"}


def test_partition_is_that_of_the_key_or_of_the_event() -> None:
    checked = check_row(ROW)
    assert isinstance(checked, Checked)
    assert (str(checked.topic), checked.hashed) == ("public/default/orders", b"key")
    without_key = check_row(ROW._replace(key=None))
    assert isinstance(without_key, Checked)
    assert without_key.hashed == b"e1"


@pytest.mark.hazard("row-too-large-for-the-log")
@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (ROW._replace(topic="a/b"), "topic must be"),
        (ROW._replace(topic=""), "topic is empty"),
        (ROW._replace(event_id="x" * 65), "event_id has 65 characters"),
        (ROW._replace(event_id=""), "event_id has 0 characters"),
        (ROW._replace(properties="[1]"), "no JSON object"),
        (ROW._replace(properties="{"), "no JSON"),
        (ROW._replace(properties="[" * 100_000), "no JSON"),
        (ROW._replace(properties='{"a": 1}'), "must be a string"),
        (ROW._replace(properties='{"a": "\\ud800"}'), "valid Unicode"),
        (ROW._replace(properties=json.dumps({EVENT_ID: "mine"})), "the relay's own"),
        (ROW._replace(event_time_ms=2**62), "in the years 1 to 9999"),
        (ROW._replace(properties=""), f"larger than {EXTRAS_BYTES_MAX}"),
        (ROW._replace(key=b"k" * (EXTRAS_BYTES_MAX + 1)), f"the limit is {EXTRAS_BYTES_MAX}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_row_that_can_never_be_sent_says_why(row: RowHead, reason: str) -> None:
    assert reason in str(check_row(row))


def test_row_without_properties_costs_little() -> None:
    with pytest.raises(InvalidArgument, match="no JSON object"):
        sent_properties('"text"', "e1")
