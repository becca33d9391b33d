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

What a client of Kafka states in the attributes of its record batch (`KafkaCodec`); we only expand these, too. No size
is stated, so the caller gives a limit:

    NONE 0   as it is
    GZIP 1   one gzip member (RFC 1952)
    SNAPPY 2 one Snappy block, or blocks in the framing of snappy-java: 16 bytes that begin with SNAPPY_JAVA, then for
             each block its size in four bytes, big-endian, and the block
    LZ4  3   one LZ4 frame
    ZSTD 4   one Zstandard frame

Rules
- The libraries of ZSTD, LZ4 and SNAPPY are loaded at their first use. A program without the one that it needs gets
  CompressionUnavailable, which names the extra to install. This is no damage: nothing is skipped or acknowledged for it
  (hazard codec-taken-for-damage).
- A payload is decompressed into at most the size that the header states, and that is at most PAYLOAD_RAW_BYTES_MAX. Of
  ZSTD, the frame must state that size itself, so that no window is allocated beside the result. A frame of a client of
  Pulsar or Kafka need not: then a window of at most 8 MiB is allocated.
- Nothing may follow a frame, also not another frame. Some readers would read on, and others stop.
- Another version of a library may give other bytes for the same payload. So nothing compares compressed payloads: for
  the owner, the content of a compressed batch that comes again is unknown (`core.publishing.repeated_content`).
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from types import ModuleType

from oncelog.core.errors import CompressionUnavailable, InvalidBatch, MessageTooLarge
from oncelog.core.formats.batch import Buffer

#: Limit of a decompressed payload; honest batches are far below it.
PAYLOAD_RAW_BYTES_MAX = 64 * 1024 * 1024
#: The window that a decoder of Zstandard must support (RFC 8878, 3.1.1.1.2). Whole frames need none: see the rules.
_ZSTD_WINDOW_BYTES_MAX = 8 * 1024 * 1024
#: The fastest level: zlib is the slowest of the three.
_ZLIB_LEVEL = 1
_ZSTD_LEVEL = 3  # the default of the library
#: Of a block that is one byte, repeated.
_ZSTD_RLE = 1
#: A byte of LZ4 repeats at most so many bytes.
_LZ4_RATIO_MAX = 256
_GZIP_WINDOW_BITS = 31
SNAPPY_JAVA = b"\x82SNAPPY\0"
_SNAPPY_JAVA_HEAD_BYTES = 16
_PIECE_BYTES = 256 * 1024


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
    """Load the library of each codec, which are also those of Kafka's. Raises CompressionUnavailable."""
    _lz4_frame()
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


class KafkaCodec(IntEnum):
    """How a client of Kafka compresses the records of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def expand_kafka(codec: KafkaCodec, payload: Buffer, raw_bytes_max: int) -> Buffer:
    """Undo the compression of a client of Kafka; no more than `raw_bytes_max` are decompressed.

    Raises MessageTooLarge above that, InvalidBatch for damaged bytes, CompressionUnavailable.
    """
    match codec:
        case KafkaCodec.NONE:
            if len(payload) > raw_bytes_max:
                raise _too_large(raw_bytes_max)
            return payload
        case KafkaCodec.GZIP:
            return _expand_gzip_up_to(payload, raw_bytes_max)
        case KafkaCodec.SNAPPY:
            return _expand_snappy_up_to(payload, raw_bytes_max)
        case KafkaCodec.LZ4:
            return _expand_lz4_up_to(payload, raw_bytes_max)
        case KafkaCodec.ZSTD:
            return _expand_zstd_up_to(payload, raw_bytes_max)


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


def _expand_gzip_up_to(payload: Buffer, raw_bytes_max: int) -> bytes:
    decompressor = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        raw = decompressor.decompress(payload, raw_bytes_max + 1)
    except zlib.error as error:
        raise _damaged(error) from error
    if len(raw) > raw_bytes_max:
        raise _too_large(raw_bytes_max)
    return _one_frame(raw, ended=decompressor.eof and not decompressor.unused_data)


def _expand_snappy_up_to(payload: Buffer, raw_bytes_max: int) -> bytes:
    view = memoryview(payload)
    if view[: len(SNAPPY_JAVA)] != SNAPPY_JAVA:
        blocks = [view]
    else:
        blocks, at = [], _SNAPPY_JAVA_HEAD_BYTES
        while at < len(view):
            end = at + 4 + int.from_bytes(view[at : at + 4])
            if not at + 4 < end <= len(view):
                raise _damaged(f"a Snappy block at byte {at} is cut off")
            blocks.append(view[at + 4 : end])
            at = end
    cramjam = _snappy()
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        if sum(sizes) > raw_bytes_max:  # before anything is allocated for it
            raise _too_large(raw_bytes_max)
        return b"".join(_expand_snappy(block, size) for block, size in zip(blocks, sizes, strict=True))
    except cramjam.DecompressionError as error:
        raise _damaged(error) from error


def _expand_lz4_up_to(payload: Buffer, raw_bytes_max: int) -> bytes:
    decompressor = _lz4_frame().LZ4FrameDecompressor()
    # The library allocates as much at once, so not more than the bytes could hold.
    limit = min(raw_bytes_max, len(payload) * _LZ4_RATIO_MAX)
    try:
        raw: bytes = decompressor.decompress(payload, limit + 1)
    except RuntimeError as error:  # the library has no other error for damaged bytes
        raise _damaged(error) from error
    if len(raw) > raw_bytes_max:
        raise _too_large(raw_bytes_max)
    return _one_frame(raw, ended=decompressor.eof and not decompressor.unused_data)


def _expand_zstd_up_to(payload: Buffer, raw_bytes_max: int) -> bytes:
    zstandard = _zstandard()
    try:
        frame = zstandard.get_frame_parameters(payload)
        if frame.content_size != zstandard.CONTENTSIZE_UNKNOWN:
            if frame.content_size > raw_bytes_max:
                raise _too_large(raw_bytes_max)
            return _expand_zstd(payload, frame.content_size)
        # The library neither says where the frame ends, nor whether it is whole.
        ends_at = _end_of_zstd(memoryview(payload), zstandard.frame_header_size(payload), frame.has_checksum)
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
        pieces, left = [], raw_bytes_max + 1
        with decompressor.stream_reader(payload) as reader:
            while left and (piece := reader.read(min(left, _PIECE_BYTES))):
                pieces.append(piece)
                left -= len(piece)
    except zstandard.ZstdError as error:
        raise _damaged(error) from error
    if not left:
        raise _too_large(raw_bytes_max)
    return _one_frame(b"".join(pieces), ended=ends_at == len(payload))


def _end_of_zstd(frame: memoryview, at: int, has_checksum: bool) -> int | None:
    """Where a frame ends whose header ends at `at` (RFC 8878, 3.1.1.2); None: it is cut off."""
    last = False
    while not last:
        if at + 3 > len(frame):
            return None
        head = int.from_bytes(frame[at : at + 3], "little")
        last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
        at += 3 + (1 if kind == _ZSTD_RLE else size)
    return at + 4 * has_checksum


_EXPAND: dict[Compression, Callable[[Buffer, int], bytes]] = {
    Compression.ZLIB: _expand_zlib, Compression.ZSTD: _expand_zstd, Compression.LZ4: _expand_lz4,
}  # fmt: skip


def _whole(raw: bytes, raw_bytes: int, *, ended: bool) -> bytes:
    if len(raw) != raw_bytes or not ended:
        raise InvalidBatch("the compressed payload contradicts its raw length", field="payload", limit=raw_bytes)
    return raw


def _one_frame(raw: bytes, *, ended: bool) -> bytes:
    if not ended:
        raise InvalidBatch("the compressed payload is not exactly one frame", field="payload")
    return raw


def _too_large(raw_bytes_max: int) -> MessageTooLarge:
    message = f"the payload without its compression exceeds the limit of {raw_bytes_max} bytes"
    return MessageTooLarge(message, field="payload", limit=raw_bytes_max)


def _damaged(error: Exception | str) -> InvalidBatch:
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
