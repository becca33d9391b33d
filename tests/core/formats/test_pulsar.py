"""Entries of Pulsar's clients: every message is found, and nothing that contradicts itself is stored."""

import random
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidArgument, InvalidBatch, MessageTooLarge, OncelogError
from oncelog.core.format_errors import MessageEncrypted
from oncelog.core.formats.batch import (
    LONG_CHECK_BYTES,
    LONG_CHECK_COUNT,
    BatchHeader,
    decode_batch,
    deltas_of,
    payload_of,
    peek_batch,
)
from oncelog.core.formats.batch_check import BatchLimits, check_batch
from oncelog.core.formats.payload import (
    columns_of,
    encrypted_columns,
    message_ids,
    open_payload,
    read_columns,
)
from oncelog.core.formats.pulsar import (
    COUNT_MAX,
    PROPERTIES_MAX,
    TEXT_BYTES_MAX,
    PulsarMessages,
    open_entry,
    pulsar_takes_long,
)
from oncelog.core.ids import SEQUENCE_ID_MAX, Generation, ProducerId
from tests.core.builders import checksum
from tests.core.pulsar_entries import (
    LZ4,
    SNAPPY,
    ZLIB,
    ZSTD,
    Sent,
    as_batch,
    batched,
    encrypted,
    finished,
    framed,
    inner,
    numbered,
    of_one_key,
    outer,
    pack_pulsar,
    packed,
    plain,
)

LIMITS = BatchLimits(100_000)
CODECS = (0, LZ4, ZLIB, ZSTD, SNAPPY)
MESSAGES = [
    Sent(3, b"first", b"key", {"a": "1", "b": "é"}, 1_700_000_000_000),
    Sent(5, None, b"\xff\x00"),
    Sent(9, b"", b"", {}, 0, b"order"),
    Sent(10, b"x" * 1000),
]


def check(entry: bytes) -> BatchHeader:
    """What an owner answers to this entry in a batch as a door packs it."""
    messages = open_entry(entry, raw_bytes_max=1 << 30)
    data = pack_pulsar(entry, messages, producer_id=ProducerId(1), generation=Generation(1), checksum=checksum)
    return check_batch(data, checksum, LIMITS, producer_name="p")


@pytest.mark.parametrize("codec", CODECS)
def test_every_message_of_a_batch_is_found(codec: int) -> None:
    """Values, keys in text and in base64, properties, event times, ids with holes, null, keys of order."""
    found = open_entry(batched(MESSAGES, codec=codec), checksum=checksum)
    assert (found.producer_name, found.first, found.last, found.count, found.unit) == ("p", 3, 10, 4, False)
    assert list(found.ids or ()) == [3, 5, 9, 10]
    assert list(found.values) == [b"first", b"", b"", b"x" * 1000]
    assert list(found.nulls) == [1]
    assert found.keys == [b"key", b"\xff\x00", b"", None]
    assert found.properties == [{"a": "1", "b": "é"}, {}, {}, {}]
    assert found.event_times_ms == [1_700_000_000_000, None, None, None]
    assert found.ordering_keys == [None, None, b"order", None]
    assert found.publish_time_ms == 1_764_000_000_000


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("sent", MESSAGES)
def test_a_message_that_is_no_batch_is_found(sent: Sent, codec: int) -> None:
    """Its metadata is that of the entry."""
    found = open_entry(plain(sent, codec=codec), checksum=checksum)
    assert (found.first, found.last, found.count, found.unit, list(found.ids or ())) == (
        sent.sequence_id, sent.sequence_id, 1, False, [sent.sequence_id],
    )  # fmt: skip
    assert list(found.values) == [sent.value or b""]
    assert list(found.nulls) == ([0] if sent.value is None else [])
    assert found.keys == (None if sent.key is None else [sent.key])
    assert found.properties == ([sent.properties] if sent.properties else None)


def test_a_client_without_ids_in_messages_is_read_by_the_ids_of_its_batch() -> None:
    """Only if they are dense: otherwise it is unknown which message has which id."""
    dense = numbered(range(7, 12))
    assert list(open_entry(batched(dense, with_ids=False)).ids or ()) == [7, 8, 9, 10, 11]
    for refused in (batched(MESSAGES, with_ids=False), batched(dense, with_ids=False, with_highest=False)):
        with pytest.raises(InvalidBatch, match="contradict a count"):
            open_entry(refused)


@pytest.mark.hazard("batches-of-keys")
def test_a_batch_of_one_key_is_a_unit_known_by_its_highest_id() -> None:
    """Java's key-based batches: {0, 2, 4}, then {1, 3, 5}. Each message keeps its own id."""
    for ids in ([0, 2, 4], [1, 3, 5]):
        entry = of_one_key([replace(each, key=b"k") for each in numbered(ids)])
        header = check(entry)
        assert (header.first, header.last, header.count, header.unit, header.dense) == (
            ids[-1],
            ids[-1],
            3,
            True,
            False,
        )
        data = as_batch(entry, [ids[-1]], unit=True, count=3)
        columns = read_columns(header, payload_of(header, data))
        assert list(message_ids(header, b"", columns)) == ids


def test_an_encrypted_batch_is_a_unit_and_shows_no_value() -> None:
    """Never its bytes as a value. A single message has an id that everyone can read."""
    entry = encrypted(4, 9, count=6, key=b"k")
    header = check(entry)
    assert (header.first, header.last, header.count, header.unit) == (4, 9, 6, True)
    messages = open_payload(header, entry)
    assert messages.encryption is not None
    assert (messages.encryption.keys, messages.encryption.algorithm) == ({"our-key": b"\x01\x02"}, "AES")
    with pytest.raises(MessageEncrypted, match="our-key"):
        read_columns(header, entry)
    shown = encrypted_columns(messages)
    assert [bytes(value) for value in shown.values] == [b""] * 6
    assert (shown.keys, list(message_ids(header, b"", shown))) == ([b"k"] * 6, [4, 5, 6, 7, 8, 9])
    one = check(encrypted(4))
    assert (one.first, one.last, one.count, one.unit) == (4, 4, 1, False)
    assert check(encrypted(4, 9, count=3)).unit, "with holes, which only its producer knows"


def test_columns_of_an_entry_are_those_that_readers_know() -> None:
    """An entry is read as a batch of ours is; null is not empty."""
    entry = batched(MESSAGES)
    data = as_batch(entry, [3, 5, 9, 10])
    header = check_batch(data, checksum, LIMITS)
    columns = read_columns(header, payload_of(header, data))
    assert columns.values.to_list() == [b"first", b"", b"", b"x" * 1000]
    assert list(columns.nulls or ()) == [False, True, False, False]
    assert list(message_ids(header, deltas_of(header, data), columns)) == [3, 5, 9, 10]
    assert columns_of(open_entry(batched(numbered([1, 2])))).nulls is None


def test_fields_that_are_not_known_are_kept() -> None:
    """The bytes are stored as they came: a schema's id, hashes, whatever a later client writes."""
    metadata = outer(1).SerializeToString() + b"\x82\x02\x03abc"  # field 32
    entry = framed(metadata, b"value")
    data = as_batch(entry, [1])
    header = check_batch(data, checksum, LIMITS)
    assert bytes(payload_of(header, data)) == entry


def changed(**fields: object) -> Callable[[], bytes]:
    """A single message with other metadata."""

    def make() -> bytes:
        metadata = outer(1)
        for name, value in fields.items():
            setattr(metadata, name, value)
        return finished(metadata, b"value")

    return make


#: One more than a message may have.
MANY_NAMES = [str(number) for number in range(PROPERTIES_MAX + 1)]


def one_batch(raw: bytes, count: int, *, first: int = 0, last: int | None = None) -> bytes:
    metadata = outer(first)
    metadata.count = count
    metadata.highest_sequence_id = first + count - 1 if last is None else last
    return finished(metadata, raw)


LIES: list[tuple[str, str, Callable[[], bytes]]] = [
    ("shorter than its head", "entry", lambda: plain(Sent(1))[:9]),
    ("without the mark", "magic", lambda: b"\x0e\x02" + plain(Sent(1))[2:]),
    ("another checksum", "checksum", lambda: plain(Sent(1))[:2] + b"\0\0\0\0" + plain(Sent(1))[6:]),
    ("metadata beyond the entry", "metadata_size", lambda: plain(Sent(1))[:6] + b"\0\1\0\0" + plain(Sent(1))[10:]),
    ("metadata that is none", "metadata", lambda: framed(b"\xff\xff", b"")),
    ("no producer", "producer_name", lambda: framed(b"\x10\1\x18\1", b"")),
    ("no id", "sequence_id", lambda: framed(b"\x0a\1p\x18\1", b"")),
    ("no publish time", "publish_time", lambda: framed(b"\x0a\1p\x10\1", b"")),
    ("an id above 63 bits", "sequence_id", changed(sequence_id=2**63)),
    ("a highest id above 63 bits", "highest_sequence_id", changed(highest_sequence_id=2**64 - 1)),
    ("a publish time above 63 bits", "publish_time", changed(publish_time=2**64 - 1)),
    ("an event time above 63 bits", "event_time", changed(event_time=2**63)),
    ("a single message with two ids", "highest_sequence_id", changed(highest_sequence_id=7)),
    ("a chunk", "chunks", changed(chunks=2)),
    ("a delay", "deliver_at_time", changed(deliver_at_time=1)),
    ("a marker", "marker_type", changed(marker_type=10)),
    ("a transaction", "transaction_low", changed(transaction_low=1)),
    ("a copy of another cluster", "replicated_from", changed(replicated_from="west")),
    ("an unknown compression", "compression", changed(codec=5)),
    ("a negative compression", "compression", changed(codec=-1)),
    ("compressed, and it is not", "payload", changed(codec=ZSTD, raw_bytes=5)),
    ("a name that is too long", "producer_name", changed(producer_name="p" * (TEXT_BYTES_MAX + 1))),
    ("a key that is too long", "partition_key", changed(key=b"k" * (TEXT_BYTES_MAX + 1))),
    ("a key that is no base64", "partition_key", changed(key=b"k!", key_in_base64=True)),
    ("too many properties", "properties", lambda: plain(Sent(1, properties=dict.fromkeys(MANY_NAMES, "")))),
    ("a property that is too long", "properties", lambda: plain(Sent(1, properties={"n": "é" * 16385}))),
    ("no messages", "num_messages_in_batch", lambda: one_batch(b"", 0, last=5)),
    ("a negative count", "num_messages_in_batch", lambda: one_batch(b"", -1, last=5)),
    ("too many messages", "num_messages_in_batch", lambda: one_batch(b"", COUNT_MAX + 1)),
    ("2**31 messages", "num_messages_in_batch", lambda: one_batch(b"", 2**31 - 1)),
    ("fewer messages than counted", "num_messages_in_batch", lambda: one_batch(inner(numbered(range(4))), 5)),
    ("more messages than counted", "num_messages_in_batch", lambda: one_batch(inner(numbered(range(6))), 5)),
    ("metadata of a message beyond the batch", "single_metadata_size", lambda: one_batch(b"\0\1\0\0", 1)),
    ("metadata of a message that is none", "single_metadata", lambda: one_batch(b"\0\0\0\2\xff\xff", 1)),
    ("a message without a size", "payload_size", lambda: one_batch(b"\0\0\0\0", 1)),
    ("a message with a negative size", "payload_size", lambda: one_batch(b"\0\0\0\x0b\x18" + b"\xff" * 9 + b"\1", 1)),
    ("a value beyond the batch", "payload_size", lambda: one_batch(b"\0\0\0\2\x18\x05abcd", 1)),
    ("a value of an id beyond the batch", "payload_size", lambda: one_batch(b"\0\0\0\4\x18\5\x40\1abcd", 1, first=1)),
    ("a compacted message with an id", "compacted_out", lambda: one_batch(b"\0\0\0\6\x18\1\x20\1\x40\1v", 1, first=1)),
    ("a message that was compacted", "compacted_out", lambda: one_batch(b"\0\0\0\4\x18\0\x20\1", 1)),
    ("ids that descend", "sequence_id", lambda: one_batch(inner(numbered([1, 0])), 2)),
    ("an id twice", "sequence_id", lambda: one_batch(inner(numbered([0, 0, 2])), 3)),
    ("other ids than the batch", "sequence_id", lambda: one_batch(inner(numbered([3, 4])), 2)),
    ("an id of a message above 63 bits", "sequence_id", lambda: one_batch(inner(numbered([0, 2**63])), 2)),
    ("one id of two", "sequence_id", lambda: one_batch(inner([Sent(0)]) + inner([Sent(1)], with_ids=False), 2)),
    ("an encrypted batch of more messages than ids", "highest_sequence_id", lambda: encrypted(1, 3, count=9)),
    ("an encrypted batch that ends before it begins", "highest_sequence_id", lambda: encrypted(3, 1, count=2)),
    ("an encrypted batch of 2**31", "num_messages_in_batch", lambda: encrypted(0, 2**31, count=2**31 - 1)),
]  # fmt: skip


@pytest.mark.hazard("batch-that-counts-wrongly")
@pytest.mark.parametrize(("field", "lie"), [each[1:] for each in LIES], ids=[each[0] for each in LIES])
def test_an_entry_that_contradicts_itself_is_refused_by_its_field(field: str, lie: Callable[[], bytes]) -> None:
    """No reader could read it, or it would be another one for each reader. The owner refuses it before it is stored."""
    entry = lie()
    with pytest.raises(InvalidBatch) as refused:
        open_entry(entry, checksum=checksum)
    assert refused.value.details["field"] == field, refused.value.message
    with pytest.raises(InvalidBatch):
        check_batch(as_batch(entry, [1]), checksum, LIMITS)


@pytest.mark.hazard("entry-of-another-producer")
def test_an_entry_that_names_another_producer_is_refused() -> None:
    """A producer of a stream would forge messages of others: consumers see the name that is in the entry."""
    data = as_batch(plain(Sent(1), producer="bank"), [1])
    assert check_batch(data, checksum, LIMITS, producer_name="bank").count == 1
    with pytest.raises(InvalidBatch, match=r"'bank'.*'p'") as refused:
        check_batch(data, checksum, LIMITS, producer_name="p")
    assert refused.value.details["field"] == "producer_name"


@pytest.mark.parametrize(
    "data",
    [
        as_batch(batched(numbered([1, 3, 4])), [1, 2, 4]),
        as_batch(batched(numbered([1, 3, 4])), [1, 3, 5]),
        as_batch(batched(numbered([1, 3, 4])), [0, 3, 4]),
        as_batch(batched(numbered([1, 2, 3])), [1, 2, 3, 4]),
        as_batch(batched(numbered([1, 2, 3])), [1, 3], unit=True, count=3),
        as_batch(of_one_key(numbered([1, 2, 3])), [3]),
        as_batch(plain(Sent(1)), [1], publish_time_ms=5),
    ],
)
def test_a_header_that_contradicts_its_entry_is_refused(data: bytes) -> None:
    """Deduplication believes the header, and readers the entry."""
    with pytest.raises(InvalidBatch):
        check_batch(data, checksum, LIMITS)


@pytest.mark.hazard("batch-that-counts-wrongly")
@pytest.mark.parametrize("codec", [LZ4, ZLIB, ZSTD, SNAPPY])
def test_a_bomb_is_refused_before_it_is_expanded(codec: int) -> None:
    """Sixteen times the limit is the most that a payload may have. A larger size is refused as it is read, and one that
    is not true takes no more memory than it claims."""
    raw = bytes(40_000_000)
    bomb = packed(codec, raw)
    for claimed, error in ((40_000_000, MessageTooLarge), (1_000_000, InvalidBatch), (0, InvalidBatch)):
        metadata = outer(1)
        metadata.codec, metadata.raw_bytes = codec, claimed
        entry = framed(metadata.SerializeToString(), bomb)
        limits = BatchLimits(max(100_000, len(entry)))
        assert 1_000_000 < 16 * limits.raw_bytes_max < 40_000_000
        tracemalloc.start()
        try:
            with pytest.raises(error):
                check_batch(as_batch(entry, [1]), checksum, limits)
            assert tracemalloc.get_traced_memory()[1] < 4_000_000 + 4 * len(entry)
        finally:
            tracemalloc.stop()


def streamed(codec: int, raw: bytes) -> bytes:
    """As a client packs it that does not know the size in advance, or does not end the stream."""
    if codec == ZSTD:
        packer = zstandard.ZstdCompressor().compressobj()
        return packer.compress(raw) + packer.flush()
    open_packer = zlib.compressobj()
    return open_packer.compress(raw) + open_packer.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize("codec", [ZSTD, ZLIB])
def test_a_stream_without_its_size_or_end_is_read(codec: int) -> None:
    """Streaming compressors of zstd write no size, and Java's client never ends a stream of zlib. The payload has
    exactly the size that the entry states, or it is refused."""
    stored = streamed(codec, b"value" * 100)
    for claimed, good in ((500, True), (499, False), (501, False)):
        metadata = outer(1)
        metadata.codec, metadata.raw_bytes = codec, claimed
        entry = framed(metadata.SerializeToString(), stored)
        if good:
            assert list(open_entry(entry).values) == [b"value" * 100]
            continue
        with pytest.raises(InvalidBatch):
            open_entry(entry)


ENTRIES = [
    *(batched(MESSAGES, codec=codec) for codec in CODECS),
    *(plain(MESSAGES[0], codec=codec) for codec in CODECS),
    of_one_key([replace(each, key=b"k") for each in numbered([1, 5, 6])]),
    encrypted(4, 9, count=6),
]


def opened(entry: bytes) -> PulsarMessages | None:
    """None: it is refused, by an error that names a field. Any other error fails the test."""
    try:
        return open_entry(entry, raw_bytes_max=100_000)
    except InvalidArgument as error:
        named = isinstance(error, InvalidBatch | MessageTooLarge) and error.details["field"]
        return None if named else pytest.fail(error.message)


@given(
    st.sampled_from(ENTRIES), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4)
)
def test_damaged_entries_are_read_alike_by_owner_and_readers(entry: bytes, damage: list[tuple[float, int]]) -> None:
    """Never another exception than the named ones; and what an owner stores, every reader can read."""
    data = bytearray(entry)
    for place, value in damage:
        data[int(place * len(data))] = value
    data[2:6] = checksum(data[6:], 0).to_bytes(4, "big")
    messages = opened(bytes(data))
    if messages is None:
        return
    stored = pack_pulsar(bytes(data), messages, producer_id=ProducerId(1), generation=Generation(1), checksum=checksum)
    header = check_batch(stored, checksum, BatchLimits(10_000))
    assert header.count == messages.count
    try:
        columns = read_columns(header, payload_of(header, stored))
    except MessageEncrypted:
        columns = encrypted_columns(messages)
    assert len(columns.values) == len(list(message_ids(header, deltas_of(header, stored), columns))) == header.count


@given(st.binary(max_size=300))
def test_any_bytes_raise_nothing_else(data: bytes) -> None:
    """Also with a sound head and checksum, so that metadata and messages are reached."""
    for entry in (data, framed(data, b""), framed(outer(1).SerializeToString() + data, data), one_batch(data, 3)):
        found = opened(entry)
        assert found is None or found.count <= COUNT_MAX


def test_a_header_of_a_unit_is_read_by_its_rules() -> None:
    """Its first and last id say nothing about its count, and no other format may be one."""
    entry = of_one_key(numbered([1, 2, 9]))
    data = as_batch(entry, [9], unit=True, count=3)
    header = decode_batch(data, checksum)
    assert (header.unit, header.ids_bytes, header.dense) == (True, 0, False)
    rng = random.Random(5)
    for _ in range(2_000):
        head = bytearray(data)
        head[rng.randrange(20, 64)] = rng.choice((0, 1, 2, 3, 127, 255))
        try:
            found = peek_batch(bytes(head))
        except OncelogError:
            continue
        if found.unit:
            assert 0 <= found.first <= found.last <= SEQUENCE_ID_MAX
            assert 1 <= found.count <= COUNT_MAX


@pytest.mark.parametrize("codec", CODECS)
def test_an_entry_of_many_messages_takes_long_however_small_it_is(codec: int) -> None:
    """And one that is large without its compression. Of one that cannot be read, a check finds that at once."""
    for count in (LONG_CHECK_COUNT, LONG_CHECK_COUNT + 1):
        entry = batched([Sent(number, b"") for number in range(count)], codec=codec)
        assert len(entry) < LONG_CHECK_BYTES
        assert pulsar_takes_long(entry) is (count > LONG_CHECK_COUNT)
    assert pulsar_takes_long(batched([Sent(0, bytes(LONG_CHECK_BYTES + 1))], codec=codec))
    assert not pulsar_takes_long(batched(MESSAGES, codec=codec))
    assert not pulsar_takes_long(b"no entry")
