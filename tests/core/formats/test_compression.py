"""core/compression: payloads round-trip, forged ones raise InvalidBatch, and a missing library is no damage."""

import random
import tracemalloc

import pytest
import zstandard

from oncelog.core.errors import CompressionUnavailable, InvalidBatch
from oncelog.core.formats.batch import BatchHeader
from oncelog.core.formats.columns import encode_values
from oncelog.core.formats.compression import (
    PAYLOAD_RAW_BYTES_MAX,
    Compression,
    compress_payload,
    require,
)
from oncelog.core.formats.payload import expand_columns
from oncelog.core.ids import Generation, ProducerId, SequenceId

CODECS = (Compression.ZLIB, Compression.ZSTD, Compression.LZ4)
PAYLOAD = encode_values([b"abc" * 100] * 50)


def shape(payload: bytes, raw_bytes: int, compression: int = Compression.NONE) -> BatchHeader:
    return BatchHeader(
        ProducerId(1), Generation(1), SequenceId(0), SequenceId(0), 1, 0, compression, 1, 0, len(payload), raw_bytes
    )


def packed(payload: bytes, codec: Compression) -> bytes:
    return bytes(compress_payload(payload, codec))


def expand(payload: bytes, raw_bytes: int, codec: int) -> bytes:
    return bytes(expand_columns(shape(payload, raw_bytes, codec), payload))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("payload", [PAYLOAD, encode_values([b""]), encode_values([bytes(20_000_000)])])
def test_a_compressed_payload_expands_to_the_same_bytes(codec: Compression, payload: bytes) -> None:
    """Also one that is larger than the window of Zstandard, and one that is larger when compressed."""
    assert expand(packed(payload, codec), len(payload), codec) == payload


def test_a_payload_without_compression_is_the_same_object() -> None:
    assert compress_payload(PAYLOAD, Compression.NONE) is PAYLOAD
    assert expand_columns(shape(PAYLOAD, len(PAYLOAD)), PAYLOAD) is PAYLOAD
    with pytest.raises(InvalidBatch):
        expand_columns(shape(b"abc", 4), b"abc")


@pytest.mark.parametrize("codec", CODECS)
def test_a_forged_compressed_payload_is_refused(codec: Compression) -> None:
    """A bomb, a cut stream, trailing bytes, two streams, wrong lengths, another codec, no stream at all."""
    stored = packed(bytes(1_000_000), codec)
    other = packed(PAYLOAD, CODECS[codec % 3])
    for forged, raw_bytes in [
        (stored, 10),
        (stored, 999_999),
        (stored, 2_000_000),
        (stored, 0),
        (stored, PAYLOAD_RAW_BYTES_MAX + 1),
        (stored[:-4], 1_000_000),
        (stored + b"x", 1_000_000),
        (stored + stored, 1_000_000),
        (stored + stored, 2_000_000),
        (other, len(PAYLOAD)),
        (b"no stream", 9),
        (b"", 0),
        (b"", 9),
    ]:
        with pytest.raises(InvalidBatch):
            expand(forged, raw_bytes, codec)


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_bytes_give_another_payload_or_invalid_batch(codec: Compression) -> None:
    """Never another exception, nor another size: what damages the log's bytes is found by the batch's own checksum."""
    chance = random.Random(codec)
    stored = packed(PAYLOAD + chance.randbytes(500), codec)
    for _ in range(300):
        damaged = bytearray(stored)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            assert len(expand(bytes(damaged), len(PAYLOAD) + 500, codec)) == len(PAYLOAD) + 500
        except InvalidBatch:
            pass


def test_a_zstd_frame_that_does_not_state_its_size_is_refused() -> None:
    """A decoder would allocate the window that such a frame names, beside the payload."""
    packer = zstandard.ZstdCompressor().compressobj()
    stored = packer.compress(PAYLOAD) + packer.flush()
    with pytest.raises(InvalidBatch, match="contradicts its raw length"):
        expand(stored, len(PAYLOAD), Compression.ZSTD)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_takes_no_more_memory_than_its_header_states(codec: Compression) -> None:
    """64 MiB in some KiB, which the header declares as 100 kB: the memory of the result is that of the header.

    The libraries of ZSTD and LZ4 allocate results as objects of Python, which tracemalloc counts.
    """
    bomb = packed(bytes(PAYLOAD_RAW_BYTES_MAX), codec)
    assert len(bomb) < 300_000
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBatch):
            expand(bomb, 100_000, codec)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.hazard("codec-taken-for-damage")
def test_an_unknown_compression_is_not_damage() -> None:
    """A later version may have it. Its batch has a sound header, and a reader must not skip it."""
    for number in (4, 255):
        with pytest.raises(CompressionUnavailable, match=f"compression {number}.*upgrade"):
            expand(b"new", 3, number)
    assert [require(number) for number in range(4)] == list(Compression)
