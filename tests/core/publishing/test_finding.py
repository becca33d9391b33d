"""Where a message is, by its producer's name and sequence id, against a dict that is read from the log."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.batch import decode_ids, deltas_of, peek_batch
from oncelog.core.formats.entry import EntryKind, SequenceMode, body_of
from oncelog.core.ids import Position
from oncelog.core.publishing.finding import Found, FoundState, find, in_entry, not_given, trimmed
from oncelog.core.publishing.recent_batches import RECENT_BATCHES_MAX
from tests.core.builders import CONTIGUOUS, MONOTONIC, PID, at, sequence
from tests.core.publishing.test_dedup import DedupWorld
from tests.core.publishing.test_dedup_model import SOURCES, STEPS, Model

#: (entry, batch index, index in the topic)
Place = tuple[Position, int, int]


def places(world: DedupWorld, *, durable: bool) -> dict[int, list[Place]]:
    """{id: where the log has it}, of the durable entries or of those in flight."""
    found: dict[int, list[Place]] = {}
    entries = world.log.entries[: world.durable] if durable else world.log.entries[world.durable :]
    for header, data in entries:
        if header.kind == EntryKind.MESSAGES:
            body = body_of(data)
            batch = peek_batch(body)
            for number, each in enumerate(decode_ids(batch, deltas_of(batch, body))):
                if number >= header.skip_first:
                    place = header.position, number, header.base_index + number - header.skip_first
                    found.setdefault(each, []).append(place)
    return found


def found_in(world: DedupWorld, number: int) -> Found:
    """The whole answer, as an owner gives it."""
    found = find(world.table, "p", sequence(number))
    if found.state is not FoundState.STORED:
        return found
    data = next(data for header, data in world.log.entries if header.position == found.position)
    return in_entry(found, sequence(number), data)


def check_all(world: DedupWorld) -> set[FoundState]:
    """Each id, stored or not, is found as the log has it. Returns the states that occurred."""
    durable, in_flight = places(world, durable=True), places(world, durable=False)
    states = set[FoundState]()
    for number in range(max([*durable, *in_flight], default=0) + 3):
        found = found_in(world, number)
        states.add(found.state)
        match found.state:
            case FoundState.STORED:
                assert (found.position, found.batch_index, found.index) == durable[number][0]
            case FoundState.IN_FLIGHT:
                assert (found.position, found.batch_index) in [place[:2] for place in in_flight[number]]
            case FoundState.NEVER_STORED:
                assert number not in durable.keys() | in_flight.keys()
                assert number < found.accepted
            case FoundState.NOT_STORED:
                assert number not in durable.keys() | in_flight.keys()
                assert number > found.accepted
            case FoundState.OLDER_THAN_REMEMBERED:
                assert number <= found.floor
            case _:
                raise AssertionError(found)
    return states


@pytest.mark.hazard("id-between-stored-ids")
@pytest.mark.parametrize("mode", [MONOTONIC, CONTIGUOUS])
@given(source=SOURCES, steps=STEPS)
def test_each_id_is_found_where_the_log_has_it(
    mode: SequenceMode, source: list[int], steps: list[tuple[str, int, int]]
) -> None:
    """In flight, durable, after failed writes and at a new owner: exactly, as long as all batches are remembered."""
    model = Model(mode, source if mode is MONOTONIC else list(range(len(source))))
    for step in steps:
        model.do(step)
        assert FoundState.OLDER_THAN_REMEMBERED not in check_all(model.world)


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.integers(1, 4), st.integers(1, 3)), max_size=30))
def test_ids_that_were_stored_without_deduplication_are_never_called_missing(
    steps: list[tuple[bool, int, int, int]],
) -> None:
    """Deduplication is switched off and on between batches: an id below the mark may be stored, and then its place may
    be forgotten, but no stored id is called never stored."""
    world = DedupWorld()
    for enabled, first, count, stride in steps:
        world.table.dedup_enabled = enabled
        ids = [first + stride * number for number in range(count)]
        if enabled:
            world.persist()
            ids = [world.table.accepted_of(PID) + 1 + each for each in ids]
        world.write(ids)
        check_all(world)
    world.persist()
    check_all(world)


@pytest.mark.parametrize("seed", range(2))
def test_ids_below_the_floor_are_older_and_all_others_exact(seed: int) -> None:
    """Of a producer with more batches than are remembered: the floor is the last id of the newest forgotten batch."""
    rng = random.Random(seed)
    world, batches, following = DedupWorld(), list[list[int]](), 0
    for _ in range(RECENT_BATCHES_MAX + 20):
        batches.append(sorted(rng.sample(range(following, following + 9), rng.randint(1, 4))))
        following = batches[-1][-1] + 1
    world.stored(*batches)
    floor = batches[-RECENT_BATCHES_MAX - 1][-1]
    assert check_all(world) == set(FoundState) - {
        FoundState.IN_FLIGHT, FoundState.TRIMMED, FoundState.UNKNOWN, FoundState.NOT_FOUND,
        FoundState.UNKNOWN_PRODUCER,
    }  # fmt: skip
    for number in range(following):
        assert (found_in(world, number).state is FoundState.OLDER_THAN_REMEMBERED) == (number <= floor)


def test_looking_leaves_an_idle_producer_idle() -> None:
    """Each look at an idle one reads a copy: memory does not grow with what operators look at."""
    world = DedupWorld().stored([3, 5], [9])
    producers = world.table.state.producers
    producers.make_idle(before_ms=1 << 60)
    before = producers.bytes
    assert [found_in(world, number).state.value for number in (3, 4, 9, 10)] == [
        "stored", "never_stored", "stored", "not_stored",
    ]  # fmt: skip
    assert producers.peek(PID) is not producers.peek(PID)
    assert producers.bytes == before


def test_unknown_name_and_a_name_whose_first_grant_is_in_flight() -> None:
    """An expired producer is forgotten with its ids, so its name is as unknown as one that never was."""
    world = DedupWorld()
    assert find(world.table, "q", sequence(1)) == Found(FoundState.UNKNOWN_PRODUCER)
    world.grant("q", pid=2)
    assert find(world.table, "q", sequence(1)).state is FoundState.NOT_STORED


def test_entry_that_lacks_the_id_contradicts_the_memory() -> None:
    """Unless the memory has left it to the entry: then the id was never stored."""
    world = DedupWorld().stored([3, 5], [9])
    _, other = world.log.entries[-1]
    found = find(world.table, "p", sequence(5))
    assert (found.position, found.batch_index) == (at(1), 1)
    with pytest.raises(CorruptEntry, match="does not hold sequence id 5"):
        in_entry(found, sequence(5), other)
    world.table.state.producers.make_idle(before_ms=1 << 60)  # without the ids of batches with holes
    found = find(world.table, "p", sequence(4))
    assert (found.state, found.position, found.batch_index) == (FoundState.STORED, at(1), None)
    assert in_entry(found, sequence(4), world.log.entries[1][1]).state is FoundState.NEVER_STORED


def test_trimmed_entry_is_told_apart_from_one_whose_ids_nobody_knows_any_more() -> None:
    """A new owner knows the first and the last id of a batch with holes; of those between only the trimmed entry knew.
    Dedup then refuses ids up to the last one as not verified, so that is the floor."""
    world = DedupWorld().stored([1], [3, 5, 7], [9])
    world.table.state.producers.make_idle(before_ms=1 << 60)

    def gone(number: int) -> tuple[FoundState, Position | None, int | None, int]:
        found = trimmed(find(world.table, "p", sequence(number)))
        return found.state, found.position, found.batch_index, found.floor

    for number, place, batch_index in ((1, at(1), 0), (3, at(2), 0), (7, at(2), 2), (9, at(3), 0)):
        assert gone(number) == (FoundState.TRIMMED, place, batch_index, -1)
    for number in (4, 5, 6):
        assert gone(number) == (FoundState.OLDER_THAN_REMEMBERED, None, None, 7)
    assert find(world.table, "p", sequence(8)).state is FoundState.NEVER_STORED


def test_without_its_entry_it_is_stored_or_not_known() -> None:
    """The ends of the batch are stored, whoever lost the entry. Of those between nothing is claimed."""
    world = DedupWorld().stored([3, 5, 7])
    world.table.state.producers.make_idle(before_ms=1 << 60)
    states = [not_given(find(world.table, "p", sequence(number))).state.value for number in (3, 4, 5, 7)]
    assert states == ["stored", "unknown", "unknown", "stored"]
