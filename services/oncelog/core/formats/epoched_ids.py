"""Sequence ids of a producer in mode EPOCHED: a client of Kafka, behind a gateway.

    sequence id = epoch << 48 | number

A client of Kafka has an epoch, of 15 bits, and numbers its records from 0 in each epoch. So ids ascend, also when the
client raises its epoch and begins at 0 again. Nothing else of deduplication knows epochs as such: marks, snapshots and
recent batches hold ids.

On the wire Kafka's numbers have 31 bits and wrap around. `unwrap` finds the number that is meant, next to the highest
one that is known. Only what lies up to 2**30 below the next number counts as sent before. Arithmetic on half of a ring
alone would also find such numbers where there are none, below 0, and call a batch that was never stored a duplicate
(hazard number-before-the-first).
"""

from dataclasses import dataclass

from oncelog.core.ids import NO_SEQUENCE, SequenceId

_NUMBER_BITS = 48
NUMBER_MAX = (1 << _NUMBER_BITS) - 1
EPOCH_MAX = 2**15 - 1
#: Kafka's numbers are taken modulo this: clients go on with 0 after the highest one, and one of them with -2**31.
_WRAP = 2**31
_HALF = 2**30


@dataclass(frozen=True, slots=True)
class Numbered:
    """The batch begins with this id. At or below the mark: the log judges whether it is a duplicate."""

    first: SequenceId


@dataclass(frozen=True, slots=True)
class NumberGap:
    """Batches before this one are missing, or its place cannot be known. expected: the next id of the batch's epoch, or
    of the mark's if that is the same; None: the epoch takes no more numbers, so only a higher one goes on."""

    expected: SequenceId | None


@dataclass(frozen=True, slots=True)
class OldEpoch:
    """A higher epoch was accepted. current: that one."""

    current: int


Unwrapped = Numbered | NumberGap | OldEpoch


def epoch_of(sequence_id: int) -> int:
    """-1 of NO_SEQUENCE."""
    return sequence_id >> _NUMBER_BITS


def number_of(sequence_id: int) -> int:
    """Within its epoch."""
    return sequence_id & NUMBER_MAX


def first_of(epoch: int) -> SequenceId:
    """The first id of an epoch, 0 to EPOCH_MAX."""
    return SequenceId(epoch << _NUMBER_BITS)


def last_of(epoch: int) -> SequenceId:
    """The last id of an epoch. As the mark of a producer it says that the epoch takes nothing more: which of its
    numbers were stored is not known any more."""
    return SequenceId(first_of(epoch) + NUMBER_MAX)


def is_numbered(sequence_id: int, *, epoch: int, sequence: int) -> bool:
    """Whether the id has this epoch, and the number that `sequence` stands for on the wire."""
    return epoch_of(sequence_id) == epoch and (number_of(sequence_id) - sequence) % _WRAP == 0


def begins_epoch(first: int, after: int) -> bool:
    """Whether a batch that begins with the id `first` may follow the mark `after` because it begins a higher epoch."""
    return first & NUMBER_MAX == 0 and first > after


def unwrap(epoch: int, sequence: int, mark: SequenceId) -> Unwrapped:
    """The id of the first record of a batch. epoch: 0 to EPOCH_MAX. sequence: of 32 bits, as the batch has it. mark:
    the highest id that was taken of this producer; NO_SEQUENCE: none.

    A client that sends 2**30 records ahead of the mark, or repeats one as far behind it, is misread; it may have a few
    batches in flight.
    """
    current = epoch_of(mark)
    if epoch < current:
        return OldEpoch(current)
    if epoch > current or mark == NO_SEQUENCE:
        first = first_of(epoch)
        return Numbered(first) if sequence % _WRAP == 0 else NumberGap(first)
    following = number_of(mark) + 1
    if following > NUMBER_MAX:
        return NumberGap(None)
    ahead = (sequence - following) % _WRAP
    number = following + ahead if ahead < _HALF else following + ahead - _WRAP
    if 0 <= number <= following:
        return Numbered(SequenceId(first_of(epoch) + number))
    return NumberGap(SequenceId(mark + 1))
