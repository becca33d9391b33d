"""core/formats/origin: what a copied batch says about its source, and forged records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidBatch
from oncelog.core.formats.batch_check import check_columns
from oncelog.core.formats.columns import decode_columns, encode_origin, encode_values, split_columns
from oncelog.core.formats.message_id import MessageId
from oncelog.core.formats.origin import BatchOrigin, Origin, pack_origin, unpack_origin
from oncelog.core.ids import EntryId, LedgerId, Position, TopicId

TOPIC = TopicId("5a" * 16)
ORIGIN = BatchOrigin(
    "a" * 32, TOPIC, -1, Position(LedgerId(7), EntryId(3)), 2, 40, 0xFFFFFFFF, "importer", 4, [5, 6, 9], -1, 2**40
)


@given(
    st.sets(st.integers(0, 2**62), min_size=1, max_size=20).map(sorted), st.integers(-(2**63), 2**63 - 1),
    st.one_of(st.none(), st.text(min_size=1, max_size=255)), st.integers(-1, 100_000),
)  # fmt: skip
def test_origin_round_trips(ids: list[int], time_ms: int, name: str | None, partition: int) -> None:
    origin = BatchOrigin(
        "c", TOPIC, partition, Position(LedgerId(1), EntryId(0)), 0, 2**40, 7, name, 1, ids, time_ms, time_ms
    )
    found = unpack_origin(pack_origin(origin), len(ids))
    assert list(found.sequence_ids) == ids
    assert (found.producer_name, found.partition, found.publish_time_ms) == (name, partition, time_ms)


def test_origin_of_one_message() -> None:
    assert unpack_origin(pack_origin(ORIGIN), 3).of(2) == Origin(
        "a" * 32, MessageId(TOPIC, -1, LedgerId(7), EntryId(3), 4), 42, "importer", 4, 9, -1, 2**40, 0xFFFFFFFF
    )


def test_column_is_beside_the_values() -> None:
    payload = encode_values([b"a", b"bc", b""]) + encode_origin(pack_origin(ORIGIN))
    check_columns(split_columns(payload, 3), 3)
    columns = decode_columns(payload, 3)
    assert columns.values.to_list() == [b"a", b"bc", b""]
    assert columns.origin is not None
    assert unpack_origin(columns.origin, 3) == ORIGIN
    assert decode_columns(encode_values([b"a"]), 1).origin is None


@pytest.mark.parametrize("count", [1, 2, 4])
def test_origin_of_other_messages_is_refused(count: int) -> None:
    """By the owner, before it is stored: no reader of the topic could read it."""
    payload = encode_values([b"a"] * count) + encode_origin(pack_origin(ORIGIN))
    with pytest.raises(InvalidBatch, match="sequence ids for"):
        check_columns(split_columns(payload, count), count)


@given(st.data())
def test_damaged_origin_is_refused_or_another_one(data: st.DataObject) -> None:
    """Never any other error."""
    good = pack_origin(ORIGIN)
    cut = data.draw(st.integers(0, len(good)))
    forged = good[:cut] + data.draw(st.binary(max_size=12)) + good[cut + data.draw(st.integers(0, 4)) :]
    try:
        found = unpack_origin(forged, 3)
    except InvalidBatch:
        return
    assert len(found.sequence_ids) == 3
