"""One topic from its assignment to its end: when requests are answered, and how a deposed owner answers."""

from dataclasses import replace
from typing import get_args, get_origin

import pytest

from oncelog.core.chain.managed_ledger import EntriesAnswered, SendAdds
from oncelog.core.chain.next_ledger import DeleteLedgers
from oncelog.core.chain.replay import ReadEntries
from oncelog.core.errors import NotOwner
from oncelog.core.formats.opening import Granted
from oncelog.core.formats.outcome import ResultKind, ResultRange
from oncelog.core.formats.topic_record import decode_cursor, decode_topic, encode_cursor, encode_topic
from oncelog.core.ids import EntryId, Incarnation, LedgerId, Position
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.ledger.metadata import LedgerState
from oncelog.core.records.records import Kind
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.effects import (
    NotifyDedupToggled,
    Served,
    SnapshotTaken,
    StartTopicTimer,
    TakeoverPhase,
    TakeoverPhaseEnded,
    TopicClosed,
    TopicDeposed,
)
from oncelog.core.topic_events.events import (
    DedupToggled,
    DrainRequested,
    HigherEpochReported,
    TopicAssigned,
    TopicEvent,
    TopicTimerFired,
    TrimRequested,
)
from tests.core.builders import A, B, C, plain, received
from tests.core.topic.test_takeover import OFTEN, history, state_of
from tests.core.topic.topic_world import READ_LEDGER, READ_TOPIC, SETTINGS, WRITE_TOPIC, Owner, World


def serving() -> tuple[World, Owner]:
    world = World()
    return world, Owner(world, "o1").take_over()


def stored(entry: int, count: int, *, index: int, ledger_id: int = 1, offset: int = 0) -> tuple[ResultRange, ...]:
    """entry: how many entries of the ledger are between its head and this one. index: messages before these."""
    place = Position(LedgerId(ledger_id), EntryId(1 + entry))
    return (ResultRange(ResultKind.STORED, count, place, offset, index=index),)


# --- the beginning ----------------------------------------------------------------------------------------------------


def test_opening_before_serving_waits() -> None:
    """Requests during the takeover are answered at its end, in order."""
    world = World()
    owner = Owner(world, "o1")
    first = owner.ask("p")
    owner.take_over(WRITE_TOPIC)
    second = owner.ask("q", WRITE_TOPIC)
    assert owner.answers == {}
    owner.run()
    assert [type(owner.answers[call]) for call in (first, second)] == [Granted, Granted]


def test_owner_ends_when_the_record_names_another_owner() -> None:
    """A notification is no proof. Waiting requests are answered NotOwner."""
    world = World()
    owner = Owner(world, "o1")
    call = owner.ask("p")
    world.place(Incarnation("o2"))
    owner.handle(TopicAssigned())
    owner.run()
    assert owner.core.phase is Phase.DEPOSED
    assert isinstance(owner.answers[call], NotOwner)


def test_takeovers_start_no_second_tick_timer() -> None:
    """With one more timer per takeover, ticks would multiply."""
    _, owner = serving()
    owner.handle(HigherEpochReported())
    owner.run()
    owner.handle(HigherEpochReported())
    owner.run()
    assert len(owner.emitted(Served)) == 3
    assert owner.emitted(StartTopicTimer) == [StartTopicTimer("tick", SETTINGS.tick_ms)]
    owner.tick()
    assert len(owner.emitted(StartTopicTimer)) == 2


# --- answers ----------------------------------------------------------------------------------------------------------


def test_batch_is_answered_when_durable() -> None:
    """One member's answer is not enough; after the second one the client gets the position."""
    _, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0, 1]))
    (send,) = [effect for effect in owner.queue if isinstance(effect, SendAdds)]
    ids = [add.entry_id for add in send.adds]
    owner.handle(EntriesAnswered(send.ledger_id, A, ids, AppendStatus.OK))
    assert owner.batches == []
    owner.handle(EntriesAnswered(send.ledger_id, C, ids, AppendStatus.OK))
    assert owner.result(1) == stored(1, 2, index=0)


def test_answers_come_before_the_end_of_their_session() -> None:
    """After EndSession the answer to the refused batch would be lost."""
    _, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0, 2]))
    owner.run()
    owner.effects.clear()
    owner.send(granted.session, received(2, [0]), received(3, [1]))
    owner.run()
    kinds = [type(effect).__name__ for effect in owner.effects]
    assert kinds.count("AnswerBatches") == 2
    assert kinds.index("EndSession") > max(i for i, kind in enumerate(kinds) if kind == "AnswerBatches")


# --- toggling dedup, trims --------------------------------------------------------------------------------------------


@pytest.mark.hazard("dedup-toggled")
def test_toggling_dedup_keeps_the_dedup_state() -> None:
    """Disabled dedup skips only the check. When it is enabled again, all stored ids are known."""
    _, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0, 1]))
    owner.run()
    owner.handle(DedupToggled(enabled=True))
    assert owner.emitted(NotifyDedupToggled) == []
    owner.handle(DedupToggled(enabled=False))
    assert owner.emitted(NotifyDedupToggled) == [NotifyDedupToggled(enabled=False)]
    owner.send(granted.session, received(2, [0, 1]), received(3, [2, 3]))
    owner.run()
    assert (owner.result(2), owner.result(3)) == (stored(2, 2, index=2), stored(3, 2, index=4))
    owner.handle(DedupToggled(enabled=True))
    owner.send(granted.session, received(4, [0, 1]), received(5, [2, 3]))
    owner.run()
    assert owner.result(4) == (ResultRange(ResultKind.DUPLICATE, 2, Position(LedgerId(1), EntryId(2)), 0, False),)
    assert owner.result(5) == (ResultRange(ResultKind.DUPLICATE, 2, Position(LedgerId(1), EntryId(4)), 0, False),)


@pytest.mark.hazard("missing-record-is-no-deletion")
def test_trim_stops_at_the_oldest_snapshot_that_is_kept() -> None:
    """Falling back to it would leave a hole in the replay. A ledger that it covers as a whole is not needed."""
    world = World()
    owner = Owner(world, "o1", replace(OFTEN, ledger_entries_max=4)).take_over()
    granted = owner.open()
    everything = Position(LedgerId(10**6), EntryId(0))
    owner.handle(TrimRequested(everything))
    assert owner.run().emitted(DeleteLedgers) == []
    for i in range(120):
        owner.now_ms += 1
        owner.send(granted.session, received(i, [i]))
        owner.run()
        owner.handle(TrimRequested(everything))
        owner.run()
        serving = owner.core.serving
        assert serving is not None
        bound = serving.cursor.trim_bound()
        if bound is not None and world.record.ledgers[0].ledger_id > bound.ledger_id:
            # The bound covers the whole of the last ledger that went: no replay begins in it.
            assert bound.entry_id == 4
            assert world.record.ledgers[0].ledger_id == bound.ledger_id + 1
    trimmed = [i for effect in owner.emitted(DeleteLedgers) for i in effect.ledger_ids]
    assert len(trimmed) == len(set(trimmed)) > 4
    assert world.record.ledgers[0].ledger_id > 4
    assert world.record.deleted_below == world.record.ledgers[0].ledger_id
    assert set(world.ledgers) >= {link.ledger_id for link in world.record.ledgers}
    again = Owner(world, "o2").take_over()
    assert again.open().last_sequence_id == 119


# --- the next ledger --------------------------------------------------------------------------------------------------


def test_next_ledger_is_prepared_during_the_takeover() -> None:
    """The phase open only links it. No list names it while the log is being read."""
    world, _ = history()
    listed = [link.ledger_id for link in world.record.ledgers]
    second = Owner(world, "o2").take_over(ReadEntries)
    assert second.core.phase is Phase.RECOVERING
    (made,) = second.created_ledgers()
    assert [link.ledger_id for link in world.record.ledgers] == listed
    second.run()
    assert [link.ledger_id for link in world.record.ledgers] == [*listed, made]
    assert len(second.created_ledgers()) == 1


def test_next_ledger_of_a_takeover_that_ends_is_deleted() -> None:
    """Another owner has the topic by now, so no list will ever name this ledger."""
    world, _ = history()
    second = Owner(world, "o2").take_over(ReadEntries)
    (made,) = second.created_ledgers()
    world.place(Incarnation("o3"))
    second.handle(TopicAssigned())
    second.run(ReadEntries)
    assert second.core.phase is Phase.DEPOSED
    assert made not in world.ledgers


def test_next_ledger_of_a_roll_that_ends_with_the_topic_is_deleted() -> None:
    """It was ready, and the last ledger waited for answers."""
    world, owner = serving()
    granted = owner.open()
    world.silent = {A, B, C}
    owner.send(granted.session, received(1, [0]))
    owner.roll()
    (made,) = owner.created_ledgers()[1:]
    world.place(Incarnation("o2"))
    owner.handle(HigherEpochReported())
    owner.run()
    assert owner.core.phase is Phase.DEPOSED
    assert made not in world.ledgers


def test_next_ledger_waits_for_storage_nodes_during_the_takeover() -> None:
    """With the first view of the nodes no ledger can be created. More writable nodes appear during the replay."""
    world, _ = history()
    second = Owner(world, "o2")
    second.handle(StorageNodesUpdated((A,), (B, C)))
    second.take_over(ReadEntries)
    assert second.created_ledgers() == []
    second.handle(StorageNodesUpdated((A, B, C)))
    second.run(ReadEntries)
    assert len(second.created_ledgers()) == 1
    second.run()
    assert second.core.phase is Phase.SERVING


# --- the end ----------------------------------------------------------------------------------------------------------


def test_drain_closes_both_ledgers_with_a_last_snapshot() -> None:
    """The next owner recovers nothing and replays nothing."""
    world, owner = history()
    owner.handle(DrainRequested())
    call = owner.ask("late", SendAdds)
    owner.run()
    assert owner.core.phase is Phase.CLOSED
    assert len(owner.emitted(TopicClosed)) == 1
    assert owner.emitted(TopicDeposed) == []
    assert isinstance(owner.answers[call], NotOwner)
    assert {metadata.state for metadata, _ in world.ledgers.values()} == {LedgerState.CLOSED}
    last = owner.emitted(SnapshotTaken)[-1]
    folded = world.folded()
    assert last.position == folded.position
    second = Owner(world, "o2").take_over()
    assert state_of(second) == (plain(folded), folded.position, folded.next_index)
    assert second.emitted(TakeoverPhaseEnded)[-1] == TakeoverPhaseEnded(TakeoverPhase.REPLAY)


def test_drain_answers_batches_in_flight() -> None:
    """A planned end drops no batch."""
    _, owner = serving()
    granted = owner.open()
    owner.send(granted.session, received(1, [0]))
    owner.handle(DrainRequested())
    owner.run()
    assert owner.result(1) == stored(1, 1, index=0)
    assert owner.core.phase is Phase.CLOSED


def test_producers_wait_only_for_the_close_of_the_log_during_a_drain() -> None:
    """Batches are taken while the last snapshot is written. The next owner replays what came after it."""
    world, owner = serving()
    granted = owner.open()
    owner.handle(DrainRequested())
    owner.send(granted.session, received(1, [0]))
    while not owner.emitted(SnapshotTaken):
        assert owner.step(), "there is nothing left to do, and no snapshot"
    assert world.ledgers[world.record.ledgers[-1].ledger_id][0].state is LedgerState.OPEN
    owner.send(granted.session, received(2, [1]))
    owner.run()
    assert (owner.result(1), owner.result(2)) == (stored(1, 1, index=0), stored(2, 1, index=1))
    assert owner.core.phase is Phase.CLOSED
    folded = world.folded()
    assert owner.emitted(SnapshotTaken)[-1].position < folded.position
    second = Owner(world, "o2").take_over()
    assert state_of(second) == (plain(folded), folded.position, folded.next_index)
    assert second.emitted(TakeoverPhaseEnded)[-1] == TakeoverPhaseEnded(TakeoverPhase.REPLAY, 1, last_append_ms=0)


def test_opening_during_the_drain_is_answered_not_owner() -> None:
    """The answer follows when the log is closed."""
    world, owner = history()
    owner.handle(DrainRequested())
    while world.ledgers[world.record.ledgers[-1].ledger_id][0].state is LedgerState.OPEN:
        owner.step()
    call = owner.ask("late")
    assert isinstance(owner.answers[call], NotOwner)
    assert owner.core.phase is Phase.CLOSED


def test_drain_continues_after_a_suspicion() -> None:
    """Still the owner by its record, it does not begin to serve again."""
    world, owner = serving()
    granted = owner.open()
    world.silent = {A, B, C}
    owner.send(granted.session, received(1, [0]))
    owner.handle(DrainRequested())
    owner.handle(HigherEpochReported())
    owner.run()
    assert owner.core.phase is Phase.CLOSED
    assert len(owner.emitted(TopicClosed)) == 1


@pytest.mark.parametrize("hold", [READ_TOPIC, WRITE_TOPIC])
def test_drain_before_serving_ends_at_once(hold: Kind) -> None:
    """There is nothing to close. Waiting requests are answered NotOwner."""
    world = World()
    owner = Owner(world, "o1").take_over(hold)
    call = owner.ask("p", hold)
    owner.handle(DrainRequested())
    assert owner.core.phase is Phase.CLOSED
    assert isinstance(owner.answers[call], NotOwner)


def test_events_after_the_end_have_no_effect() -> None:
    """DEPOSED is final at this epoch."""
    world, owner = serving()
    world.place(Incarnation("o2"))
    owner.handle(HigherEpochReported())
    owner.run()
    for event in (TopicAssigned(), TopicTimerFired("tick"), TopicTimerFired("retry"), DrainRequested()):
        assert owner.handle(event) == []


def test_session_numbers_ascend_across_takeovers() -> None:
    """An answer for a session from before a takeover must not reach a newer session."""
    _, owner = serving()
    first = owner.open()
    owner.handle(HigherEpochReported())
    owner.run()
    assert owner.open().session > first.session


# --- records ----------------------------------------------------------------------------------------------------------


def test_records_round_trip_through_bytes() -> None:
    """The next owner reads the same values."""
    world, _ = history()
    cursor, _ = world.cursor
    assert cursor is not None
    assert decode_cursor(encode_cursor(cursor)) == cursor
    assert decode_topic(encode_topic(world.record)) == world.record


def test_every_event_has_a_handler() -> None:
    """An event without a handler would be ignored like a late one."""
    _, owner = serving()
    core = owner.core
    handled = set(core._handlers)
    owner.handle(HigherEpochReported())
    owner.run(READ_LEDGER)
    assert core.phase is Phase.RECOVERING
    kinds = {event if (of := get_origin(event)) is None else (of, get_args(event)[0]) for event in get_args(TopicEvent)}
    assert handled | set(core._handlers) == kinds
