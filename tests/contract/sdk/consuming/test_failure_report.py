"""What the log says about handlers that fail, at given times."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.client.consuming.failure_report import COUNTED_EVERY_S, FailureReport
from oncelog.client.values.messages import Message
from oncelog.runtime.application_errors import KINDS_MAX


def message(index: int, delivery_count: int = 1) -> Message:
    return cast("Message", SimpleNamespace(index=index, message_id=f"3:{index}:0", delivery_count=delivery_count))


def failed(report: FailureReport, index: int, error: Exception, now_s: float, delay_s: float | None = 1.0) -> bool:
    with pytest.raises(type(error)) as raised:
        raise error
    return report.failed(message(index), raised.value, delay_s, now_s)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, bool]]:
    """What was logged since the last time, and whether it has a traceback."""
    found = [(record.getMessage(), record.exc_info is not None) for record in caplog.records]
    caplog.clear()
    return found


def test_repetitions_are_counted_in_a_line_of_the_last_one(caplog: pytest.LogCaptureFixture) -> None:
    """The first one of a period asks for the end of the period. A period without one has no line."""
    report = FailureReport("flights", "s")
    begins = [failed(report, index, ValueError(f"bad {index}"), 100.0 + index / 1_000) for index in range(1_205)]
    assert begins == [False, True] + [False] * 1_203
    of = "flights: the handler of s failed at message"
    assert lines(caplog) == [(f"{of} 0 (3:0:0, delivery 1), which comes again after 1 s", True)]
    report.count(100.0 + COUNTED_EVERY_S)
    last = f"{of} 1204 (3:1204:0, delivery 1), which comes again after 1 s: ValueError: bad 1204"
    assert lines(caplog) == [(f"{last} (and 1,203 more like it in 5.0 s)", False)]
    report.count(200.0)
    assert lines(caplog) == []
    assert failed(report, 7, ValueError("bad 7"), 200.0)
    report.count(205.0)
    assert lines(caplog) == [(f"{of} 7 (3:7:0, delivery 1), which comes again after 1 s: ValueError: bad 7", False)]


def test_kinds_of_errors_and_dead_letters_have_lines_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    """An error that is rare is seen between those that are not."""
    report = FailureReport("flights", "s")
    for index in range(4):
        failed(report, index, ValueError("bad"), 0.0)
        failed(report, index, KeyError("bad"), 0.0)
        failed(report, index, ValueError("bad"), 0.0, None)
    assert [has_traceback for _, has_traceback in lines(caplog)] == [True, True]
    report.count(5.0)
    assert [text.partition("which ")[2] for text, _ in lines(caplog)] == [
        "becomes a dead letter: ValueError: bad (and 3 more like it in 5.0 s)",
        "comes again after 1 s: ValueError: bad (and 2 more like it in 5.0 s)",
        "comes again after 1 s: KeyError: 'bad' (and 2 more like it in 5.0 s)",
    ]


def test_errors_of_many_kinds_share_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """As those of a function that calls itself: each depth is another kind."""
    report = FailureReport("flights", "s")

    def deep(levels: int) -> Any:
        return deep(levels - 1) if levels else [].pop()

    for levels in range(KINDS_MAX + 30):
        with pytest.raises(IndexError) as raised:
            deep(levels)
        report.failed(message(levels), raised.value, 1.0, 0.0)
    assert [has_traceback for _, has_traceback in lines(caplog)] == [True] * KINDS_MAX
    report.count(5.0)
    ((line, _),) = lines(caplog)
    assert line.endswith("(and 29 more like it in 5.0 s)")
