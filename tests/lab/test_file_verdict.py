"""The verdict of the demo: it must find every way in which the topic can differ from the file."""

from dataclasses import replace
from pathlib import Path

import pytest

from oncelog_lab.demo.report import DemoConsumption, DemoReport
from oncelog_lab.demo.scenario import TOPIC, DemoFile, file_checker
from oncelog_lab.verdict import ReadEntry

LINES = [b"one", b"two", b"", b"four"]
OFFSETS = [0, 4, 8, 9]
ALL = list(zip(LINES, OFFSETS, strict=True))


def report(messages: list[tuple[bytes, int]]) -> DemoReport:
    checker = file_checker(DemoFile(Path("lines"), LINES, OFFSETS))
    checker.add([ReadEntry(TOPIC, 0, [value for value, _ in messages], [offset for _, offset in messages])])
    verdict = checker.verdict()
    assert verdict.perfect is (not verdict.violations)
    return DemoReport(len(LINES), verdict, 0, (), DemoConsumption(4, 0, 4, 0, 0))


def counts(messages: list[tuple[bytes, int]]) -> tuple[int, ...]:
    found = report(messages).counts
    assert found["stored"] == found["lines"] - found["lost"] + found["duplicated"]
    return tuple(found[name] for name in ("lost", "duplicated", "out_of_order"))


@pytest.mark.parametrize(("seen_again", "never"), [(1, 0), (0, 1)])
def test_consumption_decides_too(seen_again: int, never: int) -> None:
    """A perfect file is not enough: every line is delivered, and none after its acknowledgement."""
    perfect = report(ALL)
    assert perfect.perfect
    assert not replace(perfect, consumption=DemoConsumption(9, 5, 4, seen_again, never)).perfect


def test_identical_topic_is_perfect() -> None:
    """Every line once, in order."""
    assert counts(ALL) == (0, 0, 0)
    assert report(ALL).verdict.perfect


@pytest.mark.parametrize("number", range(len(LINES)))
def test_lost_line_is_found(number: int) -> None:
    """Also the first and the last line."""
    messages = [message for index, message in enumerate(ALL) if index != number]
    assert counts(messages) == (1, 0, 0)
    assert f"line {number + 1} " in report(messages).verdict.violations[0]


@pytest.mark.parametrize("number", range(len(LINES)))
def test_duplicated_line_is_found(number: int) -> None:
    """At any position. It does not also count as out of order."""
    assert counts([*ALL, ALL[number]]) == (0, 1, 0)
    assert counts([*ALL[: number + 1], ALL[number], *ALL[number + 1 :]]) == (0, 1, 0)


def test_reordered_line_is_found() -> None:
    """One late message is one out of order."""
    assert counts([ALL[0], ALL[2], ALL[1], ALL[3]]) == (0, 0, 1)


def test_changed_line_is_lost_and_a_duplicate() -> None:
    """The bytes are compared, not only the offsets."""
    assert counts([ALL[0], (b"twO", 4), ALL[2], ALL[3]]) == (1, 1, 0)


def test_foreign_message_counts_as_duplicate() -> None:
    """A message at an offset that is not the start of a line, even with the bytes of a line."""
    assert counts([*ALL, (b"one", 1)]) == (0, 1, 0)
