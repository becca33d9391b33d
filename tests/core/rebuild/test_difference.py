"""What a drill shows: every way in which a rebuilt tree may differ from the one that is there, and what is allowed."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from oncelog.core.era import Era
from oncelog.core.formats.topic_record import LedgerLink, TopicRecord
from oncelog.core.ids import NO_ENTRY, EntryId, LedgerId, OwnerEpoch, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.rebuild.difference import difference
from oncelog.core.rebuild.join import join
from oncelog.core.rebuild.result import Asked, CopiedRecords, NotedName, Rebuilt
from tests.core.rebuild.live_world import ACKS, DEDUP, LOG, NAME, NODES, PAGES, TOPIC, LiveWorld

Change = Callable[[CopiedRecords], CopiedRecords]


@pytest.fixture
def world() -> LiveWorld:
    """The log has two closed ledgers and an open one, the other chains have one."""
    world = LiveWorld(Random(5))
    for _ in range(2):
        world.write(LOG)
        world.roll(LOG)
    for purpose in (LOG, DEDUP, ACKS):
        world.write(purpose)
    return world


def rebuilt(world: LiveWorld) -> Rebuilt:
    asked = Asked((), world.ack_quorum)
    return join(world.inventories(), world.noted, None, asked, Era(2, "f" * 32), PAGES, now_ms=1)


def messages(world: LiveWorld, change: Change | None = None) -> list[str]:
    records = world.records if change is None else change(world.records)
    return [each.message for each in difference(rebuilt(world), records, world.noted.names)]


def of_topic(**fields: object) -> Change:
    return lambda live: replace(live, topics={TOPIC: replace(live.topics[TOPIC], **fields)})  # type: ignore[arg-type]


def of_ledger(place: int, **fields: object) -> Change:
    """Of the log's ledger at this place of its list."""

    def change(live: CopiedRecords) -> CopiedRecords:
        ledger_id = live.topics[TOPIC].ledgers[place].ledger_id
        record: LedgerMetadata = replace(live.ledgers[ledger_id], **fields)  # type: ignore[arg-type]
        return replace(live, ledgers={**live.ledgers, ledger_id: record})

    return change


def test_what_a_rebuild_gives_on_purpose_is_no_difference(world: LiveWorld) -> None:
    for change in (
        of_topic(owner=NODES[3], owner_epoch=OwnerEpoch(9), deleted_below=LedgerId(1)),
        of_ledger(0, members=NODES[3:], joining=NODES[0], verified=True),
        of_ledger(2, state=LedgerState.CLOSED, end=EntryId(0), length=100),
        lambda live: replace(live, cursors={TOPIC: replace(live.cursors[TOPIC], owner_epoch=OwnerEpoch(9))}),
    ):
        assert messages(world, change) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (of_topic(name="public/default/other"), "the name would be public/default/orders"),
        (of_topic(format=7), "the record would have format 6; it has 7"),
        (of_ledger(0, end=EntryId(7)), "it ends at 7"),
        (of_ledger(0, length=1), "it has 1"),
        (of_ledger(0, ack_quorum=1), "have other quorums"),
        (of_ledger(1, state=LedgerState.OPEN), "it is open"),
        (of_ledger(2, members=NODES[:3]), "would have the members"),
        (lambda live: replace(live, topics={}), "the topic would return"),
        (lambda live: replace(live, ledgers={}), "of the log has no record"),
    ],
)
def test_other_records_differ(world: LiveWorld, change: Change, message: str) -> None:
    assert any(message in each for each in messages(world, change)), messages(world, change)


def test_lists_differ_in_both_directions(world: LiveWorld) -> None:
    """A ledger that would be missing, one that would return, another index, and a floor that would be too high."""
    topic = world.topic
    first, *others = topic.ledgers
    assert messages(world, of_topic(ledgers=tuple(others))) == [f"ledger {first.ledger_id} would return to the log"]
    shifted = (LedgerLink(first.ledger_id, 77), *others)
    assert messages(world, of_topic(ledgers=shifted)) == [
        f"ledger {first.ledger_id} of the log would begin with message 0; it begins with 77"
    ]
    ours = rebuilt(world)
    without = replace(ours.topics[TOPIC], record=replace(ours.topics[TOPIC].record, ledgers=tuple(others)))
    less = difference(replace(ours, topics={TOPIC: without}), world.records, world.noted.names)
    assert [each.message for each in less] == [f"ledger {first.ledger_id} would be missing in the log"]
    higher = replace(without.record, ledgers=topic.ledgers, deleted_below=LedgerId(1))
    raised = difference(replace(ours, topics={TOPIC: replace(without, record=higher)}), world.records, {})
    assert "the log would begin at ledger 1; it begins at 0" in [each.message for each in raised]


def test_ledgers_without_anything_acknowledged_may_be_missing(world: LiveWorld) -> None:
    """One that is open and empty, and one with nothing but a head, once the next one says so."""
    world.roll(LOG)
    assert messages(world) == []
    lonely = world.open[LOG]
    world._store(lonely, EntryId(0), lonely.present)
    world._confirm(lonely, EntryId(0))
    world.roll(LOG)
    world.write(LOG)
    assert lonely.ledger_id in world.listed(LOG)
    assert rebuilt(world).topics[TOPIC].passed_over == (lonely.ledger_id,)
    assert messages(world) == []


def test_names_are_compared(world: LiveWorld) -> None:
    ours, other = rebuilt(world), TopicId("9" * 32)
    records = replace(world.records, topics={**world.records.topics, other: TopicRecord(other, "public/default/idle")})
    idle = {"public/default/idle": NotedName(other), "public/default/wide": NotedName(other, partitioned=True)}
    assert difference(ours, records, {NAME: NotedName(TOPIC), **idle}) == [], "a topic that was never used"
    (wrong,) = difference(ours, world.records, {NAME: NotedName(other)})
    assert (wrong.name, wrong.message) == (NAME, f"the name would lead to {TOPIC}; it leads to {other}")
    (gone,) = difference(replace(ours, names={}), world.records, world.noted.names)
    assert gone.message == f"the name would lead to None; it leads to {TOPIC}"


def test_topic_that_would_be_missing_is_told_by_its_ledgers(world: LiveWorld) -> None:
    ours = replace(rebuilt(world), topics={}, names={})
    told = [each.message for each in difference(ours, world.records, world.noted.names)]
    assert [each for each in told if "log" in each] == [
        f"ledger {each} would be missing in the log" for each in world.listed(LOG)[:2]
    ]


def test_cursor_may_list_more_and_end_later(world: LiveWorld) -> None:
    """A snapshot that was dropped, or never acknowledged, is as good as another."""
    world.roll(DEDUP)
    world.write(DEDUP)
    first = world.cursor.ledgers[0].ledger_id
    record = world.records.ledgers[first]
    shorter = {**world.records.ledgers, first: replace(record, end=EntryId(record.end - 1))}
    assert messages(world, lambda live: replace(live, ledgers=shorter)) == []
    left_open = {**world.records.ledgers, first: replace(record, state=LedgerState.OPEN, end=NO_ENTRY)}
    assert messages(world, lambda live: replace(live, ledgers=left_open)) == []
    fewer = {TOPIC: replace(world.cursor, ledgers=world.cursor.ledgers[1:])}
    assert messages(world, lambda live: replace(live, cursors=fewer)) == []
