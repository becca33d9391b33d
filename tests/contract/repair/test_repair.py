"""The repairer over real sockets, with records in memory: what it changes, what it leaves alone, what it reports."""

from dataclasses import replace

import pytest

from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import EntryRange, LedgerMetadata
from oncelog.metadata.repair.record_changes import record_changes
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.session import paths
from oncelog.runtime.observing.events import EventFilter, EventKind
from oncelog.storage_client.rate_limit import RateLimit
from tests.cluster.until import until
from tests.contract.noted import noted
from tests.contract.repair.repairing import DEADLINE_S, ENTRIES, NAMES, World


@pytest.mark.hazard("copy-of-one-source")
@pytest.mark.asyncio
async def test_retired_member_is_replaced_with_every_entry() -> None:
    """No member alone has all entries; each is copied from a node that has it. The progress is there for every
    replica."""
    async with World.running() as world:
        await world.ledger(1)
        a, b, d = world.nodes[0], world.nodes[1], world.nodes[3]
        for entry_id in range(0, ENTRIES, 2):
            del a.copies[LedgerId(1)][EntryId(entry_id)]
            b.copies[LedgerId(1)].pop(EntryId(entry_id + 1))
        await world.wipe(2)
        repair = world.replica()
        await world.whole(1, 0, 1, 3)
        for node in (a, b, d):
            assert sorted(node.copies[LedgerId(1)]) == list(range(ENTRIES))

        async def idle() -> bool:
            progress = await world.progress()
            return (progress.under_replicated, progress.running, progress.repaired_ledgers) == (0, (), 1)

        await until(idle, DEADLINE_S)
        assert (await world.progress()).replica == "m-1"
        assert [(one.message, one.node, one.fields) for one in noted(world.events, EventKind.REPAIR)] == [
            ("storage node dddddddd…dddd gets a copy of a ledger", d.incarnation, {"ledger_id": 1}),
            ("storage node dddddddd…dddd has replaced cccccccc…cccc as a member of a ledger", d.incarnation,
             {"ledger_id": 1, "replaced": "c" * 32}),
        ]  # fmt: skip
        assert repair.requests.copied_entries == 2 * ENTRIES
        assert (await world.cookie(2)).debt == 0


@pytest.mark.asyncio
async def test_closed_ledger_becomes_whole_without_copies() -> None:
    """Every member reads its copy back; nothing is copied, and that is no event."""
    async with World.running() as world:
        await world.ledger(1)
        repair = world.replica()
        await world.whole(1, 0, 1, 2)
        assert repair.requests.copied_entries == 0
        assert world.events.newest(EventFilter(), limit=10) == []


def test_events_of_repair_are_what_changes_the_copies() -> None:
    """And not that a ledger was read back, or that a copy which was begun is not needed any more."""
    a, b, c, d = (Incarnation(name * 32) for name in NAMES)
    ledger = LedgerMetadata(LedgerId(1), TopicId("1" * 32), (a, b, c), 2).closed(end=EntryId(9), length=10)
    whole, lost = ledger.mark_verified(), ledger.mark_lost([EntryRange(EntryId(2), EntryId(4))])

    def changes(former: LedgerMetadata, record: LedgerMetadata) -> list[tuple[str, str, str, str]]:
        return [
            (one.kind.value, one.level, one.message.split(" of a ledger")[0], one.node)
            for one in record_changes(former, record, [b])
        ]

    assert changes(ledger, whole) == []
    assert changes(ledger.join(d), ledger.join(d).drop_joining().mark_verified()) == []
    assert changes(ledger, ledger.freeze()) == [("repair", "error", "sound copies", "")]
    assert changes(ledger, lost) == [("copy_lost", "error", "no storage node has 3 entries", "")]
    assert changes(lost, ledger) == [("copy_found", "warning", "lost entries", "")]
    assert changes(whole, ledger) == [("repair", "warning", "storage node bbbbbbbb…bbbb lacks entries", b)]
    assert changes(ledger.join(d), ledger.join(d).swap(a)) == [
        ("repair", "info", "storage node dddddddd…dddd has replaced aaaaaaaa…aaaa as a member", d)
    ]


@pytest.mark.hazard("flapping-node")
@pytest.mark.asyncio
async def test_absent_member_is_replaced_after_the_delay_only() -> None:
    """It may come back. Its return ends the need."""
    async with World.running() as world:
        await world.ledger(1)
        await world.nodes[2].leave()
        repair = world.replica()

        async def reported() -> bool:
            return (await world.progress()).under_replicated == 1

        await until(reported, DEADLINE_S)
        assert (await world.record(1)).joining is None
        await world.nodes[2].register()
        await world.whole(1, 0, 1, 2)
        assert repair.requests.copied_entries == 0
    async with World.running(absent_delay_ms=1) as world:
        await world.ledger(1)
        await world.nodes[2].leave()
        world.replica()
        await world.whole(1, 0, 1, 3)


@pytest.mark.hazard("repair-of-an-open-ledger")
@pytest.mark.asyncio
async def test_ledger_that_no_topic_lists_is_left_alone() -> None:
    """It may be the next ledger of a topic, or be about to be deleted."""
    async with World.running() as world:
        unlisted = await world.ledger(1, holders=(0,), listed=False)
        await world.ledger(2)
        await world.wipe(2)
        world.replica()
        await world.whole(2, 0, 1, 3)
        asked = world.replica(elected=False)
        await asked.repair_now(LedgerId(1))
        await until(lambda: not asked.repairer.busy, DEADLINE_S)
        assert await world.record(1) == unlisted
        assert all(LedgerId(1) not in node.copies for node in world.nodes[1:])


@pytest.mark.hazard("late-repairer")
@pytest.mark.asyncio
async def test_two_repairers_at_once_do_no_harm() -> None:
    """The compare-and-set on the record decides; the election is a hint."""
    async with World.running() as world:
        for number in range(1, 6):
            await world.ledger(number)
        await world.wipe(2)
        world.replica()
        world.replica()
        for number in range(1, 6):
            await world.whole(number, 0, 1, 3)
            assert len(world.nodes[3].copies[LedgerId(number)]) == ENTRIES


@pytest.mark.asyncio
async def test_many_small_ledgers_share_the_reads_of_their_topic() -> None:
    """A topic's record grows with its ledgers: one read of it for each ledger made the repair of many take long."""
    ledgers = range(1, 41)
    async with World.running() as world:
        for number in ledgers:
            await world.ledger(number)
        await world.wipe(2)
        world.session.reads_of.clear()
        world.replica()
        for number in ledgers:
            await world.whole(number, 0, 1, 3)
        assert 0 < world.session.reads_of[paths.topic(world.topic_id)] < len(ledgers) / 2


@pytest.mark.asyncio
async def test_replica_that_is_not_elected_repairs_only_what_it_is_asked_for() -> None:
    """An operator reaches any replica."""
    async with World.running() as world:
        await world.ledger(1)
        await world.ledger(2)
        await world.wipe(2)
        repair = world.replica(elected=False)
        await repair.repair_now(LedgerId(1))
        await world.whole(1, 0, 1, 3)
        assert not (await world.record(2)).verified
        await world.session.create(
            paths.ledger(LedgerId(3)), b'{"format":1}'
        )  # a record that cannot be read hides no other
        await repair.watch.refresh()
        assert repair.watch.queue.record(LedgerId(2)) is not None


@pytest.mark.asyncio
async def test_damaged_copy_is_repaired_in_place() -> None:
    """Of a ledger that was whole: the node reports damage, the entries come from the others, and the node clears it."""
    async with World.running() as world:
        await world.ledger(1)
        c = world.nodes[2]
        repair = world.replica()
        await world.whole(1, 0, 1, 2)
        c.unreadable[LedgerId(1)] = {EntryId(3), EntryId(4)}
        del c.copies[LedgerId(1)][EntryId(9)]
        c.damaged.add(LedgerId(1))
        await until(lambda: not c.damaged, DEADLINE_S)
        await world.whole(1, 0, 1, 2)
        assert sorted(c.received) == [3, 4, 9]
        assert repair.requests.copied_entries == 3
        (event,) = noted(world.events, EventKind.REPAIR)
        assert (event.level, event.node) == ("warning", c.incarnation)
        assert event.message.startswith("storage node cccccccc…cccc lacks entries of a ledger")


@pytest.mark.asyncio
async def test_source_that_sends_wrong_bytes_is_passed_over() -> None:
    """Its disk was right a moment ago; what arrives is verified before it is copied."""
    async with World.running() as world:
        await world.ledger(1)
        right = dict(world.nodes[0].copies[LedgerId(1)])
        for number in (0, 1):
            world.nodes[number].sends_wrong = {EntryId(number)}
        await world.wipe(2)
        world.replica()
        await world.whole(1, 0, 1, 3)
        assert world.nodes[3].copies[LedgerId(1)] == right


@pytest.mark.hazard("lost-too-early")
@pytest.mark.asyncio
async def test_entry_without_a_live_copy_is_stuck_until_its_holder_returns() -> None:
    """The progress names the entries and the node that is waited for. Nothing is lost, and no operator is needed."""
    async with World.running() as world:
        await world.ledger(1)
        for number in (0, 1):
            del world.nodes[number].copies[LedgerId(1)][EntryId(5)]
        await world.nodes[2].leave()
        repair = world.replica()
        await until(lambda: repair.repairer.elected_as, DEADLINE_S)
        await repair.repair_now(LedgerId(1))

        async def stuck() -> bool:
            progress = await world.progress()
            return [one.ledger_id for one in progress.stuck] == [1]

        await until(stuck, DEADLINE_S)
        [shown] = (await world.progress()).stuck
        assert (
            shown.reason
            == f"entries 5 to 5 have no sound copy at a live storage node; waiting for {world.nodes[2].incarnation}"
        )
        assert not (await world.record(1)).lost
        await world.nodes[2].register()
        await world.whole(1, 0, 1, 2)
        assert all(len(node.copies[LedgerId(1)]) == ENTRIES for node in world.nodes[:3])


@pytest.mark.hazard("lost-too-early")
@pytest.mark.asyncio
async def test_stuck_repair_goes_on_when_a_registered_node_answers_again() -> None:
    """The node was stopped, and its registration never ended."""
    async with World.running() as world:
        await world.ledger(1, holders=(2,))
        world.nodes[2].stopped = True
        world.replica()

        async def stuck() -> bool:
            progress = await world.progress()
            return [one.ledger_id for one in progress.stuck] == [1]

        await until(stuck, DEADLINE_S)
        world.nodes[2].stopped = False
        await world.whole(1, 0, 1, 2)


@pytest.mark.hazard("late-repairer")
@pytest.mark.asyncio
async def test_replica_sees_the_changes_of_another_repairer() -> None:
    """After a repair of its own, too: a report from old records could allow the last copy to be destroyed."""
    async with World.running() as world:
        await world.ledger(1)
        repair = world.replica()
        await world.whole(1, 0, 1, 2)
        await until(lambda: not repair.repairer.busy, DEADLINE_S)
        ledgers = LedgerStore(world.session)
        stored = await ledgers.read(LedgerId(1))
        assert stored is not None
        c, d = world.nodes[2], world.nodes[3]
        d.copies[LedgerId(1)] = dict(c.copies[LedgerId(1)])
        joined = stored.value.mark_damaged().join(d.incarnation)
        await ledgers.write(joined.swap(c.incarnation).mark_verified(), version=stored.version)

        async def seen() -> bool:
            record = repair.watch.queue.record(LedgerId(1))
            return record is not None and d.incarnation in record.members

        await until(seen, DEADLINE_S)
        d.damaged.add(LedgerId(1))
        await until(lambda: not d.damaged, DEADLINE_S)


@pytest.mark.asyncio
async def test_may_replace_waits_until_every_copy_is_back() -> None:
    """With one member gone, the disk of another must not go, too."""
    async with World.running() as world:
        await world.ledger(1)
        a = world.nodes[0].incarnation
        reader = world.replica(elected=False)

        async def unread() -> bool:
            await reader.watch.refresh()
            return "read their copies back" in reader.watch.may_replace(a).blockers[0].reason

        await until(unread, DEADLINE_S)
        await world.wipe(2)
        await reader.watch.refresh()
        assert not reader.watch.may_replace(a).allowed
        world.replica()
        await world.whole(1, 0, 1, 3)

        async def allowed() -> bool:
            await reader.watch.refresh()
            return reader.watch.may_replace(a).allowed

        await until(allowed, DEADLINE_S)


@pytest.mark.hazard("update-waits-for-copies")
@pytest.mark.asyncio
async def test_debt_is_counted_once_the_successor_is_registered() -> None:
    """Before, no node could take the copies: a count of 0 would make the successor ready without them."""
    async with World.running() as world:
        await world.ledger(1)
        d = world.nodes[3]
        d.full = True
        await d.leave()
        await world.nodes[2].leave()
        stored = await world.registry.read_cookie(world.nodes[2].incarnation)
        assert stored is not None
        replaced = replace(stored.value, retired=True, replaced_by=d.incarnation)
        await world.registry.write_cookie(replaced, version=stored.version)
        world.replica()

        async def rounds() -> int:
            return (await world.progress()).updated_ms

        first = await until(rounds, DEADLINE_S)

        async def later() -> bool:
            return await rounds() > first

        await until(later, DEADLINE_S)
        assert (await world.cookie(2)).debt is None
        await d.register()

        async def counted() -> bool:
            return (await world.cookie(2)).debt is not None

        await until(counted, DEADLINE_S)
        d.full = False
        await world.whole(1, 0, 1, 3)

        async def paid() -> bool:
            return (await world.cookie(2)).debt == 0

        await until(paid, DEADLINE_S)


@pytest.mark.asyncio
async def test_full_target_is_passed_over() -> None:
    """Repair stops above the reserve of a disk; the debt says that copies are owed."""
    async with World.running() as world:
        await world.ledger(1)
        await world.wipe(2)
        world.nodes[3].full = True
        world.replica()

        async def owed() -> bool:
            return (await world.cookie(2)).debt == 1

        await until(owed, DEADLINE_S)
        assert not (await world.record(1)).verified


@pytest.mark.asyncio
@pytest.mark.hazard("ledger-id-given-twice")
@pytest.mark.parametrize("other", [3, 4])
async def test_target_that_holds_another_ledger_under_this_id_is_passed_over(other: int) -> None:
    async with World.running(names="abcde") as world:
        await world.ledger(1)
        world.nodes[other].others = {LedgerId(1)}
        await world.wipe(2)
        world.replica()
        await world.whole(1, 0, 1, 7 - other)


def test_rate_limit_spreads_bytes_over_time() -> None:
    """A pause saves a burst of one second at most."""
    now_s = 100.0
    limit = RateLimit(1_000, now_s=lambda: now_s)
    assert [limit.take(500), limit.take(500), limit.take(500)] == [0.0, 0.0, 0.5]
    now_s += 0.5
    assert limit.take(1_000) == 1.0
    now_s += 3_600
    assert [limit.take(1_000), limit.take(2_000)] == [0.0, 2.0]
