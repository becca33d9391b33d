"""The proof that snapshot + replay == fold, while the topic serves: what it finds, and what it leaves alone."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

import pytest

from oncelog.core.chain.replay import EntriesUnavailable, ReadEntries
from oncelog.core.errors import LogHole, TopicLoading
from oncelog.core.ids import EntryId, Generation, LedgerId, Position, ProducerId, SequenceId
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.producer_state import ProducerState
from oncelog.core.publishing.recent_batches import RecentBatches
from oncelog.core.records.records import WriteRecord
from oncelog.core.snapshots.snapshot_writer import SnapshotSettings
from oncelog.core.topic.fold_differences import TOPIC_FIELDS
from oncelog.core.topic.fold_verification import (
    CompareNext,
    FoldVerification,
    VerificationEffect,
    VerificationState,
)
from oncelog.core.topic_events.events import SnapshotRequested
from tests.core.builders import checksum, received
from tests.core.publishing.expiry.test_expiry import leased, run_out
from tests.core.topic.test_takeover import OFTEN, SELDOM, history
from tests.core.topic.topic_world import Owner, World


class Proof:
    """A verification, whose effects a test performs one by one."""

    def __init__(self, owner: Owner, step_producers: int = 1) -> None:
        self.owner = owner
        self.queue: deque[VerificationEffect] = deque()
        self.core = FoldVerification(owner.core, self.queue.append, checksum, step_producers=step_producers)
        self.core.start()

    def step(self) -> bool:
        if not self.queue:
            return False
        effect = self.queue.popleft()
        if isinstance(effect, CompareNext):
            self.core.compare_next()
            return True
        assert not isinstance(effect, WriteRecord), "it only reads"
        for event in self.owner._perform(effect):
            self.core.handle(event)  # type: ignore[arg-type]
        return True

    def run(self, meanwhile: Callable[[], None] = lambda: None) -> "Proof":
        while self.step():
            meanwhile()
        return self

    @property
    def found(self) -> list[tuple[str, str]]:
        """(producer, field) of the differences."""
        assert self.core.state is VerificationState.DONE, self.core.failure
        return [(each.producer, each.field) for each in self.core.differences]


def fold_of(owner: Owner) -> DedupState:
    assert owner.core.serving is not None
    return owner.core.serving.log.table.state


@pytest.mark.parametrize("settings", [OFTEN, SELDOM])
def test_snapshot_and_replay_are_the_fold(settings: object) -> None:
    """With and without snapshots; nothing is fenced or written, and the topic serves on."""
    world, owner = history(settings)  # type: ignore[arg-type]
    fenced, writes = set(world.fenced), len(owner.effects)
    proof = Proof(owner).run()
    assert proof.found == []
    assert (proof.core.compared, proof.core.producer_count) == (2, 2)
    assert proof.core.position == fold_of(owner).position
    assert (proof.core.snapshot.loaded is not None) == (settings is OFTEN)
    assert proof.core.entries_read > 0
    assert (world.fenced, len(owner.effects)) == (fenced, writes)


def test_owner_that_wrote_no_snapshot_reads_those_of_the_former_one() -> None:
    """Its last ledger of snapshots is closed, and the record says where it ends."""
    world, _ = history()
    owner = Owner(world, "o2", SELDOM).take_over()
    proof = Proof(owner).run()
    assert proof.found == []
    assert proof.core.snapshot.loaded is not None


def test_log_that_moves_meanwhile_is_compared_at_each_position() -> None:
    """Messages, new producers, rolls and expiries between the steps: each producer as of one position."""
    world = World()
    owner = Owner(world, "o1", replace(OFTEN, ledger_entries_max=9)).take_over()
    granted = [owner.open(f"p{number}") for number in range(6)]
    for _ in range(3):
        leased(owner)
    sent = 0

    def publish() -> None:
        nonlocal sent
        if sent < 60:
            pid, generation = granted[sent % 6].instance
            owner.send(granted[sent % 6].session, received(sent, [sent], pid=pid, generation=generation))
            owner.run()
            sent += 1
        if sent == 8:
            run_out(owner, 1 << 40)
        if sent == 12:
            owner.open("late")

    publish()
    before = fold_of(owner).position
    proof = Proof(owner).run(publish)
    assert proof.found == []
    assert proof.core.compared >= 9
    assert proof.core.position is not None
    assert proof.core.position > before
    assert len(fold_of(owner).producers) == 7


def damage(field: str, value: object) -> Callable[[DedupState, ProducerState], None]:
    return lambda _, producer: setattr(producer, field, value)


def forget_a_batch(_: DedupState, producer: ProducerState) -> None:
    producer.recent_batches = RecentBatches(list(producer.recent_batches)[:-1])


def move_a_batch(_: DedupState, producer: ProducerState) -> None:
    *batches, last = producer.recent_batches
    producer.recent_batches = RecentBatches([*batches, last._replace(position=Position(last.position[0], EntryId(99)))])


def lose(state: DedupState, producer: ProducerState) -> None:
    state.producers.remove(producer.producer_id)


@pytest.mark.parametrize(
    ("plant", "field"),
    [
        (damage("persisted", SequenceId(7)), "persisted"),
        (damage("generation", Generation(9)), "generation"),
        (damage("role", "somebody"), "role"),
        (damage("active_at_ms", 5), "active_at_ms"),
        (damage("lifetime_ms", 5), "lifetime_ms"),
        (forget_a_batch, "recent_batches"),
        (move_a_batch, "recent_batches"),
        (lose, "producer"),
    ],
    ids=["mark", "generation", "role", "activity", "lifetime", "forgotten-batch", "moved-batch", "lost-producer"],
)
def test_damage_in_the_owners_fold_is_found(plant: Callable[[DedupState, ProducerState], None], field: str) -> None:
    """With the producer, what the log says, and what the owner has."""
    _, owner = history()
    state = fold_of(owner)
    plant(state, state.producers[ProducerId(1)])
    proof = Proof(owner).run()
    assert proof.found == [("p", field)]
    [difference] = proof.core.differences
    assert difference.producer_id == 1
    assert difference.expected != difference.found


def test_producer_that_the_log_does_not_have_is_found() -> None:
    """And counts and times of the topic."""
    _, owner = history()
    state = fold_of(owner)
    state.producers.used(ProducerState("ghost", ProducerId(77), Generation(1), state.producers[ProducerId(1)].mode))
    state.time_ms += 1
    state.lifetimes = state.lifetimes.changed(1 << 40, 1 << 40, 0)
    proof = Proof(owner).run()
    assert sorted(proof.found) == [("", "lifetimes"), ("", "time_ms"), ("ghost", "producer")]


def test_everything_that_a_fold_determines_is_compared() -> None:
    """A new field is compared, or named here with the reason why it is not."""
    derived = {"producers", "unnamed", "dirty"}  # compared one by one; an index of them; what a snapshot lacks
    of_a_loss = {"holed", "index_known"}  # what was given up is in no entry of a log that serves
    assert set(vars(DedupState())) == {*TOPIC_FIELDS, *derived, *of_a_loss}


def test_damage_in_a_snapshot_is_found() -> None:
    """A snapshot that was written from a wrong fold: the next owner would believe it."""
    _, owner = history(replace(OFTEN, snapshot=SnapshotSettings(entries_max=10_000, gap_ms=0)))
    state = fold_of(owner)
    right = state.producers[ProducerId(1)].role
    state.producers[ProducerId(1)].role = "wrong"
    owner.handle(SnapshotRequested(1))
    owner.run()
    state.producers[ProducerId(1)].role = right
    assert Proof(owner).run().found == [("p", "role")]


def test_entry_that_nobody_gives_is_no_verdict() -> None:
    """It fails, and names the entry."""
    world, owner = history(SELDOM)
    world.unreadable.add((world.record.ledgers[0].ledger_id, 3))
    proof = Proof(owner).run()
    assert proof.core.state is VerificationState.FAILED
    assert proof.core.failure is not None
    assert proof.core.failure.entry_id == 3


def test_entries_of_a_trimmed_ledger_are_not_waited_for() -> None:
    """They never come, and the proofs of other topics would wait for this one. The shell begins another attempt, which
    reads the log as it is now. Entries of a ledger that is still in the log are asked for again."""
    _, owner = history(SELDOM)
    proof = Proof(owner)
    while not isinstance(read := proof.queue[0], ReadEntries):
        proof.step()
    proof.queue.clear()
    ledger_id = read.metadata.ledger_id
    unavailable = EntriesUnavailable(ledger_id, read.first, read.last, "no storage node gives it", ())
    proof.core.handle(unavailable)
    assert list(proof.queue) == [read]
    proof.queue.clear()
    owner.core.ownership.record = replace(owner.core.ownership.record, deleted_below=LedgerId(ledger_id + 1))
    proof.core.handle(unavailable)
    assert proof.core.state is VerificationState.FAILED
    assert proof.core.failure is not None
    assert (proof.core.failure.code, list(proof.queue)) == (LogHole.code, [])


def test_batches_that_memory_has_dropped_are_no_difference() -> None:
    """A replay may remember others, where the budget is small: the law exempts what is below the floors."""
    _, owner = history()
    state = fold_of(owner)
    state.producers[ProducerId(1)].forget_all()
    state.producers.used(state.producers[ProducerId(1)])
    assert Proof(owner).run().found == []


def test_topic_that_does_not_serve_is_not_verified() -> None:
    """Its fold is not complete."""
    owner = Owner(World(), "o1")
    with pytest.raises(TopicLoading):
        Proof(owner)
