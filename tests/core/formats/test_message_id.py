"""core/message_id: order, bytes, text."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.message_id import EARLIEST, ID_BYTES, LATEST, Index, MessageId
from oncelog.core.ids import EntryId, LedgerId, TopicId

TOPIC = TopicId("0123456789abcdef0123456789abcdef")
OTHER = TopicId("f" * 32)


def at(ledger: int, entry: int, index: int, *, topic: TopicId = TOPIC, partition: int = -1) -> MessageId:
    return MessageId(topic, partition, LedgerId(ledger), EntryId(entry), index)


def test_ids_of_one_topic_are_ordered_by_position() -> None:
    """Ledger, then entry, then index in the entry; EARLIEST and LATEST enclose all."""
    ordered = [EARLIEST, at(0, 0, 0), at(0, 0, 1), at(0, 1, 0), at(1, 0, 0), LATEST]
    for (i, a), (j, b) in itertools.product(enumerate(ordered), repeat=2):
        assert (a < b, a <= b, a > b, a >= b, a == b) == (i < j, i <= j, i > j, i >= j, i == j)
    assert sorted(ordered[3:] + ordered[:3]) == ordered


def test_ids_of_two_topics_have_no_order() -> None:
    """A place in another topic, part, or in a topic created anew is not before or after: it has no answer."""
    for stranger in (at(1, 1, 1, topic=OTHER), at(1, 1, 1, partition=0)):
        with pytest.raises(TypeError):
            assert at(0, 0, 0) < stranger
        assert EARLIEST < stranger < LATEST
        assert at(1, 1, 1) != stranger
    with pytest.raises(TypeError):
        assert at(0, 0, 0) < 7  # type: ignore[operator]


@given(st.integers(0, 2**63 - 2), st.integers(0, 2**63 - 2), st.integers(0, 2**31 - 2), st.integers(-1, 2**31 - 1))
def test_bytes_round_trip(ledger: int, entry: int, index: int, partition: int) -> None:
    """Ids round-trip, and equal ids have equal hashes."""
    found = at(ledger, entry, index, partition=partition)
    again = MessageId.from_bytes(found.to_bytes())
    assert again == found
    assert hash(again) == hash(found)


def test_earliest_latest_and_ids_without_a_topic_round_trip() -> None:
    """EARLIEST, LATEST and an id without a topic survive both forms."""
    for found in (EARLIEST, LATEST, MessageId.parse("3:4:5")):
        assert MessageId.from_bytes(found.to_bytes()) == found
        assert MessageId.parse(str(found)) == found
    assert len(EARLIEST.to_bytes()) == ID_BYTES


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_an_invalid_argument(data: bytes) -> None:
    """Arbitrary bytes never become an id and never raise another exception."""
    with pytest.raises(InvalidArgument):
        MessageId.from_bytes(data)


@given(st.integers(0, ID_BYTES - 1), st.integers(1, 255))
def test_flipped_byte_is_detected(place: int, mask: int) -> None:
    """An id that was damaged in the application's store is refused."""
    data = bytearray(at(7, 8, 9).to_bytes())
    data[place] ^= mask
    with pytest.raises(InvalidArgument):
        MessageId.from_bytes(bytes(data))


@pytest.mark.parametrize(
    "text", ["", "1", "1:", "1:2:", "-1:2:3", "1:2:3:4", "a:b:c", "1:2:99999999999", "9" * 19 + ":0"]
)
def test_a_malformed_text_is_refused(text: str) -> None:
    """Digits with colons, in range, or nothing."""
    with pytest.raises(InvalidArgument):
        MessageId.parse(text)
    with pytest.raises(InvalidArgument):
        MessageId.from_bytes(text)  # type: ignore[arg-type]


def test_text_is_ledger_entry_index() -> None:
    """`ledger:entry` means its first message."""
    assert MessageId.parse("3:4", topic_id=TOPIC) == at(3, 4, 0)
    assert str(at(3, 4, 5)) == "3:4:5"
    assert str(at(3, 4, 5).position) == "3:4"


@pytest.mark.parametrize("number", [-1, 2**63, True, 1.5, "7"])
def test_index_of_another_type_is_refused(number: object) -> None:
    """The error is raised where the id is created, not later by the owner."""
    with pytest.raises(InvalidArgument):
        Index(number)  # type: ignore[arg-type]
