"""The dedup cursor: when it writes, what survives a failed cursor ledger, which ledgers stay, what may be trimmed."""

from dataclasses import replace

import pytest

from oncelog.core.chain.managed_ledger import AckQuorumLost, EntriesAnswered, MemberLost, SendAdds
from oncelog.core.chain.next_ledger import DeleteLedgers
from oncelog.core.delivery.events import AnswerAdmin
from oncelog.core.errors import NotOwner, OncelogError, ServiceUnavailable
from oncelog.core.formats.opening import Granted
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_selection import StorageNodesUpdated
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.ledger.metadata import LedgerKey, LedgerState
from oncelog.core.records.records import CursorKey, Kind, RecordRead, TopicKey, kind_of
from oncelog.core.records.status import WriteStatus
from oncelog.core.snapshots.snapshot_writer import CursorState, SnapshotSettings
from oncelog.core.topic.serving import CURSOR_PATIENCE, Serving
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.effects import EndSession, SnapshotTaken
from oncelog.core.topic_events.events import HigherEpochReported, SnapshotRequested
from tests.core.builders import TOPIC, A, B, C, D, received
from tests.core.topic.test_takeover import state_of, truth
from tests.core.topic.topic_world import READ_TOPIC, SETTINGS, WRITE_CURSOR, WRITE_LEDGER, Owner, World

SNAPSHOTS = SnapshotSettings(entries_max=5, interval_ms=10_000, gap_ms=1000, deltas_max=2)


class Cursor:
    """An owner that snapshots every fifth entry, and the ids that it was sent."""

    def __init__(self, settings: SnapshotSettings = SNAPSHOTS) -> None:
        self.world = World()
        self.owner = Owner(self.world, "o1", replace(SETTINGS, snapshot=settings)).take_over()
        self.granted: Granted = self.owner.open()
        self.sent = 0

    @property
    def serving(self) -> Serving:
        assert self.owner.core.serving is not None
        return self.owner.core.serving

    def send(self, count: int = 1, *hold: Kind, after_ms: int = 0) -> "Cursor":
        for _ in range(count):
            self.owner.now_ms += after_ms
            pid, generation = self.granted.instance
            batch = received(self.sent, [self.sent], pid=pid, generation=generation)
            self.owner.send(self.granted.session, batch)
            self.sent += 1
            self.owner.run(*hold)
        return self

    def snapshots(self) -> list[SnapshotTaken]:
        return self.owner.emitted(SnapshotTaken)

    def commits(self) -> bool:
        """Whether a manifest is being written."""
        return self.serving.cursor.state is CursorState.COMMITTING

    def answers(self) -> list[tuple[int, OncelogError | None]]:
        """To the requests for a snapshot, in order."""
        return [(answer.call, answer.error) for answer in self.owner.emitted(AnswerAdmin)]

    def ledgers(self) -> list[LedgerId]:
        record = self.world.cursor[0]
        assert record is not None
        return [link.ledger_id for link in record.ledgers]

    def lose_adds(self) -> bool:
        """Send until an add to the cursor's ledger is queued, and drop that add. Returns whether there was one."""
        if self.serving.cursor.state is CursorState.WRITING:
            writer = self.serving.cursor.ledgers.writer
            assert writer is not None
            last = EntryId(writer.next_entry - 1)
            for member in (A, B):
                self.owner.handle(EntriesAnswered(writer.ledger_id, member, [last], AppendStatus.OK))
        for _ in range(20):
            for effect in self.owner.queue:
                if isinstance(effect, SendAdds) and effect.ledger_id == self.ledgers()[-1]:
                    self.owner.queue.remove(effect)
                    return True
            if not self.owner.step():
                self.owner.now_ms += 300
                pid, generation = self.granted.instance
                batch = received(self.sent, [self.sent], pid=pid, generation=generation)
                self.owner.send(self.granted.session, batch)
                self.sent += 1
        return False

    def fail_ledger(self) -> None:
        """Two members of the cursor's open ledger fail."""
        writer = self.serving.cursor.ledgers.writer
        assert writer is not None
        for member in (A, B):
            self.owner.handle(EntriesAnswered(writer.ledger_id, member, [], AppendStatus.READ_ONLY))


# --- when -------------------------------------------------------------------------------------------------------------


def test_snapshot_is_written_after_a_number_of_entries() -> None:
    """Not earlier, and never within the minimum gap after the last snapshot."""
    cursor = Cursor().send(4, after_ms=300)
    (taken,) = cursor.snapshots()
    assert (taken.is_base, taken.producers, taken.position) == (True, 1, cursor.serving.log.table.state.position)
    cursor.send(9, after_ms=100)
    assert len(cursor.snapshots()) == 1
    cursor.send(1, after_ms=100)
    assert [taken.is_base for taken in cursor.snapshots()] == [True, False]


def test_clock_that_goes_back_delays_no_snapshot() -> None:
    """By an hour: the log would grow for as long, and so would the next takeover."""
    cursor = Cursor().send(5, after_ms=300)
    assert len(cursor.snapshots()) == 1
    cursor.owner.now_ms -= 3_600_000
    cursor.send(5, after_ms=300)
    assert len(cursor.snapshots()) == 2


def test_snapshot_is_written_after_an_interval_with_a_change() -> None:
    """An idle topic writes no snapshot."""
    cursor = Cursor().send(1)
    cursor.owner.tick(9_999).run()
    assert cursor.snapshots() == []
    cursor.owner.tick(1).run()
    assert len(cursor.snapshots()) == 1
    cursor.owner.tick(100_000).run()
    assert len(cursor.snapshots()) == 1


def test_requested_snapshot_is_answered_when_it_is_durable() -> None:
    """Also one that is behind the gap; a state that is in a snapshot already needs none."""
    cursor = Cursor().send(1, after_ms=2_000)
    cursor.owner.handle(SnapshotRequested(1))
    cursor.owner.run(SendAdds)
    assert cursor.snapshots() == []
    assert cursor.answers() == []
    assert cursor.serving.cursor.to_replay.entries == 2
    cursor.owner.run()
    assert (cursor.answers(), len(cursor.snapshots())) == ([(1, None)], 1)
    assert cursor.serving.cursor.to_replay == (0, 0)
    cursor.owner.handle(SnapshotRequested(2))
    cursor.owner.run()
    assert (cursor.answers(), len(cursor.snapshots())) == ([(1, None), (2, None)], 1)
    cursor.send(1).owner.handle(SnapshotRequested(3))
    cursor.owner.run().tick(900).run()
    assert (cursor.answers()[2:], cursor.serving.cursor.to_replay.entries) == ([], 1)
    assert cursor.serving.cursor.to_replay.bytes > 0
    cursor.owner.tick(100).run()
    assert cursor.answers()[2:] == [(3, None)]
    assert cursor.snapshots()[-1].position == cursor.serving.log.table.state.position


def test_snapshot_of_an_older_state_does_not_answer_a_request() -> None:
    """What was stored before the request is in the snapshot that answers it."""
    cursor = Cursor().send(1, after_ms=2_000)
    cursor.owner.handle(SnapshotRequested(1))
    while not cursor.commits():
        assert cursor.owner.step()
    [manifest] = [effect for effect in cursor.owner.queue if isinstance(effect, SendAdds)]
    cursor.owner.queue.remove(manifest)
    pid, generation = cursor.granted.instance
    cursor.owner.send(cursor.granted.session, received(1, [1], pid=pid, generation=generation))
    cursor.owner.run()
    cursor.owner.handle(SnapshotRequested(2))
    cursor.owner.queue.append(manifest)
    cursor.owner.run()
    assert cursor.answers() == [(1, None)]
    assert cursor.serving.cursor.to_replay.entries == 1
    cursor.owner.tick(1_000).run()
    assert cursor.answers() == [(1, None), (2, None)]


def test_requested_snapshot_that_is_not_durable_is_an_error() -> None:
    """After 15 s, with storage nodes that do not answer; or when the topic moves."""
    cursor = Cursor().send(1, after_ms=2_000)
    cursor.owner.handle(SnapshotRequested(1))
    cursor.owner.run(SendAdds).tick(14_999).run(SendAdds)
    assert cursor.answers() == []
    cursor.owner.tick(1).run(SendAdds)
    [(call, late)] = cursor.answers()
    assert (call, type(late)) == (1, ServiceUnavailable)
    cursor.owner.handle(SnapshotRequested(2))
    cursor.world.place(Incarnation("o2"))
    cursor.owner.handle(HigherEpochReported())
    cursor.owner.run(SendAdds)
    assert [(call, type(error)) for call, error in cursor.answers()[1:]] == [(2, NotOwner)]
    cursor.owner.handle(SnapshotRequested(3))
    assert type(cursor.answers()[-1][1]) is NotOwner


def test_failed_snapshots_are_counted() -> None:
    """The one before stays the newest, with its age."""
    cursor = Cursor().send(4, after_ms=300)
    newest = cursor.serving.cursor.newest
    assert newest is not None
    assert cursor.lose_adds()
    cursor.fail_ledger()
    cursor.owner.run()
    assert (cursor.serving.cursor.failures, cursor.serving.cursor.failed_ms) == (1, cursor.owner.now_ms)
    assert cursor.serving.cursor.newest == newest


@pytest.mark.hazard("members-lost-in-turn")
@pytest.mark.parametrize(
    "without_c",
    [
        StorageNodesUpdated((A, B), absent=(C,)),
        StorageNodesUpdated((A, B), retired=(C,)),
        StorageNodesUpdated((A, B), read_only=(C,)),
    ],
    ids=["absent", "retired", "read-only"],
)
def test_cursor_ledger_of_an_idle_topic_rolls_onto_a_live_node(without_c: StorageNodesUpdated) -> None:
    """No snapshot is due, and repair touches no open ledger. Without a live non-member nothing is rolled."""
    cursor = Cursor().send(5, after_ms=300)
    owner, (first,) = cursor.owner, cursor.ledgers()
    owner.tick(SETTINGS.ledger_age_max_ms).run()
    assert cursor.ledgers() == [first]
    owner.handle(without_c)
    if without_c.absent:
        owner.handle(MemberLost(first, C))
    patience_ms = CURSOR_PATIENCE * SETTINGS.rejoin_after_ms
    owner.tick(patience_ms).run()
    owner.tick(patience_ms).run()
    assert cursor.ledgers() == [first], "no live node could take its place"
    cursor.world.nodes[D] = {}
    owner.handle(replace(without_c, live=(A, B, D)))
    owner.tick(patience_ms - 1).run()
    assert cursor.ledgers() == [first]
    owner.tick(1).run()
    second = cursor.ledgers()[-1]
    assert set(cursor.world.ledgers[second][0].members) == {A, B, D}
    assert cursor.world.ledgers[first][0].state is LedgerState.CLOSED
    assert cursor.snapshots()[-1].is_base
    owner.tick(100 * patience_ms).run()
    assert cursor.ledgers()[-1] == second, "it lacks no member"
    assert truth(cursor.world) == state_of(Owner(cursor.world, "o2").take_over())


def test_unused_topic_writes_no_snapshot() -> None:
    """There is no state to write."""
    owner = Owner(World(), "o1").take_over()
    owner.tick(10**9).run()
    assert owner.emitted(SnapshotTaken) == []


def test_replayed_entries_count_towards_the_next_snapshot() -> None:
    """If owners keep dying before their first snapshot, the replay must not grow."""
    cursor = Cursor(replace(SNAPSHOTS, entries_max=100)).send(60)
    second = Owner(cursor.world, "o2", replace(SETTINGS, snapshot=replace(SNAPSHOTS, entries_max=60))).take_over()
    second.tick(1000).run()
    assert len(second.emitted(SnapshotTaken)) == 1


def test_manifest_is_written_after_its_chunks_are_confirmed() -> None:
    """It is appended when every chunk is confirmed: a snapshot exists once its manifest is durable."""
    cursor = Cursor()
    cursor.send(4, after_ms=300)
    ledger = cursor.ledgers()[-1]
    before = max(cursor.world.entries_of(ledger))
    cursor.world.silent = {A, B}
    cursor.send(5, after_ms=300)
    assert max(cursor.world.entries_of(ledger), default=-1) <= before + 1
    assert len(cursor.snapshots()) == 1


# --- failing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confirmed", [0, 1])
def test_failed_cursor_ledger_costs_only_its_snapshot(confirmed: int) -> None:
    """In the chunks or before the manifest: the topic continues to serve, and a base follows with all changes."""
    cursor = Cursor().send(4, after_ms=300)
    first = cursor.ledgers()
    for _ in range(confirmed + 1):
        assert cursor.lose_adds()
    assert cursor.serving.cursor.state is (CursorState.COMMITTING if confirmed else CursorState.WRITING)
    cursor.fail_ledger()
    cursor.owner.run()
    assert len(cursor.owner.emitted(AckQuorumLost)) == 1
    assert cursor.owner.emitted(EndSession) == []
    cursor.send(6, after_ms=300)
    assert [taken.is_base for taken in cursor.snapshots()] == [True, True]
    assert len(cursor.ledgers()) == len(first) + 1
    second = Owner(cursor.world, "o2").take_over()
    assert state_of(second) == truth(cursor.world)


def test_no_snapshot_begins_while_a_failed_cursor_ledger_closes() -> None:
    """Between its failure and its close a snapshot falls due: it waits."""
    cursor = Cursor().send(4, after_ms=300)
    cursor.fail_ledger()
    (close,) = cursor.owner.writes(LedgerKey, cursor.owner.queue)
    cursor.send(20, WRITE_LEDGER, after_ms=300)
    assert len(cursor.snapshots()) == 1
    assert close in cursor.owner.queue
    cursor.owner.run()
    cursor.send(6, after_ms=300)
    assert [taken.is_base for taken in cursor.snapshots()][:2] == [True, True]


def test_lost_cursor_ledger_makes_the_owner_check_its_record() -> None:
    """Another owner fenced it. The record decides, and no snapshot is tried before."""
    cursor = Cursor().send(4, after_ms=300)
    writer = cursor.serving.cursor.ledgers.writer
    assert writer is not None
    cursor.world.place(Incarnation("o2"))
    cursor.owner.handle(EntriesAnswered(writer.ledger_id, A, [], AppendStatus.FENCED))
    read = cursor.owner.queue.pop()
    assert kind_of(read) == READ_TOPIC
    cursor.send(10, after_ms=300)
    cursor.owner.tick(20_000).run()
    assert len(cursor.snapshots()) == 1
    cursor.owner.handle(RecordRead(TopicKey(TOPIC), *cursor.world.topic))
    assert cursor.owner.core.phase is Phase.DEPOSED


@pytest.mark.parametrize("status", [WriteStatus.CONFLICT, WriteStatus.UNKNOWN])
def test_link_that_was_not_answered_ok_repeats_the_takeover(status: WriteStatus) -> None:
    """It is still the owner: it repeats the takeover from recovery on, and reads the cursor's record."""
    cursor = Cursor()
    cursor.send(4, WRITE_CURSOR, after_ms=300)
    (write,) = cursor.owner.writes(CursorKey, cursor.owner.queue)
    cursor.owner.queue.remove(write)
    if status is WriteStatus.UNKNOWN:
        cursor.world.cursor = (write.value, write.version + 1)
    cursor.owner.handle(write.answered(status))
    cursor.owner.run()
    assert cursor.owner.core.phase is Phase.SERVING
    assert len(cursor.world.record.ledgers) == 2
    assert state_of(cursor.owner) == truth(cursor.world)
    cursor.owner.tick(20_000).run()
    assert len(cursor.snapshots()) == 1


def test_late_answer_of_an_earlier_link_is_ignored() -> None:
    """Each write adds one to the record's version."""
    cursor = Cursor()
    cursor.send(4, WRITE_CURSOR, after_ms=300)
    (write,) = cursor.owner.writes(CursorKey, cursor.owner.queue)
    assert cursor.owner.handle(write.answered(WriteStatus.OK, write.version)) == []
    assert cursor.serving.cursor.state is CursorState.OPENING
    cursor.owner.run()
    assert len(cursor.snapshots()) == 1


# --- which ledgers stay -----------------------------------------------------------------------------------------------


@pytest.mark.hazard("missing-record-is-no-deletion")
def test_two_complete_bases_are_kept() -> None:
    """Each ledger begins with a base, and deltas follow. A ledger is dropped when two newer ones are complete."""
    cursor = Cursor(replace(SNAPSHOTS, gap_ms=0)).send(80)
    kinds = [taken.is_base for taken in cursor.snapshots()]
    assert kinds[:6] == [True, False, False, True, False, False]
    assert 2 <= len(cursor.ledgers()) <= 3
    deleted = [i for effect in cursor.owner.emitted(DeleteLedgers) for i in effect.ledger_ids]
    assert deleted
    assert not set(deleted) & set(cursor.ledgers())
    stored = cursor.owner.world.cursor[0]
    assert stored is not None
    assert max(deleted) < stored.deleted_below <= min(cursor.ledgers())
    complete = [link for link in cursor.ledgers() if link in cursor.serving.cursor.bases]
    assert len(complete) >= 2


@pytest.mark.hazard("unreadable-snapshot")
def test_trim_bound_is_the_oldest_kept_base() -> None:
    """There is no bound while there is only one base."""
    cursor = Cursor(replace(SNAPSHOTS, gap_ms=0)).send(14)
    assert cursor.serving.cursor.trim_bound() is None
    cursor.send(60)
    bound = cursor.serving.cursor.trim_bound()
    bases = [taken.position for taken in cursor.snapshots() if taken.is_base]
    assert bound in bases[:-1]
    assert bound == cursor.serving.cursor.bases[cursor.ledgers()[0]].log


@pytest.mark.hazard("unreadable-snapshot")
def test_every_kept_base_is_a_fallback() -> None:
    """If the newer bases are damaged, the log from the trim bound on is enough."""
    cursor = Cursor(replace(SNAPSHOTS, gap_ms=0)).send(80)
    bound = cursor.serving.cursor.trim_bound()
    assert bound is not None
    for ledger_id in cursor.ledgers()[1:]:
        for copies in cursor.world.nodes.values():
            copies.get(ledger_id, {}).pop(0, None)
    for copies in cursor.world.nodes.values():
        for entry_id in range(bound.entry_id + 1):
            copies[bound.ledger_id].pop(entry_id, None)
    second = Owner(cursor.world, "o2").take_over()
    assert second.core.phase is Phase.SERVING
    assert state_of(second) == state_of(cursor.owner)


def test_new_owner_continues_the_list() -> None:
    """Its first snapshot is a base in a new ledger, and the base that it began from is kept."""
    cursor = Cursor(replace(SNAPSHOTS, gap_ms=0)).send(80)
    before = cursor.ledgers()
    second = Owner(cursor.world, "o2").take_over()
    second.open("q")
    second.tick(200_000).run()
    (taken,) = second.emitted(SnapshotTaken)
    assert taken.is_base
    assert taken.number == cursor.snapshots()[-1].number + 1
    assert before[-1] in cursor.ledgers()
    assert C in cursor.world.nodes
