"""Which errors are new in a log: by how and where they were raised, not by their text."""

from collections.abc import Callable

import pytest

from oncelog.runtime.application_errors import FORGOTTEN_AFTER_S, KINDS_MAX, Kind, SeenErrors, kind_of

ONE_OBJECT = ValueError("made once")


def caught(work: Callable[[], object]) -> Kind:
    with pytest.raises(Exception) as raised:
        work()
    return kind_of(raised.value)


def kind_at(line: int) -> Kind:
    return ((ValueError, (("a.py", line),)),)


def parse(text: str) -> int:
    return int(text)


def parse_elsewhere(text: str) -> int:
    return int(text)


def wrapped(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception as error:
        raise RuntimeError("the work failed") from error


def raise_one_object() -> None:
    raise ONE_OBJECT


@pytest.mark.parametrize(
    ("works", "kinds"),
    [
        ([lambda: parse("a"), lambda: parse_elsewhere("a")], 2),
        ([lambda text=text: parse(text) for text in "ab"], 1),
        ([lambda: wrapped(lambda: parse("a")), lambda: wrapped(lambda: parse_elsewhere("a"))], 2),
        ([raise_one_object] * 5, 1),
    ],
    ids=["two places", "two texts", "two causes", "one object"],
)
def test_kind_is_type_and_place_of_an_error_and_its_causes(works: list[Callable[[], object]], kinds: int) -> None:
    """A text names a message or an address, so it differs each time. The traceback of one object grows each time."""
    assert len({caught(work) for work in works}) == kinds


def test_traceback_that_is_deep_or_goes_in_a_circle_has_a_kind() -> None:
    """Of a recursion, and of errors that are the causes of each other."""

    def deeper() -> None:
        deeper()

    assert caught(deeper) == caught(deeper)
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert kind_of(first)


def test_repetition_is_not_new_until_the_kind_is_forgotten() -> None:
    """It is forgotten so long after it came last."""
    seen = SeenErrors()
    assert [seen.is_new(kind_at(1), now_s) for now_s in (0.0, 1.0, FORGOTTEN_AFTER_S)] == [True, False, False]
    assert seen.is_new(kind_at(1), 2 * FORGOTTEN_AFTER_S)


def test_so_many_kinds_are_new() -> None:
    """A function whose errors never come from the same place floods no log: the ones behind the limit are not new."""
    seen = SeenErrors()
    assert [seen.is_new(kind_at(line), 0.0) for line in range(KINDS_MAX + 2)] == [True] * KINDS_MAX + [False] * 2
    assert [kind_at(line) in seen for line in (0, KINDS_MAX)] == [True, False]
    assert seen.is_new(kind_at(KINDS_MAX), FORGOTTEN_AFTER_S)
