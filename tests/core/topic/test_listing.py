"""Lists of topics by state over several owners: order, pages and places; and how old a message is."""

from dataclasses import dataclass

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog.core.formats.entry import EntryHeader, EntryKind
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch, Position, TopicId
from oncelog.core.publishing.log import InFlight
from oncelog.core.retention.ledger_sizes import EXACT_MS, MARKS_MAX, TIMES_MAX, LedgerSizes
from oncelog.core.topic.listing import ListPosition, page_of
from oncelog.core.topic_events.effects import ReadStoredTimes
from oncelog.core.topic_events.events import EndOfLedger
from tests.core.retention.test_topic_space import MINUTE, consuming, passes

#: Since 1970.
YEAR = 365 * 24 * 60 * MINUTE


@dataclass(frozen=True)
class Listed:
    place: ListPosition
    topic_id: str
    owner_epoch: int = 1

    @property
    def key(self) -> str:
        return self.topic_id


def listed(rank: int, topic: str, epoch: int = 1) -> Listed:
    return Listed(ListPosition(rank, topic), topic, epoch)


def test_page_has_the_worst_topics_and_names_where_the_next_one_begins() -> None:
    """By rank, then by name. The last page names no place."""
    found = [listed(3, "c"), listed(-5, "z"), listed(3, "a"), listed(7, "b")]
    page, after = page_of(found, 2)
    assert ([one.topic_id for one in page], after) == (["z", "a"], ListPosition(3, "a"))
    page, after = page_of([one for one in found if one.place > ListPosition(3, "a")], 2)
    assert ([one.topic_id for one in page], after) == (["c", "b"], None)
    assert page_of([], 2) == ([], None)


def test_topic_of_two_owners_counts_for_the_later_one() -> None:
    """Whatever rank the former one gives it."""
    page, after = page_of([listed(-9, "a", 2), listed(5, "a", 3), listed(1, "b")], 2)
    assert ([one.place for one in page], after) == ([ListPosition(1, "b"), ListPosition(5, "a")], None)


def test_place_survives_a_url() -> None:
    """As `after` of the next request; what is no place is refused by name."""
    for place in (ListPosition(-12, "public/default/a:b"), ListPosition(1_795_692_037_453, "x")):
        assert ListPosition.parse(str(place)) == place
    for wrong in ("", "5", "5:", ":t", "x:t", "-:t", "--5:t", "1" * 19 + ":t"):
        with pytest.raises(InvalidArgument) as refused:
            ListPosition.parse(wrong)
        assert refused.value.details["field"] == "after"


def test_age_of_a_message_is_exact_to_seconds_and_after_a_takeover_once_it_was_asked_for() -> None:
    """A former owner's ledger says when its last message was stored, which is too late for all others: an alert on the
    age would fire minutes late. So the time is not known until the entry was read, and then it is exact."""
    own = consuming()
    own.subscribe(window=0)
    for number in range(0, 12, 3):
        own.publish(number, 3)
        own.owner.tick(MINUTE).run()
    times = [own.owner.stored_ms(index) for index in range(12)]
    assert own.owner.core.serving is not None
    space = own.owner.core.serving.space.ledgers
    known = [space.stored_ms(index) for index in range(12)]
    assert all(
        found is not None and at is not None and 0 <= at - found <= EXACT_MS
        for found, at in zip(known, times, strict=True)
    )
    assert space.stored_ms(12) is None
    assert space.times_to_read() == ()

    two = consuming(own.world, "o2")
    two.owner.now_ms = own.owner.now_ms
    two.owner.run()
    assert two.owner.core.serving is not None
    later = two.owner.core.serving.space.ledgers
    passes(two, 0)
    assert two.owner.emitted(ReadStoredTimes) == [], "nobody has asked"
    assert [later.stored_ms(index) for index in (1, 5)] == [None, None]
    passes(two, 0)
    assert [effect.indexes for effect in two.owner.emitted(ReadStoredTimes)] == [(1, 5)]
    assert [later.stored_ms(index) for index in (1, 5)] == [times[1], times[5]]
    assert later.stored_ms(8) == times[5], "of an earlier message, while this one is read"
    passes(two, 0)
    assert later.stored_ms(8) == times[8]
    assert later.stored_ms(12) is None


def test_times_of_few_messages_are_kept() -> None:
    """Of those that were asked for last. An entry that could not be read is asked for again."""
    sizes = LedgerSizes(TopicRecord(TopicId("t"), "a/b/t", ledgers=(LedgerLink(LedgerId(1), 0),)), 10_000)
    assert (sizes.stored_ms(0), sizes.stored_ms(10_000)) == (None, None)
    assert sizes.times_to_read() == (0,), "also while the end of the ledger is not known"
    sizes.ends_read((EndOfLedger(LedgerId(1), EntryId(9), 10, MINUTE),))
    for index in range(10_000):
        assert sizes.stored_ms(index) is None
    wanted = sizes.times_to_read()
    assert wanted == tuple(range(10_000 - TIMES_MAX, 10_000))
    sizes.times_read(dict.fromkeys(wanted))
    assert sizes.times_to_read() == ()
    assert sizes.stored_ms(7) is None
    assert sizes.times_to_read() == (7,)
    sizes.times_read({7: 5, 8: 6})
    assert (sizes.stored_ms(7), sizes.stored_ms(8)) == (5, 5)


def appended(index: int, at_ms: int) -> InFlight:
    """The entry of one message."""
    header = EntryHeader(
        EntryKind.MESSAGES, LedgerId(1), EntryId(index), EntryId(index - 1), 10, OwnerEpoch(1), at_ms, index, 0, 1, 10,
        TopicId("t"),
    )  # fmt: skip
    return InFlight(header, Position(LedgerId(1), EntryId(index)))


def test_messages_after_pauses_have_times_of_their_own() -> None:
    """Without a read, also of a policy by age whose marks are far apart. Those of former marks are read."""
    sizes = LedgerSizes(TopicRecord(TopicId("t"), "a/b/t"), 0)
    sizes.follow_age(1 << 30)
    sizes.opened(LedgerId(1), 0)
    for index in range(10):
        sizes.appended(LedgerId(1), [appended(index, YEAR + MINUTE * (index + 1))])
    assert [sizes.stored_ms(index) for index in (0, 9)] == [YEAR + MINUTE, None]
    sizes = LedgerSizes(TopicRecord(TopicId("t"), "a/b/t"), 0)
    sizes.opened(LedgerId(1), 0)
    count = MARKS_MAX
    for index in range(count):
        sizes.appended(LedgerId(1), [appended(index, YEAR + MINUTE * (index + 1))])
    later = range(count // 2 + 1, count)
    assert [sizes.stored_ms(index) for index in later] == [YEAR + MINUTE * (index + 1) for index in later]
    assert sizes.times_to_read() == ()
    assert sizes.stored_ms(5) is None, "its mark is gone"
    assert sizes.times_to_read() == (5,)
