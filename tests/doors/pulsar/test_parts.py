"""Parts of entries as clients of Pulsar get them, read by protobuf."""

from collections.abc import Sequence
from random import Random

import pytest
from crc32c import crc32c

from oncelog.core.errors import InvalidBatch, InvariantViolated, MessageTooLarge
from oncelog.core.formats.compression import Compression
from oncelog.core.formats.pulsar import open_entry
from oncelog.core.formats.wire.pulsar_metadata_pb2 import EncryptionKey
from oncelog_doors.core.pulsar.deliveries import RawBatch, delivery_of
from oncelog_doors.core.pulsar.parts import can_be_cut, part_of
from oncelog_doors.pulsar.frames import build_entry
from tests.doors.core.pulsar.message_sets import ranges
from tests.doors.core.pulsar.stored_batches import APPENDED_MS, columns, of_client, stored
from tests.doors.pulsar.bytes_of_clients import checksum_matches
from tests.doors.pulsar.entries_at_clients import Got, client_entry, read

BYTES_MAX = 5 * 1024 * 1024


def bytes_of(raw: RawBatch, messages: Sequence[int], bytes_max: int = BYTES_MAX) -> bytes:
    """All that is sent behind the command. messages: indexes of the topic."""
    made = part_of(raw, ranges(messages), bytes_max)
    assert made.messages == len(messages)
    return bytes(build_entry(made.metadata, made.payload) if made.whole is None else made.whole)


def indexed(got: Got, index: int) -> Got:
    return got._replace(properties={**got.properties, "oncelog.index": str(index)})


# --- batches of columns -----------------------------------------------------------------------------------------------


@pytest.mark.hazard("wrong-bytes-of-ours", "mask-that-is-swallowed")
def test_part_of_a_batch_of_the_sdk_has_its_messages_with_their_indexes() -> None:
    """All that a message has stays with it. Ids begin with its first message, and end with its last."""
    data = columns(
        [b"one", b"two", b"three", b"four"],
        [7, 9, 10, 2**40],
        keys=[b"a", b"b", b"\xff\x00", None],
        times_ms=[None, 5, None, 6],
        properties=[{}, {"a": "b"}, {"oncelog.index": "mine"}, {}],
        compression=Compression.ZLIB,
    )
    entry = bytes_of(stored(data, base_index=100), [101, 102])
    assert checksum_matches(entry)
    metadata, messages = read(entry)
    assert (metadata.sequence_id, metadata.highest_sequence_id, metadata.count) == (9, 10, 2)
    assert messages == [
        Got(9, b"two", b"b", event_time=5, properties={"a": "b", "oncelog.index": "101"}),
        Got(10, b"three", b"/wA=", key_in_base64=True, properties={"oncelog.index": "102"}),
    ]


@pytest.mark.hazard("wrong-bytes-of-ours")
def test_part_of_one_message_is_a_batch() -> None:
    """One id for it at every client, whatever was cut."""
    metadata, messages = read(bytes_of(stored(columns([b"one", b"two"])), [101]))
    assert (metadata.count, messages) == (1, [Got(1, b"two", properties={"oncelog.index": "101"})])


def test_all_messages_are_the_entry_as_it_is() -> None:
    """Byte for byte, also if it is a batch of one."""
    entry = client_entry([3, 4, 5], codec=2)
    assert bytes_of(stored(of_client(entry, [3, 4, 5])), [100, 101, 102]) == entry
    one = stored(columns([b"x"]))
    assert part_of(one, ranges([100]), BYTES_MAX) == delivery_of(one, BYTES_MAX)
    rest = stored(columns([b"x", b"y", b"z"]), skip_first=1)
    assert part_of(rest, ranges([100, 101]), BYTES_MAX) == delivery_of(rest, BYTES_MAX)


@pytest.mark.parametrize(
    ("messages", "last"), [([101, 102], 102), ([100], 100), ([100, 102], None), ([101, 103], None)]
)
def test_index_of_the_last_message_is_known_of_one_run_alone(messages: list[int], last: int | None) -> None:
    """Clients count back from it."""
    raw = stored(columns([b"a", b"b", b"c", b"d"]), entry_id=8)
    made = part_of(raw, ranges(messages), BYTES_MAX)
    assert (made.last_index, made.messages, made.append_time_ms) == (last, len(messages), APPENDED_MS + 8)
    assert (made.id.position, made.whole) == ((5, 8), None)


def test_part_above_the_limit_of_clients_is_compressed_or_refused() -> None:
    raw = stored(columns([b"value %05d " % number * 10 for number in range(1000)]))
    small = bytes_of(raw, range(100, 1000), 80_000)
    assert len(small) <= 80_010
    assert read(small)[0].codec == 2
    assert len(read(small)[1]) == 900
    with pytest.raises(MessageTooLarge, match="5:3"):
        part_of(stored(columns([Random(1).randbytes(50_000), b"x"])), ranges([100]), 40_000)


# --- entries of clients -----------------------------------------------------------------------------------------------


@pytest.mark.hazard("wrong-bytes-of-ours")
@pytest.mark.parametrize("codec", [0, 2])
@pytest.mark.parametrize("with_ids", [True, False])
@pytest.mark.parametrize("skip", [0, 1])
@pytest.mark.parametrize("kept", [[0], [1, 2], [0, 2], [3], [0, 1, 3]])
def test_part_of_a_clients_entry_has_its_messages(codec: int, skip: int, kept: list[int], *, with_ids: bool) -> None:
    """The others are left out, also a known prefix; all else stays, also fields that are not known here."""
    ids = [6, 7, 8, 9, 10][: 4 + skip]
    whole = client_entry(ids, codec=codec, with_ids=with_ids)
    entry = bytes_of(stored(of_client(whole, ids), skip_first=skip, base_index=40), [40 + number for number in kept])
    assert checksum_matches(entry)
    metadata, messages = read(entry)
    _, all_messages = read(whole)
    assert messages == [indexed(all_messages[skip + number], 40 + number) for number in kept]
    assert (metadata.sequence_id, metadata.highest_sequence_id) == (ids[skip + kept[0]], ids[skip + kept[-1]])
    assert (metadata.count, metadata.codec, metadata.schema_version) == (len(kept), 0, b"\x00\x07")
    assert b"\x82\x02\x03abc" in entry
    if with_ids or kept[-1] - kept[0] == len(kept) - 1:
        assert open_entry(entry, checksum=crc32c).count == len(kept)


def test_batch_of_one_key_of_java_can_be_cut() -> None:
    """Its metadata has the highest id alone; its messages have their own."""
    whole = client_entry([1, 3, 5])
    raw = stored(of_client(whole, [1, 5, 5], unit=True))
    assert can_be_cut(raw)
    metadata, messages = read(bytes_of(raw, [100, 102]))
    assert [message.sequence_id for message in messages] == [1, 5]
    assert (metadata.sequence_id, metadata.highest_sequence_id) == (1, 5)


@pytest.mark.parametrize("unit", [True, False])
def test_encrypted_entries_cannot_be_cut(*, unit: bool) -> None:
    """Their messages are not visible."""
    secret = client_entry([1, 2, 3], encryption_keys=[EncryptionKey(name="k", key=b"k")])
    raw = stored(of_client(secret, [1, 2, 3], unit=unit))
    assert not can_be_cut(raw)
    with pytest.raises(InvalidBatch):
        part_of(raw, ranges([100]), BYTES_MAX)
    assert bytes_of(raw, [100, 101, 102]) == secret


def test_other_entries_can_be_cut() -> None:
    assert can_be_cut(stored(columns([b"x", b"y"])))
    assert can_be_cut(stored(of_client(client_entry([1, 2], codec=2), [1, 2])))
    with pytest.raises(InvalidBatch):
        can_be_cut(stored(of_client(b"\x0e\x01\0\0", [1, 2])))


@pytest.mark.parametrize("messages", [[], [99, 100], [102, 103], [103]])
def test_messages_of_another_entry_are_a_fault_of_the_caller(messages: list[int]) -> None:
    with pytest.raises(InvariantViolated):
        part_of(stored(columns([b"x", b"y", b"z"])), ranges(messages), BYTES_MAX)


@pytest.mark.parametrize("damaged", [b"\x00\x00\x00\xff", b"\x00\x00\x00\x03\x18\xff\x7f"])
def test_entries_that_contradict_themselves_are_an_error(damaged: bytes) -> None:
    """Sizes that reach beyond the entry: of the metadata of a message, and of its value."""
    entry = client_entry([1, 2, 3])
    at = 10 + int.from_bytes(entry[6:10])
    broken = entry[:at] + damaged + entry[at + len(damaged) :]
    with pytest.raises(InvalidBatch):
        part_of(stored(of_client(broken, [1, 2, 3])), ranges([100]), BYTES_MAX)


def test_any_part_is_read_by_the_reader_of_clients_entries() -> None:
    """Of batches of columns with everything, and of any messages of them."""
    random = Random(3)
    for _ in range(100):
        count = random.choice((2, 3, 40))
        values = [random.randbytes(random.choice((0, 1, 127, 300))) for _ in range(count)]
        properties = [{str(n): "v" * n for n in range(random.randint(0, 3))} for _ in range(count)]
        data = columns(values, properties=random.choice((None, properties)))
        skip = random.randint(0, count - 2)
        kept = sorted(random.sample(range(skip, count), random.randint(1, count - skip - 1)))
        entry = bytes_of(stored(data, skip_first=skip, base_index=100 + skip), [100 + number for number in kept])
        found = open_entry(entry, checksum=crc32c)
        assert (list(found.values), list(found.ids or ())) == ([values[number] for number in kept], kept)
        assert [each["oncelog.index"] for each in found.properties or ()] == [str(100 + number) for number in kept]
