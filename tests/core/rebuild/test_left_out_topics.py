"""A topic that a restore has left out stays out of the next one: the copy of its era does not have it."""

import pytest

from oncelog.core.era import Era
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import LedgerId, OwnerEpoch
from oncelog.core.rebuild.result import CopiedRecords, NotedName, NotedRecords
from tests.core.rebuild.join_world import DEDUP, NAME, OTHER, TOPIC, D, everywhere, held, joined

TWO = Era(2, "f" * 32)
LISTED = TopicRecord(TOPIC, NAME, owner_epoch=OwnerEpoch(TWO.first_epoch), ledgers=(LedgerLink(LedgerId(4), 0),))
COPIED = CopiedRecords({TOPIC: LISTED}, complete_below=LedgerId(TWO.first_id))
NOTED = NotedRecords({NAME: NotedName(TOPIC)})


@pytest.mark.hazard("left-out-ledger-returns")
def test_topic_that_was_left_out_does_not_take_its_name_back() -> None:
    """D alone has its head, and was not asked by the restore before. Since then another topic got its name: an operator
    would be asked which one has it."""
    world = everywhere(held(4, 4)) | {D: (held(6, 1, topic=OTHER), held(7, 1, topic=OTHER, purpose=DEDUP))}
    rebuilt = joined(world, copied=COPIED, noted=NOTED)
    assert (list(rebuilt.topics), rebuilt.names, rebuilt.reviews) == ([TOPIC], {NAME: TOPIC}, ())


def test_topic_of_this_era_is_there_although_the_copy_is_older() -> None:
    """It has a head of this era, and no note of its name yet."""
    world = everywhere(held(4, 4), held(TWO.first_id + 6, 1, topic=OTHER))
    rebuilt = joined(world, copied=COPIED, noted=NOTED)
    assert list(rebuilt.topics) == [TOPIC, OTHER]


def test_topic_whose_name_is_noted_keeps_its_ledgers_although_the_copy_lacks_it() -> None:
    """Its record was missing when the copy was made."""
    world = everywhere(held(4, 4))
    copied = CopiedRecords(complete_below=LedgerId(TWO.first_id))
    assert [each.ledger_id for each in joined(world, copied=copied, noted=NOTED).topics[TOPIC].ledgers] == [4]
    assert joined(world, copied=copied).topics == {}
