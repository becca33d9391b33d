"""Batches of idle producers stay remembered, within a budget of memory for the producers of a topic."""

import random

import pytest

from oncelog.core.errors import StaleSequence
from oncelog.core.formats.entry import EntryKind
from oncelog.core.formats.outcome import ResultKind
from oncelog.core.ids import EntryId, ProducerId
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.dedup_table import DedupTable, NothingNew
from oncelog.core.publishing.recent_batches import RECENT_BATCHES_MAX
from oncelog.core.snapshots.dedup_format import SnapshotManifest, SnapshotReader, encode_chunks, encode_manifest
from tests.core.builders import LogOf, checksum, fold, grant, parts, plain


def log_of(turns: list[tuple[int, list[int]]], *, producers: int) -> LogOf:
    """A log in which these producers store these batches, in this order, a millisecond apart."""
    log = LogOf(entries_per_ledger=50)
    for pid in range(1, producers + 1):
        log.granted(grant(f"p{pid}", pid=pid))
    for now_ms, (pid, ids) in enumerate(turns):
        log.stored(ids, pid=pid, now_ms=now_ms)
    return log


def answer(state: DedupState, pid: int, ids: list[int]) -> list[ResultKind] | str:
    """The answer to a resend: the kinds of its parts, or the code of the error."""
    verdict = DedupTable(state).check(*parts(ids, pid=pid))
    if isinstance(verdict, NothingNew):
        return [part.kind for part in verdict.known]
    return type(verdict).__name__


def restored(state: DedupState, *, bytes_max: int) -> DedupState:
    """The state as a base snapshot gives it to the next owner."""
    reader = SnapshotReader(checksum, bytes_max)
    chunks = encode_chunks(1, map(state.producers.record, state.producers))
    crc = 0
    for number, chunk in enumerate(chunks):
        crc = checksum(chunk, crc)
        reader.feed(EntryId(number), EntryKind.SNAPSHOT_CHUNK, chunk)
    manifest = SnapshotManifest(1, -1, state.position, state.next_index, len(state.producers), len(chunks), crc)
    reader.feed(EntryId(len(chunks)), EntryKind.SNAPSHOT_MANIFEST, encode_manifest(manifest))
    assert reader.state is not None
    reader.state.check_invariants()
    return reader.state


@pytest.mark.hazard("id-between-stored-ids")
def test_idle_producer_keeps_all_its_batches() -> None:
    """Before, only the newest batch was left after ten idle minutes: a resend was no longer verified, and an id that
    was never stored was answered as a success."""
    turns = [(1, [10 * n, 10 * n + 5]) for n in range(RECENT_BATCHES_MAX)] + [(2, [n]) for n in range(100)]
    state = fold(log_of(turns, producers=2).entries)
    state.producers.make_idle(before_ms=1 << 60)
    for owner in (state, restored(state, bytes_max=state.producers.bytes_max)):
        assert len(owner.producers[ProducerId(1)].recent_batches) == RECENT_BATCHES_MAX
        assert not owner.producers[ProducerId(1)].recent_batches.is_open
        assert answer(owner, 1, [0]) == "NeedIds", "its entry has the ids"
        verdict = DedupTable(owner).check(*parts([7], pid=1))
        assert isinstance(getattr(verdict, "error", None), StaleSequence), "7 lies between two batches"
    dense = fold(log_of([(1, [n]) for n in range(RECENT_BATCHES_MAX)], producers=1).entries)
    dense.producers.make_idle(before_ms=1 << 60)
    assert answer(dense, 1, [3, 4]) == [ResultKind.DUPLICATE, ResultKind.DUPLICATE]


def test_least_recently_active_producers_lose_their_batches_first() -> None:
    """Marks are never evicted, and neither are batches of the producer that stores now."""
    turns = [*((pid, [n]) for pid in (1, 2) for n in range(20)), (1, [20]), *((3, [n]) for n in range(20))]
    entries = log_of(turns, producers=3).entries
    state = fold(entries, DedupState(1_700))
    assert state.producers.bytes <= state.producers.bytes_max
    counts = [len(state.producers[ProducerId(pid)].recent_batches) for pid in (1, 2, 3)]
    assert counts == [21, 0, 20]
    assert [state.producers[ProducerId(pid)].persisted for pid in (1, 2, 3)] == [20, 19, 19]
    assert answer(state, 2, [5]) == [ResultKind.BELOW_MARK]
    assert answer(state, 3, [5]) == [ResultKind.DUPLICATE]
    assert answer(state, 2, [20]) == "Accept"
    assert (state.producers.evicted, state.producers.remembering) == (20, 2)


def test_only_producer_always_keeps_64_batches() -> None:
    """Its resends are answered exactly, however small the budget is."""
    state = fold(log_of([(1, [n]) for n in range(100)], producers=1).entries, DedupState(1))
    assert len(state.producers[ProducerId(1)].recent_batches) == RECENT_BATCHES_MAX


def test_batches_are_packed_before_any_is_evicted() -> None:
    """Over the budget, the largest batches are packed first."""
    turns = [(pid, [n]) for pid in range(1, 11) for n in range(64)]
    entries = log_of(turns, producers=10).entries
    state = fold(entries, DedupState(12_000))
    assert state.producers.evicted == 0
    assert [len(producer.recent_batches) for producer in state.producers.values()] == [RECENT_BATCHES_MAX] * 10
    assert sum(producer.recent_batches.is_open for producer in state.producers.values()) < 5
    assert fold(entries).producers.bytes > 12_000


def test_snapshot_and_replay_equal_the_fold_with_any_budget() -> None:
    """Above each producer's floor, a state that began from a snapshot equals the state folded from the log."""
    for seed in range(30):
        rng = random.Random(seed)
        mark = dict.fromkeys(range(1, 9), -1)
        turns = []
        for _ in range(300):
            pid = rng.choice(list(mark))
            ids = [mark[pid] + 1 + rng.choice((0, 0, 3))]
            for _ in range(rng.randint(0, 4)):
                ids.append(ids[-1] + rng.choice((1, 1, 1, 4)))
            mark[pid] = ids[-1]
            turns.append((pid, ids))
        entries = log_of(turns, producers=8).entries
        whole = fold(entries)
        cut = rng.randrange(len(entries))
        bytes_max = rng.choice((500, 5_000, 50_000, 1 << 26))
        state = restored(fold(entries[:cut], DedupState(bytes_max)), bytes_max=bytes_max)
        fold(entries[cut:], state)
        for pid, producer in state.producers.items():
            truth = whole.producers[pid]
            assert (producer.persisted, producer.generation) == (truth.persisted, truth.generation)
            assert producer.recent_floor >= truth.recent_floor
            kept = [recent for recent in plain(whole)[pid].recent_batches if recent.first > producer.recent_floor]
            assert list(plain(state)[pid].recent_batches) == kept
        if bytes_max == 1 << 26:
            assert plain(state) == plain(whole)


def test_packing_and_eviction_do_not_mark_a_producer_as_changed() -> None:
    """They change nothing that a delta snapshot contains."""
    state = fold(log_of([(pid, [n]) for pid in (1, 2) for n in range(40)], producers=2).entries, DedupState(700))
    state.dirty.clear()
    state.producers.make_idle(before_ms=1 << 60)
    assert state.producers.evicted > 0
    assert state.dirty == {}


def test_next_owner_evicts_in_the_same_order() -> None:
    """A base snapshot lists producers by activity, also when they were opened in another order."""
    turns = [(pid, [n]) for pid in (3, 1, 4, 2) for n in range(30)]
    state = fold(log_of(turns, producers=4).entries)
    after = restored(state, bytes_max=state.producers.bytes_max)
    assert list(after.producers) == list(state.producers) == [3, 1, 4, 2]
