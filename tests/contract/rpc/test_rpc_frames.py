"""Frames against the generated classes: the same bytes on the wire; other bytes raise InvalidArgument."""

import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidArgument
from oncelog.core.ids import SessionNumber, TopicId
from oncelog.rpc.codecs import metadata_codec, owner_codec, reader_codec, storage_codec
from oncelog.rpc.frames import (
    BLOBS_MAX,
    HEAD_BYTES_MAX,
    HEAD_FIELDS_MAX,
    REQUEST_BYTES_MAX,
    join_frame,
    split_frame,
)
from oncelog.wire import metadata_pb2, owner_pb2, storage_pb2

#: Sizes around every change in the length of a length.
SIZES = (0, 1, 127, 128, 129, 16_383, 16_384, 2_097_151, 2_097_152)

DECODERS: tuple[Callable[[bytes], object], ...] = (
    storage_codec.decode_append,
    storage_codec.decode_append_answers,
    storage_codec.decode_read_request,
    storage_codec.decode_read,
    owner_codec.decode_publish,
    owner_codec.decode_publish_answers,
    reader_codec.decode_read_control,
    reader_codec.decode_reader_frame,
    storage_codec.FENCE.decode_request,
    metadata_codec.LOOKUP.decode_answer,
    metadata_codec.OWNER_STREAM.decode_answer,
)


def test_joined_frame_equals_protobufs_encoding() -> None:
    """Any protobuf program must be able to use the protocol."""
    blobs = [bytes([size % 251]) * size for size in SIZES]
    message = storage_pb2.AppendFrame(target="node", recovery=True, entries=blobs)
    head = storage_pb2.AppendFrame(target="node", recovery=True).SerializeToString()
    assert join_frame(head, blobs) == message.SerializeToString()


def test_blob_in_pieces_is_encoded_as_one_blob() -> None:
    """An entry's header and body become one field without a copy."""
    assert join_frame(b"", [(b"head", b"", b"body")]) == join_frame(b"", [b"headbody"])


def test_protobufs_encoding_is_split_without_a_copy() -> None:
    """Blobs are slices of the received bytes."""
    blobs = [bytes([size % 251]) * size for size in SIZES]
    data = storage_pb2.AppendFrame(target="node", recovery=True, entries=blobs).SerializeToString()
    head, found = split_frame(data)
    assert storage_pb2.AppendFrame.FromString(head) == storage_pb2.AppendFrame(target="node", recovery=True)
    assert [bytes(blob) for blob in found] == blobs
    assert all(blob.obj is data for blob in found)


def test_fields_in_any_order_and_unknown_fields_are_accepted() -> None:
    """Protobuf guarantees neither the order nor a closed set of fields; newer peers send more."""
    target = storage_pb2.AppendFrame(target="node").SerializeToString()
    recovery = storage_pb2.AppendFrame(recovery=True).SerializeToString()
    unknown = b"\xa0\x06\x07" + b"\xa5\x06abcd" + b"\xa1\x06abcdefgh" + b"\xa2\x06\x02hi"  # field 100 of each kind
    data = join_frame(target, [b"one"]) + unknown + join_frame(recovery, [b"two"])
    frame = storage_codec.decode_append(data)
    assert (str(frame.target), frame.recovery, [*map(bytes, frame.entries)]) == ("node", True, [b"one", b"two"])


@pytest.mark.parametrize("decode", DECODERS)
@given(data=st.binary(max_size=200))
def test_random_bytes_raise_only_invalid_argument(decode: Callable[[bytes], object], data: bytes) -> None:
    """Any received bytes give a value or this error, and no other exception."""
    with suppress(InvalidArgument):
        decode(data)


def _publish_frame() -> bytes:
    opening = owner_codec.OpenRequest(1, "public/default/flights", TopicId("0" * 32), "importer")
    frame = owner_codec.PublishFrame([SessionNumber(7)] * 2, [1, 2], [b"x" * 200, b"y" * 20], [opening])
    return owner_codec.encode_publish(frame)


@given(data=st.data())
def test_damaged_frame_raises_only_invalid_argument(data: st.DataObject) -> None:
    """Cuts and flipped bits in a valid frame reach deeper code than random bytes; the result may be another valid
    frame.
    """
    frame = bytearray(_publish_frame())
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= 1 << data.draw(st.integers(0, 7))
    cut = data.draw(st.integers(0, len(frame)))
    with suppress(InvalidArgument):
        owner_codec.decode_publish(bytes(frame[:cut]))


@given(data=st.binary(max_size=60))
def test_split_accepts_only_frames_that_protobuf_accepts(data: bytes) -> None:
    """Both refuse the same frames, and read the accepted ones alike."""
    try:
        head, blobs = split_frame(data)
        ours = storage_pb2.AppendFrame.FromString(head)
    except (InvalidArgument, DecodeError):
        return
    theirs = storage_pb2.AppendFrame.FromString(data)
    assert [bytes(blob) for blob in blobs] == list(theirs.entries)
    assert ours.target == theirs.target
    assert ours.recovery == theirs.recovery


def test_frame_truncated_inside_a_field_is_refused() -> None:
    """A cut between fields gives a shorter frame, which the counts refuse later."""
    data = join_frame(b"", [b"x" * 300])
    for cut in range(1, len(data)):
        with pytest.raises(InvalidArgument):
            split_frame(data[:cut])


def test_number_of_blobs_is_bounded() -> None:
    """Two bytes of a frame must not cost a slice of two hundred bytes without limit."""
    assert len(split_frame(join_frame(b"", [b""] * BLOBS_MAX))[1]) == BLOBS_MAX
    with pytest.raises(InvalidArgument, match="at most"):
        split_frame(join_frame(b"", [b""] * (BLOBS_MAX + 1)))


def test_head_size_is_bounded() -> None:
    """Protobuf parses the head into objects; the frame's limit bounds the blobs."""
    head = owner_pb2.OpenProducer(topic="x" * HEAD_BYTES_MAX).SerializeToString()
    with pytest.raises(InvalidArgument, match="head"):
        split_frame(owner_pb2.PublishFrame(opens=[owner_pb2.OpenProducer.FromString(head)]).SerializeToString())


def test_bulk_fields_are_bytes_with_number_fifteen() -> None:
    """The hand-written parser relies on this number; no other field may use it."""
    files = (storage_pb2, owner_pb2, metadata_pb2)
    bulk = {
        f"{message.name}.{field.name}": field.type
        for file in files
        for message in file.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
        if field.number == 15
    }
    assert set(bulk) == {
        "AppendFrame.entries",
        "ReadFrame.entries",
        "RecoverAnswer.reads",
        "PublishFrame.batches",
        "ReaderFrame.entries",
    }
    assert set(bulk.values()) == {12}  # TYPE_BYTES


def test_fields_of_a_head_are_counted_while_it_is_split() -> None:
    """A frame of 16 MiB of two-byte fields took 2.7 s of an owner's processor: it ends at the field over the limit, and
    what is behind that field is not looked at."""
    field_of_two_bytes = b"\x08\x01"
    allowed = field_of_two_bytes * HEAD_FIELDS_MAX
    assert split_frame(allowed) == (allowed, [])
    never_read = b"\x0f" * 1_000  # of no wire type that there is
    with pytest.raises(InvalidArgument, match=f"at most {HEAD_FIELDS_MAX} fields"):
        split_frame(allowed + field_of_two_bytes + never_read)


def test_openings_and_closings_of_a_frame_are_counted_before_objects_are_made() -> None:
    """An empty opening takes two bytes on the wire and half a kilobyte as an object."""
    message = owner_pb2.PublishFrame(closes=range(1, 500_000))
    for _ in range(owner_codec.OPENS_MAX + 1):
        message.opens.add()
    data = message.SerializeToString()
    tracemalloc.start()
    with pytest.raises(InvalidArgument, match=f"at most {owner_codec.OPENS_MAX}"):
        owner_codec.decode_publish(data)
    del message.opens[1:]
    with pytest.raises(InvalidArgument, match=f"at most {owner_codec.CLOSES_MAX}"):
        owner_codec.decode_publish(message.SerializeToString())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * len(data)


def test_names_of_an_opening_are_bounded() -> None:
    """The refusal of an opening repeats them and stays in memory until the client reads it."""
    message = owner_pb2.PublishFrame()
    message.opens.add(topic="x" * 2_000, mode=1, on_conflict=1)
    with pytest.raises(InvalidArgument, match="at most 1024 characters"):
        owner_codec.decode_publish(message.SerializeToString())


@pytest.mark.parametrize(
    "decode",
    [
        metadata_codec.LOOKUP.decode_request,
        owner_codec.PRODUCER_NAMES.decode_request,
        owner_codec.LAST_MESSAGE.decode_request,
        reader_codec.decode_read_control,
        storage_codec.decode_read_request,
        storage_codec.FENCE.decode_request,
    ],
)
def test_request_without_frame_format_has_a_size_limit(decode: Callable[[bytes], object]) -> None:
    """16 MiB of producer ids would become 16 million numbers before any authorization."""
    with pytest.raises(InvalidArgument, match="exceeds the limit"):
        decode(owner_pb2.ProducerNamesRequest(producer_ids=[1] * REQUEST_BYTES_MAX).SerializeToString())
