"""Which errors are new in a log: by how and where they were raised, not by their text."""

from collections.abc import Callable

import pytest

from oncelog.runtime.seen_errors import FORGOTTEN_AFTER_S, KINDS_MAX, Kind, SeenErrors, kind_of

ONE_OBJECT = ValueError("made once")


def caught(work: Callable[[], object]) -> Kind:
    with pytest.raises(Exception) as raised:
        work()
    return kind_of(raised.value)


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
    """Those that came last are remembered."""
    seen = SeenErrors()
    kinds: list[Kind] = [((ValueError, (("a.py", line),)),) for line in range(KINDS_MAX + 1)]
    first, *others = kinds
    assert [seen.is_new(first, 0.0), seen.is_new(first, 1.0)] == [True, False]
    assert seen.is_new(first, FORGOTTEN_AFTER_S) is False
    assert seen.is_new(first, 2 * FORGOTTEN_AFTER_S) is True
    now_s = 2 * FORGOTTEN_AFTER_S
    assert all(seen.is_new(kind, now_s) for kind in others)
    assert [seen.is_new(kind, now_s) for kind in (others[-1], first)] == [False, True]
