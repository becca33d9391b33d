"""Small parts of an owner: ids out of a counter, the cache, the routes of answers, the progress, the takeovers."""

import asyncio
import inspect
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from oncelog.core.chain.managed_ledger import EntriesAnswered, MemberLost
from oncelog.core.errors import Fatal, NotOwner
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, SessionNumber, TopicId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.records.id_claim import ID_MAX, Counter, CounterRecord, IdClaim
from oncelog.core.topic.serving import TopicSettings
from oncelog.core.topic.topic import Phase, Topic
from oncelog.core.topic_events.effects import TakeoverPhase
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.counter_store import CounterStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import Versioned
from oncelog.topic_owner.shell.entry_cache import CacheBudget, EntryCache
from oncelog.topic_owner.shell.id_source import IdSource
from oncelog.topic_owner.shell.ledger_routes import LedgerRoutes
from oncelog.topic_owner.shell.progress import TopicProgress
from oncelog.topic_owner.shell.takeover_trace import KEPT, TakeoverTrace
from tests.cluster.until import until
from tests.contract.owner.owner_world import owner_world
from tests.contract.owner.reading.shown_log import at
from tests.contract.stores.memory_store import MemorySession, MemoryTree

TOPIC_ID = TopicId("0f" * 16)
A, B = Incarnation("a" * 32), Incarnation("b" * 32)
DEADLINE_S = 30.0


# --- ids -------------------------------------------------------------------------------------------------------------


async def a_store() -> MemorySession:
    """Its calls wait for 100 ms only: a source of ids repeats what ZooKeeper did not answer."""
    tree = MemoryTree()
    await ClusterStore(MemorySession(tree, root="/oncelog")).establish()
    return MemorySession(tree, root="/oncelog", operation_timeout_ms=100)


class CountingStore(CounterStore):
    """It counts how often it was read: a second time shows what became of the first."""

    reads = 0

    async def read(self) -> Versioned[CounterRecord]:
        self.reads += 1
        return await super().read()


def source(session: MemorySession, claimer: Incarnation = A, *, block: int = 1) -> IdSource:
    return IdSource(IdClaim(claimer, block=block), CounterStore(session, Counter.LEDGER))


@pytest.mark.asyncio
async def test_two_owners_never_get_the_same_id() -> None:
    """Both use one counter concurrently."""
    session = await a_store()
    sources = [source(session, A, block=3), source(session, B)]
    ids = await asyncio.gather(*(each.next_id() for each in sources for _ in range(10)))
    assert len(set(ids)) == 20
    assert min(ids) == 1


@pytest.mark.asyncio
async def test_id_whose_response_was_lost_is_claimed_once() -> None:
    """The counter shows that the claim was applied: no id is given twice, and none is wasted."""
    session = await a_store()
    ids = source(session)
    session.faults.lose_next_reply()
    assert [await ids.next_id(), await ids.next_id()] == [1, 2]
    session.faults.lose_next_request()
    assert await ids.next_id() == 3


@pytest.mark.asyncio
async def test_ids_wait_while_zookeeper_is_unavailable() -> None:
    """They are given afterwards, in the order of the requests."""
    session = await a_store()
    store = CountingStore(session, Counter.LEDGER)
    ids = IdSource(IdClaim(A, block=1), store)
    session.faults.suspend()
    wishes = [asyncio.ensure_future(ids.next_id()) for _ in range(2)]
    await until(lambda: store.reads >= 2, DEADLINE_S, waiting_for="a request after one without an answer")
    assert not any(wish.done() for wish in wishes)
    session.faults.resume()
    assert await asyncio.gather(*wishes) == [1, 2]


@pytest.mark.asyncio
async def test_id_of_a_cancelled_request_is_wasted() -> None:
    """Its topic was lost meanwhile. The claim continues for the next request."""
    session = await a_store()
    ids = source(session)
    session.faults.suspend()
    wish = asyncio.ensure_future(ids.next_id())
    await until(lambda: ids._claiming is not None, DEADLINE_S)
    wish.cancel()
    await asyncio.wait([wish])
    session.faults.resume()
    assert await ids.next_id() == 2


@pytest.mark.asyncio
async def test_exhausted_counter_is_an_error() -> None:
    """It is not waited for."""
    session = await a_store()
    await CounterStore(session, Counter.LEDGER).write(CounterRecord(ID_MAX + 1, B, "n"), version=0)
    with pytest.raises(Fatal):
        await source(session).next_id()


@pytest.mark.asyncio
@pytest.mark.hazard("lost-counter")
@pytest.mark.parametrize("damage", [b"damaged", None])
async def test_damaged_or_lost_counter_is_read_again_until_it_is_repaired(damage: bytes | None) -> None:
    """The task that read it used to end silently, and no ledger was opened again."""
    session = await a_store()
    path = f"{paths.IDS}/{Counter.LEDGER.value}"
    sound = await session.read(path)
    assert sound is not None
    await session.delete(path, version=0)
    if damage is not None:
        await session.create(path, damage)
    store = CountingStore(session, Counter.LEDGER)
    wish = asyncio.ensure_future(IdSource(IdClaim(A, block=1), store).next_id())
    await until(lambda: store.reads >= 2, DEADLINE_S, waiting_for="a second look at the damaged counter")
    assert not wish.done()
    if damage is not None:
        await session.delete(path, version=0)
    await session.create(path, sound.data)
    assert await wish == 1


@pytest.mark.asyncio
async def test_closed_id_source_sends_no_requests() -> None:
    """It ends with its process."""
    session = await a_store()
    ids = source(session)
    session.faults.suspend()
    wish = asyncio.ensure_future(ids.next_id())
    await until(lambda: ids._claiming is not None, DEADLINE_S)
    claiming = ids._claiming
    assert claiming is not None
    ids.close()
    await until(claiming.cancelled, DEADLINE_S)
    wish.cancel()


# --- the cache -------------------------------------------------------------------------------------------------------


def cached(cache: EntryCache, ledger_id: int, *entry_ids: int, size: int = 100) -> None:
    for entry_id in entry_ids:
        cache.put(LedgerId(ledger_id), EntryId(entry_id), (b"h" * 10, entry_id.to_bytes(size - 10, "big")))


def run_of(cache: EntryCache, ledger_id: int, first: int, last: int, *, bytes_max: int = 10_000) -> list[int]:
    found = cache.consecutive(LedgerId(ledger_id), EntryId(first), EntryId(last), bytes_max=bytes_max)
    return [int.from_bytes(body, "big") for _, body in found]


def test_cache_keeps_the_newest_entries() -> None:
    """The oldest entries are evicted, across ledgers. `bytes` is the size of the rest."""
    cache = EntryCache(CacheBudget(300))
    cached(cache, 1, 0, 1, 2)
    cached(cache, 2, 0)
    assert cache.bytes == 300
    assert cache.get(LedgerId(1), EntryId(0)) is None
    assert run_of(cache, 1, 1, 2) == [1, 2]
    assert run_of(cache, 2, 0, 9) == [0]


def test_newest_entry_is_kept_whatever_its_size() -> None:
    """A reader at the end must not read from disk what was just written."""
    cache = EntryCache(CacheBudget(50))
    cached(cache, 1, 0, 1, size=400)
    assert (cache.bytes, run_of(cache, 1, 1, 1)) == (400, [1])


def test_all_topics_share_one_cache_budget() -> None:
    """A client that publishes to a thousand topics makes the owner keep no more than for one."""
    budget = CacheBudget(300)
    caches = [EntryCache(budget) for _ in range(100)]
    for number, cache in enumerate(caches):
        cached(cache, number, 0, 1)
    assert sum(cache.bytes for cache in caches) == budget.bytes == 300
    assert [cache.bytes for cache in caches[-3:]] == [0, 100, 200]
    caches[-1].clear()
    assert (budget.bytes, caches[-1].bytes) == (100, 0)
    cached(caches[0], 1_000, 0, 1, 2)
    assert (budget.bytes, caches[0].bytes, caches[-2].bytes) == (300, 300, 0)


def test_consecutive_cached_entries_end_at_their_bounds() -> None:
    """At the last requested entry, at a gap, and at bytes_max, but never before the first entry."""
    cache = EntryCache(CacheBudget(10_000))
    cached(cache, 1, 0, 1, 2, 4)
    assert run_of(cache, 1, 0, 1) == [0, 1]
    assert run_of(cache, 1, 0, 4) == [0, 1, 2]
    assert run_of(cache, 1, 0, 4, bytes_max=101) == [0, 1]
    assert run_of(cache, 1, 0, 4, bytes_max=1) == [0]
    assert run_of(cache, 1, 3, 4) == []
    assert (cache.hits, cache.misses) == (8, 1)
    cache.clear()
    assert (cache.bytes, run_of(cache, 1, 0, 4)) == (0, [])


# --- routes ----------------------------------------------------------------------------------------------------------


def test_responses_of_storage_nodes_go_to_the_writer_of_the_ledger() -> None:
    """Responses for a ledger that has no writer here are dropped."""
    routes = LedgerRoutes()
    one: list[object] = []
    two: list[object] = []
    routes.add(LedgerId(1), one.append)
    routes.add(LedgerId(2), two.append)
    routes.add(LedgerId(3), one.append)
    routes.answered(A, LedgerId(1), [EntryId(0)], AppendStatus.OK)
    routes.answered(A, LedgerId(9), [EntryId(0)], AppendStatus.OK)
    routes.lost(B, [LedgerId(2), LedgerId(3), LedgerId(9)])
    assert one == [EntriesAnswered(LedgerId(1), A, [EntryId(0)], AppendStatus.OK), MemberLost(LedgerId(3), B)]
    assert two == [MemberLost(LedgerId(2), B)]
    routes.remove(one.append)
    routes.lost(A, [LedgerId(1), LedgerId(2), LedgerId(3)])
    assert (len(one), len(two)) == (2, 2)


# --- progress --------------------------------------------------------------------------------------------------------


def a_progress(phase: Phase = Phase.SERVING) -> tuple[Topic, TopicProgress]:
    core = Topic(TOPIC_ID, A, TopicSettings(), crc32c, first_session=SessionNumber(1), nodes=StorageNodesUpdated(()))
    core.phase = phase
    return core, TopicProgress(core)


async def started(waiting: Coroutine[Any, Any, None], progress: TopicProgress) -> "asyncio.Task[None]":
    task = asyncio.create_task(waiting)
    count = progress.waiting_count
    await until(lambda: progress.waiting_count > count, DEADLINE_S)
    return task


@pytest.mark.asyncio
async def test_waiter_for_a_position_is_woken_only_by_later_positions() -> None:
    """A position at or before it wakes no waiter."""
    _, progress = a_progress()
    waiting = await started(progress.until_after(at(1, 1)), progress)
    progress.moved(at(1, 1))
    await until(lambda: progress.waiting_count, DEADLINE_S)
    progress.moved(at(2, 0))
    await waiting
    await progress.until_after(at(1, 9))
    assert progress.moved_ns > 0


@pytest.mark.asyncio
@pytest.mark.parametrize("phase", [Phase.DEPOSED, Phase.CLOSED])
async def test_end_of_a_topic_wakes_all_waiters(phase: Phase) -> None:
    """Waiters for messages, for the takeover, for the end, and later ones."""
    core, progress = a_progress(Phase.RECOVERING)
    waits = [
        await started(wait, progress)
        for wait in (progress.until_serving(), progress.until_after(at(1, 1)), progress.until_ended())
    ]
    core.phase = phase
    progress.changed()
    told = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(each) for each in told] == [NotOwner, NotOwner, type(None)]
    await progress.until_ended()


@pytest.mark.asyncio
async def test_readers_wait_while_a_topic_is_recovered_again() -> None:
    """The topic may have been lost: readers wait until it serves again."""
    core, progress = a_progress(Phase.RECOVERING)
    progress.confirmed = at(5, 5)
    waiting = await started(progress.until_after(at(1, 1)), progress)
    core.phase = Phase.SERVING
    progress.moved(at(5, 5))
    await waiting


# --- takeovers -------------------------------------------------------------------------------------------------------


def test_takeover_is_timed_from_its_first_assignment() -> None:
    """The phases in order, and the replayed entries; a repeated assignment does not restart the clock."""
    trace, before_ms = TakeoverTrace(), time.time_ns() // 1_000_000 - 5_000
    for phase, handled in zip(TakeoverPhase, (0, 3, 2, 7, 0), strict=True):
        trace.begin()
        if phase is not TakeoverPhase.ACQUIRE:
            last_ms = before_ms if phase is TakeoverPhase.REPLAY else None
            trace.ended(phase, handled=handled, last_append_ms=last_ms)
    record = trace.finish(OwnerEpoch(4))
    assert list(record.phases_ms) == ["acquire", "recover", "load_snapshot", "replay", "open"]
    assert list(record.phases_ms.values()) == sorted(record.phases_ms.values())
    assert (record.owner_epoch, record.replayed_entries, record.phases_ms["acquire"]) == (4, 7, 0)
    assert record.total_ms == record.phases_ms["open"]
    assert record.silent_ms is not None
    assert 0 <= record.silent_ms - 5_000 <= time.time_ns() // 1_000_000 - before_ms - 5_000


def test_only_the_latest_takeovers_are_kept() -> None:
    """A topic may move for years."""
    trace = TakeoverTrace()
    for epoch in range(KEPT + 5):
        trace.begin()
        assert trace.finish(OwnerEpoch(epoch)).silent_ms is None
    assert [record.owner_epoch for record in trace.finished] == list(range(5, KEPT + 5))


# --- effects ---------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_nothing_begins_for_a_topic_that_has_ended(tmp_path: Path) -> None:
    """What waited for an answer at the end gets one when the links close, and asks for the next effect."""

    async def work() -> None:
        raise AssertionError("it runs")

    async with owner_world(tmp_path) as (world, _):
        executor = (await world.serve("orders"))._executor
        executor.cancel()
        begun = work()
        executor.start(begun)
        assert inspect.getcoroutinestate(begun) == inspect.CORO_CLOSED
