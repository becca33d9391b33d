"""The ack log of a topic: what is durable, what a failure drops, and what a takeover of both chains restores."""

from dataclasses import replace

import pytest

from oncelog.core.acks import ack_log
from oncelog.core.acks.ack_format import ACK_ENTRY_BYTES_MAX
from oncelog.core.acks.changes import (
    Acked,
    IndexRange,
    PropertiesSet,
)
from oncelog.core.chain.managed_ledger import AckQuorumLost, EntriesAnswered, MemberLost, SendAdds
from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.ids import EntryId, SeekEpoch
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.ledger.metadata import LedgerKey, LedgerState
from oncelog.core.ledger.recovery import FenceMember
from oncelog.core.records.records import kind_of
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.core.topic.serving import CURSOR_PATIENCE, TopicSettings
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.effects import (
    EndSession,
    Served,
    TakeoverPhase,
    TakeoverPhaseEnded,
    TopicClosed,
    TopicFailed,
)
from oncelog.core.topic_events.events import DrainRequested, TopicAssigned
from tests.core.acks.ack_log import CREATED, NUMBER, OFTEN, Chain, numbered, shown, shown_of
from tests.core.builders import A, B, C, D, received
from tests.core.topic.topic_world import SETTINGS, WRITE_CURSOR, WRITE_LEDGER, Owner, World

# --- appending --------------------------------------------------------------------------------------------------------


def test_ack_log_begins_with_the_first_change() -> None:
    """Until then no ledger is opened for it. The record is written before the entry."""
    world = World()
    owner = Owner(world, "o1").take_over()
    chain = Chain(world, owner)
    assert not world.record.acks
    assert len(owner.created_ledgers()) == len(world.record.ledgers)
    chain.append((CREATED, 0))
    while not world.record.acks:
        assert not [effect for effect in owner.emitted(SendAdds) if effect.purpose is LedgerPurpose.ACKS]
        assert owner.step()
    assert chain.settled_tokens == []
    owner.run()
    assert chain.settled_tokens == [0]


@pytest.mark.hazard("failed-ack-write")
def test_change_is_settled_when_its_entry_has_the_ack_quorum() -> None:
    """Neither when it was appended, nor when one member has it."""
    chain = Chain.new()
    chain.world.silent = {A, B}
    chain.number(1)
    before = shown(chain.serving.acks.state)
    chain.owner.run()
    assert chain.settled_tokens == [0]
    assert shown(chain.serving.acks.state) == before
    writer = chain.serving.acks.ledgers.writer
    assert writer is not None
    chain.owner.handle(EntriesAnswered(writer.ledger_id, A, [EntryId(2)], AppendStatus.OK))
    assert chain.settled_tokens == [0, 1]
    assert shown(chain.serving.acks.state) != before


def test_changes_that_arrive_while_an_entry_is_in_flight_form_the_next_one() -> None:
    """One entry is in flight at a time, whatever the number of subscriptions and consumers."""
    chain = Chain.new()
    chain.number(1).number(2).number(3, 4)
    (add,) = [effect for effect in chain.owner.queue if isinstance(effect, SendAdds)]
    assert [each.entry_id for each in add.adds] == [2]
    chain.owner.run()
    assert chain.settled_tokens == [0, 1, 2, 3, 4]
    assert chain.entries() == [4]
    assert shown(chain.world.folded_acks()) == shown(chain.serving.acks.state)


def test_entry_has_a_largest_size() -> None:
    """Changes that do not fit together go into several entries, and a larger one is split by its ranges."""
    chain = Chain.new()
    large = "x" * 60_000
    chain.append(*((PropertiesSet(NUMBER, (("number", large),)), number) for number in range(1, 21)))
    ranges = tuple(IndexRange(first, first) for first in range(0, 7 * ACK_ENTRY_BYTES_MAX, 10))
    chain.append((Acked(NUMBER, SeekEpoch(0), ranges), 21), (numbered(22), 22))
    chain.owner.run()
    assert chain.settled_tokens == list(range(23))
    sizes = [len(data) for data in chain.world.entries_of(chain.world.record.acks[0]).values()]
    assert len(sizes) > 3
    assert max(sizes) < ACK_ENTRY_BYTES_MAX + 1024


def test_acknowledgements_are_refused_while_too_many_bytes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain that cannot be written must not fill the owner's memory; what was refused is sent again by the client."""
    monkeypatch.setattr(ack_log, "WAITING_BYTES_MAX", 100_000)
    chain = Chain.new()
    chain.world.silent = {A, B}
    large = "x" * 60_000
    chain.append((PropertiesSet(NUMBER, (("number", large),)), 1))
    chain.append((PropertiesSet(NUMBER, (("number", large),)), 2))
    rooms = [chain.serving.acks.has_room]  # one is in flight, one waits
    chain.append((PropertiesSet(NUMBER, (("number", large),)), 3))
    rooms.append(chain.serving.acks.has_room)
    chain.owner.run()
    chain.fail_ledger()
    chain.owner.run()
    rooms.append(chain.serving.acks.has_room)
    assert chain.dropped_tokens == [1, 2, 3]
    assert rooms == [True, False, True]


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.hazard("failed-ack-write", "deposed-owner-acks")
def test_failed_ledger_drops_everything_that_is_not_durable() -> None:
    """In order, once the ledger is closed without it. Then the next ledger takes changes, and no producer's session has
    ended."""
    chain = Chain.new()
    granted = chain.owner.open("p")
    chain.world.silent = {A, B}
    chain.number(1).number(2)
    chain.owner.run()
    chain.fail_ledger()
    chain.number(3)
    assert chain.dropped_tokens == []
    chain.world.silent = set()
    chain.owner.run()
    assert (chain.settled_tokens, chain.dropped_tokens) == ([0], [1, 2, 3])
    assert len(chain.owner.emitted(AckQuorumLost)) == 1
    assert len(chain.world.record.acks) == 2
    chain.number(4)
    chain.owner.run()
    assert chain.settled_tokens == [0, 4]
    assert chain.owner.emitted(EndSession) == []
    pid, generation = granted.instance
    chain.owner.send(granted.session, received(1, [1], pid=pid, generation=generation))
    chain.owner.run()
    assert chain.owner.batches
    second = Owner(chain.world, "o2").take_over()
    assert shown_of(second) == shown(chain.serving.acks.state) == shown(chain.world.folded_acks())


@pytest.mark.hazard("deposed-owner-acks")
def test_publishing_waits_for_no_ledger_of_the_ack_log() -> None:
    """Its ledger cannot be created, or its members do not answer: batches are stored meanwhile."""
    world = World()
    owner = Owner(world, "o1").take_over()
    chain = Chain(world, owner)
    granted = owner.open("p")
    chain.append((CREATED, 0))
    owner.run(WRITE_LEDGER)
    pid, generation = granted.instance
    owner.send(granted.session, received(1, [1], pid=pid, generation=generation))
    owner.run(WRITE_LEDGER)
    assert [answer.request for answer in owner.batches] == [1]
    assert chain.settled_tokens == []
    owner.run()
    assert chain.settled_tokens == [0]


@pytest.mark.hazard("deposed-owner-acks")
def test_deposed_owner_settles_nothing_more() -> None:
    """A new owner has fenced the last ledger of both chains before it reads them."""
    chain = Chain.new()
    chain.number(1)
    held = [effect for effect in chain.owner.queue if isinstance(effect, SendAdds)]
    second = Owner(chain.world, "o2").take_over()
    truth = shown_of(second)
    assert held
    chain.owner.run()
    assert (chain.settled_tokens, chain.dropped_tokens) == ([0], [])
    assert chain.owner.core.phase is Phase.DEPOSED
    assert shown_of(Owner(chain.world, "o3").take_over()) == truth


# --- taking over ------------------------------------------------------------------------------------------------------


def history(settings: TopicSettings = SETTINGS) -> Chain:
    """A chain of three ledgers, and of snapshots where these are often."""
    chain = Chain.new(replace(settings, acks=replace(SETTINGS.acks, ledger_entries_max=3)))
    granted = chain.owner.open("p")
    pid, generation = granted.instance
    for number in range(1, 9):
        chain.owner.send(granted.session, received(number, [number], pid=pid, generation=generation))
        chain.owner.run()
        chain.number(number)
        chain.owner.tick(300).run()
    assert chain.settled_tokens == list(range(9))
    assert len(chain.world.record.acks) >= 3 or chain.world.record.acks_deleted_below
    return chain


@pytest.mark.hazard("deposed-owner-acks")
def test_both_chains_are_fenced_before_the_snapshot_is_read() -> None:
    """Side by side: no order between the two is needed."""
    chain = history()
    record = chain.world.record
    second = Owner(chain.world, "o2").take_over()
    kinds = [effect.ledger_id if isinstance(effect, FenceMember) else kind_of(effect) for effect in second.effects]
    claim = kinds.index(WRITE_CURSOR)
    assert max(kinds.index(record.ledgers[-1].ledger_id), kinds.index(record.acks[-1])) < claim
    assert second.effects.index(TakeoverPhaseEnded(TakeoverPhase.RECOVER, 10)) < claim


def steps_of_a_takeover(settings: TopicSettings) -> int:
    owner = Owner(history(settings).world, "o2")
    owner.world.place(owner.core.ownership.me)
    owner.handle(TopicAssigned())
    steps = 0
    while not owner.emitted(Served):
        assert owner.step()
        steps += 1
    return steps


@pytest.mark.hazard("failed-ack-write", "deposed-owner-acks")
@pytest.mark.parametrize("settings", [SETTINGS, OFTEN], ids=["replay", "snapshots"])
def test_takeover_of_both_chains_may_be_interrupted_after_any_step(settings: TopicSettings) -> None:
    """Whatever step the first taker dies after, with an entry of the old owner half sent, the next one has all that was
    settled."""
    for stop_after in range(steps_of_a_takeover(settings) + 1):
        chain = history(settings)
        chain.world.silent = {C}
        chain.number(90)
        chain.owner.run()
        assert chain.settled_tokens[-1] == 90
        chain.number(91)  # its frame stays in the queue of the old owner
        second = Owner(chain.world, "o2", settings)
        chain.world.place(second.core.ownership.me)
        second.handle(TopicAssigned())
        for _ in range(stop_after):
            second.step()
        third = Owner(chain.world, "o3", settings).take_over()
        assert shown_of(third) == shown(chain.serving.acks.state), stop_after


@pytest.mark.parametrize("stop_after", range(1, 30))
def test_owner_may_die_after_any_step_of_its_first_change(stop_after: int) -> None:
    """The ledger may be created, linked, written to and closed in part. What was settled stays."""
    world = World()
    chain = Chain(world, Owner(world, "o1").take_over())
    chain.append((CREATED, 0)).number(1)
    for _ in range(stop_after):
        chain.owner.step()
    chain.number(2)
    second = Owner(world, "o2").take_over()
    folded = world.folded_acks()
    assert shown_of(second) == shown(folded)
    if chain.settled_tokens:
        assert folded.position >= chain.serving.acks.state.position
    again = Chain(world, second)
    again.append((CREATED, 7))
    second.run()
    assert again.settled_tokens == [7]


def test_unreadable_entry_of_the_ack_log_stops_the_takeover() -> None:
    """The failure names it. Without the entry, acknowledged messages would be delivered again."""
    chain = history()
    ledger_id = chain.world.record.acks[1]
    chain.world.unreadable.add((ledger_id, 1))
    second = Owner(chain.world, "o2").take_over()
    (failed,) = second.emitted(TopicFailed)
    assert (failed.failure.ledger_id, failed.failure.entry_id) == (ledger_id, 1)
    assert "ack log" in failed.failure.reason


def test_entries_of_the_ack_log_that_are_away_are_waited_for() -> None:
    """Two members of a closed ledger are away for a while."""
    chain = history()
    chain.world.away[chain.world.record.acks[1], 1] = 2
    second = Owner(chain.world, "o2").take_over()
    assert shown_of(second) == shown(chain.serving.acks.state)


def test_owner_goes_on_in_the_chain_of_its_predecessor() -> None:
    """It opens a ledger when it begins to serve, and never writes to an older one. The last one had no entry."""
    chain = history()
    *before, _empty = chain.world.record.acks
    second = Chain(chain.world, Owner(chain.world, "o2").take_over())
    assert list(chain.world.record.acks[:-1]) == before
    second.number(100)
    second.owner.run()
    assert second.settled_tokens == [100]
    assert second.entries()[-1] == 2


# --- snapshots and trims ----------------------------------------------------------------------------------------------


@pytest.mark.hazard("unreadable-snapshot")
def test_snapshot_carries_subscriptions_and_the_ack_log_is_trimmed_below_the_oldest_base() -> None:
    """Acknowledgements matter until the next base. The floor proves the deletion to storage nodes."""
    chain = Chain.new(replace(OFTEN, acks=replace(SETTINGS.acks, ledger_entries_max=3)))
    for number in range(1, 40):
        chain.number(number)
        chain.owner.tick(300).run()
    record = chain.world.record
    assert record.acks_deleted_below == record.acks[0]
    assert len(record.acks) < 8
    bound = chain.serving.cursor.ack_trim_bound()
    assert bound is not None
    assert bound.ledger_id >= record.acks[0]
    assert set(record.acks) <= set(chain.world.ledgers)
    second = Owner(chain.world, "o2", OFTEN).take_over()
    assert shown_of(second) == shown(chain.serving.acks.state)


@pytest.mark.hazard("unreadable-snapshot")
def test_every_kept_base_is_a_fallback_for_the_subscriptions() -> None:
    """If the newer bases are damaged, the ack log from the trim bound on is enough."""
    chain = Chain.new(replace(OFTEN, acks=replace(SETTINGS.acks, ledger_entries_max=3)))
    granted = chain.owner.open("p")
    pid, generation = granted.instance
    for number in range(1, 40):
        chain.owner.send(granted.session, received(number, [number], pid=pid, generation=generation))
        chain.owner.run()
        chain.number(number)
        chain.owner.tick(300).run()
    cursor = chain.world.cursor[0]
    assert cursor is not None
    for link in cursor.ledgers[1:]:
        for copies in chain.world.nodes.values():
            copies.get(link.ledger_id, {}).pop(0, None)
    second = Owner(chain.world, "o2", OFTEN).take_over()
    assert second.core.phase is Phase.SERVING
    assert shown_of(second) == shown(chain.serving.acks.state)


def test_takeover_without_any_snapshot_of_a_trimmed_chain_stops() -> None:
    """It names the floor, instead of serving a part of the subscriptions."""
    chain = Chain.new(replace(OFTEN, acks=replace(SETTINGS.acks, ledger_entries_max=3)))
    for number in range(1, 40):
        chain.number(number)
        chain.owner.tick(300).run()
    chain.world.cursor = (None, -1)
    second = Owner(chain.world, "o2", OFTEN).take_over()
    (failed,) = second.emitted(TopicFailed)
    assert "ack log" in failed.failure.reason


def test_acks_alone_make_a_snapshot_due_by_time_and_bytes_but_not_by_count() -> None:
    """A work queue acknowledges each message: entries of the ack log trigger no snapshot by count."""
    settings = replace(SETTINGS, snapshot=SnapshotSettings(entries_max=3, gap_ms=0, ack_bytes_max=10_000))
    chain = Chain.new(settings)
    for number in range(1, 20):
        chain.number(number)
        chain.owner.tick(10).run()
    assert chain.serving.cursor.number == 0
    chain.append((PropertiesSet(NUMBER, (("number", "x" * 10_000),)), 90))
    chain.owner.run()
    chain.owner.tick(10).run()
    assert chain.serving.cursor.number == 1
    chain.number(91)
    chain.owner.run()
    chain.owner.tick(settings.snapshot.interval_ms).run()
    assert chain.serving.cursor.number == 2


# --- rolls, members and the end ---------------------------------------------------------------------------------------


def test_ledger_of_the_ack_log_rolls_by_age_and_an_unused_one_does_not() -> None:
    """So that retention finds closed ledgers."""
    chain = Chain.new()
    settings = chain.serving.settings.acks
    chain.owner.tick(settings.ledger_age_max_ms - 1).run()
    assert len(chain.entries()) == 1
    chain.owner.tick(1).run()
    assert len(chain.entries()) == 2
    chain.owner.tick(2 * settings.ledger_age_max_ms).run()
    assert len(chain.entries()) == 2
    chain.number(1)
    chain.owner.run()
    assert chain.settled_tokens == [0, 1]


@pytest.mark.hazard("members-lost-in-turn")
def test_ledger_of_the_ack_log_of_an_idle_topic_rolls_onto_a_live_node() -> None:
    """Repair touches no open ledger (hazard repair-of-an-open-ledger)."""
    chain = Chain.new()
    owner, (first,) = chain.owner, chain.world.record.acks
    owner.handle(StorageNodesUpdated((A, B), absent=(C,)))
    owner.handle(MemberLost(first, C))
    patience_ms = CURSOR_PATIENCE * SETTINGS.rejoin_after_ms
    owner.tick(patience_ms).run()
    owner.tick(patience_ms).run()
    assert chain.world.record.acks == (first,), "no live node could take its place"
    chain.world.nodes[D] = {}
    owner.handle(StorageNodesUpdated((A, B, D), absent=(C,)))
    owner.tick(patience_ms).run()
    second = chain.world.record.acks[-1]
    assert set(chain.world.ledgers[second][0].members) == {A, B, D}
    assert chain.world.ledgers[first][0].state is LedgerState.CLOSED
    chain.number(1)
    owner.run()
    assert chain.settled_tokens == [0, 1]


@pytest.mark.parametrize("stop_after", range(25))
def test_hand_over_answers_what_is_pending_and_closes_both_chains(stop_after: int) -> None:
    """At whatever step it is requested. Changes that arrive later are dropped, and the next owner recovers nothing."""
    world = World()
    chain = Chain(world, Owner(world, "o1").take_over())
    chain.owner.open("p")
    chain.append((CREATED, 0)).number(1)
    for _ in range(stop_after):
        chain.owner.step()
    chain.number(2)
    chain.owner.handle(DrainRequested())
    chain.owner.run()
    assert chain.owner.emitted(TopicClosed)
    assert sorted([*chain.settled_tokens, *chain.dropped_tokens], key=str) == [0, 1, 2]
    assert {world.ledgers[i][0].state for i in (*world.record.acks, world.record.ledgers[-1].ledger_id)} == {
        LedgerState.CLOSED
    }
    second = Owner(world, "o2").take_over()
    assert not second.emitted(FenceMember)
    assert shown_of(second) == shown(world.folded_acks())


def test_change_that_is_written_again_when_it_is_dropped_opens_the_next_ledger() -> None:
    """The drop happens between the close of the failed ledger and the next one, which is opened once."""

    class Repeating(Chain):
        def dropped(self, tokens: list[object]) -> None:
            super().dropped(tokens)
            for token in tokens:
                self.serving.acks.append(numbered(9), token)

    chain = Repeating.new()
    chain.world.silent = {A, B}
    chain.number(1)
    chain.owner.run()
    chain.fail_ledger()
    chain.world.silent = set()
    chain.owner.run()
    assert (chain.dropped_tokens, chain.settled_tokens) == ([1], [0, 1])
    assert len(chain.world.record.acks) == 2


def test_changes_appended_after_a_hand_over_began_to_close_the_chain_are_dropped() -> None:
    """Their callers look the topic up again."""
    chain = Chain.new()
    chain.owner.handle(DrainRequested())
    last = LedgerKey(chain.world.record.acks[-1])
    while last not in [write.key for write in chain.owner.writes(LedgerKey, chain.owner.queue)]:
        assert chain.owner.step()
    chain.number(1)
    assert chain.dropped_tokens == [1]
