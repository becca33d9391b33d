"""Times of a message that no calendar has: a clock, or an older program, may have stored any number."""

import json
from datetime import UTC, datetime

import pytest

from oncelog.cli.read.lines import json_lines
from oncelog.core.formats.columns import TIME_MS_MAX, TIME_MS_MIN
from oncelog.core.ids import TopicId
from oncelog.testing.messages import Content, message_of

FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("time_ms", "time"),
    [(TIME_MS_MIN, FIRST), (TIME_MS_MIN - 1, FIRST), (1 - 2**63, FIRST), (TIME_MS_MAX, LAST), (2**63 - 1, LAST)],
)
def test_time_that_no_calendar_has_is_printed_as_the_nearest_one(time_ms: int, time: datetime) -> None:
    """A command that raised OverflowError could not go on behind the message; the number is exact."""
    message = message_of(Content(b"x", None, None, time_ms, time_ms), TopicId("0" * 32), 0)
    assert (message.event_time_ms, message.publish_time_ms) == (time_ms, time_ms)
    line = json.loads(json_lines(message._batch, [0]))
    assert line["event_time_ms"] == time_ms
    assert datetime.fromisoformat(line["publish_time"]) == time
