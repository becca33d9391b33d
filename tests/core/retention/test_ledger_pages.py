"""Pages of a topic's list of ledgers: the list grows without bound, and nothing is lost between record and page."""

import json
from dataclasses import replace

import pytest

from oncelog.core.errors import CorruptEntry, InvariantViolated
from oncelog.core.formats.ledger_page import ListPage, PagedLedger, PageLink, decode_page, encode_page
from oncelog.core.formats.topic_record import FORMAT_WITH_HEADS, LedgerLink, TopicRecord, encode_topic
from oncelog.core.ids import LedgerId
from oncelog.core.policies.retention_rules import RetentionPolicy
from oncelog.core.policies.topic_policies import TopicPolicies
from oncelog.core.records.records import PageKey, ReadRecord, TopicKey
from oncelog.core.retention.paging import PageSettings
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.core.topic_events.effects import (
    AnswerTruncate,
    DeletePages,
    ReadLedgerEnds,
    TopicFailed,
)
from oncelog.core.topic_events.events import PoliciesChanged, TruncateRequested
from tests.core.builders import TOPIC, A, plain, received
from tests.core.topic.test_topic_subscriptions import Consuming
from tests.core.topic.topic_world import READ_PAGE, SETTINGS, WRITE_TOPIC, Owner, World

#: A ledger holds one batch, a page three ledgers.
TINY = PageSettings(ledgers=3, inline_max=5)
ONE_EACH = replace(SETTINGS, ledger_entries_max=1, pages=TINY)
RARE = SnapshotSettings(interval_ms=1 << 40, gap_ms=0, entries_max=1 << 40)
OFTEN = SnapshotSettings(entries_max=1, gap_ms=0, deltas_max=0)


def page(*ids: int) -> ListPage:
    return ListPage(tuple(PagedLedger(LedgerId(i), 10 * i, 100, 1_000 + i) for i in ids))


def record_of(*ids: int) -> TopicRecord:
    return TopicRecord(TOPIC, "t", A, ledgers=tuple(LedgerLink(LedgerId(i), 10 * i) for i in ids))


def written(
    count: int, *, snapshots: SnapshotSettings = RARE, world: World | None = None, pages: PageSettings = TINY
) -> Consuming:
    """An owner that has written so many messages, each to a ledger of its own."""
    own = Consuming(world or World(), settings=replace(ONE_EACH, snapshot=snapshots, pages=pages))
    own.owner.now_ms += 10
    granted = own.owner.open("p")
    pid, generation = granted.instance
    for number in range(count):
        own.owner.now_ms += 10
        own.owner.send(granted.session, received(number, [number], pid=pid, generation=generation))
        own.owner.run()
        own.owner.tick().run()
    return own


def passes(own: Consuming, *, ticks: int = 12) -> None:
    for _ in range(ticks):
        own.owner.tick(1_001).run()


def page_reads(owner: Owner) -> list[LedgerId]:
    """The pages that it has read, by name."""
    reads = [effect for effect in owner.effects if isinstance(effect, ReadRecord)]
    return [read.key.name for read in reads if isinstance(read.key, PageKey)]


def listed(world: World) -> list[int]:
    """The messages with which ledgers begin. The first ledger has the grant alone, and begins at 0, too."""
    return list(dict.fromkeys(link.base_index for link in world.links))


# --- the records ------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("oversized-ledger-list")
def test_page_round_trips_through_bytes_and_a_damaged_one_is_refused() -> None:
    """Ledgers without entries have time 0, so differences may be negative."""
    some = ListPage((PagedLedger(LedgerId(4), 0, 7, 1 << 40), PagedLedger(LedgerId(9), 70, 0, 0)))
    assert decode_page(encode_page(some)) == some
    fields = json.loads(encode_page(some))
    damages: tuple[dict[str, object], ...] = (
        {"format": 2}, {"ledgers": [4, -1]}, {"bytes": [7]}, {"ledgers": []}, {"ended": ["x", 1]},
    )  # fmt: skip
    for damage in damages:
        with pytest.raises(CorruptEntry):
            decode_page(json.dumps(fields | damage).encode())
    with pytest.raises(CorruptEntry):
        decode_page(b"[]")


@pytest.mark.hazard("oversized-ledger-list")
def test_a_million_ledgers_fit_into_small_records() -> None:
    """The topic record grows by some 70 bytes for each page; ZooKeeper takes 1 MiB."""
    count, size = 1_000_000, PageSettings().ledgers
    ids = [LedgerId(9_000_000 + 3 * i) for i in range(size)]
    whole = ListPage(tuple(PagedLedger(i, 50_000 * i, 1 << 30, 1_800_000_000_000 + 2_500 * i) for i in ids))
    assert len(encode_page(whole)) < 200_000
    record = replace(record_of(10_000_000), pages=(whole.link,) * (count // size), format=FORMAT_WITH_HEADS)
    assert len(encode_topic(record)) < 50_000


@pytest.mark.hazard("oversized-ledger-list")
def test_page_takes_exactly_the_oldest_ledgers_and_never_the_last() -> None:
    """Otherwise ledgers would leave the list without a trim, or the takeover would not find the one to fence."""
    record = record_of(1, 2, 3)
    for wrong in (page(2, 3), page(1, 3), page(1, 2, 3)):
        with pytest.raises(InvariantViolated):
            record.with_page(wrong.link)
    assert record.with_page(page(1, 2).link).ledgers == record.ledgers[2:]


@pytest.mark.hazard("missing-record-is-no-deletion", "oversized-ledger-list")
def test_trim_within_a_page_changes_its_link_and_raises_the_floor() -> None:
    """The page itself is never changed: the link says where it begins now."""
    first, second = page(1, 2, 3), page(4, 5, 6)
    record = record_of(1, 2, 3, 4, 5, 6, 7).with_page(first.link).with_page(second.link)
    cut = record.without(LedgerId(2), first.link_behind(LedgerId(2)))
    assert cut.pages[0] == PageLink(LedgerId(1), LedgerId(3), 30, LedgerId(3), 1, 100, 1_003)
    assert [ledger.ledger_id for ledger in cut.pages[0].listed(first)] == [3]
    assert (cut.deleted_below, cut.ledger_count) == (3, 5)
    whole = cut.without(LedgerId(3))
    assert (whole.pages, whole.deleted_below) == ((second.link,), 4)
    with pytest.raises(InvariantViolated):
        record.without(LedgerId(2))
    with pytest.raises(InvariantViolated):
        record.without(LedgerId(5), first.link)


# --- the owner --------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("oversized-ledger-list")
def test_list_grows_without_bound_and_the_topic_record_does_not() -> None:
    """All ledgers are still in the log, and a takeover folds all of it."""
    own = written(40)
    record = own.world.record
    assert len(record.ledgers) <= TINY.inline_max + 2
    assert len(record.pages) >= 10
    assert listed(own.world)[:40] == list(range(40))
    two = Owner(own.world, "o2", ONE_EACH).take_over()
    assert two.core.serving is not None
    assert plain(two.core.serving.log.table.state) == plain(own.world.folded())
    assert two.core.serving.log.table.state.next_index == 40


@pytest.mark.hazard("stale-record-after-conflict", "oversized-ledger-list")
def test_owner_that_stops_at_any_write_of_the_record_loses_no_ledger() -> None:
    """A page and its link are one write. The next owner finds the list as it was before or after it."""
    own = written(6)
    for number in range(6, 30):
        own = Consuming(own.world, f"o{number}", replace(ONE_EACH, snapshot=RARE))
        own.publish(number, 1)
        own.owner.tick().run(WRITE_TOPIC)
        assert [index for index in listed(own.world) if index <= number][: number + 1] == list(range(number + 1))
    assert len(own.world.record.pages) > 1


@pytest.mark.hazard("stale-record-after-conflict", "oversized-ledger-list")
def test_deposed_owner_writes_no_page() -> None:
    """Its compare-and-set fails, and the page is a part of that."""
    own = written(3)
    own.publish(3, 1)
    own.owner.tick().run(WRITE_TOPIC)
    (write,) = own.owner.writes(TopicKey, own.owner.queue)
    assert write.page is not None
    Owner(own.world, "o2", SETTINGS).take_over()
    own.owner.run()
    assert own.world.pages == {}
    assert own.world.record.pages == ()


@pytest.mark.hazard("oversized-ledger-list")
def test_record_that_is_too_large_becomes_smaller_before_another_ledger_is_linked() -> None:
    """What is not known of its ledgers is not waited for: it counts so that nothing is deleted too early."""
    world = World()
    written(20, world=world, pages=PageSettings())
    two = Owner(world, "o2", ONE_EACH)
    two.take_over()
    pages = [write for write in two.writes(TopicKey) if write.page is not None]
    assert pages[0] is two.writes(TopicKey)[0]
    assert two.emitted(ReadLedgerEnds) == []
    assert pages[0].page is not None
    assert {(each.message_bytes, each.ended_ms) for each in pages[0].page.ledgers} == {(0, two.now_ms)}


@pytest.mark.hazard("oversized-ledger-list")
def test_ends_of_former_ledgers_are_read_before_they_move_to_a_page() -> None:
    """A page holds what retention needs, so that a takeover never reads the records of all ledgers."""
    world = World()
    written(6, world=world, pages=PageSettings())
    two = Consuming(world, "o2", replace(ONE_EACH, snapshot=RARE))
    passes(two)
    assert two.owner.emitted(ReadLedgerEnds) != []
    (first, *_) = world.pages.values()
    assert [each.ended_ms for each in first.ledgers] == [10, 20, 30]
    assert [each.message_bytes > 0 for each in first.ledgers] == [False, True, True]


@pytest.mark.hazard("missing-record-is-no-deletion", "oversized-ledger-list")
def test_retention_trims_within_a_page_and_whole_pages_and_forgets_no_floor() -> None:
    """The page that is cut is read; records of ledgers and pages that left are deleted, and no others."""
    own = written(40, snapshots=OFTEN)
    assert len(own.world.record.pages) > 5
    size = sum(link.message_bytes for link in own.world.record.pages)
    own.owner.handle(PoliciesChanged(TopicPolicies(RetentionPolicy(size_bytes=size // 2))))
    passes(own)
    left = own.world.record
    assert 0 < listed(own.world)[0] < 38
    assert left.first is not None
    assert left.deleted_below == left.first.ledger_id
    assert set(own.world.pages) == {link.name for link in left.pages}
    kept = {link.ledger_id for link in own.world.links} | {link.ledger_id for link in own.world.cursor[0].ledgers}  # type: ignore[union-attr]
    assert {i for i in own.world.ledgers if i < left.ledgers[-1].ledger_id} <= kept
    assert own.owner.emitted(DeletePages) != []
    two = Owner(own.world, "o2", ONE_EACH).take_over()
    assert two.core.serving is not None
    assert two.core.serving.log.table.state.next_index == 40


@pytest.mark.hazard("oversized-ledger-list")
def test_page_that_lost_its_record_goes_as_a_whole() -> None:
    """Its ledgers cannot be told apart any more, but retention goes on."""
    own = written(40, snapshots=OFTEN)
    del own.world.pages[own.world.record.pages[0].name]
    own.owner.handle(PoliciesChanged(TopicPolicies(RetentionPolicy(0, 0))))
    own.owner.tick(1_001).run(READ_PAGE)
    assert own.world.record.first == LedgerLink(own.world.record.pages[0].first, 0)
    passes(own, ticks=40)
    assert own.world.record.pages == ()


@pytest.mark.hazard("oversized-ledger-list")
def test_truncation_deletes_all_pages() -> None:
    """Also without a policy, and after a takeover."""
    written(30, snapshots=OFTEN)
    own = Consuming(written(30, snapshots=OFTEN).world, "o2", replace(ONE_EACH, snapshot=OFTEN))
    own.publish(30, 1)
    own.owner.handle(TruncateRequested(1))
    passes(own, ticks=30)
    assert [(answer.call, answer.first_index) for answer in own.owner.emitted(AnswerTruncate)] == [(1, 31)]
    assert (own.world.record.pages, own.world.pages, listed(own.world)[0]) == ((), {}, 31)


@pytest.mark.hazard("oversized-ledger-list")
def test_takeover_without_a_snapshot_replays_page_by_page_and_needs_every_page() -> None:
    """With a snapshot it reads only the pages behind that."""
    own = written(30)
    fewer = written(30, snapshots=OFTEN)
    two = Owner(fewer.world, "o2", ONE_EACH).take_over()
    assert page_reads(two) == []
    missing = own.world.record.pages[4].name
    del own.world.pages[missing]
    two = Owner(own.world, "o2", ONE_EACH).take_over()
    assert page_reads(two) == [link.name for link in own.world.record.pages[:5]]
    (failed,) = two.emitted(TopicFailed)
    assert f"page {missing} " in failed.failure.reason


@pytest.mark.hazard("wrong-clock-expires", "oversized-ledger-list")
def test_time_to_live_reads_the_page_of_the_lowest_backlog() -> None:
    """A page counts as a whole until it is read. Messages expire ledger by ledger nevertheless."""
    own = written(30)
    own.subscribe()
    (young,) = [link for link in own.world.record.pages if link.base_index <= 9 < link.base_index + 3]
    assert young.ended_ms > 110
    for _ in range(8):
        own.owner.handle(PoliciesChanged(TopicPolicies(ttl_ms=own.owner.now_ms + 1_001 - 110)))
        own.owner.tick(1_001).run()
    assert len(page_reads(own.owner)) >= 2
    assert own.owner.core.serving is not None
    (subscription,) = own.owner.core.serving.acks.state.subscriptions.values()
    assert subscription.acks.mark_delete == 10
