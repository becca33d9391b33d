"""The claims of mode position: no row of a name is lost because another task of the batch came first."""

from dataclasses import dataclass, field
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.errors import Conflict, LogHole, ProducerFenced
from oncelog_spark.sink.journal_records import ClaimRecord, RangeBatch, decode_claim_record, encode_record
from oncelog_spark.sink.position_claims import JournalTail, PositionClaims
from tests.spark.steps import Stepped

NAME = "job/public/default/flights"
#: The ids of each batch, with holes: a filter left some out.
BATCHES = [[0, 1, 4, 5, 9], [12, 13, 17, 18, 19]]
STEPS = 13
#: Rows that are claimed and published at once.
PIECE = 2


@dataclass
class World:
    """A journal and a target whose producer takes whatever is above its mark, and calls the rest duplicates."""

    journal: list[bytes] = field(default_factory=list)
    journal_generation: int = 0
    target: list[int] = field(default_factory=list)
    target_generation: int = 0

    @property
    def mark(self) -> int:
        return self.target[-1] if self.target else -1

    def publish(self, generation: int, sequence_id: int) -> None:
        if generation != self.target_generation:
            raise ProducerFenced("a newer instance opened the name")
        if sequence_id > self.mark:
            self.target.append(sequence_id)


class Task(Stepped[bool]):
    """One attempt of one task, and the `ClaimLog` of its name: it claims, then publishes row by row. A crash may follow
    each step."""

    def __init__(
        self, world: World, batch: RangeBatch, ids: list[int], *, continues: bool = False, claims: bool = True
    ) -> None:
        super().__init__()
        self.world = world
        self.ids = ids
        self._claims = PositionClaims(self, NAME, batch, continues=continues)
        self._is_control = not claims
        self._journal_generation = self._target_generation = 0

    def run_well(self) -> bool:
        """Go on to the end; whether it ended well."""
        return self.run() is True

    @property
    def failure(self) -> object:
        """What ended it, if it did not end well."""
        return self.outcome

    def work(self) -> bool:
        if self._is_control:
            self.open_target()
            self._publish(self.ids)
        else:
            self._claim_and_publish()
        return True

    def _claim_and_publish(self) -> None:
        self._claims.open()
        left = self.ids
        while left:
            count = self._claims.rows_expected or PIECE
            given, left = left[:count], left[count:]
            self._claims.claim(given, {}, {})
            self._publish(given)
        self._claims.end()

    def open_journal(self) -> JournalTail:
        """The claims of the last record's batch; their message ids are their numbers."""
        self.pause()
        self.world.journal_generation += 1
        self._journal_generation = self.world.journal_generation
        records = [decode_claim_record(data) for data in self.world.journal]
        first = int(records[-1].start or len(records) - 1) if records else 0
        return JournalTail(len(records) - 1, tuple(records[first:]), str(first) if records else "")

    def open_target(self) -> int:
        self.pause()
        self.world.target_generation += 1
        self._target_generation = self.world.target_generation
        return self.world.mark

    def append_claim(self, number: int, record: ClaimRecord) -> str:
        self.pause()
        if self._journal_generation != self.world.journal_generation:
            raise ProducerFenced("a newer instance opened the name")
        assert number == len(self.world.journal), "a gap was asked for"
        self.world.journal.append(encode_record(record))
        return str(number)

    def _publish(self, ids: list[int]) -> None:
        for each in ids:
            self.pause()
            self.world.publish(self._target_generation, each)


def task(world: World, number: int, ids: list[int] | None = None, run_id: str = "q") -> Task:
    return Task(world, RangeBatch(run_id, number), BATCHES[number] if ids is None else ids)


def test_attempt_killed_anywhere_is_completed_by_the_next() -> None:
    """Twice in a row, at any step."""
    for crashes in product(range(STEPS), range(STEPS)):
        world = World()
        for steps in crashes:
            task(world, 0).killed_after(steps)
        assert task(world, 0).run_well()
        assert task(world, 1).run_well()
        assert world.target == BATCHES[0] + BATCHES[1]


def test_zombie_attempt_never_interleaves() -> None:
    """Two attempts of a task, step by step in every order: at most one of them succeeds, and a retry completes the
    batch."""
    for schedule in range(0, 1 << STEPS, 3):
        world = World()
        tasks = (task(world, 0), task(world, 0))
        for bit in range(STEPS):
            tasks[schedule >> bit & 1].step()
        for each in tasks:
            each.run()
        assert task(world, 0).run_well()
        assert world.target == BATCHES[0]


@settings(max_examples=100)
@given(data=st.data())
def test_a_batch_that_is_shared_by_tasks_never_succeeds(data: st.DataObject) -> None:
    """A repartition: each row is in one of two tasks. One of them fails however often it is tried, and a replay in one
    task ends well only when every row is there.
    """
    world = World()
    first = sorted(data.draw(st.sets(st.sampled_from(BATCHES[0]), min_size=1, max_size=len(BATCHES[0]) - 1)))
    shares = (first, [each for each in BATCHES[0] if each not in first])
    done = [False, False]
    for _ in range(data.draw(st.integers(2, 6))):
        share = data.draw(st.integers(0, 1))
        done[share] |= task(world, 0, shares[share]).run_well()
    assert done != [True, True]
    if task(world, 0).run_well():
        assert world.target == BATCHES[0]


def test_shared_batch_loses_rows_without_claims() -> None:
    """The control: the upper half is published first, and the lower one is taken for duplicates."""
    world = World()
    batch = RangeBatch("q", 0)
    for share in (BATCHES[0][3:], BATCHES[0][:3]):
        Task(world, batch, share, claims=False).run()
    assert world.target == BATCHES[0][3:]


def test_refusal_names_both_ranges_and_what_to_do() -> None:
    """So a user who repartitions by accident learns the reason."""
    world = World()
    task(world, 0, [4, 5, 9]).run()
    second = task(world, 0, [0, 1])
    assert not second.run_well()
    assert isinstance(second.failure, Conflict)
    for part in (NAME, "from 4 to 5", "from 0 to 1", "repartition", "mode=batch"):
        assert part in second.failure.message
    assert world.target == [4, 5, 9]


def test_lost_checkpoint_is_refused_unless_it_is_allowed() -> None:
    """Positions are the same in every run, so rows that are read again are refused one by one."""
    world = World()
    task(world, 0).run()
    lost = task(world, 0, run_id="new")
    assert not lost.run_well()
    assert isinstance(lost.failure, Conflict)
    assert "onNewCheckpoint=continue" in lost.failure.message
    assert Task(world, RangeBatch("new", 0), BATCHES[0] + BATCHES[1], continues=True).run_well()
    assert world.target == BATCHES[0] + BATCHES[1]
    assert not Task(world, RangeBatch("q", 1), BATCHES[1], continues=True).run_well()


def test_older_batch_is_refused() -> None:
    """A zombie of an older batch."""
    world = World()
    task(world, 0).run()
    task(world, 1).run()
    late = task(world, 0)
    assert not late.run_well()
    assert isinstance(late.failure, Conflict)


def test_target_without_its_journal_is_refused() -> None:
    """The journal was deleted, or another program uses the name."""
    world = World()
    task(world, 0).run()
    world.journal.clear()
    for _ in range(2):
        lost = task(world, 1)
        assert not lost.run_well()
        assert isinstance(lost.failure, LogHole)


def test_replay_of_fewer_rows_is_refused() -> None:
    """The published rows of the batch are not in this task: it is not the same batch."""
    world = World()
    task(world, 0).run()
    less = task(world, 0, BATCHES[0][:2])
    assert not less.run_well()
    assert isinstance(less.failure, Conflict)


def test_task_with_the_claimed_rows_and_more_continues() -> None:
    """The first of two ranges was published, then the source was changed to read each partition in one task."""
    world = World()
    task(world, 0, BATCHES[0][:3]).run()
    assert task(world, 0).run_well()
    assert world.target == BATCHES[0]
