"""The arithmetic that every proof of the log rests on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidArgument
from oncelog.core.ledger.quorum import acked, check_quorums, coverage, describe, fence_suffices, missing_is_certain


@st.composite
def quorums(draw: st.DrawFn) -> tuple[int, int]:
    """(write quorum, ack quorum)."""
    write_quorum = draw(st.integers(1, 9))
    return write_quorum, draw(st.integers(1, write_quorum))


@st.composite
def two_sets(draw: st.DrawFn) -> tuple[int, int, frozenset[int], frozenset[int]]:
    """(write quorum, ack quorum, two sets of members)."""
    write_quorum, ack_quorum = draw(quorums())
    members = st.frozensets(st.integers(0, write_quorum - 1))
    return write_quorum, ack_quorum, draw(members), draw(members)


@given(two_sets())
def test_any_acked_set_meets_any_certain_missing_set(case: tuple[int, int, frozenset[int], frozenset[int]]) -> None:
    """So an acknowledged entry can never be declared missing: the shared member would have to lie."""
    write_quorum, ack_quorum, copies, negatives = case
    if acked(len(copies), ack_quorum) and missing_is_certain(
        len(negatives), write_quorum=write_quorum, ack_quorum=ack_quorum
    ):
        assert copies & negatives


@given(two_sets())
def test_no_ack_quorum_avoids_a_covering_fence(case: tuple[int, int, frozenset[int], frozenset[int]]) -> None:
    """A deposed owner cannot gather Qa answers from members that are not fenced."""
    write_quorum, ack_quorum, answers, fenced = case
    if fence_suffices(len(fenced), write_quorum=write_quorum, ack_quorum=ack_quorum):
        assert not acked(len(answers - fenced), ack_quorum)


@given(quorums())
def test_one_negative_less_leaves_room_for_an_ack_quorum(case: tuple[int, int]) -> None:
    """Coverage is the least such number: with one less, the silent members alone could have acknowledged."""
    write_quorum, ack_quorum = case
    least = coverage(write_quorum=write_quorum, ack_quorum=ack_quorum)
    assert missing_is_certain(least, write_quorum=write_quorum, ack_quorum=ack_quorum)
    assert not missing_is_certain(least - 1, write_quorum=write_quorum, ack_quorum=ack_quorum)
    assert acked(write_quorum - (least - 1), ack_quorum)


@pytest.mark.parametrize(("write_quorum", "ack_quorum"), [(3, 0), (3, 4), (0, 0), (3, -1)])
def test_impossible_quorums_are_refused(write_quorum: int, ack_quorum: int) -> None:
    """Outside 1..Qw the arithmetic proves nothing."""
    with pytest.raises(InvalidArgument):
        check_quorums(write_quorum=write_quorum, ack_quorum=ack_quorum)


def test_possible_quorums_are_taken() -> None:
    """3/2 is the default, 1/1 the single node, 3/3 and 2/2 are legal."""
    for write_quorum, ack_quorum in [(3, 2), (1, 1), (3, 3), (2, 2), (5, 3)]:
        check_quorums(write_quorum=write_quorum, ack_quorum=ack_quorum)


def test_describe_tells_each_member_and_the_verdict() -> None:
    """An operator reads from one line why a recovery waits."""
    undecided = describe(["A", "B", "C"], copies=["A"], negatives=["B"], ack_quorum=2)
    assert undecided == "A+ B- C? (Qa 2 of 3): undecided"
    assert describe(["A", "B", "C"], copies=["A", "C"], negatives=[], ack_quorum=2).endswith("acknowledged")
    assert describe(["A", "B", "C"], copies=[], negatives=["A", "C"], ack_quorum=2).endswith("missing")
