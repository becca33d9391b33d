"""The topic record as its owner holds it: nothing is believed that the record does not say."""

import pytest

from oncelog.core.coordination.ownership import (
    Deposed,
    Linked,
    Owned,
    Ownership,
    OwnershipConfirmed,
    OwnershipState,
    ReadTopicRecord,
    TopicRecordRead,
    TopicRecordWritten,
    Trimmed,
    WriteTopicRecord,
)
from oncelog.core.errors import NotOwner, TopicNotFound
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import LedgerId, OwnerEpoch
from oncelog.core.store_status import WriteStatus
from tests.core.builders import TOPIC, A, B

READ = [ReadTopicRecord(TOPIC)]


def link(number: int) -> LedgerLink:
    return LedgerLink(LedgerId(number), 10 * number)


MINE = TopicRecord(TOPIC, "t", A, OwnerEpoch(3), (link(1), link(2), link(3)))
THEIRS = TopicRecord(TOPIC, "t", B, OwnerEpoch(4), MINE.ledgers)


def owning() -> Ownership:
    ownership = Ownership(TOPIC, A)
    assert ownership.read() == READ
    assert ownership.record_read(TopicRecordRead(MINE, 7)) == [Owned()]
    return ownership


def ok(version: int) -> TopicRecordWritten:
    return TopicRecordWritten(WriteStatus.OK, version)


def test_only_the_record_makes_an_owner() -> None:
    """Being told is no proof: another's name, or no record, and it is over before it began."""
    for record in (THEIRS, None):
        ownership = Ownership(TOPIC, A)
        ownership.read()
        (news,) = ownership.record_read(TopicRecordRead(record, 7))
        assert isinstance(news, Deposed)


def test_write_is_from_the_version_that_was_read() -> None:
    """And the next one from the version that the write returned."""
    ownership = owning()
    four, five = MINE.with_ledger(link(4)), MINE.with_ledger(link(4)).with_ledger(link(5))
    assert ownership.link(link(4)) == [WriteTopicRecord(four, 7)]
    assert ownership.record_written(ok(8)) == [Linked(LedgerId(4))]
    assert ownership.link(link(5)) == [WriteTopicRecord(five, 8)]


@pytest.mark.hazard(1)
def test_conflict_is_read_before_anything_is_written() -> None:
    """O2 gained the topic while O1 rolled: O1's write fails, and its next one must not be tried."""
    ownership = owning()
    ownership.link(link(4))
    assert ownership.record_written(TopicRecordWritten(WriteStatus.CONFLICT, -1)) == READ
    assert ownership.link(link(5)) == []
    assert ownership.trim(1) == []
    (news,) = ownership.record_read(TopicRecordRead(THEIRS, 8))
    assert isinstance(news, Deposed)
    assert ownership.link(link(5)) == []


def test_conflict_with_myself_starts_again() -> None:
    """A write of mine whose first reply was lost: still my epoch, so at B with the record's last ledger."""
    ownership = owning()
    ownership.link(link(4))
    ownership.record_written(TopicRecordWritten(WriteStatus.UNKNOWN, -1))
    applied = MINE.with_ledger(link(4))
    assert ownership.record_read(TopicRecordRead(applied, 8)) == [Owned()]
    assert (ownership.record, ownership.version) == (applied, 8)


def test_another_epoch_of_mine_is_not_mine() -> None:
    """The topic went away and came back: what this one knows is of the time before."""
    ownership = owning()
    ownership.suspect()
    again = TopicRecord(TOPIC, "t", A, OwnerEpoch(5), MINE.ledgers)
    (news,) = ownership.record_read(TopicRecordRead(again, 9))
    assert isinstance(news, Deposed)


def test_deposed_is_for_good() -> None:
    """No record, no answer and no suspicion bring it back."""
    ownership = owning()
    ownership.link(link(4))
    ownership.suspect()
    ownership.record_read(TopicRecordRead(THEIRS, 8))
    assert ownership.record_read(TopicRecordRead(MINE, 7)) == []
    assert ownership.record_written(ok(8)) == []
    assert (ownership.read(), ownership.suspect()) == ([], [])
    assert ownership.state is OwnershipState.DEPOSED
    assert isinstance(ownership.lost("another has it"), NotOwner)


@pytest.mark.hazard(3)
def test_removed_topic_ends_its_owner() -> None:
    """A topic deleted and created anew has another id; under this one there is nothing left."""
    ownership = owning()
    ownership.read()
    (news,) = ownership.record_read(TopicRecordRead(None, -1))
    assert isinstance(news, Deposed)
    assert ownership.state is OwnershipState.DELETED
    assert isinstance(ownership.lost(news.reason), TopicNotFound)
    assert (ownership.read(), ownership.suspect(), ownership.record_written(ok(8))) == ([], [], [])


def test_confirmation_is_a_read_that_names_me() -> None:
    """One read at a time, and no restart."""
    ownership = owning()
    assert ownership.read() == READ
    assert ownership.read() == []
    assert ownership.record_read(TopicRecordRead(MINE, 7)) == [OwnershipConfirmed()]


def test_read_begun_before_the_suspicion_is_no_answer_to_it() -> None:
    """It may be older than what was suspected: the record is read once more."""
    ownership = owning()
    ownership.read()
    assert ownership.suspect() == []
    assert ownership.record_read(TopicRecordRead(MINE, 7)) == READ
    (news,) = ownership.record_read(TopicRecordRead(THEIRS, 8))
    assert isinstance(news, Deposed)


def test_old_read_that_names_another_is_believed() -> None:
    """Epochs only grow: what was lost once stays lost."""
    ownership = owning()
    ownership.read()
    ownership.suspect()
    (news,) = ownership.record_read(TopicRecordRead(THEIRS, 8))
    assert isinstance(news, Deposed)


def test_write_in_flight_over_a_suspicion_is_waited_for() -> None:
    """Its late answer would pass for the next link's, and entries be acknowledged in a ledger that no list names."""
    ownership = owning()
    ownership.link(link(4))
    assert ownership.suspect() == READ
    assert ownership.record_read(TopicRecordRead(MINE, 7)) == []
    assert ownership.record_written(ok(8)) == READ
    applied = MINE.with_ledger(link(4))
    assert ownership.record_read(TopicRecordRead(applied, 8)) == [Owned()]
    assert ownership.link(link(5)) == [WriteTopicRecord(applied.with_ledger(link(5)), 8)]


def test_answer_before_the_read_asks_for_another() -> None:
    """The read in flight may have been served before the write."""
    ownership = owning()
    ownership.link(link(4))
    ownership.suspect()
    assert ownership.record_written(ok(8)) == []
    assert ownership.record_read(TopicRecordRead(MINE, 7)) == READ
    assert ownership.record_read(TopicRecordRead(MINE.with_ledger(link(4)), 8)) == [Owned()]


def test_trim_waits_for_the_link() -> None:
    """One write at a time, each from the record that the last one left."""
    ownership = owning()
    ownership.link(link(4))
    assert ownership.trim(2) == []
    four = MINE.with_ledger(link(4))
    written = ownership.record_written(ok(8))
    assert written == [Linked(LedgerId(4)), WriteTopicRecord(four.without_first(2), 8)]
    assert ownership.record_written(ok(9)) == [Trimmed((LedgerId(1), LedgerId(2)))]


def test_link_asked_for_during_a_trim() -> None:
    """The trim's answer is the trim's."""
    ownership = owning()
    assert ownership.trim(1) == [WriteTopicRecord(MINE.without_first(1), 7)]
    assert ownership.link(link(4)) == []
    trimmed = MINE.without_first(1)
    written = ownership.record_written(ok(8))
    assert written == [Trimmed((LedgerId(1),)), WriteTopicRecord(trimmed.with_ledger(link(4)), 8)]


def test_wider_trim_during_a_trim_names_only_what_went() -> None:
    """A ledger named as gone is deleted: it must have left the record."""
    ownership = owning()
    ownership.trim(1)
    ownership.trim(2)
    written = ownership.record_written(ok(8))
    assert written == [Trimmed((LedgerId(1),)), WriteTopicRecord(MINE.without_first(2), 8)]
    assert ownership.record_written(ok(9)) == [Trimmed((LedgerId(2),))]


def test_suspicion_forgets_what_was_wanted() -> None:
    """What is written next is for the next stretch to say."""
    ownership = owning()
    ownership.link(link(4))
    ownership.trim(1)
    ownership.suspect()
    ownership.record_written(ok(8))
    ownership.record_read(TopicRecordRead(MINE, 7))
    assert ownership.record_read(TopicRecordRead(MINE.with_ledger(link(4)), 8)) == [Owned()]
    assert ownership.record_written(ok(9)) == []
