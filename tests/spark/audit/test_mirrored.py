"""The copies of a mirror beside their originals: every kind of damage is found, and nothing else."""

from collections.abc import Iterable

import pytest

from oncelog.core.formats.message_id import MessageId
from oncelog.core.ids import EntryId, LedgerId, TopicId
from oncelog.verify.mirrored import MirrorComparison, Run

TOPIC = TopicId("a" * 32)


def run(first: int, rows: int, *, entry: int | None = None, row: int = 0, checksum: int = 7, text: str = "") -> Run:
    """entry: that of the batch at the source, `first` unless it is given; row: of its first message in that batch."""
    number = first if entry is None else entry
    place = MessageId(TOPIC, -1, LedgerId(1), EntryId(number), row)
    return Run(
        first,
        rows,
        place,
        checksum,
        lambda start, stop: [f"{text}{first + each}" for each in range(start, stop)],
        first,
    )


def compared(
    originals: Iterable[Run], copies: Iterable[Run], *, source_first: int = 0, target_trimmed: bool = False
) -> MirrorComparison:
    comparison = MirrorComparison(source_first, target_trimmed)
    rest = iter(originals)

    def add_next() -> None:
        following = next(rest, None)
        if following is None:
            comparison.end_originals()
        else:
            comparison.add_original(following)

    for copy in copies:
        while comparison.wants(copy):
            add_next()
        comparison.add_copy(copy)
    comparison.end_copies()
    while not comparison.has_ended:
        add_next()
    return comparison


def counts(found: MirrorComparison) -> dict[str, int]:
    names = ("compared", "missing", "doubled", "order", "differs", "not_copied", "not_compared")
    return {name: count for name in names if (count := getattr(found, name))}


def test_equal_copies_are_good() -> None:
    """Also where the source has copies of other clusters between, and where a mirror has split a batch."""
    originals = [run(0, 4), run(7, 2), run(9, 1)]
    copies = [run(0, 1), run(1, 3, entry=0, row=1), run(7, 2), run(9, 1)]
    found = compared(originals, copies)
    assert counts(found) == {"compared": 7}
    assert found.is_good


@pytest.mark.parametrize(
    ("copies", "expected", "rule"),
    [
        ([run(0, 4), run(9, 1)], {"compared": 5, "missing": 2}, "missing"),
        ([run(2, 2, entry=0, row=2), run(7, 2), run(9, 1)], {"compared": 5, "missing": 2}, "missing"),
        ([run(0, 4), run(0, 4), run(7, 2), run(9, 1)], {"compared": 7, "doubled": 4}, "doubled"),
        ([run(0, 4), run(9, 1), run(7, 2)], {"compared": 5, "order": 2}, "order"),
        ([run(0, 4), run(7, 2, checksum=8), run(9, 1)], {"compared": 5, "differs": 2}, "differs"),
        ([run(0, 4), run(7, 2, entry=99), run(9, 1)], {"compared": 5, "differs": 2}, "differs"),
        ([run(0, 4), run(7, 2, text="x"), run(9, 1)], {"compared": 5, "differs": 2}, "differs"),
        ([run(0, 4), run(5, 1), run(7, 2), run(9, 1)], {"compared": 7, "differs": 1}, "differs"),
        ([run(0, 4), run(7, 2), run(9, 1), run(10, 1)], {"compared": 7, "differs": 1}, "differs"),
        ([run(0, 6), run(7, 2), run(9, 1)], {"compared": 7, "differs": 2}, "differs"),
    ],
    ids=[
        "a batch",
        "a part",
        "doubled",
        "late",
        "checksum",
        "place",
        "content",
        "of no message",
        "behind the end",
        "long",
    ],
)
def test_damage_is_counted_and_named(copies: list[Run], expected: dict[str, int], rule: str) -> None:
    """And what is right beside it counts as compared."""
    found = compared([run(0, 4), run(7, 2), run(9, 1)], copies)
    assert counts(found) == expected
    assert rule in {each.rule for each in found.findings}
    assert not found.is_good


def test_what_is_behind_the_last_copy_is_not_copied_yet() -> None:
    """It is no violation: the mirror may be at it, or the source was lost with it."""
    found = compared([run(0, 4), run(4, 2)], [run(0, 3)])
    assert (counts(found), found.not_copied_from, found.is_good) == ({"compared": 3, "not_copied": 3}, 3, True)
    assert counts(compared([run(0, 4)], [])) == {"not_copied": 4}


def test_what_one_side_has_deleted_is_not_compared() -> None:
    """The first messages of the source, or the first copies."""
    found = compared([run(4, 2)], [run(0, 4), run(4, 2)], source_first=4)
    assert (counts(found), found.is_good) == ({"compared": 2, "not_compared": 4}, True)
    found = compared([run(0, 4), run(4, 2)], [run(4, 2)], target_trimmed=True)
    assert (counts(found), found.is_good) == ({"compared": 2, "not_compared": 4}, True)
