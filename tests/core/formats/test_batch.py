"""The encoding of batches: it round-trips, and bytes from outside never raise another error than InvalidBatch."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidBatch, InvalidSequenceId
from oncelog.core.format_errors import UnknownFormat
from oncelog.core.formats.batch import (
    HEADER_BYTES,
    SPARSE_IDS_MAX,
    BatchHeader,
    checksum_of,
    decode_batch,
    decode_ids,
    deltas_of,
    encode_batch,
    encode_deltas,
    payload_of,
    peek_batch,
)
from oncelog.core.formats.batch_check import BatchLimits, check_batch
from oncelog.core.ids import SEQUENCE_ID_MAX, Generation, ProducerId, SequenceId
from tests.core.builders import batch, checksum

ASCENDING = st.lists(
    st.one_of(st.integers(0, 300), st.integers(0, SEQUENCE_ID_MAX)), min_size=1, max_size=80, unique=True
).map(sorted)


@given(ids=ASCENDING, payload=st.binary(max_size=200))
def test_batch_round_trips_through_bytes(ids: list[int], payload: bytes) -> None:
    """Ids with holes of any size, and the payload, verbatim."""
    data = batch(ids, pid=7, generation=3, payload=payload)
    header = decode_batch(data, checksum)
    assert list(decode_ids(header, deltas_of(header, data))) == ids
    assert (header.producer_id, header.generation, header.count) == (7, 3, len(ids))
    assert (header.first, header.last) == (ids[0], ids[-1])
    assert payload_of(header, data) == payload
    assert header.bytes_total == len(data)
    assert header.dense == (ids[-1] - ids[0] == len(ids) - 1)


def test_dense_batch_stores_no_id_deltas() -> None:
    """The common case costs no byte per message and no list."""
    data = batch(range(10, 20), payload=b"")
    header = decode_batch(data, checksum)
    assert len(data) == HEADER_BYTES
    assert decode_ids(header, b"") == range(10, 20)


@pytest.mark.parametrize("ids", [[1, 1], [2, 1], [1, 3, 2]])
def test_ids_that_do_not_ascend_are_refused(ids: list[int]) -> None:
    """A batch ascends; tests on ranges would call the second of two equal ids new."""
    with pytest.raises(InvalidSequenceId):
        encode_deltas(ids)


@pytest.mark.parametrize("ids", [[0, 1, 2], [0, 5, 6], [3, 2**40, 2**40 + 200, SEQUENCE_ID_MAX]])
def test_truncated_batch_is_refused(ids: list[int]) -> None:
    """Cut at every byte: InvalidBatch, never another exception."""
    data = batch(ids)
    for cut in range(len(data)):
        with pytest.raises(InvalidBatch):
            decode_batch(data[:cut], checksum)
    with pytest.raises(InvalidBatch):
        decode_batch(data + b"\0", checksum)


@pytest.mark.parametrize("ids", [[0, 1, 2], [0, 5, 6], [3, 2**40, 2**40 + 200]])
def test_flipped_bit_is_detected(ids: list[int]) -> None:
    """Each bit of header, ids and payload is covered by the checksum, magic and compression included."""
    data = batch(ids)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InvalidBatch):
            decode_batch(bytes(damaged), checksum)


@given(data=st.binary(max_size=160))
def test_arbitrary_bytes_are_refused_or_decoded(data: bytes) -> None:
    """Bytes from a socket raise InvalidBatch and no other exception."""
    for candidate in (data, batch([0, 5])[:8] + data):
        try:
            decode_batch(candidate, checksum)
        except InvalidBatch:
            continue


def shaped(*, first: int, last: int, count: int, deltas: bytes = b"") -> bytes:
    """A batch with a valid checksum and arbitrary numbers in its header."""
    return encode_batch(
        b"",
        producer_id=ProducerId(1),
        generation=Generation(1),
        first=first,
        last=last,
        count=count,
        publish_time_ms=0,
        checksum=checksum,
        deltas=deltas,
    )


@pytest.mark.parametrize(
    "data",
    [
        shaped(first=-1, last=0, count=2),
        shaped(first=0, last=0, count=0),
        shaped(first=5, last=4, count=1),
        shaped(first=0, last=4, count=6),
        shaped(first=0, last=4, count=2),
        shaped(first=0, last=4, count=5, deltas=b"\0\0\0\0"),
        shaped(first=0, last=4, count=2, deltas=b"\2"),
        shaped(first=0, last=4, count=3, deltas=b"\3"),
        shaped(first=0, last=4, count=2, deltas=b"\x83"),
        shaped(first=0, last=4, count=2, deltas=b"\x80" * 3000),
        shaped(first=0, last=SEQUENCE_ID_MAX, count=3, deltas=b"\xff" * 9 + b"\x7f" + b"\1"),
    ],
)
def test_contradictory_header_numbers_are_refused(data: bytes) -> None:
    """A valid checksum over wrong numbers: a bug of the producer, or an attack."""
    with pytest.raises(InvalidBatch):
        decode_batch(data, checksum)


def test_header_is_read_without_its_payload() -> None:
    """The replay reads only headers. Truncated id deltas have their own error."""
    data = batch([0, 5])
    header = peek_batch(data[:HEADER_BYTES])
    assert header == peek_batch(data)
    with pytest.raises(InvalidBatch, match="cut off"):
        decode_ids(header, deltas_of(header, data[:HEADER_BYTES]))


def test_unterminated_varint_is_refused_at_once() -> None:
    """Without a limit, a hostile column could make one number grow without end."""
    header = BatchHeader(
        ProducerId(1), Generation(1), SequenceId(0), SequenceId(9), 2, 0, 0, 1, 4_000_000, 0, 0
    )  # fmt: skip
    with pytest.raises(InvalidBatch, match="longer than an id"):
        decode_ids(header, b"\x80" * 4_000_000)


def header_with(count: int, ids_bytes: int) -> bytes:
    """A batch's header alone, of ids with holes."""
    data = bytearray(batch([0, 5, 6]))
    struct.pack_into("<I", data, 20, count)
    struct.pack_into("<q", data, 32, 2**60)
    struct.pack_into("<I", data, 48, ids_bytes)
    return bytes(data[:HEADER_BYTES])


@pytest.mark.parametrize(
    ("count", "ids_bytes"),
    [(3, 1), (3, 19), (2**32 - 1, 2**32 - 2), (SPARSE_IDS_MAX + 1, SPARSE_IDS_MAX), (2, 14 << 20)],
)
def test_id_deltas_are_bounded_before_they_are_decoded(count: int, ids_bytes: int) -> None:
    """Decoding 14 MiB of deltas took 1.5 s and 250 MB. The header alone shows that they are invalid."""
    with pytest.raises(InvalidBatch, match=r"deltas contradict|holes in their ids"):
        peek_batch(header_with(count, ids_bytes))


def test_largest_batch_of_ids_with_holes_is_accepted() -> None:
    """The bound is above what the SDK packs."""
    ids = range(0, 2 * SPARSE_IDS_MAX, 2)
    header = peek_batch(batch(list(ids)))
    assert (header.count, header.dense) == (SPARSE_IDS_MAX, False)


@pytest.mark.hazard("format-of-a-later-version")
@pytest.mark.parametrize(("place", "value", "said"), [(3, 6, "payload format 6"), (60, 2, "flags 0x2")])
def test_a_format_of_a_later_version_is_named_and_is_no_damage(place: int, value: int, said: str) -> None:
    """A reader that took it for damage would skip it. Control: the same byte without a sound checksum is damage."""
    data = bytearray(batch([1]))
    data[place] = value
    with pytest.raises(InvalidBatch, match="checksum"):
        decode_batch(bytes(data), checksum)
    data[4:8] = checksum_of(data, checksum).to_bytes(4, "little")
    for read in (peek_batch, lambda given: decode_batch(given, checksum)):
        with pytest.raises(UnknownFormat, match=f"{said} .*upgrade"):
            read(bytes(data))
    with pytest.raises(InvalidBatch, match=said):
        check_batch(bytes(data), checksum, BatchLimits(1000))
