"""Whether messages that are sent again are those of the log."""

from collections.abc import Sequence

import pytest

from oncelog.core.formats.columns import Columns
from oncelog.core.formats.payload import columns_of, encrypted_columns
from oncelog.core.formats.pulsar import PulsarMessages, open_entry
from oncelog_doors.core.pulsar.contents import SentAgain, same_content
from tests.core.pulsar_entries import LZ4, Sent, batched, encrypted, numbered, plain


def messages(sent: Sequence[Sent], *, codec: int = 0) -> PulsarMessages:
    return open_entry(batched(sent, codec=codec))


def stored(sent: Sequence[Sent]) -> Columns:
    return columns_of(messages(sent))


@pytest.mark.hazard("generator-goes-back")
@pytest.mark.parametrize(
    ("run", "same"),
    [(SentAgain(0, 3, 2), True), (SentAgain(1, 1, 3), True), (SentAgain(0, 3, 1), False), (SentAgain(2, 1, 5), False)],
)
def test_messages_are_compared_at_their_places(*, run: SentAgain, same: bool) -> None:
    """Batches of other borders: ids 12 to 14 are the third to the fifth message of a stored batch of five."""
    again, first = numbered(range(12, 15)), numbered(range(10, 15))
    assert same_content(messages(again), stored(first), run) is same


@pytest.mark.hazard("generator-goes-back")
@pytest.mark.parametrize(
    "other",
    [Sent(7, b"other"), Sent(7, b"value 7", key=b"k"), Sent(7, None), Sent(7, b""), Sent(7, b"value 7x")],
    ids=["value", "key", "null", "empty", "longer"],
)
def test_each_part_of_the_content_counts(other: Sent) -> None:
    assert same_content(messages([other]), stored([Sent(7, b"value 7")]), SentAgain(0, 1, 0)) is False
    assert same_content(messages([Sent(7, b"value 7")]), stored([other]), SentAgain(0, 1, 0)) is False


def test_null_and_empty_are_two_values() -> None:
    assert same_content(messages([Sent(7, None)]), stored([Sent(7, b"")]), SentAgain(0, 1, 0)) is False
    assert same_content(messages([Sent(7, None)]), stored([Sent(7, None)]), SentAgain(0, 1, 0)) is True


@pytest.mark.hazard("other-order-of-properties")
def test_the_way_a_message_is_written_does_not_count() -> None:
    """Properties, event time, compression, and whether it is in a batch."""
    again = Sent(7, b"value 7", properties={"b": "2", "a": "1"}, event_time_ms=5)
    first = Sent(7, b"value 7", properties={"a": "1", "b": "2"})
    assert same_content(messages([again], codec=LZ4), columns_of(open_entry(plain(first))), SentAgain(0, 1, 0)) is True


def test_encrypted_messages_are_not_comparable() -> None:
    hidden = open_entry(encrypted(7))
    assert same_content(hidden, stored([Sent(7, b"value 7")]), SentAgain(0, 1, 0)) is None
    assert same_content(messages([Sent(7, b"value 7")]), encrypted_columns(hidden), SentAgain(0, 1, 0)) is None
