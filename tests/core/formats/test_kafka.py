"""Record batches of Kafka's clients: every record is found, and nothing that contradicts itself is stored."""

import tracemalloc
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import CompressionUnavailable, InvalidArgument, InvalidBatch, MessageTooLarge
from oncelog.core.formats.batch import (
    LONG_CHECK_BYTES,
    LONG_CHECK_COUNT,
    BatchHeader,
    decode_batch,
    payload_of,
    peek_batch,
    read_cost,
)
from oncelog.core.formats.batch_check import BatchLimits, check_batch, takes_long
from oncelog.core.formats.epoched_ids import first_of
from oncelog.core.formats.kafka import COUNT_MAX, HEADER_KEY_BYTES_MAX, HEADERS_MAX, KafkaRecords, open_batch
from oncelog.core.formats.payload import columns_of_records, properties_of, read_columns, shown_columns
from tests.core.builders import checksum
from tests.core.kafka_batches import (
    CODECS,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    TIME_MS,
    ZSTD,
    Sent,
    as_batch,
    batched,
    framed,
    numbered,
    packed,
    record,
    records,
    sized,
    snappy_java,
    varint,
)

LIMITS = BatchLimits(100_000)
SENT = [
    Sent(b"value", b"key", [(b"a", b"1"), (b"b", "é".encode())]),
    Sent(b"second", timestamp=TIME_MS + 123),
    Sent(None, b"\xff\x00", [(b"a", b"1"), (b"a", b"2"), (b"raw", b"\xff\xfe"), (b"none", None)], TIME_MS - 1),
    Sent(b"", b""),
    Sent(b"x" * 300, timestamp=-1),
]


def check(entry: bytes, count: int | None = None) -> BatchHeader:
    """What an owner answers to this record batch in a batch as a gateway packs it."""
    size = open_batch(entry).head.count if count is None else count
    return check_batch(as_batch(entry, range(size)), checksum, LIMITS)


@pytest.mark.parametrize("codec", CODECS)
def test_every_record_of_a_batch_is_found(codec: int) -> None:
    """Values and nulls, keys, timestamps, and headers as they are: also null, not text, and twice."""
    found = open_batch(batched(SENT, codec=codec, producer=(7, 3, -5)), checksum=checksum)
    assert found.head == (codec, TIME_MS, TIME_MS, 7, 3, -5, 5)
    assert list(found.values) == [b"value", b"second", b"", b"", b"x" * 300]
    assert list(found.nulls) == [2]
    assert found.keys == [b"key", None, b"\xff\x00", b"", None]
    assert found.timestamps_ms == [TIME_MS, TIME_MS + 123, TIME_MS - 1, TIME_MS, None]
    assert found.headers is not None
    assert found.headers[0] == (("a", b"1"), ("b", "é".encode()))
    assert found.headers[2] == (("a", b"1"), ("a", b"2"), ("raw", b"\xff\xfe"), ("none", None))
    assert found.headers[1] == ()
    assert check(batched(SENT, codec=codec)).count == 5


def test_columns_of_a_batch_are_those_that_readers_know() -> None:
    data = as_batch(batched(SENT), range(5))
    header = check_batch(data, checksum, LIMITS)
    columns = read_columns(header, payload_of(header, data))
    assert columns.values.to_list() == [b"value", b"second", b"", b"", b"x" * 300]
    assert list(columns.nulls or ()) == [False, False, True, False, False]
    assert columns.properties == [{"a": "1", "b": "é"}, {}, {"a": "2"}, {}, {}]
    assert columns.event_times_ms == [TIME_MS, TIME_MS + 123, TIME_MS - 1, TIME_MS, None]
    assert shown_columns(header, payload_of(header, data)).headers == columns.headers
    plain = columns_of_records(open_batch(batched([Sent(b"v", timestamp=-1)])))
    assert (plain.keys, plain.event_times_ms, plain.properties, plain.nulls, plain.headers) == (None,) * 5


def test_of_several_headers_with_one_key_the_last_one_is_the_property() -> None:
    """None of them, if the last one is no text: an older value would be taken for the newest."""
    assert properties_of((("a", b"1"), ("a", b"2"))) == {"a": "2"}
    assert properties_of((("a", b"1"), ("a", b"\xff"))) == {}
    assert properties_of((("a", b"1"), ("a", None), ("b", b""))) == {"b": ""}


TEXTS = st.text(max_size=10).map(str.encode)
BYTES = st.binary(max_size=200)


@given(
    st.lists(
        st.builds(
            Sent, st.none() | BYTES, st.none() | BYTES, st.lists(st.tuples(TEXTS, st.none() | BYTES), max_size=4),
            st.integers(-(2**62), 2**62),
        ),
        min_size=1, max_size=200,
    ),
    st.sampled_from(CODECS),
)  # fmt: skip
def test_what_is_packed_is_what_is_read(sent: list[Sent], codec: int) -> None:
    """Numbers of one byte and of more, for each field."""
    found = open_batch(batched(sent, codec=codec), checksum=checksum)
    nulls, count = set(found.nulls), len(sent)
    assert [None if i in nulls else value for i, value in enumerate(found.values)] == [each.value for each in sent]
    assert list(found.keys or [None] * count) == [each.key for each in sent]
    times = found.timestamps_ms or [None] * count
    assert list(times) == [None if each.timestamp == -1 else each.timestamp for each in sent]
    headers = found.headers or [()] * count
    assert [[(key.encode(), value) for key, value in each] for each in headers] == [list(each.headers) for each in sent]


# --- what is refused --------------------------------------------------------------------------------------------------


def body(fields: bytes) -> bytes:
    """One record of these fields, as a batch."""
    return framed(sized(b"\0" + fields), 1)


def one(*fields: bytes) -> Callable[[], bytes]:
    """Of a record: timestamp delta, offset delta, key, value, headers."""
    return lambda: body(b"".join(fields))


ZERO, NULL, TEN, TEN_FULL = varint(0), varint(-1), b"\xff" * 9 + b"\1", b"\x80" * 10
LIES: list[tuple[str, str, Callable[[], bytes]]] = [
    ("no bytes", "batch_length", lambda: b""),
    ("shorter than its head", "batch_length", lambda: batched(numbered(1))[:60]),
    ("magic 0", "magic", lambda: framed(b"", 1, magic=0)[:20]),
    ("magic 1", "magic", lambda: framed(records(numbered(1)), 1, magic=1)),
    ("magic 3", "magic", lambda: framed(records(numbered(1)), 1, magic=3)),
    ("two batches", "batch_length", lambda: batched(numbered(1)) * 2),
    ("a batch and a byte", "batch_length", lambda: batched(numbered(1)) + b"\0"),
    ("cut off", "batch_length", lambda: batched(numbered(3))[:-1]),
    ("another checksum", "checksum", lambda: batched(numbered(1))[:17] + b"\0\0\0\0" + batched(numbered(1))[21:]),
    ("a time of the broker", "attributes", lambda: framed(records(numbered(1)), 1, attributes=0x08)),
    ("a transaction", "attributes", lambda: framed(records(numbered(1)), 1, attributes=0x10)),
    ("a control batch", "attributes", lambda: framed(records(numbered(1)), 1, attributes=0x20)),
    ("a codec that is none", "attributes", lambda: framed(records(numbered(1)), 1, attributes=5)),
    ("an attribute of a later version", "attributes", lambda: framed(records(numbered(1)), 1, attributes=0x40)),
    ("no records", "records_count", lambda: framed(b"", 0)),
    ("a negative count", "records_count", lambda: framed(b"", -1)),
    ("another last offset delta", "records_count", lambda: framed(records(numbered(2)), 2, last_delta=4)),
    ("count 5, records 4", "records_count", lambda: framed(records(numbered(4)), 5)),
    ("count 4, records 5", "records_count", lambda: framed(records(numbered(5)), 4)),
    ("2**18 records in a few bytes", "records_count", lambda: framed(records(numbered(4)), COUNT_MAX)),
    ("a producer id without an epoch", "producer_id", lambda: framed(records(numbered(1)), 1, producer=(5, -1, 0))),
    ("a negative producer id", "producer_id", lambda: framed(records(numbered(1)), 1, producer=(-2, 0, 0))),
    ("gzip, and it is not", "payload", lambda: framed(records(numbered(1)), 1, attributes=GZIP)),
    ("snappy, and it is not", "payload", lambda: framed(b"\xff" * 20, 1, attributes=SNAPPY)),
    ("lz4, and it is not", "payload", lambda: framed(records(numbered(1)), 1, attributes=LZ4)),
    ("zstd, and it is not", "payload", lambda: framed(records(numbered(1)), 1, attributes=ZSTD)),
    ("no record in its bytes", "record", lambda: framed(b"\x80", 1)),
    ("a record beyond the batch", "record", lambda: framed(varint(500) + b"\0" * 20, 1)),
    ("a record of no bytes", "record", lambda: framed(ZERO, 1)),
    ("a record of negative size", "record", lambda: framed(varint(-9) + b"\0" * 20, 1)),
    ("a record longer than its fields", "record", one(ZERO, ZERO, NULL, NULL, ZERO, b"\0")),
    ("a record shorter than its fields", "record", lambda: framed(varint(5) + b"\0" + ZERO + ZERO + NULL + sized(b"v") +
                                                                  ZERO, 1)),
    ("an offset delta that is not its index", "offset_delta", one(ZERO, varint(1), NULL, NULL, ZERO)),
    ("a negative offset delta", "offset_delta", one(ZERO, varint(-1), NULL, NULL, ZERO)),
    ("a key beyond its record", "record", one(ZERO, ZERO, varint(99), b"k", NULL, ZERO)),
    ("a key of -2 bytes", "key", one(ZERO, ZERO, varint(-2), NULL, ZERO)),
    ("a value beyond its record", "record", one(ZERO, ZERO, NULL, varint(2**31 - 1), b"v", ZERO)),
    ("a value of -2**31 bytes", "value", one(ZERO, ZERO, NULL, varint(-(2**31)), ZERO)),
    ("more headers than bytes", "headers", one(ZERO, ZERO, NULL, NULL, varint(9), b"\0\0")),
    ("a negative count of headers", "headers", one(ZERO, ZERO, NULL, NULL, varint(-3), b"\0\0")),
    ("a null key of a header", "headers", one(ZERO, ZERO, NULL, NULL, varint(1), NULL, NULL)),
    ("a key of a header that is no text", "headers", one(ZERO, ZERO, NULL, NULL, varint(1), sized(b"\xff"), NULL)),
    ("a key of a header that is too long", "headers", one(ZERO, ZERO, NULL, NULL, varint(1),
                                                          sized(b"k" * (HEADER_KEY_BYTES_MAX + 1)), NULL)),
    ("a header beyond its record", "headers", one(ZERO, ZERO, NULL, NULL, varint(1), sized(b"k"), varint(50), b"v")),
    ("a header of -2 bytes", "header", one(ZERO, ZERO, NULL, NULL, varint(1), sized(b"k"), varint(-2))),
    ("a timestamp beyond 64 bits", "timestamp", lambda: framed(record(Sent(b"v", timestamp=1), 0, base=0), 1,
                                                               base_timestamp=2**63 - 1)),
    ("a size of 10 bytes", "varint", lambda: framed(TEN + b"\0" * 20, 1)),
    ("an offset delta of 10 bytes", "varint", one(ZERO, TEN, NULL, NULL, ZERO)),
    ("a size of a key of 10 bytes", "varint", one(ZERO, ZERO, TEN, NULL, ZERO)),
    ("a size of a value of 10 bytes", "varint", one(ZERO, ZERO, NULL, TEN, ZERO)),
    ("a count of headers of 10 bytes", "varint", one(ZERO, ZERO, NULL, NULL, TEN)),
    ("a timestamp delta of 11 bytes", "varint", one(TEN_FULL + b"\1", ZERO, NULL, NULL, ZERO)),
    ("a timestamp delta of 70 bits", "varint", one(b"\xff" * 9 + b"\x7f", ZERO, NULL, NULL, ZERO)),
    ("a size of 35 bits", "varint", lambda: framed(b"\xff\xff\xff\xff\x7f" + b"\0" * 20, 1)),
]  # fmt: skip


@pytest.mark.hazard("record-batch-that-lies")
@pytest.mark.parametrize(("field", "lie"), [each[1:] for each in LIES], ids=[each[0] for each in LIES])
def test_a_batch_that_contradicts_itself_is_refused_by_its_field(field: str, lie: Callable[[], bytes]) -> None:
    """No reader could read it, or offsets would shift. The owner refuses it before it is stored."""
    entry = lie()
    with pytest.raises(InvalidBatch) as refused:
        open_batch(entry, checksum=checksum)
    assert refused.value.details["field"] == field, refused.value.message
    with pytest.raises(InvalidBatch):
        check_batch(as_batch(entry, [0]), checksum, LIMITS)


def test_a_timestamp_delta_of_10_bytes_is_read() -> None:
    """64 bits need so many."""
    low, high = -(2**63) + 1, 2**63 - 1
    sent = [Sent(b"a", timestamp=low), Sent(b"b", timestamp=high)]
    raw = b"".join(record(each, index, base=0) for index, each in enumerate(sent))
    assert open_batch(framed(raw, 2, base_timestamp=0)).timestamps_ms == [low, high]


@pytest.mark.hazard("record-batch-that-lies")
def test_too_many_records_or_headers_are_too_large() -> None:
    """A few bytes, compressed, would become gigabytes of objects in each reader."""
    with pytest.raises(MessageTooLarge, match=str(COUNT_MAX)):
        open_batch(framed(b"", COUNT_MAX + 1))
    empty = sized(b"")
    many = b"\0" + ZERO + ZERO + NULL + NULL + varint(HEADERS_MAX + 1) + (empty + NULL) * 5
    with pytest.raises(MessageTooLarge, match=str(HEADERS_MAX)):
        open_batch(framed(sized(many), 1))


@pytest.mark.hazard("record-batch-that-lies")
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_bomb_is_refused_before_it_is_expanded(codec: int) -> None:
    """Sixteen times the limit is the most that records may have. Nothing is allocated beyond that."""
    bomb = framed(packed(codec, bytes(60_000_000)), 1, attributes=codec)
    limits = BatchLimits(max(100_000, len(bomb)))
    assert 16 * limits.raw_bytes_max < 60_000_000
    data = as_batch(bomb, [0])
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLarge):
            check_batch(data, checksum, limits)
        assert tracemalloc.get_traced_memory()[1] < 3 * 16 * limits.raw_bytes_max
    finally:
        tracemalloc.stop()


def streamed(raw: bytes) -> bytes:
    """Zstandard without the size of its content, as clients write it that stream."""
    packer = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return packer.compress(raw) + packer.flush()


@pytest.mark.hazard("record-batch-that-lies")
@pytest.mark.parametrize(
    ("codec", "frame"),
    [
        (GZIP, packed(GZIP, records(SENT))), (LZ4, packed(LZ4, records(SENT))), (ZSTD, packed(ZSTD, records(SENT))),
        (ZSTD, streamed(records(SENT))), (SNAPPY, snappy_java(records(SENT)[:100], records(SENT)[100:])),
    ],
    ids=["gzip", "lz4", "zstd", "zstd without its size", "snappy-java"],
)  # fmt: skip
def test_a_frame_is_whole_and_alone(codec: int, frame: bytes) -> None:
    """What follows it would be read by some clients and not by others; Java's stop there for ever."""
    assert len(open_batch(framed(frame, 5, attributes=codec)).values) == 5
    spoiled = [frame + b"\0", frame + frame[16:] if codec == SNAPPY else frame + frame]
    spoiled += [frame[:end] for end in range(0, len(frame), 7)]
    for each in spoiled:
        with pytest.raises(InvalidBatch):
            open_batch(framed(each, 5, attributes=codec))


def test_codec_that_is_not_installed_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that lacks it skips nothing; the owner refuses what it cannot check."""
    monkeypatch.setitem(__import__("sys").modules, "cramjam", None)
    entry = batched(numbered(2), codec=SNAPPY)
    data = as_batch(entry, range(2))
    header = decode_batch(data, checksum)
    with pytest.raises(CompressionUnavailable, match=r"oncelog\[snappy\]"):
        read_columns(header, payload_of(header, data))
    with pytest.raises(InvalidBatch):
        check_batch(data, checksum, LIMITS)
    assert not takes_long(data)


# --- the batch around it ----------------------------------------------------------------------------------------------


@pytest.mark.hazard("record-batch-that-lies")
@pytest.mark.parametrize("ids", [range(4), range(6), [0, 1, 2, 3]])
def test_a_count_that_is_not_that_of_the_records_is_refused(ids: range) -> None:
    """Deduplication and numbers of messages believe the header, and readers the records."""
    with pytest.raises(InvalidBatch) as refused:
        check_batch(as_batch(batched(SENT), ids), checksum, LIMITS)
    assert refused.value.details["field"] == "count"


@pytest.mark.hazard("entry-of-another-producer")
def test_ids_of_a_client_of_kafka_are_those_of_its_batch() -> None:
    """Under the name of its producer id. Under other names, as a gateway's own, they are not compared."""
    first = first_of(3) + 2**31 + 5
    entry = batched(numbered(2), producer=(7, 3, 5))
    good = as_batch(entry, range(first, first + 2))
    assert check_batch(good, checksum, LIMITS, producer_name="kafka/7").count == 2
    for name in ("kafka/gateway/1", "shop", None):
        assert check_batch(as_batch(entry, [4, 9]), checksum, LIMITS, producer_name=name).count == 2
    for data, name, field in (
        (good, "kafka/8", "producer_name"),
        (as_batch(batched(numbered(2)), range(first, first + 2)), "kafka/7", "producer_name"),
        (as_batch(entry, range(first + 1, first + 3)), "kafka/7", "sequence_ids"),
        (as_batch(entry, range(first_of(2) + 5, first_of(2) + 7)), "kafka/7", "sequence_ids"),
        (as_batch(entry, [first, first + 2]), "kafka/7", "sequence_ids"),
    ):
        with pytest.raises(InvalidBatch) as refused:
            check_batch(data, checksum, LIMITS, producer_name=name)
        assert refused.value.details["field"] == field


def test_a_batch_of_kafka_is_neither_compressed_again_nor_a_unit() -> None:
    data = bytearray(as_batch(batched(numbered(1)), [0]))
    for place, field in ((2, "compression"), (60, "flags")):
        other = bytearray(data)
        other[place] = 1
        with pytest.raises(InvalidBatch) as refused:
            peek_batch(bytes(other))
        assert refused.value.details["field"] == field


def test_a_large_batch_is_checked_beside_other_tasks() -> None:
    """Also a small one that expands."""
    large = [Sent(b"x" * (LONG_CHECK_BYTES + 1))]
    assert takes_long(as_batch(batched(large), [0]))
    for codec in (GZIP, SNAPPY, LZ4, ZSTD):
        assert takes_long(as_batch(batched(large, codec=codec), [0]))
        assert not takes_long(as_batch(batched(SENT, codec=codec), range(5)))
    assert not takes_long(as_batch(batched(SENT), range(5)))
    assert not takes_long(as_batch(b"no batch", [0]))


@pytest.mark.parametrize("codec", [NONE, ZSTD])
def test_a_small_batch_of_many_records_is_checked_beside_other_tasks(codec: int) -> None:
    """8,000 of them fit into 64 KiB, and take 15 ms."""
    for count in (LONG_CHECK_COUNT, LONG_CHECK_COUNT + 1):
        batch = batched([Sent()] * count, codec=codec)
        assert len(batch) < LONG_CHECK_BYTES // 2
        assert takes_long(as_batch(batch, range(count))) is (count > LONG_CHECK_COUNT)


# --- any bytes --------------------------------------------------------------------------------------------------------

BATCHES = [batched(SENT, codec=codec) for codec in CODECS] + [batched(numbered(70)), batched(SENT, producer=(7, 3, 5))]


def opened(entry: bytes) -> KafkaRecords | None:
    """None: it is refused, by an error that names a field. Any other error fails the test."""
    try:
        return open_batch(entry, raw_bytes_max=100_000)
    except InvalidArgument as error:
        named = isinstance(error, InvalidBatch | MessageTooLarge) and error.details["field"]
        return None if named else pytest.fail(error.message)


@pytest.mark.hazard("record-batch-that-lies")
@given(
    st.sampled_from(BATCHES), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4)
)
def test_damaged_batches_are_read_alike_by_owner_and_readers(entry: bytes, damage: list[tuple[float, int]]) -> None:
    """Never another exception than the named ones; and what an owner stores, every reader can read."""
    data = bytearray(entry)
    for place, value in damage:
        data[int(place * len(data))] = value
    data[17:21] = checksum(data[21:], 0).to_bytes(4, "big")
    found = opened(bytes(data))
    if found is None:
        return
    header = check(bytes(data), found.head.count)
    stored = as_batch(bytes(data), range(found.head.count))
    assert len(read_columns(header, payload_of(header, stored)).values) == header.count


@pytest.mark.hazard("record-batch-that-lies")
@given(st.binary(max_size=300), st.integers(0, 5), st.sampled_from(CODECS))
def test_any_bytes_raise_nothing_else(data: bytes, count: int, codec: int) -> None:
    """Also with a sound head and checksum, so that the records are reached."""
    for entry in (data, framed(data, count, attributes=codec), framed(sized(data), 1), body(data)):
        found = opened(entry)
        assert found is None or found.head.count == len(found.values)


def test_reading_a_batch_of_many_messages_costs_as_much_as_a_large_one() -> None:
    """Whoever makes other records of them does that in another thread."""
    for count in (LONG_CHECK_COUNT, LONG_CHECK_COUNT + 1):
        data = as_batch(batched([Sent()] * count), range(count))
        assert (read_cost(peek_batch(data), data) > LONG_CHECK_BYTES) is (count > LONG_CHECK_COUNT)
    one = as_batch(batched([Sent(b"x" * 2 * LONG_CHECK_BYTES)], codec=ZSTD), [0])
    assert read_cost(peek_batch(one)._replace(payload_raw_bytes=2 * LONG_CHECK_BYTES), one) > LONG_CHECK_BYTES
