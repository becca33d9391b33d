"""A run of an export, killed after every step, two at once, or cleaned meanwhile: each message is exported once."""

import random
from collections.abc import Callable
from itertools import combinations

import pytest

from oncelog.core.errors import Conflict, InvariantViolated, NotFound, OncelogError
from oncelog.core.ids import TopicId
from oncelog_spark.export.clean import leftovers
from oncelog_spark.export.manifest import DataFile
from oncelog_spark.export.run import RunResult, VerifiedFile, checked, plan_of
from oncelog_spark.source.offsets import TopicState
from tests.spark.jobs.export_world import Clean, Export, World, all_of, manifest_of

#: Of a run over two topics with these messages; a file has three.
ORDERS, FLIGHTS = 5, 2
#: Orders of the steps of two actors that are tried, of some thousands.
TRIED = 300


def new_world() -> World:
    world = World()
    world.publish("orders", ORDERS)
    world.publish("flights", FLIGHTS)
    return world


def steps_of(make: Callable[[World], Export | Clean]) -> int:
    """How many steps it takes where nothing happens."""
    one, count = make(new_world()), 0
    while one.step():
        count += 1
    return count


def orders_of(*counts: int) -> list[list[int]]:
    """Orders of so many steps of each of two actors: lists of 0 and 1."""
    total = sum(counts)
    every = [[0 if at in chosen else 1 for at in range(total)] for chosen in combinations(range(total), counts[0])]
    return random.Random(counts[0]).sample(every, TRIED)


def directories(world: World) -> int:
    """Of runs, whether they count or not."""
    return len([name for name in world.store.names("") if name.startswith("run=")])


def test_runs_continue_where_the_last_one_ended() -> None:
    """Each writes what is new, and nothing where nothing is new."""
    world = new_world()
    first = manifest_of(Export(world).run())
    assert first is not None
    assert {(r.topic, r.first, r.end) for r in first.ranges} == {("orders", 0, ORDERS), ("flights", 0, FLIGHTS)}
    assert manifest_of(Export(world).run()) is None
    world.publish("orders", 2)
    world.publish("late", 1)
    second = manifest_of(Export(world).run())
    assert second is not None
    assert {(r.topic, r.first, r.end) for r in second.ranges} == {("orders", ORDERS, ORDERS + 2), ("late", 0, 1)}
    assert world.read() == all_of(orders=ORDERS + 2, flights=FLIGHTS, late=1)


def test_other_topics_of_the_same_directory_keep_their_position() -> None:
    """A run of some topics does not change the others."""
    world = new_world()
    Export(world, topics="orders").run()
    Export(world, topics="flights").run()
    world.publish("orders", 1)
    Export(world, topics="orders").run()
    assert world.read() == all_of(orders=ORDERS + 1, flights=FLIGHTS)


def test_a_run_killed_anywhere_counts_completely_or_not_at_all() -> None:
    """After each of its steps: readers find nothing or everything, and the next run completes it."""
    for steps in range(steps_of(Export) + 1):
        world = new_world()
        Export(world).killed_after(steps)
        assert world.read() in ([], all_of(orders=ORDERS, flights=FLIGHTS))
        world.publish("orders", 1)
        manifest_of(Export(world).run())
        assert world.read() == all_of(orders=ORDERS + 1, flights=FLIGHTS)


def test_files_of_a_dead_run_are_reported_and_can_be_removed() -> None:
    """And no other files."""
    for steps in range(steps_of(Export) + 1):
        world = new_world()
        Export(world).run()
        world.publish("orders", 5)
        Export(world).killed_after(steps)
        before = world.read()
        left = leftovers(world.exported)
        assert Clean(world).run() == left
        assert world.read() == before
        counting = {manifest.run for manifest in world.exported.manifests()}
        assert set(world.exported.runs()) <= counting


def test_a_directory_that_only_looks_like_a_runs_is_never_removed() -> None:
    """Spark's own partitions may have such names, and data of other programs must not be deleted."""
    world = new_world()
    foreign = {"run=2024/part-0.parquet": b"x", "run=000007-abc/part-0.parquet": b"y", "run=": b"z"}
    world.store.files.update(foreign)
    Export(world).run()
    dead = Export(world)
    world.publish("orders", 5)
    dead.killed_after(steps_of(Export) - 2)
    removed = Clean(world).run()
    assert isinstance(removed, tuple)
    assert [each.run for each in removed] == [dead.run_name]
    assert {path: world.store.files[path] for path in foreign} == foreign
    assert world.exported.foreign() == ["run=", "run=000007-abc", "run=2024"]
    assert world.store.sizes(dead.run_name) == {}


def test_of_two_runs_at_once_one_counts_and_the_other_fails() -> None:
    """In every order of their steps: nothing is doubled or missed, and the failed run leaves nothing."""
    lost = 0
    count = steps_of(Export)
    for order in orders_of(count, count):
        world = new_world()
        both = [Export(world), Export(world)]
        for which in order:
            both[which].step()
        outcomes = [each.run() for each in both]
        assert world.read() == all_of(orders=ORDERS, flights=FLIGHTS)
        refused = [each for each in outcomes if isinstance(each, OncelogError)]
        assert len(refused) <= 1
        assert all(isinstance(each, Conflict) and "run it again" in each.message for each in refused)
        assert directories(world) == 1
        assert world.exported.runs() == []
        lost += len(refused)
    assert lost, "no order made them meet"


def test_a_clean_never_breaks_a_run_that_is_alive() -> None:
    """In every order of their steps: the run counts and its files exist, or it fails with the reason."""
    seen = set()
    for order in orders_of(steps_of(Export), 6):
        world = new_world()
        export, clean = Export(world), Clean(world)
        for which in order:
            (export, clean)[which].step()
        outcome = export.run()
        cleaned = clean.run()
        assert isinstance(cleaned, tuple)
        counts = isinstance(outcome, RunResult)
        assert world.read() == (all_of(orders=ORDERS, flights=FLIGHTS) if counts else [])
        seen.add((counts, bool(cleaned)))
        Export(world).run()
        assert world.read() == all_of(orders=ORDERS, flights=FLIGHTS)
    assert seen == {(True, False), (False, True)}


def test_a_clean_that_is_always_overtaken_gives_up() -> None:
    """Instead of trying for ever; nothing is removed."""
    world = new_world()
    Export(world).killed_after(steps_of(Export) - 1)
    before = dict(world.store.files)
    assert isinstance(Clean(world, overtaken=True).run(), Conflict)
    assert world.store.files == before


# --- what is refused --------------------------------------------------------------------------------------------------


def refused(outcome: RunResult | OncelogError) -> str:
    assert isinstance(outcome, OncelogError), outcome
    return str(outcome)


def test_a_recreated_topic_is_refused_before_and_during_a_run() -> None:
    """Its numbers begin again: some messages would be missed behind the old numbers, others doubled."""
    world = new_world()
    Export(world).run()
    before = world.read()
    world.topics["orders"] = TopicState("orders", TopicId("other"), 0, 100)
    assert "orders was deleted and created anew" in refused(Export(world).run())
    world.topics["orders"] = TopicState("orders", TopicId("id"), 0, ORDERS + 5)
    export = Export(world)
    while export.asked < 2:
        export.step()
    world.topics["orders"] = TopicState("orders", TopicId("other"), 0, 100)
    assert "orders was deleted while it was exported" in refused(export.run())
    assert world.read() == before
    assert directories(world) == 1, "its files were not removed"


def test_lost_messages_are_refused_unless_that_is_allowed() -> None:
    """Then the manifest lists them, once. A topic that was never exported begins with the messages that are kept."""
    world = new_world()
    world.publish("flights", 2)
    world.trim("flights", 2)
    Export(world).run()
    world.publish("orders", 5)
    world.trim("orders", ORDERS + 2)
    assert f"messages {ORDERS} to {ORDERS + 1} of orders were trimmed" in refused(Export(world).run())
    manifest = manifest_of(Export(world, loss_allowed=True).run())
    assert manifest is not None
    assert [(r.first, r.kept, r.end) for r in manifest.ranges] == [(ORDERS, ORDERS + 2, ORDERS + 5)]
    numbers = [number for topic, _, number in world.read() if topic == "orders"]
    assert numbers == [*range(ORDERS), *range(ORDERS + 2, ORDERS + 5)]
    assert [number for topic, _, number in world.read() if topic == "flights"] == [2, 3]
    assert manifest_of(Export(world).run()) is None


@pytest.mark.hazard("position-of-a-lost-part")
def test_log_that_ends_before_what_was_exported_is_refused() -> None:
    """Its new messages get numbers that files have already. So it is no loss that can be allowed."""
    world = new_world()
    Export(world).run()
    before = world.read()
    world.topics["orders"] = TopicState("orders", TopicId("id"), 0, ORDERS - 2)
    for allowed in (False, True):
        reason = refused(Export(world, loss_allowed=allowed).run())
        assert f"messages {ORDERS - 2} to {ORDERS - 1} are lost" in reason
    assert world.read() == before


def test_messages_lost_while_they_are_read_are_refused_too() -> None:
    """They existed while the run was planned, but not when it read them."""
    for allowed in (False, True):
        world = new_world()
        export = Export(world, loss_allowed=allowed, topics="orders")
        while not export.run_name:
            export.step()
        world.trim("orders", 3)
        outcome = export.run()
        if not allowed:
            assert "messages 0 to 2 of orders were trimmed" in refused(outcome)
            assert world.read() == []
        else:
            manifest = manifest_of(outcome)
            assert manifest is not None
            assert [(r.first, r.kept, r.end) for r in manifest.ranges] == [(0, 3, ORDERS)]
            assert [number for _, _, number in world.read()] == [3, 4]


def test_topic_without_any_message_left_is_passed_over_when_that_is_allowed() -> None:
    """No files, but a manifest: the loss is reported once, and the next run continues behind it."""
    world = new_world()
    Export(world).run()
    world.publish("orders", 5)
    world.trim("orders", ORDERS + 5)
    manifest = manifest_of(Export(world, loss_allowed=True).run())
    assert manifest is not None
    assert (manifest.files, manifest.reached["orders"].next) == ((), ORDERS + 5)


def test_a_deleted_topic_is_reported_once() -> None:
    """Messages published behind the last export are lost; once that is allowed, it is no error again."""
    world = new_world()
    Export(world).run()
    del world.topics["flights"]
    assert f"flights was deleted. It is exported up to message {FLIGHTS};" in refused(Export(world).run())
    assert manifest_of(Export(world, topics="orders").run()) is None, "this run is not about it"
    outcome = Export(world, loss_allowed=True).run()
    assert isinstance(outcome, RunResult)
    assert outcome.gone == ("flights",)
    assert manifest_of(Export(world).run()) is None
    world.topics["flights"] = TopicState("flights", TopicId("other"), 0, 1)
    assert "flights was deleted and created anew" in refused(Export(world).run())


def piece(first: int, last: int, *, topic: str = "orders", left_out: int | None = None) -> VerifiedFile:
    numbers = [number for number in range(first, last + 1) if number != left_out]
    return VerifiedFile(DataFile(f"{first}", topic, 1, len(numbers), first, last, ""), sum(numbers))


@pytest.mark.parametrize(
    "files",
    [
        [piece(0, 3)],
        [piece(0, 1), piece(3, 4)],
        [piece(0, 4, left_out=3)],
        [piece(0, 4), piece(2, 2)],
        [piece(0, 4, left_out=3), piece(2, 2)],
        [],
    ],
    ids=["end missing", "gap", "hole in a file", "doubled", "one doubled, one missing", "nothing"],
)
def test_files_that_do_not_hold_every_number_once_never_count(files: list[VerifiedFile]) -> None:
    """Whatever the store or a task's retry did: the run ends with an error, and removes its files."""
    world = World()
    world.publish("orders", ORDERS)
    export = Export(world, read_back=files)
    assert isinstance(export.run(), NotFound)
    assert world.exported.manifests() == []
    assert export.run_name
    assert not world.store.sizes(export.run_name)


def test_files_with_other_messages_than_planned_are_a_bug() -> None:
    """Numbers below the range, or another topic: never repaired silently."""
    plan = plan_of({}, {"orders": TopicState("orders", TopicId("id"), 2, ORDERS)}, loss_allowed=False)
    states = {"orders": TopicState("orders", TopicId("id"), 2, ORDERS)}
    for files in ([piece(0, 4)], [piece(2, 4), piece(0, 1, topic="flights")]):
        with pytest.raises(InvariantViolated):
            checked(plan, files, states, loss_allowed=True)
