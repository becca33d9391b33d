"""What clients of Kafka are sent of stored entries, as kafka-python reads it."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from crc32c import crc32c

from oncelog_doors.core.kafka.stored_entries import TimedOffset, first_at, records_of
from oncelog_doors.core.pulsar.deliveries import RawBatch
from oncelog_doors.core.shared.varints import zigzag
from tests.core.kafka_batches import CODECS, SNAPPY, as_batch
from tests.doors.core.pulsar.stored_batches import PUBLISHED_MS, columns, stored
from tests.doors.kafka.client_batches import Sent, batch_of, numbered

with warnings.catch_warnings():
    # Of importlib.resources, where kafka-python reads its definitions.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import MemoryRecords

#: kafka-python needs another library for the other one, which tests with real clients have.
READABLE = [codec for codec in CODECS if codec != SNAPPY]


class Read(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def read(records: Any) -> list[Read]:
    """All records, with the checksums of their batches."""
    found = []
    batches = MemoryRecords(bytes(records))
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        found += [Read(each.offset, each.timestamp, each.key, each.value, each.headers) for each in batch]
    return found


def sent(raw: RawBatch) -> bytes:
    return bytes(records_of(raw.entry, raw.batch, raw.body, crc32c))


def of_client(sent_records: Sequence[Sent], codec: int = 0, *, skip_first: int = 0) -> tuple[bytes, RawBatch]:
    batch = batch_of(sent_records, codec=codec, producer=(1_000, 0, 7))
    return batch, stored(as_batch(batch, range(7, 7 + len(sent_records))), skip_first=skip_first)


@pytest.mark.parametrize("codec", READABLE)
def test_a_batch_of_a_client_is_sent_as_it_came_at_its_offset(codec: int) -> None:
    """Offset and leader epoch are in front of what the client's checksum is over."""
    batch, raw = of_client(numbered(5), codec)
    got = sent(raw)
    assert got[16:] == batch[16:]
    assert [each.offset for each in read(got)] == [100, 101, 102, 103, 104]
    assert got[12:16] == b"\xff\xff\xff\xff"


@pytest.mark.hazard("hidden-records-delivered")
@pytest.mark.parametrize("codec", CODECS)
def test_known_records_are_not_in_what_is_sent(codec: int) -> None:
    """Also their headers and null values come as they were sent."""
    given = [Sent(b"a"), Sent(b"b"), Sent(None, b"k", [(b"h", b"\xff"), (b"h", None)], timestamp=1_764_000_000_005)]
    _, raw = of_client(given, codec, skip_first=2)
    assert read(sent(raw)) == [Read(100, 1_764_000_000_005, b"k", None, [("h", b"\xff"), ("h", None)])]


def test_messages_of_the_sdk_are_records() -> None:
    data = columns(
        [b"a", b"", b"c" * 300], keys=[b"k", None, b""], times_ms=[None, 1_000, -5],
        properties=[{"type": "first", "ß": ""}, {}, {}],
    )  # fmt: skip
    assert read(sent(stored(data))) == [
        Read(100, PUBLISHED_MS, b"k", b"a", [("type", b"first"), ("ß", b"")]),
        Read(101, 1_000, None, b"", []),
        Read(102, PUBLISHED_MS, b"", b"c" * 300, []),
    ]


def test_known_messages_of_the_sdk_are_left_out() -> None:
    raw = stored(columns([b"a", b"b", b"c"]), skip_first=1)
    assert [(each.offset, each.value) for each in read(sent(raw))] == [(100, b"b"), (101, b"c")]


@pytest.mark.hazard("converted-in-two-ways")
def test_the_records_of_an_entry_depend_on_the_entry_alone() -> None:
    """A client goes on at another door in the middle of a batch."""
    data = columns([b"%d" % number for number in range(300)])
    assert sent(stored(data)) == sent(stored(data, producer_name=None))
    first, last = sent(stored(data)), sent(stored(data, base_index=5_000))
    assert first[8:] == last[8:]


def test_the_first_message_of_a_time() -> None:
    """By the times that clients read."""
    raw = stored(columns([b"a", b"b", b"c"], times_ms=[10, 30, 20]), skip_first=0)
    assert first_at(raw.entry, raw.batch, raw.body, 11) == TimedOffset(101, 30)
    assert first_at(raw.entry, raw.batch, raw.body, 31) is None
    hidden = stored(columns([b"a", b"b", b"c"], times_ms=[50, 30, 20]), skip_first=1)
    assert first_at(hidden.entry, hidden.batch, hidden.body, 31) is None


@pytest.mark.parametrize("value", [0, 1, -1, 63, -64, 64, 2**31, -(2**31), 2**62, -(2**63)])
def test_varints_are_short_for_small_numbers_of_both_signs(value: int) -> None:
    data, rest = zigzag(value), 0
    for at, byte in enumerate(data):
        rest |= (byte & 127) << 7 * at
    assert (rest >> 1) ^ -(rest & 1) == value
    assert (len(data) == 1) is (-64 <= value < 64)
