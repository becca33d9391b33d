"""Numbers of Kafka's clients against a model that counts without bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.formats.epoched_ids import (
    EPOCH_MAX,
    NUMBER_MAX,
    Numbered,
    NumberGap,
    OldEpoch,
    begins_epoch,
    epoch_of,
    first_of,
    last_of,
    number_of,
    unwrap,
)
from oncelog.core.ids import NO_SEQUENCE, SEQUENCE_ID_MAX, SequenceId

WRAP = 2**31
EPOCHS = st.integers(0, EPOCH_MAX)
#: also near the places where numbers wrap around
NUMBERS = st.one_of(
    st.integers(0, NUMBER_MAX - 1),
    st.integers(0, 300),
    st.tuples(st.integers(1, 100), st.integers(-300, 300)).map(lambda pair: pair[0] * WRAP + pair[1]),
)


def wire(number: int, *, signed: bool) -> int:
    """The number as a batch has it. signed: as aiokafka goes on behind 2**31 - 1."""
    return (number + WRAP) % (2 * WRAP) - WRAP if signed else number % WRAP


def mark_of(epoch: int, number: int) -> SequenceId:
    return SequenceId(first_of(epoch) + number)


@pytest.mark.hazard("number-before-the-first", "numbers-wrap-around")
@given(epoch=EPOCHS, number=NUMBERS, offset=st.integers(-(2**30), 2**30 - 1), signed=st.booleans())
def test_each_number_near_the_mark_is_what_the_client_means(epoch: int, number: int, offset: int, signed: bool) -> None:
    """The model: the client counts records without bounds, and the log has them up to `number`."""
    mark, meant = mark_of(epoch, number), number + 1 + offset
    found = unwrap(epoch, wire(meant, signed=signed), mark)
    if 0 <= meant <= number + 1:
        assert found == Numbered(SequenceId(first_of(epoch) + meant))
    else:
        assert found == NumberGap(SequenceId(mark + 1))


@pytest.mark.hazard("number-before-the-first")
@given(epoch=EPOCHS, number=st.integers(0, 2**30), sequence=st.integers(-WRAP, WRAP - 1))
def test_what_was_never_sent_is_never_at_or_below_the_mark(epoch: int, number: int, sequence: int) -> None:
    """A mark of a few records: every number above it is a gap, whatever half of the ring it is in."""
    found = unwrap(epoch, sequence, mark_of(epoch, number))
    stored = sequence % WRAP <= number
    assert isinstance(found, Numbered) is (stored or sequence % WRAP == number + 1)
    if stored:
        assert found == Numbered(mark_of(epoch, sequence % WRAP))


@pytest.mark.hazard("number-before-the-first")
def test_a_new_producer_begins_at_zero() -> None:
    assert unwrap(0, 0, NO_SEQUENCE) == Numbered(SequenceId(0))
    assert unwrap(3, 0, NO_SEQUENCE) == Numbered(first_of(3))
    assert unwrap(3, -WRAP, NO_SEQUENCE) == Numbered(first_of(3))
    for sequence in (1, WRAP - 7, -1):
        assert unwrap(3, sequence, NO_SEQUENCE) == NumberGap(first_of(3))
    assert unwrap(0, WRAP - 7, mark_of(0, 2)) == NumberGap(SequenceId(3))


@pytest.mark.hazard("copy-of-an-older-epoch")
@given(epoch=EPOCHS, other=EPOCHS, number=NUMBERS, sequence=st.integers(-WRAP, WRAP - 1))
def test_an_older_epoch_is_old_and_a_higher_one_begins_at_zero(
    epoch: int, other: int, number: int, sequence: int
) -> None:
    found = unwrap(epoch, sequence, mark_of(other, number))
    if epoch < other:
        assert found == OldEpoch(other)
    elif epoch > other:
        assert found == (Numbered(first_of(epoch)) if sequence % WRAP == 0 else NumberGap(first_of(epoch)))


@pytest.mark.hazard("numbers-wrap-around")
def test_a_batch_across_the_wrap_and_its_repetition_have_the_same_ids() -> None:
    """Five records from 2**31 - 3 on. KafkaJS leaves out 2**31 - 1: that is a gap."""
    first, last = WRAP - 3, WRAP + 1
    assert unwrap(2, first, mark_of(2, first - 1)) == Numbered(mark_of(2, first))
    assert unwrap(2, first, mark_of(2, last)) == Numbered(mark_of(2, first))
    for goes_on in (2, -WRAP + 2):
        assert unwrap(2, goes_on, mark_of(2, last)) == Numbered(mark_of(2, last + 1))
    assert unwrap(2, 0, mark_of(2, WRAP - 2)) == NumberGap(mark_of(2, WRAP - 1))


@pytest.mark.parametrize("sequence", [0, 1, 5, WRAP - 1, -WRAP])
def test_an_epoch_whose_numbers_were_forgotten_takes_none(sequence: int) -> None:
    """Its last id is the mark. None of its numbers counts as stored; the next epoch begins."""
    assert unwrap(4, sequence, last_of(4)) == NumberGap(None)
    assert isinstance(unwrap(5, sequence, last_of(4)), Numbered) is (sequence % WRAP == 0)


@given(epoch=EPOCHS, number=st.integers(0, NUMBER_MAX))
def test_an_id_is_an_epoch_and_a_number(epoch: int, number: int) -> None:
    found = mark_of(epoch, number)
    assert (epoch_of(found), number_of(found)) == (epoch, number)
    assert found <= SEQUENCE_ID_MAX
    assert begins_epoch(found, NO_SEQUENCE) is (number == 0)
    assert not begins_epoch(found, found)
    assert epoch_of(NO_SEQUENCE) == -1
    assert last_of(epoch) + 1 == (epoch + 1) << 48
