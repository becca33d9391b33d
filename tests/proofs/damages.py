"""Damages of a result that a comparison with its reference must find, each as what it is: `@each_damage`."""

from collections.abc import Callable

import pytest

from tests.proofs.flights import Found, Verdict

Damage = Callable[[list[Found]], list[Found]]


def _swapped(found: list[Found]) -> list[Found]:
    """The first one and the last under its name change places."""
    at = max(n for n in range(1, len(found)) if found[n].producer == found[0].producer)
    return [found[at], *found[1:at], found[0], *found[at + 1 :]]


#: wrong: what is lost, duplicated, foreign, and whether something is out of order.
_DAMAGES: dict[str, tuple[Damage, tuple[int, int, int, bool]]] = {
    "faultless": (lambda found: found, (0, 0, 0, False)),
    "a row less": (lambda found: found[:3] + found[4:], (1, 0, 0, False)),
    "a row twice": (lambda found: [*found, found[3]], (0, 1, 0, False)),
    "a row three times": (lambda found: [found[0]] * 3 + found[1:], (0, 2, 0, False)),
    "a row more": (lambda found: [*found, Found(found[0].producer, 99, "k", "nobody's")], (0, 0, 1, False)),
    "two rows swapped": (_swapped, (0, 0, 0, True)),
}
each_damage = pytest.mark.parametrize(("damage", "wrong"), _DAMAGES.values(), ids=_DAMAGES)


def says(verdict: Verdict, wrong: tuple[int, int, int, bool]) -> bool:
    """Whether it is the verdict on this damage."""
    counts = (verdict.lost, verdict.duplicated, verdict.foreign, verdict.out_of_order > 0)
    return counts == wrong and verdict.perfect is not any(wrong) and verdict.wanted > 4
