"""The quorum arithmetic that every proof of the log depends on."""

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
def test_ack_quorum_intersects_every_set_that_proves_missing(
    case: tuple[int, int, frozenset[int], frozenset[int]],
) -> None:
    """So an acknowledged entry can never be declared missing: the shared member would have to answer wrongly."""
    write_quorum, ack_quorum, copies, negatives = case
    if acked(len(copies), ack_quorum) and missing_is_certain(
        len(negatives), write_quorum=write_quorum, ack_quorum=ack_quorum
    ):
        assert copies & negatives


@given(two_sets())
def test_every_ack_quorum_has_a_fenced_member(case: tuple[int, int, frozenset[int], frozenset[int]]) -> None:
    """A deposed owner cannot get Qa acknowledgements from members that are not fenced."""
    write_quorum, ack_quorum, answers, fenced = case
    if fence_suffices(len(fenced), write_quorum=write_quorum, ack_quorum=ack_quorum):
        assert not acked(len(answers - fenced), ack_quorum)


@given(quorums())
def test_one_negative_fewer_allows_an_ack_quorum(case: tuple[int, int]) -> None:
    """With one negative fewer, the members that did not answer could have acknowledged the entry."""
    write_quorum, ack_quorum = case
    least = coverage(write_quorum=write_quorum, ack_quorum=ack_quorum)
    assert missing_is_certain(least, write_quorum=write_quorum, ack_quorum=ack_quorum)
    assert not missing_is_certain(least - 1, write_quorum=write_quorum, ack_quorum=ack_quorum)
    assert acked(write_quorum - (least - 1), ack_quorum)


@pytest.mark.parametrize(("write_quorum", "ack_quorum"), [(3, 0), (3, 4), (0, 0), (3, -1)])
def test_invalid_quorums_are_refused(write_quorum: int, ack_quorum: int) -> None:
    """Outside 1..Qw the arithmetic proves nothing."""
    with pytest.raises(InvalidArgument):
        check_quorums(write_quorum=write_quorum, ack_quorum=ack_quorum)


def test_valid_quorums_are_accepted() -> None:
    """3/2 is the default, 1/1 a single node; 3/3 and 2/2 are valid."""
    for write_quorum, ack_quorum in [(3, 2), (1, 1), (3, 3), (2, 2), (5, 3)]:
        check_quorums(write_quorum=write_quorum, ack_quorum=ack_quorum)


def test_description_names_each_member_and_the_result() -> None:
    """An operator sees in one line why a recovery waits."""
    undecided = describe(["A", "B", "C"], copies=["A"], negatives=["B"], ack_quorum=2)
    assert undecided == "A+ B- C? (Qa 2 of 3): undecided"
    assert describe(["A", "B", "C"], copies=["A", "C"], negatives=[], ack_quorum=2).endswith("acknowledged")
    assert describe(["A", "B", "C"], copies=[], negatives=["A", "C"], ack_quorum=2).endswith("missing")
