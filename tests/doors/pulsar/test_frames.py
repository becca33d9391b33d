"""Frames: what a client sends is read from any pieces, what we send is what the protocol says, all else is refused."""

import struct
from random import Random

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog_doors.pulsar.commands import (
    ACK_SET_WORDS_MAX,
    ITEMS_MAX,
    MESSAGE_IDS_MAX,
    NAMES,
    TEXT_BYTES_MAX,
    TYPES,
    command,
)
from oncelog_doors.pulsar.frames import (
    BEFORE_CONNECT,
    ENTRY_COMMAND_BYTES_MAX,
    FrameLimits,
    FrameReader,
    build_entry,
    frame_of,
    frame_with_entry,
    limits_after_connect,
)
from oncelog_doors.wire.pulsar_commands_pb2 import Message, Pong, SendReceipt
from oncelog_doors.wire.pulsar_values_pb2 import BrokerEntry, MessageId
from tests.doors.pulsar.bytes_of_clients import (
    ACK,
    FLOW,
    LOOKUP,
    ORDINARY,
    PING,
    REDELIVER,
    SEND,
    SUBSCRIBE,
    body,
    checksum_matches,
    connect,
    entry,
    field,
    frame,
    pieces,
)
from tests.doors.pulsar.bytes_of_clients import command as command_bytes

MIB = 1024 * 1024
OPEN = limits_after_connect(5 * MIB)
MANY = 300
#: Its name is a text in a message in a message.
AN_ID = body((1, 5), (2, 6))
LONG_SCHEMA = (12, body((1, b"x" * 40_000), (3, b""), (4, 1)))


def read_all(data: bytes, limits: FrameLimits = OPEN) -> list[str]:
    """The names of the commands in the bytes."""
    reader = FrameReader(limits)
    reader.feed(data)
    names = []
    while (found := reader.read()) is not None:
        names.append(found.name)
    return names


def refused(data: bytes, limits: FrameLimits = OPEN) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        read_all(data, limits)
    return caught.value


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_read_from_any_pieces(seed: int) -> None:
    """In their order, also where a piece ends inside of a size."""
    random = Random(seed)
    names = random.choices(list(ORDINARY), k=MANY)
    data = b"".join(ORDINARY[name] for name in names)
    reader = FrameReader(OPEN)
    found = []
    for piece in pieces(data, random):
        reader.feed(memoryview(piece))
        while (read := reader.read()) is not None:
            found.append(read.name)
    assert found == names
    assert reader.unread == 0


def test_frames_are_read_from_a_long_stream_whose_pieces_end_inside_of_frames() -> None:
    """What was read is dropped, although the buffer is never empty."""
    data = ORDINARY["send"] * 2000
    reader = FrameReader(OPEN)
    count = 0
    for at in range(0, len(data), 997):
        reader.feed(data[at : at + 997])
        while reader.read() is not None:
            count += 1
        assert reader.unread < 2000
    assert count == 2000


@pytest.mark.parametrize("name", ORDINARY)
def test_no_cut_frame_is_read(name: str) -> None:
    """Every prefix waits for the rest, and raises nothing."""
    data = ORDINARY[name]
    for end in range(len(data)):
        assert read_all(data[:end]) == []
    assert read_all(data) == [name]


def test_entry_is_kept_as_it_came() -> None:
    """From its mark on: no byte is built again."""
    metadata, payload = body((1, b"importer"), (2, 7), (3, 8), (99, b"unknown")), b"\x00\xff" * 5000
    data = frame(command_bytes(SEND, (1, 3), (2, 7), (3, 5), (6, 11)), entry(metadata, payload))
    reader = FrameReader(OPEN)
    reader.feed(data)
    found = reader.read()
    assert found is not None
    assert found.entry == entry(metadata, payload)
    send = found.command.send
    assert (send.producer_id, send.sequence_id, send.message_count, send.highest_sequence_id) == (3, 7, 5, 11)
    assert checksum_matches(found.entry)


@pytest.mark.parametrize("place", [2, 5, 6, 9, 10, 40, -1])
def test_checksum_covers_all_behind_it(place: int) -> None:
    """The checksum itself, the size of the metadata, these, and the payload."""
    data = bytearray(entry(body((1, b"importer"), (2, 7)), b"x" * 100))
    assert checksum_matches(data)
    data[place] ^= 1
    assert not checksum_matches(data)


def test_defaults_are_those_of_the_protocol() -> None:
    """A field that is absent has a value that is not always 0."""
    reader = FrameReader(OPEN)
    reader.feed(
        frame(command_bytes(SUBSCRIBE, (1, b"t"), (2, b"s"), (3, 1), (4, 1), (5, 2), (9, body((1, 5), (2, 6)))))
    )
    found = reader.read()
    assert found is not None
    subscribe = found.command.subscribe
    assert subscribe.durable
    assert subscribe.may_create
    assert (subscribe.start.batch_index, subscribe.start.partition) == (-1, -1)


def test_unknown_value_of_an_enumeration_is_kept() -> None:
    """An access mode of a later version is not taken for the first one."""
    reader = FrameReader(OPEN)
    reader.feed(frame(command_bytes(5, (1, b"t"), (2, 1), (3, 1), (10, 9))))
    found = reader.read()
    assert found is not None
    assert found.command.producer.access == 9


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "size"),
    [(BEFORE_CONNECT, 64 * 1024 + 1), (OPEN, 5 * MIB + 64 * 1024 + 1), (OPEN, 2**31), (OPEN, 2**32 - 1)],
)
def test_frame_that_is_too_large_is_not_waited_for(limits: FrameLimits, size: int) -> None:
    """Its first four bytes say so."""
    error = refused(struct.pack(">I", size), limits)
    assert error.details == {"field": "size", "limit": limits.frame_bytes_max}
    assert str(size) in str(error)


@pytest.mark.parametrize(
    ("size", "command_size", "limits", "named"),
    [
        (0, 0, OPEN, "size"),
        (4, 0, OPEN, "size"),
        (5, 0, OPEN, "command_size"),
        (5, 2, OPEN, "command_size"),
        (100, 97, OPEN, "command_size"),
        (100, 2**32 - 1, OPEN, "command_size"),
        (MIB + 5, MIB + 1, OPEN, "command_size"),
        (2 * MIB, ENTRY_COMMAND_BYTES_MAX + 1, OPEN, "command_size"),
        (100, 50, BEFORE_CONNECT, "size"),
    ],
)
def test_sizes_that_contradict_are_refused_by_eight_bytes(
    size: int, command_size: int, limits: FrameLimits, named: str
) -> None:
    """Nothing behind them is waited for."""
    assert refused(struct.pack(">II", size, command_size), limits).details["field"] == named


def test_largest_frames_pass() -> None:
    """At the limits themselves."""
    text = b"x" * TEXT_BYTES_MAX
    largest = frame(command_bytes(LOOKUP, (1, text), (2, 1)))
    assert read_all(largest) == ["lookup"]
    padding = 64 * 1024 - len(connect()) + 4 - len(field(900, b"")) - 2
    padded = command_bytes(2, (1, b"Pulsar-CPP-v4.2.0"), (900, b"x" * padding))
    assert len(padded) <= 64 * 1024
    assert read_all(frame(padded), BEFORE_CONNECT) == ["connect"]
    space = OPEN.frame_bytes_max - len(command_bytes(SEND, (1, 1), (2, 1))) - 4 - len(entry(b"m", b""))
    assert read_all(frame(command_bytes(SEND, (1, 1), (2, 1)), entry(b"m", b"x" * space))) == ["send"]
    assert "at most" in str(refused(frame(command_bytes(SEND, (1, 1), (2, 1)), entry(b"m", b"x" * (space + 1)))))


def test_limits_are_raised_between_two_frames() -> None:
    """What follows CONNECT in the same piece is read by the new ones."""
    reader = FrameReader()
    reader.feed(connect() + ORDINARY["send"])
    found = reader.read()
    assert found is not None
    assert found.name == "connect"
    reader.limits = OPEN
    found = reader.read()
    assert found is not None
    assert found.name == "send"


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (command_bytes(LOOKUP, (1, b"x" * (TEXT_BYTES_MAX + 1)), (2, 1)), "lookup.topic"),
        (command_bytes(LOOKUP, (1, "é".encode() * (TEXT_BYTES_MAX // 2 + 1)), (2, 1)), "lookup.topic"),
        (command_bytes(ACK, (1, 1), (2, 0), *[(3, AN_ID)] * (MESSAGE_IDS_MAX + 1)), "ack.message_ids"),
        (command_bytes(REDELIVER, (1, 1), *[(2, AN_ID)] * (MESSAGE_IDS_MAX + 1)), "redeliver.message_ids"),
        (
            command_bytes(ACK, (1, 1), (2, 0), (3, body((1, 5), (2, 6), *[(5, 1)] * (ACK_SET_WORDS_MAX + 1)))),
            "ack.message_ids.ack_set",
        ),
        (
            command_bytes(
                SUBSCRIBE, (1, b"t"), (2, b"s"), (3, 3), (4, 1), (5, 2),
                (17, body((1, 1), *[(3, body((1, 0), (2, 1)))] * (ITEMS_MAX + 1))),
            ),
            "subscribe.key_shared.ranges",
        ),
        (command_bytes(SUBSCRIBE, (1, b"t"), (2, b"s"), (3, 0), (4, 1), (5, 2), LONG_SCHEMA), "subscribe.schema.name"),
    ],
)  # fmt: skip
def test_values_are_bounded(data: bytes, named: str) -> None:
    """The error names the field and the limit."""
    details = refused(frame(data)).details
    assert details["field"] == named
    assert details["limit"] is not None


@pytest.mark.parametrize("depth", [1, 2, 16, 98, 101, 500, 10_000])
def test_ids_do_not_nest(depth: int) -> None:
    """The id of a first chunk may contain an id and so on; all but the outermost one is skipped, or refused."""
    nested = body((1, 5), (2, 6))
    for _ in range(depth):
        nested = body((1, 5), (2, 6), (7, nested))
    data = frame(command_bytes(ACK, (1, 1), (2, 0), (3, nested)))
    assert len(data) < MIB
    reader = FrameReader(OPEN)
    reader.feed(data)
    found = reader.read()
    assert found is not None
    assert found.command.ack.message_ids[0].first_chunk.entry_id == 6


def test_groups_do_not_nest() -> None:
    """The other form in which an unknown field can contain itself: protobuf counts them."""
    groups = varint_group(200)
    assert "cannot be read" in str(refused(frame(command_bytes(PING) + groups)))


def varint_group(depth: int) -> bytes:
    start, end = b"\xfb\x06", b"\xfc\x06"  # a group of number 111
    return start * depth + end * depth


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (body((1, 99)), "unknown type 99"),
        (body((1, 0)), "unknown type 0"),
        (body((1, 68)), "unknown type 68"),
        (body((2, b"")), "no type"),
        (body((1, PING)), "body of none"),
        (body((1, PING), (19, b"")), "type of ping, and the body of pong"),
        (body((1, FLOW), (FLOW, body((1, 1)))), "flow.permits"),
        (body((1, SEND), (SEND, b"")), "send.producer_id, send.sequence_id"),
        (body((1, ACK), (ACK, body((1, 1), (2, 0), (3, body((1, 5)))))), "ack.message_ids[0].entry_id"),
        (command_bytes(LOOKUP, (1, b"\xff\xfe"), (2, 1)), "UTF-8"),
        (b"\x08", "cannot be read"),
        (b"\xff" * 20, "cannot be read"),
        (command_bytes(SEND, (1, 1), (2, 1)), "entry of 0 bytes"),
    ],
)
def test_command_is_refused_with_the_reason(data: bytes, said: str) -> None:
    """The log line is all that is left of the connection."""
    assert said in str(refused(frame(data)))


@pytest.mark.parametrize(("metadata", "payload"), [(b"meta", b"data" * 1000), (b"m", b""), (b"", b"\x0e\x01")])
def test_entry_without_a_checksum_gets_one(metadata: bytes, payload: bytes) -> None:
    """As Pulsar takes it. It is stored as one whose client has written the checksum."""
    reader = FrameReader(OPEN)
    reader.feed(frame(command_bytes(SEND, (1, 1), (2, 1)), struct.pack(">I", len(metadata)) + metadata + payload))
    found = reader.read()
    assert found is not None
    assert found.entry == entry(metadata, payload)
    assert checksum_matches(found.entry)


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (b"\x0e\x01", "entry of 2 bytes"),
        (struct.pack(">I", 15) + b"abcd" + b"x" * 10, "without a checksum, and metadata of 15"),
        (struct.pack(">HII", 0x0E02, 2, 0) + b"ab" + entry(b"m", b"p"), "without a checksum, and metadata of 235"),
        (struct.pack(">HII", 0x0E01, 0, 3) + b"ab", "metadata of 3"),
        (struct.pack(">HII", 0x0E01, 0, 2**32 - 1) + b"ab", "metadata of 4294967295"),
    ],
)
def test_entry_is_refused_with_the_reason(rest: bytes, said: str) -> None:
    """What a broker puts in front of an entry no client sends."""
    assert said in str(refused(frame(command_bytes(SEND, (1, 1), (2, 1)), rest)))


def test_only_send_has_an_entry() -> None:
    error = refused(frame(command_bytes(PING), entry(b"m", b"p")))
    assert "follow ping" in str(error)


# --- hostile bytes ----------------------------------------------------------------------------------------------------


def ends(data: bytes, limits: FrameLimits, random: Random) -> bool:
    """Whether the bytes, in pieces, are refused. Nothing but InvalidArgument is raised, and nothing is held that the
    limits do not allow."""
    reader = FrameReader(limits)
    for piece in pieces(data, random):
        reader.feed(piece)
        try:
            while reader.read() is not None:
                pass
        except InvalidArgument as error:
            return bool(error.details["field"])
        assert reader.unread <= limits.frame_bytes_max + 4
    return False


@pytest.mark.parametrize("seed", range(10))
def test_garbage_is_refused(seed: int) -> None:
    """Of any length, also behind ordinary frames."""
    random = Random(seed)
    refusals = 0
    for _ in range(MANY):
        start = random.choice([b"", *ORDINARY.values()])
        refusals += ends(start + random.randbytes(random.randrange(200)), OPEN, random)
    assert refusals > MANY / 2


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", ORDINARY)
def test_damaged_frame_is_read_or_refused(name: str, seed: int) -> None:
    """One byte that differs, is missing or is too many; then an ordinary frame."""
    random = Random(seed)
    for _ in range(MANY // 5):
        data = bytearray(ORDINARY[name])
        at = random.randrange(len(data))
        match random.randrange(3):
            case 0:
                data[at] ^= 1 << random.randrange(8)
            case 1:
                del data[at]
            case _:
                data.insert(at, random.randrange(256))
        ends(bytes(data) + ORDINARY["ping"], random.choice((BEFORE_CONNECT, OPEN)), random)


@pytest.mark.parametrize("seed", range(5))
def test_wrong_sizes_are_read_or_refused(seed: int) -> None:
    """Both sizes of ordinary frames, and that of the metadata."""
    random = Random(seed)
    sizes = (0, 1, 4, 5, 255, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
    for name, whole in ORDINARY.items():
        for at in (0, 4, *([len(whole) - 300 - 4] if name == "send" else ())):
            for size in sizes:
                data = whole[:at] + struct.pack(">I", size) + whole[at + 4 :]
                ends(data + ORDINARY["ping"] * 3, OPEN, random)


# --- writing ----------------------------------------------------------------------------------------------------------


def test_receipt_is_what_the_protocol_says() -> None:
    """Byte by byte."""
    receipt = SendReceipt(producer_id=3, sequence_id=7, message_id=MessageId(ledger_id=5, entry_id=6))
    expected = frame(command_bytes(7, (1, 3), (2, 7), (3, body((1, 5), (2, 6)))))
    assert frame_of(command(send_receipt=receipt)) == expected


def test_lists_of_numbers_are_not_packed() -> None:
    """Older clients do not read packed ones."""
    message = Message(consumer_id=1, message_id=MessageId(ledger_id=5, entry_id=6), ack_set=[1, -1])
    data = frame_of(command(message=message))
    assert data == frame(command_bytes(9, (1, 1), (2, body((1, 5), (2, 6))), (4, 1), (4, -1)))


@pytest.mark.parametrize("broker_entry", [None, BrokerEntry(append_time=1_700_000_000_000, index=41)])
def test_message_is_read_by_the_other_side(broker_entry: BrokerEntry | None) -> None:
    """With and without what a broker puts in front of the entry."""
    stored = build_entry(body((1, b"importer"), (2, 7), (3, 8)), b"payload")
    assert stored == entry(body((1, b"importer"), (2, 7), (3, 8)), b"payload")
    sent = command(message=Message(consumer_id=1, message_id=MessageId(ledger_id=5, entry_id=6)))
    data = b"".join(frame_with_entry(sent, stored, broker_entry))
    front = b"" if broker_entry is None else body((1, 1_700_000_000_000), (2, 41))
    marked = front and struct.pack(">HI", 0x0E02, len(front)) + front
    assert data == frame(command_bytes(9, (1, 1), (2, body((1, 5), (2, 6)))), marked + stored)
    reader = FrameReader(OPEN, with_entry="message")
    reader.feed(data)
    found = reader.read()
    assert found is not None
    assert (found.entry, found.broker_entry) == (stored, broker_entry)


def test_names_and_types_are_each_others_inverse() -> None:
    assert {name: TYPES[name] for name in NAMES.values()} == TYPES
    assert frame_of(command(pong=Pong())) == frame(body((1, 19), (19, b"")))
