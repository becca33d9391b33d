"""A record batch as a client has sent it, checked before anything is done with it.

A wrong count would shift the offsets of everything behind it, and a record that lies about its length would stop every
reader (hazard record-batch-that-lies). So every record is read. The owner of the topic does the same again; here it is
done so that a client that sends such a batch gets the reason, and disturbs no batch of others.
"""

from typing import NamedTuple

from oncelog.core.errors import CompressionUnavailable, InvalidBatch, MessageTooLarge
from oncelog.core.formats.batch import Buffer, Checksum
from oncelog.core.formats.kafka import EXPANSION_MAX, RAW_BYTES_MAX, RecordBatchHead, check_batch
from oncelog_doors.core.kafka.error_codes import ErrorCode


class CheckedBatch(NamedTuple):
    head: RecordBatchHead
    records: bytes

    @property
    def is_numbered(self) -> bool:
        """Whether the client numbers its batches, so that a repeated one is known."""
        return self.head.producer_id >= 0


class BatchRefusal(NamedTuple):
    """Of the whole batch. It is final."""

    code: ErrorCode
    sentence: str


#: {field of an InvalidBatch: its code}; others are INVALID_RECORD
_CODES = {"magic": ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, "checksum": ErrorCode.CORRUPT_MESSAGE}


def checked(records: Buffer | None, bytes_max: int, checksum: Checksum) -> CheckedBatch | BatchRefusal:
    """records: of one partition of a Produce. bytes_max: the log's limit of a batch."""
    data = bytes(records or b"")
    if len(data) > bytes_max:
        sentence = f"a record batch has {len(data)} bytes, at most {bytes_max} are stored"
        return BatchRefusal(ErrorCode.MESSAGE_TOO_LARGE, sentence)
    try:
        head = check_batch(data, raw_bytes_max=min(EXPANSION_MAX * bytes_max, RAW_BYTES_MAX), checksum=checksum)
    except MessageTooLarge as error:
        return BatchRefusal(ErrorCode.MESSAGE_TOO_LARGE, str(error))
    except InvalidBatch as error:
        return BatchRefusal(_CODES.get(str(error.details.get("field")), ErrorCode.INVALID_RECORD), str(error))
    except CompressionUnavailable as error:
        return BatchRefusal(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, str(error))
    return CheckedBatch(head, data)
