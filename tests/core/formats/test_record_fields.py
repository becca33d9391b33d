"""A dataclass is built from a record only if every field is there, with a value of its type."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from oncelog.core.formats.record_fields import built
from oncelog.core.ids import Incarnation, LedgerId


class Mood(Enum):
    CALM = "calm"


@dataclass(frozen=True, slots=True)
class Part:
    ledger_id: LedgerId
    reason: str


@dataclass(frozen=True, slots=True)
class Whole:
    incarnation: Incarnation
    port: int
    read_only: bool = False
    owner: Incarnation | None = None
    mood: Mood = Mood.CALM
    ledgers: tuple[LedgerId, ...] = ()
    names: tuple[str, ...] = ()
    ports: Mapping[str, int] | None = None
    parts: tuple[Part, ...] = ()


GOOD: dict[str, Any] = {
    "port": 1,
    "read_only": True,
    "owner": "b" * 32,
    "mood": "calm",
    "ledgers": [3, 5],
    "names": ["a"],
    "ports": {"grpc": 2},
    "parts": [{"ledger_id": 7, "reason": "full"}],
}


def test_every_field_is_taken_and_others_are_left_out() -> None:
    """The name of the node gives the incarnation; a later version may have written more."""
    found = built(Whole, GOOD | {"later": 1}, incarnation="a" * 32)
    assert found == Whole(
        Incarnation("a" * 32), 1, True, Incarnation("b" * 32), Mood.CALM, (LedgerId(3), LedgerId(5)), ("a",),
        {"grpc": 2}, (Part(LedgerId(7), "full"),),
    )  # fmt: skip
    assert built(Whole, GOOD | {"owner": None, "ports": None}, incarnation="a" * 32).owner is None


@pytest.mark.parametrize("name", sorted(GOOD))
def test_missing_field_is_refused_although_it_has_a_default(name: str) -> None:
    """A cookie without `retired` must not read as a node that is in service."""
    with pytest.raises(KeyError):
        built(Whole, {key: value for key, value in GOOD.items() if key != name}, incarnation="a" * 32)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("port", "1"), ("port", True), ("port", None), ("read_only", 1), ("owner", 5), ("mood", "wild"), ("mood", 1),
        ("ledgers", ["3"]), ("ledgers", 3), ("names", [1]), ("ports", {"grpc": "2"}), ("ports", [1]),
        ("parts", [{"ledger_id": 7}]), ("parts", [{"ledger_id": "7", "reason": "full"}]), ("parts", [7]),
    ],
)  # fmt: skip
def test_value_of_another_type_is_refused(name: str, wrong: object) -> None:
    """Where the record is known, not where the value is used."""
    with pytest.raises((KeyError, TypeError, ValueError)):
        built(Whole, GOOD | {name: wrong}, incarnation="a" * 32)
