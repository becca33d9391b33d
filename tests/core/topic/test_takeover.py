"""A takeover reads the whole log or stops: the order of its phases, every interruption, every kind of damage."""

from dataclasses import replace

import pytest

from oncelog.core.chain.replay import EntriesRead, ReadEntries
from oncelog.core.errors import LedgerUnavailable
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import HEADER_BYTES, peek_header
from oncelog.core.formats.topic_record import LedgerLink
from oncelog.core.ids import BEFORE_ALL, EntryId, LedgerId
from oncelog.core.ledger.metadata import LedgerState
from oncelog.core.ledger.recovery import FenceMember, RecoveryFailed
from oncelog.core.records.records import kind_of
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.core.topic.serving import TopicSettings
from oncelog.core.topic.takeover import Takeover, TakeoverState
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.effects import (
    Served,
    TakeoverPhase,
    TakeoverPhaseEnded,
    TopicFailed,
)
from oncelog.core.topic_events.events import (
    TopicAssigned,
    TopicTimerFired,
)
from tests.core.builders import A, B, C, plain, received
from tests.core.topic.topic_world import READ_LEDGER, SETTINGS, WRITE_CURSOR, Owner, World

#: Snapshots every second entry, so that a short history has bases, deltas and a tail behind them.
OFTEN = replace(SETTINGS, ledger_entries_max=17, snapshot=SnapshotSettings(entries_max=2, gap_ms=0, deltas_max=4))
#: The same without any.
SELDOM = replace(SETTINGS, ledger_entries_max=17)


def history(settings: TopicSettings = OFTEN) -> tuple[World, Owner]:
    """A world in which one owner has stored batches of two producers in two ledgers, and written snapshots."""
    world = World()
    owner = Owner(world, "o1", settings).take_over()
    sessions = [owner.open("p"), owner.open("q")]
    for i in range(14):
        for granted in sessions:
            pid, generation = granted.instance
            owner.now_ms += 10
            owner.send(granted.session, received(i, range(3 * i, 3 * i + 2), pid=pid, generation=generation))
            owner.run()
    assert len(world.record.ledgers) == 2
    return world, owner


def served(owner: Owner) -> None:
    assert owner.core.phase is Phase.SERVING, owner.effects[-3:]


def state_of(owner: Owner) -> object:
    assert owner.core.serving is not None
    state = owner.core.serving.log.table.state
    return plain(state), state.position, state.next_index


def truth(world: World) -> object:
    state = world.folded()
    return plain(state), state.position, state.next_index


def test_takeover_restores_the_whole_state() -> None:
    """Snapshot and replay give what the fold of the whole log gives."""
    world, _ = history()
    owner = Owner(world, "o2").take_over()
    served(owner)
    assert state_of(owner) == truth(world)
    phases = [effect.phase for effect in owner.effects if isinstance(effect, TakeoverPhaseEnded)]
    assert phases == list(TakeoverPhase)[:-1]


@pytest.mark.hazard("snapshot-before-fence")
def test_log_is_fenced_before_the_cursor_is_read() -> None:
    """If the snapshot were read first, the old owner could snapshot and trim in between: the replay would have a hole.

    Two records of the cursor may be read beside it, and decide nothing.
    """
    world, _ = history()
    owner = Owner(world, "o2").take_over()
    log, cursor = world.record.ledgers[-2].ledger_id, world.cursor[0]
    assert cursor is not None
    kinds = [
        ("fence", effect.ledger_id) if isinstance(effect, FenceMember) else kind_of(effect) for effect in owner.effects
    ]
    ended = owner.emitted(TakeoverPhaseEnded)
    order = [
        kinds.index(("fence", log)),
        owner.effects.index(TakeoverPhaseEnded(TakeoverPhase.RECOVER, ended[1].count)),
        kinds.index(WRITE_CURSOR),
        kinds.index(("fence", cursor.ledgers[-1].ledger_id)),
        kinds.index(ReadEntries),
        kinds.index(Served),
    ]
    assert order == sorted(order)


def steps_of_a_takeover() -> int:
    world, _ = history()
    owner = Owner(world, "o2")
    world.place(owner.core.ownership.me)
    owner.handle(TopicAssigned())
    steps = 0
    while not owner.emitted(Served):
        assert owner.step()
        steps += 1
    return steps


@pytest.mark.parametrize("stop_after", range(steps_of_a_takeover() + 1))
def test_takeover_may_be_interrupted_after_any_step(stop_after: int) -> None:
    """Whatever step the first taker dies after, with entries of the old owner half sent, the next one has it all."""
    world, old = history()
    world.silent = {C}
    granted = old.open("p")
    pid, generation = granted.instance
    old.send(granted.session, received(90, [1000, 1001], pid=pid, generation=generation))
    old.run()
    acked = old.result(90)
    second = Owner(world, "o2")
    world.place(second.core.ownership.me)
    second.handle(TopicAssigned())
    for _ in range(stop_after):
        second.step()
    third = Owner(world, "o3").take_over()
    served(third)
    assert state_of(third) == truth(world)
    assert third.core.serving is not None
    assert third.core.serving.log.table.state.producers[pid].persisted == 1001
    assert acked


def test_unacknowledged_entry_is_kept_or_dropped_permanently() -> None:
    """An entry that one member holds may be in the log or not; two takeovers agree on it."""
    world, old = history()
    granted = old.open("p")
    world.silent = {C}
    pid, generation = granted.instance
    old.send(granted.session, received(90, [1000], pid=pid, generation=generation))
    while old.step():
        pass
    owner = Owner(world, "o2").take_over()
    first = state_of(owner)
    again = Owner(world, "o3").take_over()
    assert state_of(again) == first == truth(world)


# --- failures ---------------------------------------------------------------------------------------------------------


def failed(owner: Owner, text: str) -> None:
    """The takeover has failed and reported why, and the topic is not served."""
    assert owner.core.phase is Phase.WAITING
    assert owner.core.serving is None
    (effect,) = owner.emitted(TopicFailed)
    assert text in effect.failure.reason


def without_snapshots(world: World) -> None:
    world.cursor = (None, -1)


def test_unreadable_entry_fails_the_takeover_and_is_named() -> None:
    """A partial map would call stored messages new."""
    world, _ = history()
    without_snapshots(world)
    world.unreadable.add((LedgerId(1), 3))
    failed(Owner(world, "o2").take_over(), "entry 1:3")


def test_failed_takeover_reads_the_record_and_retries() -> None:
    """The missing data may come back. The topic is not served before."""
    world, _ = history()
    without_snapshots(world)
    world.unreadable.add((LedgerId(1), 3))
    owner = Owner(world, "o2").take_over()
    assert owner.answers == {}
    call = owner.ask("p")
    assert call not in owner.answers
    world.unreadable.clear()
    owner.handle(TopicTimerFired("retry"))
    owner.run()
    served(owner)
    assert state_of(owner) == truth(world)
    assert call in owner.answers


@pytest.mark.hazard("snapshot-before-fence")
def test_failure_of_a_deposed_owner_is_not_reported() -> None:
    """Its ledger is missing because the next owner trimmed it: the record is read before the failure is reported."""
    world, _ = history()
    without_snapshots(world)
    owner = Owner(world, "o2").take_over(READ_LEDGER)
    world.place(C)
    for link in world.record.ledgers[:1]:
        del world.ledgers[link.ledger_id]
    owner.run()
    assert owner.core.phase is Phase.DEPOSED
    assert owner.emitted(TopicFailed) == []


@pytest.mark.hazard("snapshot-before-fence")
def test_missing_ledger_fails_the_takeover() -> None:
    """A ledger of the list without a record was acknowledged and is gone."""
    world, _ = history()
    without_snapshots(world)
    del world.ledgers[LedgerId(1)]
    failed(Owner(world, "o2").take_over(), "ledger 1")


def test_missing_last_ledger_fails_the_takeover() -> None:
    """Recovery has no ledger to fence, so the end of the log is unknown."""
    world, _ = history()
    del world.ledgers[world.record.ledgers[-1].ledger_id]
    failed(Owner(world, "o2").take_over(), "has no record")


@pytest.mark.hazard("indexes-after-a-trim")
def test_hole_of_messages_fails_the_takeover() -> None:
    """A ledger begins above the end of the one before, so the messages in between are lost."""
    world, _ = history()
    without_snapshots(world)
    record, version = world.topic
    second = record.ledgers[1]
    world.topic = (replace(record, ledgers=(record.ledgers[0], LedgerLink(second.ledger_id, 999))), version)
    failed(Owner(world, "o2").take_over(), "begins at message 999")


def test_trimmed_log_without_a_snapshot_fails_the_takeover() -> None:
    """Replay would begin in the middle with an empty map."""
    world, _ = history()
    without_snapshots(world)
    record, version = world.topic
    world.topic = (record.without(record.ledgers[0].ledger_id), version)
    failed(Owner(world, "o2").take_over(), "no snapshot can be read")


@pytest.mark.hazard("unreadable-snapshot")
def test_deleted_grants_without_a_snapshot_fail_the_takeover() -> None:
    """What is left of the log begins with message 0, because none was in the deleted ledger: only the grant of a name,
    which would be given again with the same generation."""
    world = World()
    Owner(world, "o1").take_over().open("p")
    Owner(world, "o2").take_over().open("q")
    without_snapshots(world)
    record, version = world.topic
    record = record.without(record.ledgers[0].ledger_id)
    assert record.ledgers[0].base_index == 0
    world.topic = (record, version)
    failed(Owner(world, "o3").take_over(), "no snapshot can be read, and the log does not begin with its first ledger")


@pytest.mark.hazard("unreadable-snapshot")
def test_snapshot_whose_ledger_left_the_list_fails_the_takeover() -> None:
    """Control entries behind the snapshot would be missing without any gap in the message numbers."""
    world, _ = history()
    record, version = world.topic
    link = LedgerLink(LedgerId(50), world.folded().next_index)
    metadata = world.ledgers[LedgerId(1)][0]
    world.ledgers[LedgerId(50)] = (replace(metadata, ledger_id=LedgerId(50)), 0)
    world.topic = (replace(record, ledgers=(link,)), version)
    failed(Owner(world, "o2").take_over(), "does not hold that ledger")


@pytest.mark.hazard("indexes-after-a-trim")
def test_snapshot_behind_a_deleted_log_is_enough() -> None:
    """All of the log was trimmed but its last ledger, to which nothing was ever written: no node shows it to a restore,
    and the restored list is empty. The next owner goes on behind the snapshot."""
    world, _ = history()
    everything, following = truth(world), world.folded().next_index
    record, version = world.topic
    below = LedgerId(record.ledgers[-1].ledger_id + 1)
    world.topic = (replace(record, ledgers=(), deleted_below=below), version)
    owner = Owner(world, "o2").take_over()
    served(owner)
    assert state_of(owner) == everything
    assert [link.base_index for link in world.record.ledgers] == [following]


def replaying(owner: Owner) -> tuple[Takeover, ReadEntries]:
    """Run until entries of the log are read."""
    owner.take_over(ReadEntries)
    (effect,) = [e for e in owner.queue if isinstance(e, ReadEntries)]
    assert owner.core.takeover is not None
    assert owner.core.takeover.state is TakeoverState.REPLAY
    return owner.core.takeover, effect


@pytest.mark.hazard("indexes-after-a-trim")
def test_missing_control_entry_is_a_hole() -> None:
    """A grant has no message number. Without it a fenced producer could continue to write."""
    world, _ = history()
    without_snapshots(world)
    owner = Owner(world, "o2")
    _, asked = replaying(owner)
    held = world.entries_of(asked.metadata.ledger_id)
    owner.handle(EntriesRead(LedgerId(1), [(EntryId(0), held[0]), (EntryId(1), held[2])]))
    assert owner.core.phase is Phase.WAITING
    owner.run()
    (failed,) = owner.emitted(TopicFailed)
    assert "1:1" in failed.failure.reason


def test_repeated_pages_are_folded_once() -> None:
    """A repeated page, or one of another ledger, is ignored."""
    world, _ = history()
    without_snapshots(world)
    owner = Owner(world, "o2")
    takeover, asked = replaying(owner)
    held = world.entries_of(asked.metadata.ledger_id)
    page = EntriesRead(LedgerId(1), [(EntryId(0), held[0])])
    assert owner.handle(page) == []
    assert owner.handle(page) == []
    assert owner.handle(EntriesRead(LedgerId(77), [(EntryId(1), held[1])])) == []
    assert takeover.log.replayed_entries == 1
    assert takeover._log_fold.last_append_ms == peek_header(held[0]).append_time_ms


def test_replay_needs_only_headers_and_ids() -> None:
    """The fold does not use payloads."""
    world, _ = history()
    without_snapshots(world)
    owner = Owner(world, "o2")
    takeover, asked = replaying(owner)
    assert asked.headers_only
    held = world.entries_of(asked.metadata.ledger_id)
    page: list[tuple[EntryId, Buffer]] = [
        (EntryId(i), held[i] if i < 3 else held[i][: len(held[i]) - len(b"payload")]) for i in range(5)
    ]
    assert owner.handle(EntriesRead(LedgerId(1), page)) == []
    assert takeover.log.replayed_entries == 5


# --- the cursor -------------------------------------------------------------------------------------------------------


def cursor_ledgers(world: World) -> list[LedgerId]:
    record = world.cursor[0]
    assert record is not None
    return [link.ledger_id for link in record.ledgers]


def test_history_has_bases_and_deltas() -> None:
    """The tests below damage several cursor ledgers, so these must exist."""
    world, _ = history()
    assert len(cursor_ledgers(world)) == 3


@pytest.mark.parametrize("damaged", [1, 2, 3])
def test_unreadable_snapshot_falls_back(damaged: int) -> None:
    """A snapshot is worth only time: the base before it and a longer replay give the same state."""
    world, _ = history()
    for ledger_id in cursor_ledgers(world)[-damaged:]:
        for copies in world.nodes.values():
            copies[ledger_id][0] = copies[ledger_id][0][:HEADER_BYTES] + b"\0" * 8
    owner = Owner(world, "o2").take_over(Served)
    world.unreadable.clear()
    served(owner)
    assert state_of(owner) == truth(world)


def test_unreadable_entry_of_a_snapshot_falls_back() -> None:
    """The same when no member can give the entry at all."""
    world, _ = history()
    world.unreadable.add((cursor_ledgers(world)[-1], 0))
    owner = Owner(world, "o2").take_over()
    served(owner)
    assert state_of(owner) == truth(world)


def test_damaged_delta_leaves_the_base() -> None:
    """What was complete before the damage counts; nothing of it is read twice."""
    world, _ = history()
    ledger_id = cursor_ledgers(world)[-1]
    last = max(world.entries_of(ledger_id))
    world.unreadable.add((ledger_id, last))
    owner = Owner(world, "o2").take_over()
    served(owner)
    assert state_of(owner) == truth(world)


def test_cursor_ledger_without_a_record_costs_only_time() -> None:
    """It cannot be recovered; the one before it can be read."""
    world, _ = history()
    del world.ledgers[cursor_ledgers(world)[-1]]
    owner = Owner(world, "o2").take_over()
    served(owner)
    assert not owner.emitted(RecoveryFailed)
    assert state_of(owner) == truth(world)


def test_bases_that_could_not_be_read_bound_no_trim() -> None:
    """After the next damage there would be no readable snapshot, and the log before it would be trimmed."""
    world, _ = history()
    oldest, *newer = cursor_ledgers(world)
    for ledger_id in newer:
        for copies in world.nodes.values():
            copies[ledger_id].pop(0)
    owner = Owner(world, "o2").take_over()
    assert owner.core.serving is not None
    assert list(owner.core.serving.cursor.bases) == [oldest]


def test_new_topic_needs_no_replay() -> None:
    """A new topic has no ledger and no cursor."""
    world = World()
    owner = Owner(world, "o1").take_over()
    (effect,) = owner.emitted(Served)
    assert effect.log_end == BEFORE_ALL
    assert world.ledgers[LedgerId(1)][0].state is LedgerState.OPEN


@pytest.mark.hazard("lost-too-early")
def test_replay_goes_on_where_no_member_had_an_entry() -> None:
    """Members that are away prove nothing: the takeover asks again until one comes back, and folds no entry twice."""
    world, _ = history(SELDOM)
    log = world.record.ledgers[-1].ledger_id
    last = max(world.entries_of(log))
    world.away = {(log, last): 3}
    owner = Owner(world, "o2").take_over()
    served(owner)
    assert world.away == {(log, last): 0}
    assert state_of(owner) == truth(world)


@pytest.mark.hazard("lost-too-early")
def test_takeover_names_the_unavailable_entries_while_it_waits() -> None:
    world, _ = history(SELDOM)
    log = world.record.ledgers[-1].ledger_id
    last = max(world.entries_of(log))
    world.away = {(log, last): 1}
    owner = Owner(world, "o2").take_over(ReadEntries)
    while owner.core.takeover is not None and owner.core.takeover.unavailable is None:
        assert owner.step(), "the takeover has met the entry"
    assert owner.core.takeover is not None
    unavailable = owner.core.takeover.unavailable
    assert unavailable is not None
    assert (unavailable.ledger_id, unavailable.first) == (log, last)
    owner.run()
    served(owner)


@pytest.mark.hazard("lost-too-early")
def test_snapshot_that_no_member_has_now_is_passed_over() -> None:
    """It only saves time: an older snapshot and a longer replay follow, whoever is away."""
    world, _ = history()
    cursor = world.cursor[0]
    assert cursor is not None
    newest = cursor.ledgers[-1].ledger_id
    world.away = {(newest, 0): 1_000}
    owner = Owner(world, "o2").take_over()
    served(owner)
    assert state_of(owner) == truth(world)


@pytest.mark.hazard("lost-too-early")
def test_takeover_without_any_snapshot_names_what_is_away() -> None:
    """The log was trimmed, so the state can only come from the snapshots, whose members are away."""
    world, _ = history()
    world.topic = (world.record.without(world.record.ledgers[0].ledger_id), world.topic[1] + 1)
    cursor = world.cursor[0]
    assert cursor is not None
    world.away = {(link.ledger_id, 0): 1_000 for link in cursor.ledgers}
    owner = Owner(world, "o2").take_over()
    [failed, *_] = owner.emitted(TopicFailed)
    assert failed.failure.code == LedgerUnavailable.code
    assert failed.failure.members == ((A, "is waited for"), (B, "is waited for"))
    world.away = {}
    owner.handle(TopicTimerFired("retry"))
    owner.run()
    served(owner)
