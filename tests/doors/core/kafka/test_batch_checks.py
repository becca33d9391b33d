"""Record batches as they are refused, with the codes that clients get."""

import pytest

from oncelog_doors.core.kafka.batch_checks import BatchRefusal, CheckedBatch, checked
from oncelog_doors.core.kafka.error_codes import ErrorCode
from tests.core.builders import checksum
from tests.core.kafka_batches import GZIP, batched, framed, numbered, packed, records

LIMIT = 100_000


def test_a_batch_of_a_client_is_taken_with_its_numbers() -> None:
    batch = batched(numbered(3), codec=GZIP, producer=(512, 2, 7))
    found = checked(memoryview(batch), LIMIT, checksum)
    assert isinstance(found, CheckedBatch)
    assert found.records == batch
    assert found.is_numbered
    assert (found.head.producer_id, found.head.producer_epoch, found.head.base_sequence) == (512, 2, 7)
    plain = checked(batched(numbered(1)), LIMIT, checksum)
    assert isinstance(plain, CheckedBatch)
    assert not plain.is_numbered


@pytest.mark.hazard("record-batch-that-lies")
@pytest.mark.parametrize(
    ("batch", "code", "sentence"),
    [
        (None, ErrorCode.INVALID_RECORD, "a record batch of 0 bytes is cut off"),
        (batched(numbered(1))[:-1], ErrorCode.INVALID_RECORD, "send one batch at a time"),
        (batched(numbered(1)) * 2, ErrorCode.INVALID_RECORD, "send one batch at a time"),
        (framed(records(numbered(1)), 1, magic=1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "magic 1 is not stored"),
        (batched(numbered(1))[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE, "checksum of a record batch does not match"),
        (framed(records(numbered(4)), 5), ErrorCode.INVALID_RECORD, "record"),
        (framed(records(numbered(4)), 4, attributes=0x10), ErrorCode.INVALID_RECORD, "belongs to a transaction"),
        (framed(b"x" * (LIMIT + 1), 1), ErrorCode.MESSAGE_TOO_LARGE, "at most 100000 are stored"),
        (
            framed(packed(GZIP, b"\0" * (17 * LIMIT)), 1, attributes=GZIP),
            ErrorCode.MESSAGE_TOO_LARGE,
            "1600000",
        ),
    ],
)
def test_other_batches_are_refused(batch: bytes | None, code: ErrorCode, sentence: str) -> None:
    found = checked(batch, LIMIT, checksum)
    assert isinstance(found, BatchRefusal)
    assert found.code is code
    assert sentence in found.sentence
