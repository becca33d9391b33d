"""How a payload is compressed: packed once by the producer, checked by the owner, expanded by every reader.

    NONE 0   as it is
    ZLIB 1   one zlib stream (RFC 1950); part of every Python
    ZSTD 2   one Zstandard frame (RFC 8878) that states the size of its content; the package zstandard
    LZ4  3   one LZ4 frame; the package lz4

Rules
- The libraries of ZSTD and LZ4 are loaded at their first use. A program without the one that it needs gets
  CompressionUnavailable, which names the extra to install. This is no damage: nothing is skipped or acknowledged for it
  (hazard codec-taken-for-damage).
- A payload is decompressed into at most the size that the header states, and that is at most PAYLOAD_RAW_BYTES_MAX. Of
  ZSTD, the frame must state that size itself, so that no window is allocated beside the result.
- Another version of a library may give other bytes for the same payload. So nothing compares compressed payloads: for
  the owner, the content of a compressed batch that comes again is unknown (`core.publishing.repeated_content`).
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from types import ModuleType

from oncelog.core.errors import ChunkedMessage, CompressionUnavailable, InvalidBatch
from oncelog.core.formats.batch import BatchHeader, Buffer, PayloadFormat

#: Limit of a decompressed payload; honest batches are far below it.
PAYLOAD_RAW_BYTES_MAX = 64 * 1024 * 1024
#: The window that a decoder of Zstandard must support (RFC 8878, 3.1.1.1.2). Whole frames need none: see the rules.
_ZSTD_WINDOW_BYTES_MAX = 8 * 1024 * 1024
#: The fastest level: zlib is the slowest of the three.
_ZLIB_LEVEL = 1
_ZSTD_LEVEL = 3  # the default of the library


class Compression(IntEnum):
    """How the payload is compressed; the header and the id deltas never are."""

    NONE = 0
    ZLIB = 1
    ZSTD = 2
    LZ4 = 3


def require(compression: int) -> Compression:
    """Load the library. Raises CompressionUnavailable if the program lacks it, or does not know the compression."""
    try:
        known = Compression(compression)
    except ValueError:
        message = (
            f"compression {compression} of a batch is not known to this version: upgrade the program that reads it"
        )
        raise CompressionUnavailable(message, compression=compression) from None
    if known is Compression.ZSTD:
        _zstandard()
    elif known is Compression.LZ4:
        _lz4_frame()
    return known


def compress_payload(payload: Buffer, compression: Compression) -> Buffer:
    """The payload as stored. Raises CompressionUnavailable."""
    match compression:
        case Compression.NONE:
            return payload
        case Compression.ZLIB:
            return zlib.compress(payload, _ZLIB_LEVEL)
        case Compression.ZSTD:
            # One for each payload, because a compressor must not be used by two threads; it costs 0.05 ms.
            return bytes(_zstandard().ZstdCompressor(level=_ZSTD_LEVEL).compress(payload))
        case Compression.LZ4:
            return bytes(_lz4_frame().compress(payload))


def expand_payload(header: BatchHeader, payload: Buffer) -> Buffer:
    """Undo the compression of a payload as stored; never decompresses to more than the header and the limit allow.

    Raises InvalidBatch when the bytes contradict the header's lengths, CompressionUnavailable, and ChunkedMessage for a
    message in chunks: its columns lack the value, and nobody may take them for the whole message.
    """
    if header.payload_format != PayloadFormat.COLUMNS:
        raise ChunkedMessage("the value of the message is in chunks, which only readers and consumers of the SDK join")
    return expand_columns(header, payload)


def expand_columns(header: BatchHeader, payload: Buffer) -> Buffer:
    """As `expand_payload`, also of a message in chunks, for those that need no value."""
    raw_bytes = header.payload_raw_bytes
    if header.compression == Compression.NONE:
        if raw_bytes != len(payload):
            raise InvalidBatch("an uncompressed payload contradicts its two lengths", field="payload")
        return payload
    if raw_bytes > PAYLOAD_RAW_BYTES_MAX:
        raise InvalidBatch("the payload decompresses beyond the limit", field="payload", limit=PAYLOAD_RAW_BYTES_MAX)
    return _EXPAND[require(header.compression)](payload, raw_bytes)


def _expand_zlib(payload: Buffer, raw_bytes: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        raw = decompressor.decompress(payload, raw_bytes + 1)
    except zlib.error as error:
        raise _damaged(error) from error
    return _whole(raw, raw_bytes, ended=decompressor.eof and not decompressor.unused_data)


def _expand_zstd(payload: Buffer, raw_bytes: int) -> bytes:
    zstandard = _zstandard()
    try:
        if zstandard.get_frame_parameters(payload).content_size != raw_bytes:  # also of a frame that does not state it
            return _whole(b"", raw_bytes, ended=False)
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
        raw = decompressor.decompress(payload, max_output_size=raw_bytes, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise _damaged(error) from error
    return _whole(raw, raw_bytes, ended=True)


def _expand_lz4(payload: Buffer, raw_bytes: int) -> bytes:
    decompressor = _lz4_frame().LZ4FrameDecompressor()
    try:
        raw = decompressor.decompress(payload, raw_bytes + 1)
    except RuntimeError as error:  # the library has no other error for damaged bytes
        raise _damaged(error) from error
    return _whole(raw, raw_bytes, ended=decompressor.eof and not decompressor.unused_data)


_EXPAND: dict[Compression, Callable[[Buffer, int], bytes]] = {
    Compression.ZLIB: _expand_zlib, Compression.ZSTD: _expand_zstd, Compression.LZ4: _expand_lz4,
}  # fmt: skip


def _whole(raw: bytes, raw_bytes: int, *, ended: bool) -> bytes:
    if len(raw) != raw_bytes or not ended:
        raise InvalidBatch("the compressed payload contradicts its raw length", field="payload", limit=raw_bytes)
    return raw


def _damaged(error: Exception) -> InvalidBatch:
    return InvalidBatch(f"the compressed payload is damaged: {error}", field="payload")


def _zstandard() -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        raise _unavailable("zstd", error) from error
    return zstandard


def _lz4_frame() -> ModuleType:
    try:
        import lz4.frame
    except ImportError as error:
        raise _unavailable("lz4", error) from error
    return lz4.frame  # type: ignore[no-any-return]


def _unavailable(extra: str, error: ImportError) -> CompressionUnavailable:
    return CompressionUnavailable(
        f"compression {extra} needs a library that cannot be loaded here ({error}): pip install 'oncelog[{extra}]'",
        compression=extra,
        extra=extra,
    )
