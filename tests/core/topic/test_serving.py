"""Serving: when a ledger rolls, how rolls and failures affect producers, and when a silent member is dropped."""

from dataclasses import replace

import pytest

from oncelog.core.chain.managed_ledger import AckQuorumLost, MemberLost, SendAdds
from oncelog.core.chain.roll_rule import SMALL_PART
from oncelog.core.errors import NotOwner
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.metadata import LedgerState
from oncelog.core.topic.serving import SMALL_PATIENCE, TopicSettings
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.effects import EndSession, LastAddConfirmed
from oncelog.core.topic_events.events import DrainRequested
from tests.core.builders import A, B, C, D, received
from tests.core.topic.test_topic import serving, stored
from tests.core.topic.topic_world import SETTINGS, WRITE_TOPIC, Owner, World


def served(settings: TopicSettings) -> tuple[World, Owner]:
    world = World()
    return world, Owner(world, "o1", settings).take_over()


def ledgers(world: World) -> list[int]:
    return [link.ledger_id for link in world.record.ledgers]


# --- rolls ------------------------------------------------------------------------------------------------------------


def test_ledger_rolls_by_entries() -> None:
    """No session ends, and message numbers continue across ledgers."""
    world, owner = served(replace(SETTINGS, ledger_entries_max=3))
    granted = owner.open()
    for i in range(7):
        owner.send(granted.session, received(i, [2 * i, 2 * i + 1]))
        owner.run()
    assert [len(world.entries_of(LedgerId(i))) for i in ledgers(world)] == [4, 4, 3]
    assert [link.base_index for link in world.record.ledgers] == [0, 4, 10]
    assert owner.emitted(EndSession) == []
    assert [answer.request for answer in owner.batches] == list(range(7))


def test_no_roll_or_snapshot_begins_while_zookeeper_is_unreachable() -> None:
    """A roll whose close cannot be written would stop the topic. The roll follows when ZooKeeper is reachable again."""
    world, owner = served(replace(SETTINGS, ledger_entries_max=3))
    granted = owner.open()
    owner.handle(StorageNodesUpdated((A, B, C), store_reachable=False))
    for i in range(7):
        owner.send(granted.session, received(i, [i]))
        owner.run()
    assert len(ledgers(world)) == 1
    assert [answer.request for answer in owner.batches] == list(range(7))
    owner.handle(StorageNodesUpdated((A, B, C)))
    owner.tick().run()
    assert len(ledgers(world)) == 2


def test_ledger_rolls_by_size() -> None:
    """The size counts the body bytes of its entries."""
    world, owner = served(replace(SETTINGS, ledger_bytes_max=200))
    granted = owner.open()
    for i in range(6):
        owner.send(granted.session, received(i, [i]))
        owner.run()
    assert len(ledgers(world)) == 3


def test_ledger_rolls_by_age_when_it_was_used() -> None:
    """An idle topic creates no ledgers."""
    world, owner = served(replace(SETTINGS, ledger_entries_max=SMALL_PART))
    owner.tick(SETTINGS.ledger_age_max_ms).run()
    assert len(ledgers(world)) == 1
    owner.open()
    owner.tick(0).run()
    assert len(ledgers(world)) == 2
    owner.tick(SETTINGS.ledger_age_max_ms).run()
    assert len(ledgers(world)) == 2


@pytest.mark.hazard("members-lost-in-turn", "oversized-ledger-list")
def test_small_ledger_gets_older_but_is_replaced_in_the_end() -> None:
    """A topic with a message now and then had a ledger each ten minutes. One that stays open for ever would never be
    repaired."""
    world, owner = serving()
    owner.open()
    for _ in range(SMALL_PATIENCE - 1):
        owner.tick(SETTINGS.ledger_age_max_ms).run()
    assert len(ledgers(world)) == 1
    owner.tick(SETTINGS.ledger_age_max_ms).run()
    assert len(ledgers(world)) == 2


@pytest.mark.hazard("oversized-ledger-list")
def test_ledger_without_an_entry_leaves_the_list_with_the_next_link() -> None:
    """Takeovers of an idle topic added one each: 24 ledgers for one message were seen."""
    world, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [1]))
    owner.run()
    for number in range(24):
        owner = Owner(world, f"o{number + 2}").take_over()
        assert len(ledgers(world)) == 2
    assert owner.core.serving is not None
    assert owner.core.serving.log.table.state.next_index == 1


@pytest.mark.hazard("missing-record-is-no-deletion", "oversized-ledger-list")
def test_record_of_an_unlisted_empty_ledger_goes_only_if_nothing_was_written_to_it() -> None:
    """An entry that one storage node got and nobody confirmed would have no proof that it may be erased."""
    for sent in (False, True):
        world, owner = serving()
        if sent:
            world.silent = {A, B, C}
            granted = owner.ask("p")
            assert granted not in owner.answers
        owner.handle(MemberLost(LedgerId(1), A))
        owner.handle(MemberLost(LedgerId(1), B))
        owner.run()
        assert ledgers(world) == [2]
        assert (LedgerId(1) in world.ledgers) is sent


@pytest.mark.hazard("index-given-twice", "oversized-ledger-list")
def test_empty_ledger_that_was_given_up_stays_in_the_list() -> None:
    """The log does not say yet what was given up; until then only the ledger's record does."""
    world, _ = serving()
    ledger_id = world.record.ledgers[-1].ledger_id
    metadata, version = world.ledgers[ledger_id]
    ended = replace(metadata.closed(end=EntryId(-1), length=0), given_up_by="ops")
    world.ledgers[ledger_id] = (ended, version + 1)
    Owner(world, "o2").take_over()
    assert world.record.ledgers[0].ledger_id == ledger_id


@pytest.mark.hazard("members-lost-in-turn")
def test_ledger_with_an_absent_member_rolls_onto_a_fuller_set() -> None:
    """When a live node could have replaced the absent member for some time."""
    world, owner = serving()
    owner.open()
    owner.handle(MemberLost(LedgerId(1), A))
    owner.handle(StorageNodesUpdated((B, C), (A,)))
    owner.tick(10_000).run()
    assert len(ledgers(world)) == 1
    world.nodes[D] = {}
    owner.handle(StorageNodesUpdated((B, C, D), (A,)))
    owner.tick(SETTINGS.rejoin_after_ms - 1).run()
    assert len(ledgers(world)) == 1
    owner.tick(1).run()
    assert len(ledgers(world)) == 2
    assert set(world.ledgers[LedgerId(2)][0].members) == {B, C, D}


def test_ledger_does_not_roll_onto_a_node_that_has_just_stopped() -> None:
    """Its registration outlives it for a moment. A roll would make producers wait, and have no more members."""
    world, owner = serving()
    granted = owner.open()
    owner.tick(10_000).run()
    owner.handle(MemberLost(LedgerId(1), A))
    owner.tick(SETTINGS.rejoin_after_ms // 2).run()
    owner.handle(StorageNodesUpdated((B, C), (A,)))
    owner.send(granted.session, received(1, [0]))
    owner.run()
    assert owner.result(1) == stored(1, 1, index=0)
    owner.tick(10_000).run()
    owner.handle(StorageNodesUpdated((A, B, C)))
    owner.tick(SETTINGS.rejoin_after_ms // 2).run()
    assert len(ledgers(world)) == 1, "it is back for a moment only so far"
    owner.tick(SETTINGS.rejoin_after_ms).run()
    assert len(ledgers(world)) == 2
    assert owner.emitted(EndSession) == []


def test_ledger_with_a_read_only_member_rolls_onto_a_writable_one() -> None:
    """In good order: what is added meanwhile is added there too, and no session ends."""
    world, owner = serving()
    granted = owner.open()
    owner.handle(StorageNodesUpdated((B, C), read_only=(A,)))
    owner.tick(10_000).run()
    assert len(ledgers(world)) == 1, "no node could take its place: the ledger finishes as it is"
    owner.send(granted.session, received(1, [0]))
    owner.run()
    assert len(world.nodes[A]) == len(world.nodes[B])
    world.nodes[D] = {}
    owner.handle(StorageNodesUpdated((B, C, D), read_only=(A,)))
    owner.tick(SETTINGS.rejoin_after_ms).run()
    assert len(ledgers(world)) == 2
    assert set(world.ledgers[LedgerId(2)][0].members) == {B, C, D}
    assert owner.emitted(EndSession) == []


@pytest.mark.hazard("members-lost-in-turn")
def test_retired_member_is_dropped_at_once() -> None:
    """It never comes back, so the next ledger is placed on other nodes."""
    world, owner = serving()
    owner.open()
    world.nodes[D] = {}
    owner.handle(StorageNodesUpdated((A, B, D), retired=(C,)))
    owner.tick(SETTINGS.rejoin_after_ms).run()
    assert set(world.ledgers[LedgerId(2)][0].members) == {A, B, D}


# --- members ----------------------------------------------------------------------------------------------------------


def test_silent_member_delays_no_write_and_is_dropped() -> None:
    """The quorum answers; after the timeout nothing more is sent to it, when it holds up the oldest entry."""
    world, owner = serving()
    granted = owner.open()
    world.silent = {A}
    owner.send(granted.session, received(1, [0]))
    owner.run()
    assert owner.result(1) == stored(1, 1, index=0)
    world.silent = {A, B}
    owner.send(granted.session, received(2, [1]))
    owner.run()
    owner.tick(SETTINGS.add_timeout_ms - 1).run()
    assert owner.emitted(AckQuorumLost) == []
    owner.tick(1).run()
    (failed,) = owner.emitted(AckQuorumLost)
    assert failed.ledger_id == 1
    assert world.ledgers[LedgerId(1)][0].end == 2


def test_clock_that_goes_back_does_not_prolong_a_timeout() -> None:
    """By an hour: the topic would store nothing for as long."""
    world, owner = serving()
    granted = owner.open()
    world.silent = {A, B}
    owner.send(granted.session, received(1, [0]))
    owner.run()
    owner.tick(-3_600_000).run()
    owner.tick(SETTINGS.add_timeout_ms - 1).run()
    assert owner.emitted(AckQuorumLost) == []
    owner.tick(1).run()
    assert owner.emitted(AckQuorumLost)[0].ledger_id == 1


def test_failure_with_nothing_in_flight_ends_no_session() -> None:
    """Everything is confirmed: the ledger closes there, and no producer has to resend."""
    world, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0]))
    owner.run()
    owner.handle(MemberLost(LedgerId(1), A))
    owner.handle(MemberLost(LedgerId(1), B))
    owner.send(granted.session, received(2, [1]))
    owner.run()
    assert owner.emitted(EndSession) == []
    assert owner.result(2) == stored(0, 1, index=1, ledger_id=2)
    assert world.ledgers[LedgerId(1)][0].end == 2


def test_topic_waits_for_storage_nodes() -> None:
    """Fewer than the ack quorum live: nothing is answered, and all of it when they are back."""
    world, owner = serving()
    granted = owner.open()
    owner.handle(StorageNodesUpdated((A,), (B, C)))
    owner.handle(MemberLost(LedgerId(1), B))
    owner.handle(MemberLost(LedgerId(1), C))
    owner.run()
    owner.send(granted.session, received(1, [0]))
    call = owner.ask("q")
    assert (owner.batches, call in owner.answers) == ([], False)
    owner.handle(StorageNodesUpdated((A, B), (C,)))
    owner.run()
    assert call in owner.answers
    owner.result(1)
    assert len(ledgers(world)) == 2


def test_ledger_is_replaced_when_its_members_leave_before_it_opens() -> None:
    """It is closed, and the next one is opened on live nodes."""
    world = World()
    owner = Owner(world, "o1").take_over(WRITE_TOPIC)
    world.nodes[D] = {}
    owner.handle(StorageNodesUpdated((A, D), (B, C)))
    owner.run()
    metadata = world.ledgers[LedgerId(ledgers(world)[-1])][0]
    assert metadata.state is LedgerState.OPEN
    assert {A, D} <= set(metadata.members)
    assert owner.open().instance == (1, 1)


# --- readers ----------------------------------------------------------------------------------------------------------


def test_readers_never_pass_the_last_confirmed_entry() -> None:
    """They get entries up to last_add_confirmed only."""
    world, owner = serving()
    granted = owner.open()
    world.silent = {A, B}
    owner.send(granted.session, received(1, [0]))
    owner.run()
    assert [(e.position.ledger_id, e.position.entry_id) for e in owner.emitted(LastAddConfirmed)] == [(1, 1)]


# --- the end ----------------------------------------------------------------------------------------------------------


def test_drain_during_a_roll_closes_after_it() -> None:
    """The ledger that the roll opens is closed again, empty."""
    world, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0]))
    owner.roll()
    owner.handle(DrainRequested())
    owner.run()
    assert owner.core.phase is Phase.CLOSED
    assert {metadata.state for metadata, _ in world.ledgers.values()} == {LedgerState.CLOSED}
    assert owner.result(1) == stored(1, 1, index=0)
    (end,) = owner.emitted(EndSession)
    assert isinstance(end.error, NotOwner)


def test_drain_with_failing_members_drops_writes_in_flight() -> None:
    """Clients resend it to the next owner; the log ends where it was confirmed."""
    world, owner = serving()
    granted = owner.open()
    world.silent = {A, B}
    owner.send(granted.session, received(1, [0]))
    owner.handle(DrainRequested())
    owner.run()
    world.silent = set()
    owner.tick(SETTINGS.add_timeout_ms).run()
    assert owner.core.phase is Phase.CLOSED
    assert world.ledgers[LedgerId(1)][0].end == EntryId(1)
    assert owner.batches == []
    assert not [effect for effect in owner.queue if isinstance(effect, SendAdds)]
