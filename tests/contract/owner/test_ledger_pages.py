"""Pages of ledgers outside of the core: records in the store, readers, the repairer's lists, and a whole owner."""

from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.errors import CorruptEntry, InvalidArgument, LogHole
from oncelog.core.formats.ledger_page import ListPage, PagedLedger, encode_page
from oncelog.core.formats.topic_record import FORMAT_WITH_HEADS, LedgerLink, TopicRecord
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.names import parse_topic
from oncelog.core.policies.retention_rules import RetentionPolicy
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.core.retention.paging import PageSettings
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.core.topic_events.effects import DeletePages
from oncelog.metadata.repair.chain_listing import ChainListing
from oncelog.metadata_store.records.cursor_store import CursorStore
from oncelog.metadata_store.records.ledger_store import DELETIONS_MAX, LedgerStore
from oncelog.metadata_store.records.topic_store import TopicStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.rpc.codecs.reader_codec import StartAt, StartEdge, StartIndex, StartMessage, StartTime
from oncelog.topic_owner.observe import topic_states
from oncelog.topic_owner.shell.ledger_list import PAGES_MAX
from oncelog.topic_owner.shell.log_view import LogView
from tests.cluster.until import until
from tests.contract.owner.owner_world import DEADLINE_S, ME, PATIENT, OwnerLimits, PublishClient, batch_of, owner_world
from tests.contract.owner.reading.shown_log import ShownLog
from tests.contract.owner.reading.test_topic_owner_log_view import walk
from tests.contract.stores.store_backends import Backend, new_cluster

pytestmark = [pytest.mark.asyncio, pytest.mark.hazard("oversized-ledger-list")]
FLIGHTS = parse_topic("flights")
OWNER = Incarnation("a" * 32)


def page(*ids: int) -> ListPage:
    return ListPage(tuple(PagedLedger(LedgerId(i), 10 * i, 100, 1_000 + i) for i in ids))


async def topic_with(session: StoreSession, *ids: int) -> tuple[TopicRecord, int]:
    """A topic that lists these ledgers, and the version of its record."""
    topics = TopicStore(session)
    record = (await topics.create(FLIGHTS)).record
    assert record is not None
    links = tuple(LedgerLink(LedgerId(i), 10 * i) for i in ids)
    listed = replace(record.value.placed_on(OWNER), ledgers=links, format=FORMAT_WITH_HEADS)
    return listed, (await topics.write(listed, version=record.version)).version


# --- the store --------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("stale-record-after-conflict")
async def test_page_and_its_link_are_written_together_or_not_at_all(backend: Backend) -> None:
    """A deposed owner, or one whose topic was deleted, leaves no page behind."""
    session = await new_cluster(backend)
    topics = TopicStore(session)
    record, version = await topic_with(session, 1, 2, 3, 4, 5)
    first = page(1, 2)
    paged = record.with_page(first.link)
    assert (await topics.write(paged, version=version - 1, page=first)).status is WriteStatus.CONFLICT
    assert await topics.pages.names(record.topic_id) == []
    written = await topics.write(paged, version=version, page=first)
    assert written == (WriteStatus.OK, version + 1)
    assert await topics.read(record.topic_id) == (paged, version + 1)
    assert await topics.pages.read(record.topic_id, LedgerId(1)) == first
    second = page(3, 4)
    twice = await topics.write(paged.with_page(second.link), version=written.version, page=second)
    assert await topics.read(record.topic_id) == (paged.with_page(second.link), twice.version)
    gone = replace(record, topic_id=TopicId("f" * 32))
    assert (await topics.write(gone.with_page(first.link), version=0, page=first)).status is WriteStatus.CONFLICT
    assert await session.children(paths.PAGES) == [record.topic_id]


async def test_lost_reply_to_a_page_leaves_both_or_neither(backend: Backend) -> None:
    """The owner reads the topic record and goes on from there."""
    session = await new_cluster(backend)
    topics = TopicStore(session)
    record, version = await topic_with(session, 1, 2, 3)
    first = page(1, 2)
    backend.lose_next_reply(session)
    await topics.write(record.with_page(first.link), version=version, page=first)
    stored = await topics.read(record.topic_id)
    assert stored is not None
    assert await topics.pages.names(record.topic_id) == [link.name for link in stored.value.pages] == [1]


async def test_page_is_written_in_a_cluster_of_before_pages(backend: Backend) -> None:
    """Its ZooKeeper has no folder for them."""
    session = await new_cluster(backend)
    record, version = await topic_with(session, 1, 2, 3)
    assert await session.delete(paths.PAGES, version=0) is WriteStatus.OK
    first = page(1, 2)
    topics = TopicStore(session)
    written = await topics.write(record.with_page(first.link), version=version, page=first)
    assert written.status is WriteStatus.OK
    assert await topics.pages.read(record.topic_id, LedgerId(1)) == first


async def test_many_ledger_records_are_deleted_together(backend: Backend) -> None:
    """Also where some do not exist, and where one is changed meanwhile."""
    session = await new_cluster(backend)
    ledgers = LedgerStore(session)
    ids = [LedgerId(i) for i in range(DELETIONS_MAX + 20)]
    for ledger_id in ids[::2]:
        await ledgers.write(LedgerMetadata(ledger_id, TopicId("t"), (OWNER,), 1), version=ABSENT_VERSION)
    assert await ledgers.delete_all(ids) == len(ids[::2])
    assert await ledgers.ids() == []
    backend.lose_next_reply(session)
    await ledgers.write(LedgerMetadata(LedgerId(1), TopicId("t"), (OWNER,), 1), version=ABSENT_VERSION)
    await ledgers.delete_all([LedgerId(1)])
    assert await ledgers.ids() == []


async def test_transaction_that_is_too_large_is_an_error_not_a_broken_connection(zookeeper: Backend) -> None:
    """ZooKeeper would close the connection, and the owner would repeat the write for ever."""
    session = await new_cluster(zookeeper)
    record, version = await topic_with(session, 1, 2, 3)
    wide = ListPage(tuple(PagedLedger(LedgerId(i), 0, 1 << 60, 1 << 60) for i in range(1, 60_000)))
    with pytest.raises(InvalidArgument, match="exceeds ZooKeeper's limit"):
        await TopicStore(session).write(record, version=version, page=wide)


# --- readers ----------------------------------------------------------------------------------------------------------


def paged_log() -> ShownLog:
    """Ledgers 1, 3, 5 ... 19 of one entry with two messages, appended each second. Pages of three, four are outside."""
    log = ShownLog()
    for number in range(10):
        log.open_ledger(2 * number + 1)
        log.add(2, time_ms=1_000 * number)
    log.move_to_page(3)
    log.move_to_page(3)
    return log


@pytest.mark.parametrize(
    ("start", "first", "pages"),
    [
        (StartEdge.EARLIEST, 1, [1, 7]),
        (StartIndex(0), 1, [1, 7]),
        (StartIndex(5), 5, [1, 7]),
        (StartIndex(6), 7, [7]),
        (StartIndex(13), 13, []),
        (StartTime(2_000), 5, [1, 7]),
        (StartTime(2_001), 7, [7]),
        (StartTime(5_001), 13, []),
        (StartTime(8_500), 19, []),
    ],
)
async def test_reader_goes_through_pages_from_any_start(start: StartAt, first: int, pages: list[int]) -> None:
    """Every ledger behind the start once, in order; only the pages that are needed are read, each once."""
    log = paged_log()
    assert await walk(log, start) == [(ledger, 0, 0) for ledger in range(first, 20, 2)]
    assert log.page_reads == pages


async def test_index_behind_the_end_and_the_last_message_need_no_page() -> None:
    """As without pages."""
    log = paged_log()
    assert await walk(log, StartIndex(20)) == []
    last = await log.view.last_message()
    assert last is not None
    assert last[0].ledger_id == 19
    assert log.page_reads == []


async def test_few_pages_stay_in_memory() -> None:
    """A reader of the whole log does not keep its list in memory."""
    log = ShownLog()
    for number in range(2 * PAGES_MAX + 4):
        log.open_ledger(number + 1)
        log.add(1)
    for _ in range(2 * PAGES_MAX):
        log.move_to_page(1)
    assert len(await walk(log, StartEdge.EARLIEST)) == 2 * PAGES_MAX + 4
    assert len(log.log.ledgers._pages) == PAGES_MAX


async def test_page_that_was_trimmed_while_it_was_read_is_passed_over_and_a_lost_one_is_an_error() -> None:
    """A page leaves the topic record before its own record is deleted."""
    log = paged_log()
    lost = log.pages.pop(LedgerId(1))
    with pytest.raises(LogHole, match="page 1 "):
        await walk(log, StartEdge.EARLIEST)
    log.core.ownership.record = log.core.ownership.record.without(lost.ledgers[-1].ledger_id)
    assert (await walk(log, StartEdge.EARLIEST))[0] == (7, 0, 0)


# --- lists ------------------------------------------------------------------------------------------------------------


async def test_repairer_lists_the_ledgers_in_pages_and_reads_each_page_once(backend: Backend) -> None:
    """A ledger that no list names would not be repaired, and its record might be deleted."""
    session = await new_cluster(backend)
    topics = TopicStore(session)
    record, version = await topic_with(session, 1, 2, 3, 4, 5)
    first = page(1, 2, 3)
    paged = record.with_page(first.link)
    written = await topics.write(paged, version=version, page=first)
    listing = ChainListing(topics, CursorStore(session))

    async def log() -> tuple[LedgerId, ...]:
        chains = await listing.read(record.topic_id)
        return next(chain.ledgers for chain in chains if chain.purpose is LedgerPurpose.LOG)

    assert await log() == (1, 2, 3, 4, 5)
    await topics.pages.delete(record.topic_id, first.name)
    assert await log() == (1, 2, 3, 4, 5)
    cut = paged.without(LedgerId(1), first.link_behind(LedgerId(1)))
    written = await topics.write(cut, version=written.version)
    assert await log() == (2, 3, 4, 5)
    await topics.write(cut.without(LedgerId(3)), version=written.version)
    assert await log() == (4, 5)


# --- a whole owner ----------------------------------------------------------------------------------------------------

#: A ledger holds one entry, a page three ledgers.
TINY = OwnerLimits(
    replace(
        PATIENT, ledger_entries_max=1, tick_ms=20, pages=PageSettings(3, 5),
        snapshot=SnapshotSettings(entries_max=1, gap_ms=0, deltas_max=0),
    )
)  # fmt: skip


async def test_owner_pages_takes_over_and_trims_with_all_records(tmp_path: Path) -> None:
    """What is trimmed leaves no record, also where a crash came between the trim and the deletion of a page."""
    async with owner_world(tmp_path, TINY) as (world, channel):
        runner = await world.serve("public/default/flights")
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        for number in range(30):
            await client.stored(granted, batch_of(granted, [number]))
        record = runner.core.ownership
        await until(lambda: len(record.record.ledgers) <= 5, DEADLINE_S, waiting_for="pages")
        shown = topic_states.internal_stats(runner)
        assert shown["ledger_count"] == record.record.ledger_count >= 30
        await world.topics.unload(runner.topic_id)
        await world.place(runner.topic_id, ME)
        world.topics.assign(runner.topic_id)
        again = world.topics.find(runner.topic_id)
        assert again is not None
        runner = again
        await runner.progress.until_serving()
        serving = runner.core.serving
        assert serving is not None
        assert serving.log.table.state.next_index == 30
        left = ListPage((PagedLedger(LedgerId(0), 0, 0, 0),))
        await world.session.create(paths.page(runner.topic_id, left.name), encode_page(left))
        policy = RetentionPolicy(size_bytes=1)
        await world.parts.policies.change(runner.topic_id, lambda p: replace(p, retention=policy))

        async def only_listed_records() -> bool:
            topic = runner.core.ownership.record
            cursor = await world.parts.cursors.read(runner.topic_id, "oncelog.dedup")
            assert cursor is not None
            kept = {link.ledger_id for link in topic.ledgers} | {link.ledger_id for link in cursor.value.ledgers}
            found = [await world.parts.ledgers.record(i) for i in await world.parts.ledgers.ids()]
            # An empty one, which a takeover has found, is left to the elected metadata service.
            full = {each.ledger_id for each in found if each is not None and each.end >= 0}
            listed = {i for i in full if i < topic.ledgers[-1].ledger_id}
            return not topic.pages and listed <= kept and not await world.parts.topics.pages.names(runner.topic_id)

        await until(only_listed_records, DEADLINE_S, waiting_for="the records of trimmed ledgers and pages to go")


async def test_reader_is_told_of_a_damaged_page_or_ledger(tmp_path: Path) -> None:
    """The owner waits until a record is mended, and its clients would wait with it without a reason. Readers of other
    ledgers go on."""
    async with owner_world(tmp_path, TINY) as (world, channel):
        runner = await world.serve("public/default/flights")
        client = PublishClient(channel)
        granted = await client.open(runner, "importer")
        for number in range(8):
            await client.stored(granted, batch_of(granted, [number]))
        record = runner.core.ownership
        await until(lambda: record.record.pages, DEADLINE_S, waiting_for="a page")
        name, closed = record.record.pages[0].name, record.record.ledgers[0].ledger_id
        damaged: dict[StartAt, str] = {
            StartEdge.EARLIEST: paths.page(runner.topic_id, name),
            StartMessage(Position(closed, EntryId(0)), 0, True): paths.ledger(closed),
        }
        for start, path in damaged.items():
            sound = await world.session.read(path)
            assert sound is not None
            await world.session.write(path, b"garbage", version=sound.version)
            view = LogView(runner.log)
            with pytest.raises(CorruptEntry, match=f"^{path}: .*rebuild {path}`"):
                await view.next_range((await view.start_of(start))[0])
        last = StartMessage(Position(record.record.ledgers[-1].ledger_id, EntryId(0)), 0, True)
        await LogView(runner.log).next_range((await LogView(runner.log).start_of(last))[0])


async def test_pages_above_the_floor_are_kept(tmp_path: Path) -> None:
    """A deletion that arrives late, or of a former trim, takes nothing that is linked."""
    async with owner_world(tmp_path, TINY) as (world, _):
        runner = await world.serve("public/default/flights")
        for name in (1, 5):
            some = page(name, name + 1)
            steps = await world.parts.topics.pages.creation(runner.topic_id, some)
            await world.session.transact(steps)
        await runner._executor._delete_pages(DeletePages(LedgerId(6)))
        assert await world.parts.topics.pages.names(runner.topic_id) == [5]
