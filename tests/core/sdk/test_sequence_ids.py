"""core/sequence_ids: bad ids are refused before anything is queued."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidSequenceId
from oncelog.core.formats.batch import BatchHeader, decode_ids
from oncelog.core.ids import SEQUENCE_ID_MAX, Generation, ProducerId
from oncelog.core.sdk.producer.sequence_ids import check_sequence_id, check_sequence_ids, pack_sequence_ids


@pytest.mark.parametrize("wrong", [-1, 2**63, True, False, 1.0, "1", None, b"1"])
def test_a_wrong_id_is_refused(wrong: object) -> None:
    """Negative, too large, a bool, no integer; alone and in a list, at any place."""
    with pytest.raises(InvalidSequenceId):
        check_sequence_id(wrong)  # type: ignore[arg-type]
    for ids in ([wrong], [wrong, 5], [0, wrong], [0, wrong, SEQUENCE_ID_MAX]):
        with pytest.raises(InvalidSequenceId):
            check_sequence_ids(ids)  # type: ignore[arg-type]


def test_smallest_and_largest_ids_are_legal() -> None:
    """0 is an id like any other."""
    assert check_sequence_id(0) == 0
    assert check_sequence_ids([0, SEQUENCE_ID_MAX]) == [0, SEQUENCE_ID_MAX]
    assert check_sequence_ids([]) == []


class Integral:
    """An integer type of another library."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


def test_integers_of_other_libraries_become_int() -> None:
    """Anything with __index__ is an integer."""
    assert check_sequence_ids([Integral(3), Integral(4)]) == [3, 4]  # type: ignore[list-item]
    assert type(check_sequence_id(Integral(3))) is int  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [[1, 1], [2, 1], [0, 5, 4], range(5, 0, -1)])
def test_ids_of_one_send_ascend(ids: list[int]) -> None:
    """The first offender is named."""
    with pytest.raises(InvalidSequenceId) as caught:
        check_sequence_ids(ids)
    assert "previous id" in caught.value.message


@given(st.lists(st.integers(1, 500), min_size=1, max_size=30), st.integers(0, 2**40))
def test_packed_ids_are_read_back(steps: list[int], first: int) -> None:
    """With and without holes, with steps of one byte and more."""
    ids = [first]
    for step in steps:
        ids.append(ids[-1] + step)
    packed = pack_sequence_ids(check_sequence_ids(ids))
    header = BatchHeader(
        ProducerId(1), Generation(1), packed.first, packed.last, len(ids), 0, 0, 1, len(packed.deltas), 0, 0
    )
    assert list(decode_ids(header, packed.deltas)) == ids
    assert (packed.deltas == b"") == (steps == [1] * len(steps))


def test_range_of_ids_is_not_expanded_to_a_list() -> None:
    """A million dense ids cost no list."""
    ids = check_sequence_ids(range(10, 1_000_010))
    assert ids == range(10, 1_000_010)
    assert pack_sequence_ids(ids).deltas == b""
