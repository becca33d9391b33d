"""Stored record batches as Fetch sends them: whole, or without the records that were known before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.kafka import KafkaRecords, open_batch
from oncelog_doors.core.kafka.batch_cuts import at_offset, without_first
from tests.core.builders import checksum
from tests.core.kafka_batches import CODECS, GZIP, TIME_MS, Sent, batched, framed, numbered, records

SENT = [
    Sent(b"a", b"k", [(b"h", b"1"), (b"h", None)], TIME_MS + 900),
    Sent(None, b""),
    Sent(b"x" * 200, None, [(b"raw", b"\xff")], TIME_MS - 5),
    Sent(b"", b"z", timestamp=-1),
]


def read(batch: bytes) -> list[tuple[object, ...]]:
    """What a client finds: value, key, time, headers."""
    found: KafkaRecords = open_batch(batch, checksum=checksum)
    count, nulls = found.head.count, set(found.nulls)
    keys, times = found.keys or [None] * count, found.timestamps_ms or [None] * count
    headers = found.headers or [()] * count
    return [
        (None if i in nulls else found.values[i], keys[i], times[i], headers[i]) for i in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
def test_a_whole_batch_has_the_bytes_of_the_client(codec: int) -> None:
    """But for the base offset and the leader epoch, which its checksum does not cover."""
    batch = batched(SENT, codec=codec, producer=(7, 3, 5))
    served = at_offset(batch, 2**40 + 1)
    assert int.from_bytes(served[:8]) == 2**40 + 1
    assert (served[8:12], served[12:16], served[16:]) == (batch[8:12], b"\xff" * 4, batch[16:])
    assert read(served) == read(batch)


@pytest.mark.hazard("hidden-records-delivered")
@given(
    st.lists(
        st.builds(
            Sent, st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=9),
            st.lists(st.tuples(st.just(b"h"), st.none() | st.binary(max_size=5)), max_size=2),
            st.integers(TIME_MS - 10**6, TIME_MS + 10**6),
        ),
        min_size=2, max_size=150,
    ),
    st.sampled_from(CODECS),
    st.data(),
)  # fmt: skip
def test_a_cut_batch_has_the_records_that_are_left(sent: list[Sent], codec: int, data: st.DataObject) -> None:
    """Any number of them, also where offset deltas need more bytes than before; each exactly as it was."""
    batch = batched(sent, codec=codec, producer=(7, 3, 2**31 - 2))
    count = data.draw(st.integers(1, len(sent) - 1))
    served = without_first(batch, count, 77, checksum)
    assert read(served) == read(batch)[count:]
    assert served == without_first(batch, count, 77, checksum)
    head = open_batch(served).head
    assert (int.from_bytes(served[:8]), served[12:16]) == (77, b"\xff" * 4)
    assert head.max_timestamp == max(each.timestamp for each in sent[count:])
    assert (head.producer_id, head.producer_epoch, head.base_sequence) == (7, 3, (2**31 - 2 + count) % 2**31)


def test_what_a_cut_batch_says_of_its_producer() -> None:
    """Nothing, if nothing was said."""
    head = open_batch(without_first(batched(SENT), 1, 0, checksum)).head
    assert (head.producer_id, head.producer_epoch, head.base_sequence) == (-1, -1, -1)


@pytest.mark.parametrize("count", [-1, 0, 4, 5])
def test_something_is_cut_off_and_something_is_left(count: int) -> None:
    with pytest.raises(InvalidArgument) as refused:
        without_first(batched(SENT), count, 0, checksum)
    assert refused.value.details["field"] == "count"


def test_a_cut_batch_is_the_same_at_every_door() -> None:
    """It is not compressed: a library of another version could give other bytes. These are the bytes, written down."""
    batch = framed(records(numbered(3)), 3)
    cut = without_first(batch, 1, 5, checksum)
    assert cut == without_first(batched(numbered(3), codec=GZIP), 1, 5, checksum)
    assert cut[21:].hex() == (
        "0000" "00000001" "0000019ab697e800" "0000019ab697e800" + "ff" * 14 + "00000002"
        "1a000000010e76616c75652031" "00" "1a000002010e76616c75652032" "00"
    )  # fmt: skip
