"""Messages whose bulk is `repeated bytes … = 15`: that field bypasses protobuf, so that bulk bytes are copied once.

A frame is an ordinary protobuf message that any protobuf program can read and write. Here only its head (all fields but
15) goes through protobuf. The blobs of field 15 are appended to the head, and read as slices of the received bytes.

Rules: received bytes are untrusted. Every failure is InvalidArgument. The memory that a frame can make us allocate is
bounded by its size, BLOBS_MAX and HEAD_FIELDS_MAX; both counts are checked while the frame is split, so a frame of
two-byte fields costs no more than an honest one.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.batch import Buffer

#: Field 15, length-delimited: the one-byte tag of every blob.
BLOB_TAG = 15 << 3 | 2
#: Blobs of one frame. A batch has at least 64 bytes and frames are about 256 KiB: honest ones stay below 4,096.
BLOBS_MAX = 16_384
#: The head of one frame, bytes.
HEAD_BYTES_MAX = 4 * 1024 * 1024
#: Fields of the head. A column is one field; each producer name and each opening is a field of its own.
HEAD_FIELDS_MAX = 16_384
#: Limit of a request that is not a frame: it carries names and a few numbers.
REQUEST_BYTES_MAX = 1024 * 1024

_TRUNCATED = "the frame ends inside a field"


MessageT = TypeVar("MessageT", bound=Message)
#: One blob, or its pieces (an entry's header and body), which are joined only when the frame is.
Blob = Buffer | tuple[Buffer, ...]


def _blob_prefix(size: int) -> bytes:
    if size < 1 << 7:
        return bytes((BLOB_TAG, size))
    if size < 1 << 14:
        return bytes((BLOB_TAG, size & 127 | 128, size >> 7))
    if size < 1 << 21:
        return bytes((BLOB_TAG, size & 127 | 128, size >> 7 & 127 | 128, size >> 14))
    return bytes((BLOB_TAG, size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21))


def blob_bytes(size: int) -> int:
    """Bytes that a blob of `size` bytes takes in a frame."""
    return size + len(_blob_prefix(size))


def join_frame(head: bytes, blobs: Iterable[Blob]) -> bytes:
    """Return head (a serialized message without field 15) and the blobs as one message; the blobs are copied once."""
    pieces: list[Buffer] = [head]
    for blob in blobs:
        if isinstance(blob, tuple):
            pieces.append(_blob_prefix(sum(map(len, blob))))
            pieces.extend(blob)
        else:
            pieces.append(_blob_prefix(len(blob)))
            pieces.append(blob)
    return b"".join(pieces)


def _varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    """Return (value, index after it). Raises InvalidArgument when it runs over `end` or ten bytes."""
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise InvalidArgument("the frame holds a number of more than ten bytes", field="frame")
    raise InvalidArgument(_TRUNCATED, field="frame")


def _after_field(data: bytes, tag: int, at: int, end: int) -> int:
    """The index after the value at `at` of a field that is not a blob."""
    wire_type = tag & 7
    if tag >> 3 == BLOB_TAG >> 3:
        raise InvalidArgument("field 15 of a frame must hold bytes", field="frame")
    if wire_type == 2:
        size, at = _varint(data, at, end)
        at += size
    elif wire_type == 0:
        _, at = _varint(data, at, end)
    elif wire_type == 5:
        at += 4
    elif wire_type == 1:
        at += 8
    else:
        raise InvalidArgument(f"the frame holds a field of unknown wire type {wire_type}", field="frame")
    if at > end:
        raise InvalidArgument(_TRUNCATED, field="frame")
    return at


def split_frame(data: bytes) -> tuple[bytes, list[memoryview]]:
    """Return (head, blobs). Blobs are slices of `data`, which lives as long as any of them. Raises InvalidArgument."""
    view = memoryview(data)
    end = len(data)
    heads: list[memoryview] = []
    blobs: list[memoryview] = []
    at = head_start = head_fields = 0
    while at < end:
        field_start = at
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = _varint(data, field_start, end)
        if tag != BLOB_TAG:
            head_fields += 1
            if head_fields > HEAD_FIELDS_MAX:
                message = f"the head of a frame may have at most {HEAD_FIELDS_MAX} fields"
                raise InvalidArgument(message, field="frame", limit=HEAD_FIELDS_MAX)
            at = _after_field(data, tag, at, end)
            continue
        if head_start < field_start:
            heads.append(view[head_start:field_start])
        # The length is decoded inline, because this loop runs for each blob.
        size = shift = 0
        byte = 128
        while byte > 127:
            if at >= end or shift > 28:
                raise InvalidArgument(_TRUNCATED, field="frame")
            byte = data[at]
            at += 1
            size |= (byte & 127) << shift
            shift += 7
        head_start = at + size
        if head_start > end:
            raise InvalidArgument(_TRUNCATED, field="frame")
        blobs.append(view[at:head_start])
        at = head_start
        if len(blobs) > BLOBS_MAX:
            raise InvalidArgument(f"a frame may hold at most {BLOBS_MAX} blobs", field="frame", limit=BLOBS_MAX)
    if head_start < end:
        heads.append(view[head_start:end])
    head = b"".join(heads)
    if len(head) > HEAD_BYTES_MAX:
        raise InvalidArgument(
            f"the head of a frame may have {HEAD_BYTES_MAX} bytes", field="frame", limit=HEAD_BYTES_MAX
        )
    return head, blobs


def parse_request(
    from_string: Callable[[bytes], MessageT], data: bytes, *, bytes_max: int = REQUEST_BYTES_MAX
) -> MessageT:
    """Parse a request that is not a frame. Raises InvalidArgument, without parsing, above `bytes_max`."""
    if len(data) > bytes_max:
        message = f"a request of {len(data)} bytes exceeds the limit of {bytes_max}"
        raise InvalidArgument(message, field="request", limit=bytes_max)
    return parse(from_string, data)


def parse(from_string: Callable[[bytes], MessageT], data: bytes) -> MessageT:
    """Parse one protobuf message: `parse(pb2.X.FromString, data)`. Raises InvalidArgument."""
    try:
        return from_string(data)
    except (DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument("the bytes are not a message of the expected type", field="frame") from error
