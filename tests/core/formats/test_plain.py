"""Plain records and messages: the short check refuses what readers cannot read, and knows what most clients send."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidBatch, MessageTooLarge
from oncelog.core.formats import kafka, pulsar
from oncelog.core.formats.checks.plain import are_plain_messages, are_plain_records
from tests.core import kafka_batches, pulsar_entries
from tests.core.kafka_batches import TIME_MS
from tests.core.kafka_batches import Sent as Record
from tests.core.pulsar_entries import Sent as Message

RNG = random.Random(7)

#: {what a client sends: its records}
PLAIN = {
    "of one size": [Record(b"x" * 100, b"%08d" % n, timestamp=TIME_MS + 9 * n) for n in range(300)],
    "of every size": [Record(bytes(RNG.randrange(300)), bytes(RNG.randrange(64))) for n in range(300)],
    "a large batch": [Record(b"%d" % n) for n in range(20_000)],
    "in front of the time of the batch": [Record(b"x", timestamp=TIME_MS - 70 * n) for n in range(100)],
    "large": [Record(bytes(900_000)), Record(bytes(20_000)), Record(bytes(20_000))],
    "nulls": [Record(None if n % 3 else b"", None if n % 2 else b"") for n in range(100)],
    "one": [Record(b"x")],
}
NOT_PLAIN = {
    "headers": [Record(b"x"), Record(b"x", headers=[(b"trace", b"1")])],
    "a long key": [Record(b"x", bytes(64))],
    "a long value": [Record(bytes(2**20))],
    "a time far away": [Record(b"x", timestamp=TIME_MS + 2**21)],
    "no time": [Record(b"x", timestamp=-1)],
}


@pytest.mark.parametrize("sent", PLAIN.values(), ids=PLAIN.keys())
def test_what_clients_of_kafka_send_is_plain(sent: Sequence[Record]) -> None:
    """Otherwise its check takes many times as long."""
    assert are_plain_records(kafka_batches.records(sent), len(sent), TIME_MS)


@pytest.mark.parametrize("sent", NOT_PLAIN.values(), ids=NOT_PLAIN.keys())
def test_other_records_are_read_as_by_readers(sent: Sequence[Record]) -> None:
    batch = kafka_batches.batched(sent)
    assert not are_plain_records(kafka_batches.records(sent), len(sent), TIME_MS)
    assert kafka.check_batch(batch) == kafka.open_batch(batch).head


#: {what a client sends: its messages}
MESSAGES = {
    "of one size": [Message(n, b"x" * 100, b"%08d" % n) for n in range(300)],
    "with event times": [Message(n, b"x" * 100, event_time_ms=TIME_MS + 9 * n) for n in range(300)],
    "ids of two bytes": [Message(n, b"x" * 100) for n in range(16_000, 17_000)],
    "ids of five bytes": [Message(n, b"x" * 100) for n in range(2**31 - 200, 2**31 + 200)],
    "the highest ids": [Message(n, b"x") for n in range(2**63 - 300, 2**63)],
    "of every size": [Message(n, bytes(RNG.randrange(300)), b"k" * RNG.randrange(99)) for n in range(300)],
    "large": [Message(0, bytes(900_000)), Message(1, bytes(20_000)), Message(2, bytes(20_000))],
    "one": [Message(0, b"x")],
}
NOT_PLAIN_MESSAGES = {
    "properties": [Message(0, b"x"), Message(1, b"x", properties={"trace": "1"})],
    "a long key": [Message(0, b"x", b"k" * 128)],
    "null": [Message(0, b"x"), Message(1, None)],
    "ids with holes": [Message(0, b"x"), Message(2, b"x")],
    "another order": [Message(0, b"x", b"k", ordering_key=b"o")],
}


@pytest.mark.parametrize("sent", MESSAGES.values(), ids=MESSAGES.keys())
def test_what_clients_of_pulsar_send_is_plain(sent: Sequence[Message]) -> None:
    raw = pulsar_entries.inner(sent)
    assert are_plain_messages(raw, len(sent), sent[0].sequence_id)
    entry = pulsar_entries.batched(sent)
    assert listed(pulsar.check_entry(entry)) == listed(pulsar.open_entry(entry))


@pytest.mark.parametrize("sent", NOT_PLAIN_MESSAGES.values(), ids=NOT_PLAIN_MESSAGES.keys())
def test_other_messages_are_read_as_by_readers(sent: Sequence[Message]) -> None:
    assert not are_plain_messages(pulsar_entries.inner(sent), len(sent), 0)
    entry = pulsar_entries.batched(sent)
    assert pulsar.check_entry(entry) == pulsar.open_entry(entry)[:7]


# --- what contradicts itself ------------------------------------------------------------------------------------------


def outcome(check: Callable[[], object]) -> object:
    """What it returns, or the kind and details of its error."""
    try:
        return check()
    except (InvalidBatch, MessageTooLarge) as error:
        return type(error), error.details


def kafka_is_checked_alike(raw: bytes, count: int, base: int = TIME_MS) -> bool:
    """Whether readers can read it. The check must find the same, and name the same field."""
    batch = kafka_batches.framed(raw, count, base_timestamp=base)
    found = outcome(lambda: kafka.check_batch(batch))
    assert found == outcome(lambda: kafka.open_batch(batch).head)
    return isinstance(found, kafka.RecordBatchHead)


def pulsar_is_checked_alike(raw: bytes, first: int, count: int, highest: int = 0) -> bool:
    """As `kafka_is_checked_alike`. highest: id, as the entry says."""
    metadata = pulsar_entries.outer(first)
    metadata.count, metadata.highest_sequence_id = count, highest
    entry = pulsar_entries.finished(metadata, raw)
    found = outcome(lambda: listed(pulsar.check_entry(entry)))
    assert found == outcome(lambda: listed(pulsar.open_entry(entry)))
    return isinstance(found, list)


def listed(found: pulsar.EntryHead | pulsar.PulsarMessages) -> list[object]:
    """The fields of EntryHead."""
    return [*found[:6], list(found.ids or ())]


@pytest.mark.hazard("record-batch-that-lies")
@pytest.mark.parametrize("step", [0, 9])
def test_a_damaged_byte_of_a_record_is_found_wherever_it_is(step: int) -> None:
    """Each byte of some records. Damage of a key, a value or a time alone is
    none: the checksum finds that. step: between the times of records."""
    sent = [Record(b"%070d" % n, b"%04d" % n, timestamp=TIME_MS + step * n) for n in range(150)]
    assert are_plain_records(kafka_batches.records(sent), len(sent), TIME_MS)
    sizes = [len(kafka_batches.record(each, index)) for index, each in enumerate(sent)]
    raw = kafka_batches.records(sent)
    refused = 0
    for index in (0, 1, 2, 63, 64, 66, 100, 149):
        begins = sum(sizes[:index])
        for place in range(begins, begins + sizes[index]):
            for value in {raw[place] ^ 1, raw[place] ^ 2, raw[place] ^ 128, 0, 1, 255} - {raw[place]}:
                damaged = raw[:place] + bytes((value,)) + raw[place + 1 :]
                refused += not kafka_is_checked_alike(damaged, len(sent))
    assert refused > 200


@pytest.mark.hazard("batch-that-counts-wrongly")
@pytest.mark.parametrize(("first", "time_ms"), [(0, 0), (16_300, TIME_MS), (2**31 - 70, TIME_MS)])
def test_a_damaged_byte_of_a_message_is_found_wherever_it_is(first: int, time_ms: int) -> None:
    sent = [Message(n, b"%04d" % n, b"k", event_time_ms=time_ms and time_ms + 7 * n) for n in range(first, first + 150)]
    assert are_plain_messages(pulsar_entries.inner(sent), len(sent), first)
    raw, refused = pulsar_entries.inner(sent), 0
    for index in (0, 1, 2, 69, 84, 127, 128, 149):
        begins, ends = (len(pulsar_entries.inner(sent[:number])) for number in (index, index + 1))
        for place in range(begins, ends):
            for value in {raw[place] ^ 1, raw[place] ^ 2, raw[place] ^ 128, 0, 0x40, 255} - {raw[place]}:
                damaged = raw[:place] + bytes((value,)) + raw[place + 1 :]
                refused += not pulsar_is_checked_alike(damaged, sent[0].sequence_id, len(sent))
    assert refused > 200


@pytest.mark.hazard("record-batch-that-lies")
@pytest.mark.parametrize("sent", PLAIN.values(), ids=PLAIN.keys())
def test_records_are_counted(sent: Sequence[Record]) -> None:
    """One more, one less, a byte more, a byte less; and a record in another place."""
    raw, count = kafka_batches.records(sent), len(sent)
    assert kafka_is_checked_alike(raw, count)
    for other in (raw[:-1], raw + b"\0", raw + kafka_batches.record(sent[-1], count - 1)):
        assert not kafka_is_checked_alike(other, count)
    assert not kafka_is_checked_alike(raw, count + 1)
    assert count == 1 or not kafka_is_checked_alike(raw, count - 1)
    moved = b"".join(kafka_batches.record(each, index + (index == count // 2)) for index, each in enumerate(sent))
    assert not kafka_is_checked_alike(moved, count)


@pytest.mark.hazard("batch-that-counts-wrongly")
@pytest.mark.parametrize("sent", MESSAGES.values(), ids=MESSAGES.keys())
def test_messages_are_counted(sent: Sequence[Message]) -> None:
    raw, count, first = pulsar_entries.inner(sent), len(sent), sent[0].sequence_id
    metadata_of_last = pulsar_entries.inner(sent[-1:])
    for other in (raw[:-1], raw + b"\0", raw + metadata_of_last):
        assert not pulsar_is_checked_alike(other, first, count)
    assert not pulsar_is_checked_alike(raw, first, count + 1)
    if count > 1:
        twice = [replace(each, sequence_id=each.sequence_id - (index == count // 2)) for index, each in enumerate(sent)]
        assert not pulsar_is_checked_alike(pulsar_entries.inner(twice), first, count)


@pytest.mark.hazard("record-batch-that-lies")
@pytest.mark.parametrize("base", [2**63 - 1, -(2**63), 2**63 - 1000])
def test_a_time_of_more_than_64_bits_is_refused(base: int) -> None:
    raw = b"".join(kafka_batches.record(Record(b"x", timestamp=TIME_MS + 9 * n), n) for n in range(200))
    raw += kafka_batches.record(Record(b"x", timestamp=TIME_MS - 9), 200)
    assert not kafka_is_checked_alike(raw, 201, base)


@pytest.mark.hazard("record-batch-that-lies")
def test_a_size_below_zero_hides_no_bytes() -> None:
    """A key of -3 bytes, whose value begins in front of it, and ends where the record must."""
    for key, value in ((-3, 2), (-2, 1), (-9, 7), (0, -5)):
        body = b"\0\0\0" + kafka_batches.varint(key) + kafka_batches.varint(value) + bytes(12)
        for size in range(len(body)):
            assert not kafka_is_checked_alike(kafka_batches.sized(body[:size]), 1)


@pytest.mark.hazard("record-batch-that-lies")
@pytest.mark.parametrize("index", [1, 100, 10_000])
@pytest.mark.parametrize("ahead", [1, 64, 8192])
def test_each_record_has_its_own_offset_delta(index: int, ahead: int) -> None:
    """Deltas that differ in their first, second and third byte."""
    raw = [kafka_batches.record(Record(b""), number) for number in range(index + 2)]
    assert kafka_is_checked_alike(b"".join(raw), len(raw))
    raw[index] = kafka_batches.record(Record(b""), index + ahead)
    assert not kafka_is_checked_alike(b"".join(raw), len(raw))


#: {what is longer than in a plain record: a record that is one if no more than its first bytes are read}
LONG_IN_RECORDS = {
    "a size of a key": b"\0\0\0" + b"\x80" * 65 + b"\1\0",
    "a size of a value": b"\0\0\0\1" + b"\x80\x80\x80\0" + b"\0",
    "a timestamp": b"\0" + b"\x80" * 3 + b"\0\1\1\0",
    "an offset delta": b"\0\0\x80\0\1\1\0",
    "a count of headers": b"\0\0\0\1\1\x80\0",
}


@pytest.mark.hazard("record-batch-that-lies")
@pytest.mark.parametrize("body", LONG_IN_RECORDS.values(), ids=LONG_IN_RECORDS.keys())
def test_a_number_of_a_record_is_read_to_its_end(body: bytes) -> None:
    assert not are_plain_records(kafka_batches.sized(body), 1, TIME_MS)
    kafka_is_checked_alike(kafka_batches.sized(body), 1)


@pytest.mark.hazard("batch-that-counts-wrongly")
@pytest.mark.parametrize(
    "metadata", [b"\x12" + b"\x80" * 129 + b"\x18\0\x40\0", b"\x18\0\x28" + b"\x80" * 10 + b"\1\x40\0"]
)
def test_a_number_of_a_message_is_read_to_its_end(metadata: bytes) -> None:
    """The size of a key; an event time."""
    assert not pulsar_is_checked_alike(len(metadata).to_bytes(4, "big") + metadata, 0, 1)


@pytest.mark.hazard("batch-that-counts-wrongly")
def test_ids_and_times_of_messages_have_63_bits() -> None:
    top = 2**63 - 1
    for last, time_ms, good in ((top, top, True), (top, top + 1, False), (top + 1, 0, False)):
        sent = [Message(last - 1, b"x"), Message(last, b"x", event_time_ms=time_ms)]
        assert pulsar_is_checked_alike(pulsar_entries.inner(sent), last - 1, 2) == good


@pytest.mark.hazard("batch-that-counts-wrongly")
def test_an_entry_has_the_highest_id_that_it_says() -> None:
    raw = pulsar_entries.inner([Message(5, b"x"), Message(6, b"x"), Message(7, b"x")])
    assert [highest for highest in range(10) if pulsar_is_checked_alike(raw, 5, 3, highest)] == [0, 7]


@given(
    st.lists(st.tuples(st.sampled_from([0, 5, 5, 5, 70, 200]), st.sampled_from([None, 0, 4]), st.integers(-90, 90)),
             min_size=1, max_size=90),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=2),
    st.integers(-1, 1),
)  # fmt: skip
def test_damaged_records_are_checked_as_they_are_read(
    shapes: list[tuple[int, int | None, int]], damage: list[tuple[float, int]], more: int
) -> None:
    sent = [
        Record(bytes(size), None if key is None else bytes(key), timestamp=TIME_MS + time) for size, key, time in shapes
    ]
    data = bytearray(kafka_batches.records(sent * 3))
    for place, value in damage:
        data[int(place * len(data))] = value
    kafka_is_checked_alike(bytes(data), 3 * len(sent) + more)


@given(
    st.lists(st.tuples(st.sampled_from([0, 5, 5, 5, 70, 200]), st.sampled_from([None, 4]), st.integers(0, 200)),
             min_size=1, max_size=90),
    st.sampled_from([0, 100, 16_300, 2**40]),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=2),
)  # fmt: skip
def test_damaged_messages_are_checked_as_they_are_read(
    shapes: list[tuple[int, int | None, int]], first: int, damage: list[tuple[float, int]]
) -> None:
    sent = [
        Message(number, bytes(size), None if key is None else b"k" * key, event_time_ms=time)
        for number, (size, key, time) in enumerate(shapes * 3, first)
    ]
    data = bytearray(pulsar_entries.inner(sent))
    for place, value in damage:
        data[int(place * len(data))] = value
    pulsar_is_checked_alike(bytes(data), first, len(sent))
