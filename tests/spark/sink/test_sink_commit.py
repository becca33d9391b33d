"""The commit of mode batch: whichever process dies or returns, the target holds each batch once and completely."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.errors import Conflict, InvariantViolated, LogHole, OncelogError
from oncelog_spark.sink.batch_commit import CommittedBatch
from oncelog_spark.sink.batch_replay import offsets_token
from oncelog_spark.sink.journal_records import RangeBatch
from tests.spark.sink.sink_world import Driver, Row, World

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
    batch = RangeBatch(run_id, number)
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
    """The driver dies, the query restarts from its checkpoint, and replays the batch, split in the same way or not."""
    for steps in range(STEPS):
        crash_once(number, steps, parts)


def crash_once(number: int, steps: int, parts: int) -> None:
    world = World()
    for before in range(number):
        assert isinstance(driver(world, before, 2).run(), CommittedBatch)
    driver(world, number, 2).killed_after(steps)
    assert isinstance(driver(world, number, parts).run(), CommittedBatch)
    assert isinstance(driver(world, number + 1, parts).run(), CommittedBatch)
    assert holds(world, number + 2)


def test_crash_of_the_replay_leaves_the_batch_once() -> None:
    """Two crashes in a row, each replay split in another way."""
    for crashes in product(range(STEPS), range(STEPS)):
        world = World()
        for steps, parts in zip(crashes, (2, 3), strict=True):
            driver(world, 0, parts).killed_after(steps)
        assert isinstance(driver(world, 0, 1).run(), CommittedBatch)
        assert isinstance(driver(world, 1, 1).run(), CommittedBatch)
        assert holds(world, 2), crashes


def test_zombie_driver_beside_the_live_one_changes_nothing() -> None:
    """Both commit the same batch, split differently, step by step in every order; then the live one continues."""
    for schedule in range(0, 1 << STEPS, 3):
        world = World()
        drivers = (driver(world, 0, 2), driver(world, 0, 3))
        for bit in range(STEPS):
            drivers[schedule >> bit & 1].step()
        for each in drivers:
            each.run()
        assert isinstance(driver(world, 0, 1).run(), CommittedBatch)
        assert isinstance(driver(world, 1, 1).run(), CommittedBatch)
        assert holds(world, 2), f"{schedule:b}"


@settings(max_examples=100)
@given(data=st.data())
def test_drivers_of_every_age_never_break_the_log(data: st.DataObject) -> None:
    """Zombies at any batch, crashes anywhere; the checkpoint moves when a commit succeeds, as Spark's does."""
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
            if isinstance(chosen.outcome, CommittedBatch):
                number = min(max(number, of + 1), len(BATCHES) - 1)
        elif data.draw(st.integers(0, 9)) == 0:
            live.pop(choice)[1].kill()
    for _, zombie in live:
        zombie.kill()
    for last in range(number, len(BATCHES)):
        assert isinstance(driver(world, last, 1).run(), CommittedBatch)
    assert holds(world, len(BATCHES))


def test_first_stored_record_counts() -> None:
    """A replay with other attempts after the record: its own attempts are ignored."""
    world = World()
    dying = driver(world, 0, 2)
    while not world.records:
        dying.step()
    dying.kill()
    driver(world, 0, 3).run()
    assert world.target.messages == [row for part in cut(BATCHES[0], 2) for row in part]
    assert len(world.records) == 1


def test_rows_are_copied_in_the_order_of_partitions() -> None:
    """Whatever the order of the messages: so a sorted DataFrame is sorted in the log."""
    world = World()
    batch = RangeBatch("q", 0)
    attempts = world.stage(batch, [["a"], ["b"], ["c"]])
    Driver(world, batch, attempts[::-1]).run()
    assert world.target.messages == ["a", "b", "c"]


def test_previous_batch_is_completed_first() -> None:
    """Spark begins the next batch only after a commit, but a checkpoint may be ahead of the log."""
    world = World()
    dying = driver(world, 0, 1)
    while len(world.target.messages) < 2:
        dying.step()
    dying.kill()
    assert isinstance(driver(world, 1, 1).run(), CommittedBatch)
    assert holds(world, 2)


def test_lost_checkpoint_is_refused() -> None:
    """A new query id under a used name: rows would be published again."""
    world = World()
    driver(world, 0, 1).run()
    outcome = driver(world, 0, 1, run_id="new").run()
    assert isinstance(outcome, Conflict)
    assert "onNewCheckpoint=continue" in outcome.message
    assert holds(world, 1)


def test_new_checkpoint_continues_when_it_is_allowed() -> None:
    """Behind the published rows. The earlier run, if it still lives, never continues."""
    world = World()
    driver(world, 0, 1).run()
    batch = RangeBatch("new", 0)
    after = Driver(world, batch, world.stage(batch, [["x"]]), continues=True)
    assert isinstance(after.run(), CommittedBatch)
    assert world.target.messages == [*BATCHES[0], "x"]
    for number in (0, 1):
        batch = RangeBatch("q", number)
        outcome = Driver(world, batch, world.stage(batch, [["y"]]), continues=True).run()
        assert isinstance(outcome, Conflict)
    assert world.target.messages == [*BATCHES[0], "x"]


def test_older_batch_is_refused() -> None:
    """A zombie of an older batch, or a checkpoint that was set back."""
    world = World()
    for number in (0, 1):
        driver(world, number, 1).run()
    outcome = driver(world, 0, 2).run()
    assert isinstance(outcome, Conflict)
    assert holds(world, 2)


def test_target_without_its_journal_is_refused() -> None:
    """The journal was deleted, or another program uses the name."""
    world = World()
    driver(world, 0, 1).run()
    world.journal.messages.clear()
    outcome = driver(world, 1, 1).run()
    assert isinstance(outcome, LogHole)


@pytest.mark.parametrize("kept", [0, 2])
def test_journal_without_its_target_is_refused(kept: int) -> None:
    """The target was deleted and created anew, completely or in part: lost rows cannot be copied again."""
    world = World()
    for number in (0, 1):
        driver(world, number, 1).run()
    del world.target.messages[kept:]
    outcome = driver(world, 2, 1).run()
    assert isinstance(outcome, LogHole)


def test_foreign_rows_under_the_name_are_refused() -> None:
    """Another program published under the sink's name: the ids would be taken."""
    world = World()
    driver(world, 0, 1).run()
    world.target.messages.append("foreign")
    outcome = driver(world, 1, 1).run()
    assert isinstance(outcome, LogHole)


def test_batch_without_rows_stores_nothing() -> None:
    """An empty micro-batch, also as the first one of a query."""
    world = World()
    outcome = Driver(world, RangeBatch("q", 0), ()).run()
    assert outcome == CommittedBatch(None)
    assert not world.records


def test_replay_without_rows_is_not_the_stored_batch() -> None:
    """A micro-batch never loses its rows: without them it is another one."""
    world = World()
    driver(world, 0, 2).run()
    outcome = Driver(world, RangeBatch("q", 0), ()).run()
    assert isinstance(outcome, Conflict)
    assert "the replay has 0 rows" in outcome.message


def test_a_begun_commit_is_finished_without_rows() -> None:
    """A repeated job copies the rest of its record, and stages nothing again."""
    world = World()
    dying = driver(world, 0, 2)
    while len(world.target.messages) < 1:
        dying.step()
    dying.kill()
    finishing = Driver(world, RangeBatch("q", 0), ())
    finishing.replay = None
    assert isinstance(finishing.run(), CommittedBatch)
    assert len(world.target.messages) == len(BATCHES[0])


def forked(rows: list[Row], parts: int = 2, **given: Any) -> tuple[World, CommittedBatch | OncelogError, Driver]:
    """Batch 1 of a query was published; then a checkpoint that is one batch old gives batch 1 these rows."""
    world = World()
    driver(world, 0, 1).run()
    first = RangeBatch("q", 1)
    Driver(world, first, world.stage(first, cut(BATCHES[1], 2)), offsets="first").run()
    again = Driver(world, first, world.stage(first, cut(rows, parts)), **given)
    return world, again.run(), again


@pytest.mark.parametrize("rows", [["d", "e", "f"], ["d"], ["d", "x"], ["d", "d"], ["x", "y"]])
def test_other_rows_under_a_stored_batch_id_are_refused(rows: list[Row]) -> None:
    """A checkpoint that was set back, or copied, gives a known batch id to other rows: they would be lost."""
    world, outcome, _ = forked(rows)
    assert isinstance(outcome, Conflict)
    for said in ("2 rows with digest", f"the replay has {len(rows)} rows", "newest one back", "onChangedReplay"):
        assert said in outcome.message
    assert holds(world, 2)


def test_same_rows_in_another_order_and_number_of_partitions_are_the_same_batch() -> None:
    """Spark may plan the replay of a micro-batch differently; the driver may not be able to read the source offsets."""
    for parts in (1, 2, 3):
        world, outcome, _ = forked(["e", "d"], parts)
        assert isinstance(outcome, CommittedBatch)
        assert not outcome.warning
        assert holds(world, 2)


def test_same_source_offsets_prove_the_batch_with_any_rows() -> None:
    """A query with rand() has other rows at each replay; those published first count, with a warning."""
    world, outcome, _ = forked(["x", "y"], offsets="first")
    assert isinstance(outcome, CommittedBatch)
    assert "has other rows than when it was first published" in outcome.warning
    assert holds(world, 2)


def test_other_source_offsets_with_other_rows_are_refused() -> None:
    """Both proofs fail."""
    _, outcome, _ = forked(["x", "y"], offsets="second")
    assert isinstance(outcome, Conflict)
    assert "rows differ in the partitions 0, 1" in outcome.message
    assert "the source offsets differ, too" in outcome.message


def test_stored_rows_count_where_the_user_allows_it() -> None:
    """onChangedReplay=keep, for a query with other rows each time; each time with a warning."""
    world, outcome, _ = forked(["x", "y"], keeps_stored=True)
    assert isinstance(outcome, CommittedBatch)
    assert outcome.warning
    assert holds(world, 2)


def test_source_offsets_are_known_from_a_checkpoint_on_the_driver(tmp_path: Path) -> None:
    """The bytes of Spark's file, which a replay does not write again. Elsewhere they are not known."""
    offsets = tmp_path / "a b" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "7").write_text('v1\n{"batchTimestampMs":1}\n{"a":1}')
    token = offsets_token(str(tmp_path / "a b"), 7)
    assert token
    assert offsets_token(f"file://{tmp_path}/a%20b", 7) == token
    assert offsets_token(str(tmp_path / "a b"), 8) == ""
    assert offsets_token("s3a://bucket/checkpoint", 7) == ""
    assert offsets_token(None, 7) == ""
    (offsets / "7").write_text('v1\n{"batchTimestampMs":2}\n{"a":1}')
    assert offsets_token(str(tmp_path / "a b"), 7) != token


def test_driver_that_is_fenced_once_still_finishes() -> None:
    """A zombie opened the logs and then died: Spark need not fail the query."""
    for steps in range(STEPS):
        world = World()
        live = driver(world, 0, 2)
        for _ in range(steps):
            live.step()
        world.journal.open()
        world.target.open()
        assert isinstance(live.run(), CommittedBatch), steps
        assert holds(world, 1)


def test_drivers_that_fence_each_other_give_up() -> None:
    """Two live drivers: one of them fails instead of retrying for ever."""
    world = World()
    restless = driver(world, 0, 1)
    while restless.step():
        world.journal.open()
        world.target.open()
    assert isinstance(restless.outcome, Conflict)
    assert not world.target.messages


def test_two_attempts_of_one_partition_are_a_bug() -> None:
    """Spark names one for each partition; counting both would double rows."""
    world = World()
    batch = RangeBatch("q", 0)
    twice = world.stage(batch, [["a"]]) + world.stage(batch, [["a"]])
    with pytest.raises(InvariantViolated):
        Driver(world, batch, twice).run()
