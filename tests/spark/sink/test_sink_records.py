"""The records of the sink's journals: encoded and decoded, and nothing else is accepted."""

import pytest

from oncelog.core.errors import CorruptEntry
from oncelog_spark.sink.journal_records import (
    BatchRecord,
    ClaimedIds,
    ClaimRecord,
    RangeBatch,
    StagedAttempt,
    decode_batch_record,
    decode_claim_record,
    encode_record,
)

WINNERS = BatchRecord(
    RangeBatch("q", 7),
    {"t": 40},
    (
        StagedAttempt(0, 1, "stage", "n1", "ab", 3, 2**64 - 1, {"t": 0}, {"t": 3}),
        StagedAttempt(2, 0, "stage", "n2", "cd", 2, 5, {"t": 0}, {"t": 2}),
    ),
    ("p",),
    "offsets",
)
CLAIM = ClaimRecord(RangeBatch("q", 7), ClaimedIds.of([3, 5, 6]), "ab", ("p",), {"t": 4}, {"t-partition-1": "cd"})


def test_winners_record_is_encoded_and_decoded() -> None:
    """Another driver reads it after a crash."""
    assert decode_batch_record(encode_record(WINNERS)) == WINNERS
    assert (WINNERS.count, WINNERS.ends, WINNERS.digest) == (5, {"t": 45}, 4)


def test_claim_is_encoded_and_decoded() -> None:
    """Another attempt reads it."""
    assert decode_claim_record(encode_record(CLAIM)) == CLAIM


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"hello", encode_record(CLAIM)[:-1], encode_record(CLAIM).replace(b'"ids"', b'"idz"')]
)
def test_foreign_bytes_are_not_a_record(data: bytes) -> None:
    """Another program published to the journal."""
    for decode in (decode_batch_record, decode_claim_record):
        with pytest.raises(CorruptEntry):
            decode(data)


def test_records_of_the_other_mode_are_refused() -> None:
    """The mode was changed under a used name."""
    with pytest.raises(CorruptEntry):
        decode_batch_record(encode_record(CLAIM))
    with pytest.raises(CorruptEntry):
        decode_claim_record(encode_record(WINNERS))


def test_different_ids_between_the_same_ends_differ() -> None:
    """Same first id, last id and number, but other ids between them."""
    assert ClaimedIds.of([1, 2, 9]) != ClaimedIds.of([1, 3, 9])
