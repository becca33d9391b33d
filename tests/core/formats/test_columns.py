"""core/columns: packed columns round-trip, and forged ones raise InvalidBatch."""

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidArgument, InvalidBatch
from oncelog.core.formats.columns import (
    TIME_MS_MAX,
    TIME_MS_MIN,
    check_event_times,
    decode_columns,
    encode_event_times,
    encode_keys,
    encode_properties,
    encode_values,
    pack_values,
)

values_lists = st.lists(st.binary(max_size=40), min_size=1, max_size=30)


@given(values_lists)
def test_values_round_trip(values: list[bytes]) -> None:
    """Empty values included, one by one, as a whole and in slices."""
    read = decode_columns(encode_values(values), len(values)).values
    assert [bytes(each) for each in read] == values == read.to_list()
    assert [bytes(read[i]) for i in range(-len(values), len(values))] == values + values
    half = len(values) // 2
    assert read[half:].to_list() == values[half:] == [bytes(each) for each in read[half:]]


@given(st.integers(1, 20), st.integers(1, 20))
def test_values_of_equal_width_need_no_list_of_offsets(width: int, count: int) -> None:
    """The fast path: offsets are a range; slices of it are still right."""
    values = [bytes([i]) * width for i in range(count)]
    read = decode_columns(encode_values(values), count).values
    assert isinstance(read.offsets, range)
    assert read.to_list() == values
    assert read[1:].to_list() == values[1:]
    assert [bytes(each) for each in read[1:]] == values[1:]


def test_layout_matches_the_documentation() -> None:
    """Two values, by hand: the format is a promise to other programs."""
    expected = bytes((1, 0, 0, 0)) + struct.pack("<I", 11) + struct.pack("<II", 1, 2) + b"abc"
    assert encode_values([b"a", b"bc"]) == expected


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=9),
            st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
            st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
        ),
        min_size=1,
        max_size=10,
    )
)
def test_every_column_round_trips(rows: list[tuple[bytes | None, int | None, dict[str, str]]]) -> None:
    """Absent keys, times and properties differ from empty ones."""
    keys, times, properties = (list(column) for column in zip(*rows, strict=True))
    payload = encode_values([b"v"] * len(rows))
    payload += encode_keys(keys) + encode_event_times(times) + encode_properties(properties)
    read = decode_columns(payload, len(rows))
    assert (read.keys, read.event_times_ms, read.properties) == (keys, times, properties)


def test_absent_columns_are_none_and_unknown_ones_are_skipped() -> None:
    """A later version's column does not stop an older reader."""
    read = decode_columns(encode_values([b"v"]) + struct.pack("<BxxxI", 200, 3) + b"new", 1)
    assert (read.keys, read.event_times_ms, read.properties) == (None, None, None)


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=40), st.integers(1, 200), st.integers(1, 40))
def test_packing_in_pieces_loses_nothing(values: list[bytes], bytes_max: int, hint: int) -> None:
    """Each piece is as full as the limit and the hint allow; together they are the whole, in order."""
    read: list[bytes] = []
    while len(read) < len(values):
        start = len(read)
        column, count = pack_values(values, start, bytes_max=bytes_max, count_hint=hint)
        assert 1 <= count <= hint
        assert len(column) - 8 <= bytes_max or count == 1
        if count < hint and start + count < len(values):
            assert len(column) - 8 + 4 + len(values[start + count]) > bytes_max
        read += decode_columns(column, count).values.to_list()
    assert read == values


@pytest.mark.parametrize("wrong", ["text", 7, None, [1]])
def test_value_of_another_type_than_bytes_is_refused(wrong: object) -> None:
    """With the field's name, not a TypeError from inside."""
    bad: Sequence[bytes] = [b"good", wrong]  # type: ignore[list-item]
    with pytest.raises(InvalidArgument) as caught:
        encode_values(bad)
    assert caught.value.details["field"] == "value"


def test_a_memoryview_of_wide_items_is_refused() -> None:
    """Its len() counts items, not bytes, so the lengths would be wrong."""
    with pytest.raises(InvalidArgument):
        encode_values([memoryview(b"12345678").cast("I")])
    assert encode_values([memoryview(b"12"), bytearray(b"34")]) == encode_values([b"12", b"34"])


def test_times_that_no_calendar_has_are_refused_in_new_messages() -> None:
    """A time in another unit, or a bool. A message that is stored already may be packed again."""
    check_event_times([None, TIME_MS_MIN, 0, TIME_MS_MAX])
    for wrong in (TIME_MS_MIN - 1, TIME_MS_MAX + 1, 2**70, True):
        with pytest.raises(InvalidArgument, match="event_time_ms must be milliseconds since 1970"):
            check_event_times([0, wrong])
    assert encode_event_times([TIME_MS_MAX + 1])


def test_bad_times_and_properties_are_refused() -> None:
    """Each by a named error."""
    for time in ("now", 2**63, 1.5):
        with pytest.raises(InvalidArgument):
            encode_event_times([time])  # type: ignore[list-item]
    for properties in ({"k": 1}, {1: "v"}, {"k": "\ud800"}, {"k" * 70_000: "v"}):
        with pytest.raises(InvalidArgument):
            encode_properties([properties])  # type: ignore[list-item]


@given(st.binary(max_size=200), st.integers(-1, 2**32 - 1))
def test_arbitrary_bytes_are_refused_or_decoded(data: bytes, count: int) -> None:
    """Never another exception, and never an allocation that the bytes do not justify."""
    try:
        read = decode_columns(data, count)
    except InvalidBatch:
        return
    assert len(read.values.to_list()) == count


GOOD = (
    encode_values([b"ab", b"c", b""])
    + encode_keys([b"k", None, b""])
    + encode_event_times([1, None, -5])
    + encode_properties([{"a": "b"}, {}, {"ü": "ß"}])
)


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_any_changed_byte_is_refused_or_read_without_a_crash(place: int, byte: int) -> None:
    """Mutations of a real payload reach deeper than random bytes."""
    forged = bytearray(GOOD)
    forged[place] = byte
    try:
        read = decode_columns(bytes(forged), 3)
    except InvalidBatch:
        return
    assert len(read.values.to_list()) == 3


@pytest.mark.parametrize("cut", range(len(GOOD)))
def test_a_cut_payload_is_refused_except_between_columns(cut: int) -> None:
    """A prefix is readable only where a column ends."""
    ends = {len(encode_values([b"ab", b"c", b""]))}
    ends.add(max(ends) + len(encode_keys([b"k", None, b""])))
    ends.add(max(ends) + len(encode_event_times([1, None, -5])))
    if cut in ends:
        assert decode_columns(GOOD[:cut], 3).values.to_list() == [b"ab", b"c", b""]
    else:
        with pytest.raises(InvalidBatch):
            decode_columns(GOOD[:cut], 3)


def test_a_wrong_count_is_refused() -> None:
    """The header's count and the payload must agree, also a count that would take gigabytes."""
    for count in (0, 2, 4, 2**32 - 1):
        with pytest.raises(InvalidBatch):
            decode_columns(GOOD, count)


def test_a_repeated_or_missing_values_column_is_refused() -> None:
    """Values once, first."""
    with pytest.raises(InvalidBatch):
        decode_columns(encode_values([b"a"]) * 2, 1)
    with pytest.raises(InvalidBatch):
        decode_columns(encode_keys([b"a"]), 1)
    with pytest.raises(InvalidBatch):
        decode_columns(b"", 1)
