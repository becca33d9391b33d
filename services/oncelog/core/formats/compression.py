"""How a payload is compressed: packed once by the producer, checked by the owner, expanded by every reader.

What a batch of ours states in its header (`Compression`):

    NONE 0   as it is
    ZLIB 1   one zlib stream (RFC 1950); part of every Python
    ZSTD 2   one Zstandard frame (RFC 8878) that states the size of its content; the package zstandard
    LZ4  3   one LZ4 frame; the package lz4

What a client of Pulsar states in the metadata of its entry (`PulsarCodec`); we only expand these:

    NONE 0   as it is
    LZ4  1   one LZ4 block without its size; the package lz4
    ZLIB 2   one zlib stream
    ZSTD 3   one Zstandard frame
    SNAPPY 4 one Snappy block, without framing; the package cramjam

Rules
- The libraries of ZSTD, LZ4 and SNAPPY are loaded at their first use. A program without the one that it needs gets
  CompressionUnavailable, which names the extra to install. This is no damage: nothing is skipped or acknowledged for it
  (hazard codec-taken-for-damage).
- A payload is decompressed into at most the size that the header states, and that is at most PAYLOAD_RAW_BYTES_MAX. Of
  ZSTD, the frame must state that size itself, so that no window is allocated beside the result. A frame of a client of
  Pulsar need not: then a window of at most 8 MiB is allocated.
- Another version of a library may give other bytes for the same payload. So nothing compares compressed payloads: for
  the owner, the content of a compressed batch that comes again is unknown (`core.publishing.repeated_content`).
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from types import ModuleType

from oncelog.core.errors import CompressionUnavailable, InvalidBatch
from oncelog.core.formats.batch import Buffer

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


def expand(compression: int, payload: Buffer, raw_bytes: int) -> Buffer:
    """Undo a compression other than NONE; the result has exactly `raw_bytes`, and no more are decompressed.

    Raises InvalidBatch when the bytes contradict that length or the limit, CompressionUnavailable.
    """
    if raw_bytes > PAYLOAD_RAW_BYTES_MAX:
        raise InvalidBatch("the payload decompresses beyond the limit", field="payload", limit=PAYLOAD_RAW_BYTES_MAX)
    return _EXPAND[require(compression)](payload, raw_bytes)


class PulsarCodec(IntEnum):
    """How a client of Pulsar compresses a payload."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


def require_pulsar() -> None:
    """Load the library of each codec. Raises CompressionUnavailable."""
    _lz4_block()
    _zstandard()
    _snappy()


def expand_pulsar(codec: PulsarCodec, payload: Buffer, raw_bytes: int) -> Buffer:
    """Undo the compression of a client of Pulsar; the result has exactly `raw_bytes`, and no more are decompressed.

    raw_bytes: the caller bounds it. Raises InvalidBatch when the bytes contradict it, CompressionUnavailable.
    """
    match codec:
        case PulsarCodec.NONE:
            return payload
        case PulsarCodec.LZ4:
            return _expand_lz4_block(payload, raw_bytes)
        case PulsarCodec.ZLIB:
            # Java's client flushes the stream, and never ends it.
            return _expand_zlib(payload, raw_bytes, may_be_open=True)
        case PulsarCodec.ZSTD:
            return _expand_any_zstd(payload, raw_bytes)
        case PulsarCodec.SNAPPY:
            return _expand_snappy(payload, raw_bytes)


def _expand_zlib(payload: Buffer, raw_bytes: int, *, may_be_open: bool = False) -> bytes:
    """may_be_open: the stream need not have an end."""
    decompressor = zlib.decompressobj()
    try:
        raw = decompressor.decompress(payload, raw_bytes + 1)
    except zlib.error as error:
        raise _damaged(error) from error
    ended = may_be_open or decompressor.eof
    return _whole(raw, raw_bytes, ended=ended and not decompressor.unused_data)


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


def _expand_lz4_block(payload: Buffer, raw_bytes: int) -> bytes:
    block = _lz4_block()
    try:
        raw = block.decompress(payload, uncompressed_size=raw_bytes)
    except (block.LZ4BlockError, ValueError) as error:  # ValueError: more than it can allocate
        raise _damaged(error) from error
    return _whole(raw, raw_bytes, ended=True)


def _expand_any_zstd(payload: Buffer, raw_bytes: int) -> bytes:
    """Also a frame that does not state its size."""
    zstandard = _zstandard()
    try:
        if zstandard.get_frame_parameters(payload).content_size == raw_bytes:
            return _expand_zstd(payload, raw_bytes)
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
        with decompressor.stream_reader(payload) as reader:
            raw = reader.read(raw_bytes + 1)
    except zstandard.ZstdError as error:
        raise _damaged(error) from error
    return _whole(raw, raw_bytes, ended=True)


def _expand_snappy(payload: Buffer, raw_bytes: int) -> bytes:
    cramjam = _snappy()
    try:
        if cramjam.snappy.decompress_raw_len(payload) != raw_bytes:  # before anything is allocated for it
            return _whole(b"", raw_bytes, ended=False)
        raw = bytes(cramjam.snappy.decompress_raw(payload))
    except cramjam.DecompressionError as error:
        raise _damaged(error) from error
    return _whole(raw, raw_bytes, ended=True)


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


def _lz4_block() -> ModuleType:
    try:
        import lz4.block
    except ImportError as error:
        raise _unavailable("lz4", error) from error
    return lz4.block  # type: ignore[no-any-return]


def _snappy() -> ModuleType:
    try:
        import cramjam
    except ImportError as error:
        raise _unavailable("snappy", error) from error
    module: ModuleType = cramjam
    return module


def _unavailable(extra: str, error: ImportError) -> CompressionUnavailable:
    return CompressionUnavailable(
        f"compression {extra} needs a library that cannot be loaded here ({error}): pip install 'oncelog[{extra}]'",
        compression=extra,
        extra=extra,
    )
