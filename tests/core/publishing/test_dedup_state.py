"""The fold of a log: a hole or an unknown producer stops it, and old batches become a floor."""

import pytest

from oncelog.core.errors import CorruptEntry, LogHole
from oncelog.core.formats.batch import BatchHeader
from oncelog.core.formats.entry import EntryKind
from oncelog.core.ids import BEFORE_ALL, EntryId, Generation, LedgerId, Position, ProducerId, SequenceId, TopicId
from oncelog.core.publishing.dedup_state import DedupState, recent_batch_of
from oncelog.core.publishing.recent_batches import RECENT_BATCHES_MAX, RECENT_DELTAS_BYTES_MAX, RecentBatch
from tests.core.builders import PID, LogOf, at, fold, grant, parts


def log_with(*batches: list[int] | range) -> LogOf:
    log = LogOf()
    log.granted(grant())
    for ids in batches:
        log.stored(ids)
    return log


def test_fold_of_an_empty_log_is_empty() -> None:
    """A topic starts with the empty state."""
    assert (DedupState().position, DedupState().next_index) == (BEFORE_ALL, 0)


def test_fold_records_marks_and_recent_batches() -> None:
    """The persisted mark is the last id, each batch is remembered, and activity is the entry's time."""
    log = log_with(range(3), [5, 9])
    log.stored([12], now_ms=77)
    state = fold(log.entries)
    producer = state.producers[PID]
    assert producer.persisted == 12
    assert producer.last_activity_ms == 77
    assert producer.recent_batches == [
        RecentBatch(SequenceId(0), SequenceId(2), 3, at(1), 0, b"", 1, 1, parts(range(3))[0].checksum),
        RecentBatch(SequenceId(5), SequenceId(9), 2, at(2), 0, b"\3", 1, 1, parts([5, 9])[0].checksum),
        RecentBatch(SequenceId(12), SequenceId(12), 1, at(3), 0, b"", 1, 1, parts([12])[0].checksum),
    ]
    assert (state.position, state.next_index) == (at(3), 6)


def test_skip_first_excludes_the_known_prefix() -> None:
    """A batch stored with skip_first is remembered by its tail only, at the right place in its entry."""
    log = log_with(range(3))
    log.stored([1, 2, 3, 7], skip_first=2)
    recent = fold(log.entries).producers[PID].recent_batches[-1]
    assert recent == RecentBatch(SequenceId(3), SequenceId(7), 2, at(2), 2, b"\3")


def test_large_claimed_count_takes_no_time() -> None:
    """A batch of a few bytes may claim four billion messages in a row: to walk over them, where it begins below the
    mark, stopped the owner and all its topics for minutes."""
    many = 2**32 - 2
    batch = BatchHeader(PID, Generation(1), SequenceId(0), SequenceId(many), many + 1, 0, 0, 1, 0, 0, 0)
    recent = recent_batch_of(batch, b"", position=at(1), above=SequenceId(0), skip=1)
    assert recent == RecentBatch(SequenceId(1), SequenceId(many), many, at(1), 1, b"")


def test_skip_first_is_applied_whatever_the_mark() -> None:
    """Messages that the owner marked as skipped have no place in this entry, whatever the mark."""
    log = log_with(range(3))
    log.stored([5, 6, 7], skip_first=1)
    recent = fold(log.entries).producers[PID].recent_batches[-1]
    assert (recent.first, recent.count, recent.offset) == (6, 2, 1)


@pytest.mark.hazard("dedup-toggled")
def test_first_position_and_highest_mark_win() -> None:
    """An id that was stored twice while dedup was disabled keeps its first position."""
    log = log_with(range(3), range(3), range(1, 5))
    producer = fold(log.entries).producers[PID]
    assert producer.persisted == 4
    assert [(recent.first, recent.last, recent.position, recent.offset) for recent in producer.recent_batches] == [
        (0, 2, at(1), 0),
        (3, 4, at(3), 2),
    ]


def test_batch_without_deduplication_only_counts() -> None:
    """No batch of producer id 0 is remembered."""
    log = LogOf()
    log.stored([5], pid=0)
    state = fold(log.entries)
    assert (len(state.producers), state.next_index, state.dirty) == (0, 1, {})


def test_latest_batches_are_kept_and_older_ones_raise_the_floor() -> None:
    """One batch more than the bound pushes the oldest below the floor."""
    log = log_with(*([3 * i] for i in range(RECENT_BATCHES_MAX + 2)))
    producer = fold(log.entries).producers[PID]
    assert (len(producer.recent_batches), producer.recent_floor) == (RECENT_BATCHES_MAX, 3)
    assert producer.recent_batches[0].first == 6


def test_long_id_deltas_are_not_kept_in_memory() -> None:
    """A batch of a million holes must not stay in memory; read once, its ids are known."""
    ids = list(range(0, 2 * (RECENT_DELTAS_BYTES_MAX + 2), 2))
    log = log_with(ids)
    state = fold(log.entries)
    assert state.producers[PID].recent_batches[0].deltas is None
    header, deltas = parts(ids)
    state.learn_deltas(at(1), header, deltas)
    assert state.producers[PID].recent_batches[0].deltas == deltas


def test_loaded_ids_of_a_batch_respect_its_offset() -> None:
    """The ids read are those of the whole entry, the batch is its tail."""
    log = log_with(range(3))
    log.stored([1, 2, 5, 9], skip_first=2)
    state = fold(log.entries)
    known = state.producers[PID].recent_batches[-1]
    state.producers[PID].recent_batches.replace(1, known._replace(deltas=None))
    state.learn_deltas(at(2), *parts([1, 2, 5, 9]))
    assert state.producers[PID].recent_batches[-1] == known


def test_loaded_ids_of_a_forgotten_batch_are_ignored() -> None:
    """The batch or its producer was forgotten meanwhile."""
    state = fold(log_with([0, 5]).entries)
    before = list(state.producers[PID].recent_batches)
    state.learn_deltas(at(9), *parts([0, 5]))
    state.learn_deltas(at(1), *parts([0, 5], pid=8))
    assert state.producers[PID].recent_batches == before


# --- errors -----------------------------------------------------------------------------------------------------------


def test_missing_messages_are_reported_as_a_hole() -> None:
    """The entry's first message is not the next one."""
    log = log_with(range(3), range(3, 6))
    del log.entries[1]
    with pytest.raises(LogHole):
        fold(log.entries)


def test_repeated_entry_is_refused() -> None:
    """Older entries are refused, too: a control entry has no message number that would show the repeat."""
    log = log_with()
    with pytest.raises(LogHole):
        fold([*log.entries, *log.entries])


def test_batch_of_an_unknown_producer_is_corrupt() -> None:
    """A producer that was never granted, or a generation that was not."""
    for pid, generation in ((2, 1), (1, 2)):
        log = log_with()
        log.stored([0], pid=pid, generation=generation)
        with pytest.raises(CorruptEntry, match="never granted"):
            fold(log.entries)


@pytest.mark.hazard("recreated-topic")
@pytest.mark.parametrize(
    "second",
    [
        grant("q"),
        grant("p", pid=2),
        grant("p", generation=1),
        grant("p", generation=2)._replace(topic_id=TopicId("00" * 16)),
    ],
)
def test_grant_that_contradicts_the_log_is_corrupt(second: object) -> None:
    """One id for two names, one name with two ids, a generation again, another topic's."""
    log = log_with()
    log.granted(second)  # type: ignore[arg-type]
    with pytest.raises(CorruptEntry):
        fold(log.entries)


@pytest.mark.hazard("renewal-fences-itself")
def test_unknown_kind_is_corrupt() -> None:
    """An entry of a later version may have any meaning, so it is not skipped."""
    log = log_with()
    log.add(EntryKind.SNAPSHOT_CHUNK, b"")
    with pytest.raises(CorruptEntry, match="kind"):
        fold(log.entries)


def test_head_is_nothing_to_the_fold() -> None:
    """A ledger with nothing but a head moves no position, so a takeover and the owner before it agree."""
    log = log_with(range(3))
    headed = LogOf(entries_per_ledger=2)
    headed.granted(grant())
    headed.stored(range(3))
    headed.add(EntryKind.HEAD_LOG, b"{}")
    state, without = fold(headed.entries), fold(log.entries)
    assert (state.position, state.next_index, state.dirty) == (without.position, 3, without.dirty)
    headed.stored([3])
    fold(headed.entries[3:], into=state)
    assert (state.position, state.next_index, state.producers[PID].persisted) == (
        Position(LedgerId(2), EntryId(1)),
        4,
        3,
    )


def test_head_behind_a_hole_stops_the_fold() -> None:
    """Its message number is that of the first entry behind it."""
    log = log_with(range(3))
    log.next_index += 1
    log.add(EntryKind.HEAD_LOG, b"{}")
    with pytest.raises(LogHole):
        fold(log.entries)


@pytest.mark.parametrize("kind", [EntryKind.HEAD_SNAPSHOTS, EntryKind.HEAD_ACKS])
def test_head_of_another_chain_is_corrupt(kind: EntryKind) -> None:
    log = log_with()
    log.add(kind, b"{}")
    with pytest.raises(CorruptEntry, match="kind"):
        fold(log.entries)


def test_entry_cut_inside_its_ids_is_corrupt() -> None:
    """Decoding only the remaining ids would give a wrong batch without an error."""
    log = log_with([0, 5, 9])
    header, data = log.entries[1]
    with pytest.raises(CorruptEntry, match="cut"):
        fold([log.entries[0], (header, data[: 96 + 64 + 1])])


def test_next_generation_keeps_the_recent_batches() -> None:
    """The new instance resumes where the old one was."""
    log = log_with(range(3))
    log.granted(grant(generation=2))
    state = fold(log.entries)
    producer = state.producers[PID]
    assert (producer.generation, producer.persisted, len(producer.recent_batches)) == (Generation(2), 2, 1)
    assert state.producers.id_of("p") == 1


def test_name_stays_with_the_role_that_opened_it_first() -> None:
    """A role that takes the name over does not own it. A name without a role gets the first role that opens it."""
    log = LogOf()
    log.granted(grant("p", generation=1))
    log.granted(grant("p", generation=2, role="importer"))
    log.granted(grant("p", generation=3, role="admin"))
    assert fold(log.entries).producers[PID].role == "importer"


def test_instance_of_an_assigned_name_is_found_by_its_id() -> None:
    """It repeats its request without a name. If there is a next generation, that instance is found instead."""
    log = LogOf()
    log.granted(grant("producer-7", pid=7, generation=1, instance_id=b"a" * 16))
    log.granted(grant("chosen", pid=8, generation=1, instance_id=b"b" * 16))
    assert fold(log.entries).unnamed == {b"a" * 16: 7}
    log.granted(grant("producer-7", pid=7, generation=2, instance_id=b"c" * 16))
    state = fold(log.entries)
    assert (state.unnamed, state.producers[ProducerId(7)].instance_id) == ({b"c" * 16: 7}, b"c" * 16)
