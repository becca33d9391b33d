"""Lists of topics by state over several owners: order, pages and places; and how old a message is."""

from dataclasses import dataclass

import pytest

from oncelog.core.errors import InvalidArgument
from oncelog.core.topic.listing import ListPosition, page_of
from tests.core.retention.test_topic_space import MINUTE, consuming, passes


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


def test_age_of_a_message_is_known_where_it_was_appended_and_after_a_takeover() -> None:
    """Never as older than it is; of a former owner's ledger as soon as its end is read."""
    own = consuming()
    own.subscribe(window=0)
    times = []
    for number in range(0, 12, 3):
        times.append(own.owner.now_ms)
        own.publish(number, 3)
        own.owner.tick(MINUTE).run()
    assert own.owner.core.serving is not None
    space = own.owner.core.serving.space.ledgers
    found = [space.appended_by_ms(index) for index in range(12)]
    assert all(at_ms is not None and at_ms >= times[index // 3] for index, at_ms in enumerate(found))
    assert found[9] is not None
    assert found[9] - times[3] < MINUTE
    assert found == sorted(at_ms for at_ms in found if at_ms is not None)
    assert space.appended_by_ms(12) is None

    two = consuming(own.world, "o2")
    two.owner.now_ms = own.owner.now_ms
    two.owner.run()
    assert two.owner.core.serving is not None
    later = two.owner.core.serving.space.ledgers
    passes(two, 0)
    known = [later.appended_by_ms(index) for index in range(12)]
    assert all(at_ms is not None and at_ms >= times[index // 3] for index, at_ms in enumerate(known))
