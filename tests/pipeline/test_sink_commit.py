"""The commit of mode batch: whatever dies, whoever comes back, the target holds each batch once and whole."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.errors import Conflict, InvariantViolated, LogHole
from oncelog.pipeline.sink_commit import BatchCommit, Begin, Finish, Refuse, RowsCopied
from oncelog.pipeline.sink_records import RunBatch
from tests.pipeline.sink_world import Driver, Row, World

#: What each batch holds, and ways in which a run may cut it into partitions.
BATCHES = [["a", "b", "c"], ["d", "e"], ["f", "g", "h", "i"]]
CUTS = [1, 2, 3]
#: More than any commit here has, undisturbed; a crash after the last one comes too late.
STEPS = 11


def cut(rows: list[Row], parts: int) -> list[list[Row]]:
    """Every parts-th row from each place on: another order, too."""
    return [rows[start::parts] for start in range(parts)]


def driver(world: World, number: int, parts: int, run_id: str = "q") -> Driver:
    """A driver that has run all tasks of a batch, and begins to commit it."""
    batch = RunBatch(run_id, number)
    return Driver(world, batch, world.stage(batch, cut(BATCHES[number], parts)))


def holds(world: World, count: int) -> bool:
    """Whether the target is the first `count` batches, one behind the other, each cut in one of the known ways."""
    at = 0
    for rows in BATCHES[:count]:
        found = world.target.messages[at : at + len(rows)]
        if found not in [[row for part in cut(rows, parts) for row in part] for parts in CUTS]:
            return False
        at += len(rows)
    return at == len(world.target.messages)


@pytest.mark.parametrize("parts", CUTS)
@pytest.mark.parametrize("number", [0, 1])
def test_crash_at_any_step_leaves_the_batch_once(number: int, parts: int) -> None:
    """The driver dies, the query restarts from its checkpoint, and replays the batch, cut alike or otherwise."""
    for steps in range(STEPS):
        crash_once(number, steps, parts)


def crash_once(number: int, steps: int, parts: int) -> None:
    world = World()
    for before in range(number):
        assert isinstance(driver(world, before, 2).run(), Finish)
    dying = driver(world, number, 2)
    for _ in range(steps):
        dying.step()
    assert isinstance(driver(world, number, parts).run(), Finish)
    assert isinstance(driver(world, number + 1, parts).run(), Finish)
    assert holds(world, number + 2)


def test_crash_of_the_replay_too() -> None:
    """Two crashes in a row, each replay cut otherwise."""
    for crashes in product(range(STEPS), range(STEPS)):
        world = World()
        for steps, parts in zip(crashes, (2, 3), strict=True):
            dying = driver(world, 0, parts)
            for _ in range(steps):
                dying.step()
        assert isinstance(driver(world, 0, 1).run(), Finish)
        assert isinstance(driver(world, 1, 1).run(), Finish)
        assert holds(world, 2), crashes


def test_zombie_driver_beside_the_live_one_changes_nothing() -> None:
    """Both commit the same batch, cut otherwise, step by step in every order; then the live one goes on."""
    for schedule in range(0, 1 << STEPS, 3):
        world = World()
        drivers = (driver(world, 0, 2), driver(world, 0, 3))
        for bit in range(STEPS):
            drivers[schedule >> bit & 1].step()
        for each in drivers:
            each.run()
        assert isinstance(driver(world, 0, 1).run(), Finish)
        assert isinstance(driver(world, 1, 1).run(), Finish)
        assert holds(world, 2), f"{schedule:b}"


@settings(max_examples=100)
@given(data=st.data())
def test_drivers_of_every_age_never_break_the_log(data: st.DataObject) -> None:
    """Zombies at any batch, crashes anywhere; the checkpoint moves when a commit ends well, as Spark's does."""
    world, number = World(), 0
    live: list[tuple[int, Driver]] = []
    for _ in range(data.draw(st.integers(5, 60))):
        choice = data.draw(st.integers(0, len(live)))
        if choice == len(live):
            if len(live) < 4:
                live.append((number, driver(world, number, data.draw(st.sampled_from(CUTS)))))
            continue
        of, chosen = live[choice]
        if not chosen.step():
            live.pop(choice)
            if isinstance(chosen.outcome, Finish):
                number = min(max(number, of + 1), len(BATCHES) - 1)
        elif data.draw(st.integers(0, 9)) == 0:
            live.pop(choice)
    for last in range(number, len(BATCHES)):
        assert isinstance(driver(world, last, 1).run(), Finish)
    assert holds(world, len(BATCHES))


def test_first_stored_winners_count() -> None:
    """A replay with other attempts after the record: its own attempts are ignored."""
    world = World()
    dying = driver(world, 0, 2)
    while not world.records:
        dying.step()
    driver(world, 0, 3).run()
    assert world.target.messages == [row for part in cut(BATCHES[0], 2) for row in part]
    assert len(world.records) == 1


def test_rows_are_copied_in_the_order_of_partitions() -> None:
    """Whatever the order of the messages: so a sorted DataFrame is sorted in the log."""
    world = World()
    batch = RunBatch("q", 0)
    attempts = world.stage(batch, [["a"], ["b"], ["c"]])
    Driver(world, batch, attempts[::-1]).run()
    assert world.target.messages == ["a", "b", "c"]


def test_batch_before_is_copied_to_its_end_first() -> None:
    """Spark asks for the next batch only after a commit, but a checkpoint may say more than the log holds."""
    world = World()
    dying = driver(world, 0, 1)
    while len(world.target.messages) < 2:
        dying.step()
    assert isinstance(driver(world, 1, 1).run(), Finish)
    assert holds(world, 2)


def test_lost_checkpoint_is_told() -> None:
    """A new query id under a used name: reading again would publish again."""
    world = World()
    driver(world, 0, 1).run()
    outcome = driver(world, 0, 1, run_id="new").run()
    assert isinstance(outcome, Refuse)
    assert isinstance(outcome.error, Conflict)
    assert "onNewCheckpoint=continue" in outcome.error.message
    assert holds(world, 1)


def test_new_checkpoint_goes_on_where_it_is_meant_to() -> None:
    """Told to continue: behind what is there. The run before, should it live, never goes on."""
    world = World()
    driver(world, 0, 1).run()
    batch = RunBatch("new", 0)
    after = Driver(world, batch, world.stage(batch, [["x"]]), continues=True)
    assert isinstance(after.run(), Finish)
    assert world.target.messages == [*BATCHES[0], "x"]
    for number in (0, 1):
        batch = RunBatch("q", number)
        outcome = Driver(world, batch, world.stage(batch, [["y"]]), continues=True).run()
        assert isinstance(outcome, Refuse)
        assert isinstance(outcome.error, Conflict)
    assert world.target.messages == [*BATCHES[0], "x"]


def test_older_batch_is_refused() -> None:
    """A zombie of an older batch, or a checkpoint that was set back."""
    world = World()
    for number in (0, 1):
        driver(world, number, 1).run()
    outcome = driver(world, 0, 2).run()
    assert isinstance(outcome, Refuse)
    assert isinstance(outcome.error, Conflict)
    assert holds(world, 2)


def test_target_without_its_journal_is_told() -> None:
    """The journal was deleted, or somebody else has the name: neither is guessed."""
    world = World()
    driver(world, 0, 1).run()
    world.journal.messages.clear()
    outcome = driver(world, 1, 1).run()
    assert isinstance(outcome, Refuse)
    assert isinstance(outcome.error, LogHole)


@pytest.mark.parametrize("kept", [0, 2])
def test_journal_without_its_target_is_told(kept: int) -> None:
    """The target was deleted and made anew, wholly or in part: rows that are gone cannot be copied any more."""
    world = World()
    for number in (0, 1):
        driver(world, number, 1).run()
    del world.target.messages[kept:]
    outcome = driver(world, 2, 1).run()
    assert isinstance(outcome, Refuse)
    assert isinstance(outcome.error, LogHole)


def test_foreign_rows_under_the_name_are_told() -> None:
    """Somebody published under the sink's name: ids would be taken."""
    world = World()
    driver(world, 0, 1).run()
    world.target.messages.append("foreign")
    outcome = driver(world, 1, 1).run()
    assert isinstance(outcome, Refuse)
    assert isinstance(outcome.error, LogHole)


def test_batch_without_rows_stores_nothing() -> None:
    """An empty micro-batch, also as the first one of a query."""
    world = World()
    outcome = Driver(world, RunBatch("q", 0), ()).run()
    assert outcome == Finish(None)
    assert not world.records


def test_replay_without_rows_finishes_what_was_begun() -> None:
    """The record counts, not what the replay brings."""
    world = World()
    dying = driver(world, 0, 2)
    while len(world.target.messages) < 1:
        dying.step()
    Driver(world, RunBatch("q", 0), ()).run()
    assert len(world.target.messages) == len(BATCHES[0])


def test_driver_that_is_fenced_once_finishes_all_the_same() -> None:
    """A zombie opened the logs and died for good: Spark need not fail the query for that."""
    for steps in range(STEPS):
        world = World()
        live = driver(world, 0, 2)
        for _ in range(steps):
            live.step()
        world.journal.open()
        world.target.open()
        assert isinstance(live.run(), Finish), steps
        assert holds(world, 1)


def test_drivers_that_fence_each_other_give_up_in_the_end() -> None:
    """Two live drivers: one says so instead of going round for ever."""
    world = World()
    restless = driver(world, 0, 1)
    while restless.step():
        world.journal.open()
        world.target.open()
    assert isinstance(restless.outcome, Refuse)
    assert not world.target.messages


def test_two_attempts_of_one_partition_are_a_bug() -> None:
    """Spark names one for each; counting both would double rows."""
    world = World()
    batch = RunBatch("q", 0)
    twice = world.stage(batch, [["a"]]) + world.stage(batch, [["a"]])
    with pytest.raises(InvariantViolated):
        BatchCommit(batch, twice, continues=False)


def test_answer_out_of_turn_is_a_bug() -> None:
    """A shell that answers what was not asked."""
    core = BatchCommit(RunBatch("q", 0), (), continues=False)
    core.handle(Begin())
    with pytest.raises(InvariantViolated):
        core.handle(RowsCopied())
