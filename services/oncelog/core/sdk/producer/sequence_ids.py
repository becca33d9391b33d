"""Sequence ids given by applications: they are checked once, before a send is queued."""

from collections.abc import Sequence
from operator import index, sub
from typing import NamedTuple

from oncelog.core.errors import InvalidSequenceId
from oncelog.core.formats.batch import BatchHeader, decode_ids, encode_deltas
from oncelog.core.ids import NOT_DEDUPLICATED, SEQUENCE_ID_MAX, Generation, SequenceId

_FIELD = "sequence_ids"


class BatchIds(NamedTuple):
    """The ids of one batch: first and last inclusive; deltas as `batch.encode_deltas` gives them, b"" when dense."""

    first: SequenceId
    last: SequenceId
    deltas: bytes = b""


def check_sequence_id(sequence_id: int) -> SequenceId:
    """Return the id. Raises InvalidSequenceId when it is negative, above 2**63 - 1, a bool or not an integer."""
    if isinstance(sequence_id, bool):
        raise InvalidSequenceId("sequence_id must be an integer, not a bool", field="sequence_id")
    try:
        plain = index(sequence_id)
    except TypeError:
        kind = type(sequence_id).__name__
        raise InvalidSequenceId(f"sequence_id must be an integer, not {kind}", field="sequence_id") from None
    if not 0 <= plain <= SEQUENCE_ID_MAX:
        raise InvalidSequenceId(
            f"sequence_id must be 0 to 2**63 - 1, not {plain}", field="sequence_id", limit=SEQUENCE_ID_MAX
        )
    return SequenceId(plain)


def check_sequence_ids(ids: Sequence[int]) -> Sequence[int]:
    """Return ascending integer ids as a range or a list of plain integers. Runs at C speed per id.

    Raises InvalidSequenceId, which names the first wrong id.
    """
    if isinstance(ids, range) and ids.step == 1:
        plain: Sequence[int] = ids
    else:
        plain = list(ids)
        if not set(map(type, plain)) <= {int}:
            plain = [check_sequence_id(each) for each in plain]
    if not plain:
        return plain
    check_sequence_id(plain[0])
    if not isinstance(plain, range) and min(map(sub, plain[1:], plain), default=1) < 1:
        at = next(i for i in range(1, len(plain)) if plain[i] <= plain[i - 1])
        check_sequence_id(plain[at])
        message = f"sequence_ids[{at}] is {plain[at]}, not above the previous id {plain[at - 1]}"
        raise InvalidSequenceId(message, field=_FIELD)
    check_sequence_id(plain[-1])
    return plain


def pack_sequence_ids(ids: Sequence[int]) -> BatchIds:
    """The ids of one batch, from a non-empty slice of the result of `check_sequence_ids`."""
    first, last = SequenceId(ids[0]), SequenceId(ids[-1])
    if last - first == len(ids) - 1:
        return BatchIds(first, last)
    steps = list(map(sub, ids[1:], ids))
    if max(steps) <= 128:  # one byte each, the common case
        return BatchIds(first, last, bytes([step - 1 for step in steps]))
    return BatchIds(first, last, encode_deltas(ids))


def ids_of(ids: BatchIds, count: int) -> Sequence[int]:
    """The ids of a batch of `count` messages, in order; the inverse of `pack_sequence_ids`."""
    shape = BatchHeader(NOT_DEDUPLICATED, Generation(0), *ids[:2], count, 0, 0, 1, len(ids.deltas), 0, 0)
    return decode_ids(shape, ids.deltas)
