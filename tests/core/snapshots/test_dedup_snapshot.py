"""Snapshots: the law of the fold, and reading back the newest complete chain whatever of it is damaged."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.entry import EntryKind, SequenceMode
from oncelog.core.formats.producers_aged import NameLifetimes, Renewal
from oncelog.core.ids import EntryId, Generation, ProducerId
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.producer_record import encode_record
from oncelog.core.publishing.producer_state import ProducerState
from oncelog.core.snapshots.dedup_format import (
    CHUNK_BYTES,
    SnapshotManifest,
    SnapshotReader,
    decode_chunk,
    decode_manifest,
    encode_chunks,
    encode_manifest,
)
from tests.core.builders import LogOf, at, checksum, fold, grant, plain

CHUNK, MANIFEST = EntryKind.SNAPSHOT_CHUNK, EntryKind.SNAPSHOT_MANIFEST
Written = list[tuple[int, bytes]]


def snapshot(state: DedupState, number: int, *, previous: int = -1, changed: bool = False) -> Written:
    """The entries of one snapshot of `state`; changed: only what is dirty, as a delta holds it."""
    chunks = encode_chunks(number, map(state.producers.record, state.dirty if changed else state.producers))
    crc = 0
    for chunk in chunks:
        crc = checksum(chunk, crc)
    manifest = SnapshotManifest(
        number, previous, state.position, state.next_index, len(state.producers), len(chunks), crc,
        time_ms=state.time_ms, lifetimes=state.lifetimes,
    )  # fmt: skip
    state.dirty.clear()
    return [*((int(CHUNK), chunk) for chunk in chunks), (int(MANIFEST), encode_manifest(manifest))]


def read(entries: Written) -> SnapshotReader:
    reader = SnapshotReader(checksum)
    for entry_id, (kind, body) in enumerate(entries):
        reader.feed(EntryId(entry_id), kind, body)
    return reader


def random_log(steps: list[tuple[int, int, list[int]]]) -> LogOf:
    """Grants and batches of a few producers, some of them stamped; ids anywhere, as with dedup switched off. Some
    producers are leased, renewed, and expire; their names then come back under other ids."""
    log = LogOf()
    generations: dict[int, int] = {}
    lives: dict[int, int] = {}
    for now_ms, (number, kind, ids) in enumerate(steps):
        pid = number + 10 * lives.get(number, 0)
        if kind == 0 or pid not in generations:
            generations[pid] = generations.get(pid, 0) + 1
            mode = SequenceMode(1 + number % 2)
            name = f"producer-{pid}" if number % 3 == 0 else f"name {number}"
            instance_id, role = now_ms.to_bytes(16) if now_ms % 4 else b"", ("", "importer", "admin")[now_ms % 3]
            opened = grant(
                name, pid=pid, generation=generations[pid], mode=mode, instance_id=instance_id, role=role,
                lifetime_ms=now_ms % 3 * 1000,
            )  # fmt: skip
            log.granted(opened, now_ms=now_ms)
        elif kind == 1:
            log.stored(ids, pid=0, now_ms=now_ms)
        elif kind == 5:
            renewal = Renewal(ProducerId(pid), Generation(generations[pid]), now_ms % 2 * 2000)
            log.aged(ids[0], [renewal], [])
        elif kind == 6:
            log.aged(ids[0], [], [pid])
            del generations[pid]
            lives[number] = lives.get(number, 0) + 1
        elif kind == 7:
            log.aged(ids[0], lifetimes=NameLifetimes(ids[0], ids[-1]))
        else:
            log.stored(ids, pid=pid, generation=generations[pid], skip_first=(kind - 2) % len(ids), now_ms=now_ms)
    return log


LOGS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.integers(0, 7),
        st.lists(st.integers(0, 400), min_size=1, max_size=6, unique=True).map(sorted),
    ),
    min_size=1,
    max_size=60,
).map(random_log)


@example(log=random_log([(3, 0, [0]), (3, 2, [0, 2]), (3, 2, [0])]), cuts=[2])  # an id of a run with holes, again
@given(log=LOGS, cuts=st.lists(st.integers(0, 60), max_size=4).map(sorted))
def test_snapshot_and_replay_equal_the_fold(log: LogOf, cuts: list[int]) -> None:
    """snapshot(P) + replay(P..end) == fold(whole log), for a base and any deltas on it."""
    state, written = DedupState(), list[tuple[int, bytes]]()
    done = 0
    for number, cut in enumerate([0, *cuts], start=1):
        fold(log.entries[done:cut], into=state)
        done = max(done, min(cut, len(log.entries)))
        base = number == 1
        written += snapshot(state, number, previous=-1 if base else number - 1, changed=not base)
    reader = read(written)
    assert reader.state is not None
    assert reader.manifest is not None
    assert reader.manifest.number == 1 + len(cuts)
    whole = fold(log.entries)
    replayed = fold(log.entries[done:], into=reader.state)
    assert plain(replayed) == plain(whole)
    assert (replayed.position, replayed.next_index) == (whole.position, whole.next_index)
    assert (replayed.time_ms, replayed.lifetimes) == (whole.time_ms, whole.lifetimes)
    assert replayed.unnamed == whole.unnamed


def some_state(count: int = 3) -> DedupState:
    log = LogOf()
    for pid in range(1, count + 1):
        log.granted(grant(f"name {pid}", pid=pid))
        log.stored([0, 5], pid=pid)
    return fold(log.entries)


def grown(state: DedupState, number: int) -> DedupState:
    """One producer more."""
    log = LogOf()
    log.next_index = state.next_index
    log.entries = [(None, b"")] * (state.position.entry_id + 1)  # type: ignore[list-item]
    header = log.granted(grant(f"new {number}", pid=100 + number))
    state.fold(header, log.entries[-1][1])
    return state


def chain() -> tuple[Written, Written, Written]:
    """A base and two deltas."""
    state = some_state()
    base = snapshot(state, 1)
    first = snapshot(grown(state, 1), 2, previous=1, changed=True)
    second = snapshot(grown(state, 2), 3, previous=2, changed=True)
    return base, first, second


def number_of(reader: SnapshotReader) -> int | None:
    """The newest snapshot read, its state checked to be as its manifest says."""
    if reader.state is None or reader.manifest is None:
        return None
    reader.state.check_invariants()
    assert reader.state.position == reader.manifest.position
    assert len(reader.state.producers) == reader.manifest.producers_count
    return reader.manifest.number


def test_newest_snapshot_of_a_chain_is_read() -> None:
    """Base and deltas, and the base's position as the bound of a trim."""
    base, first, second = chain()
    reader = read(base + first + second)
    assert number_of(reader) == 3
    assert reader.base == decode_manifest(base[-1][1])


@pytest.mark.hazard("unreadable-snapshot")
def test_snapshot_without_a_manifest_is_ignored() -> None:
    """The manifest is the commit record. Chunks of a failed snapshot are not taken for chunks of the next one."""
    base, first, second = chain()
    assert number_of(read(base[:-1])) is None
    assert number_of(read(base + first + second[:-1])) == 2
    assert number_of(read(first[:-1] + base + first + second)) == 3


def test_chain_of_deltas_ends_at_the_first_broken_one() -> None:
    """A delta counts only on the very snapshot it was taken after."""
    base, first, second = chain()
    assert number_of(read(base + second)) == 1
    assert number_of(read(first + second)) is None


def test_delta_of_another_snapshot_is_ignored() -> None:
    """It names the same producers, but does not contain the changes in between."""
    log = LogOf()
    log.granted(grant("p", pid=1))
    log.granted(grant("q", pid=2))
    for pid in (1, 2):
        log.stored([7], pid=pid)
    state = fold(log.entries[:2])
    base = snapshot(state, 1)
    fold(log.entries[2:3], into=state)
    first = snapshot(state, 2, previous=1, changed=True)
    fold(log.entries[3:], into=state)
    second = snapshot(state, 3, previous=2, changed=True)
    assert number_of(read(base + first + second)) == 3
    assert number_of(read(base + second)) == 1


def test_missing_and_foreign_chunks_are_not_counted() -> None:
    """Too few, in another order, or of another number."""
    state = some_state(4000)
    base = snapshot(state, 1)
    assert len(base) > 2
    assert number_of(read(base)) == 1
    assert number_of(read(base[1:])) is None
    assert number_of(read([base[1], base[0], *base[2:]])) is None
    other = snapshot(some_state(4000), 2)
    assert number_of(read([other[0], *base[1:]])) is None


def test_damaged_chunk_is_detected() -> None:
    """Each flipped bit: the snapshot before it stays, untouched."""
    base, first, _ = chain()
    kind, body = first[0]
    for bit in range(8 * len(body)):
        damaged = bytearray(body)
        damaged[bit // 8] ^= 1 << bit % 8
        reader = read(base)
        try:
            reader.feed(EntryId(9), kind, bytes(damaged))
            reader.feed(EntryId(10), *first[1])
        except CorruptEntry:
            pass
        assert number_of(reader) == 1


def test_manifest_with_a_wrong_producer_count_is_ignored() -> None:
    """A base without some producers would be a partial map. The snapshot before it stays unchanged."""
    base, first, _ = chain()
    manifest = decode_manifest(first[-1][1])._replace(producers_count=9)
    reader = read([*base, *first[:-1], (MANIFEST, encode_manifest(manifest))])
    assert number_of(reader) == 1


def test_head_of_the_ledger_is_passed_over() -> None:
    base, _, _ = chain()
    reader = read([(EntryKind.HEAD_SNAPSHOTS, b"{}"), *base])
    assert (number_of(reader), reader.base) == (1, reader.manifest)


@pytest.mark.parametrize(
    "kind",
    [EntryKind.MESSAGES, EntryKind.PRODUCER_OPENED, EntryKind.ACK_STATE, EntryKind.HEAD_LOG, EntryKind.HEAD_ACKS, 10],
)
def test_foreign_entry_is_corrupt(kind: int) -> None:
    """An entry of another kind does not belong in a cursor's ledger."""
    with pytest.raises(CorruptEntry):
        read([(kind, b"")])


@given(data=st.binary(max_size=120))
def test_arbitrary_bytes_are_a_corrupt_snapshot(data: bytes) -> None:
    """They raise CorruptEntry and no other exception."""
    chunk = snapshot(some_state(), 1)[0][1]
    for candidate in (data, chunk[: len(chunk) - len(data)] + data, chunk + data):
        for decode in (decode_chunk, decode_manifest):
            try:
                decode(candidate)
            except CorruptEntry:
                continue


def test_chunks_stay_below_their_size_limit() -> None:
    """A large number of producers is split into more chunks."""
    producers = [
        ProducerState(f"name {i}", ProducerId(i), Generation(1), SequenceMode.MONOTONIC) for i in range(1, 20_001)
    ]
    chunks = encode_chunks(1, map(encode_record, producers))
    assert len(chunks) > 3
    assert max(map(len, chunks)) <= CHUNK_BYTES + 16
    assert [p.name for chunk in chunks for p in decode_chunk(chunk)[2]] == [p.name for p in producers]


def test_empty_snapshot_is_one_chunk() -> None:
    """A topic without producers has a state too."""
    state = DedupState()
    reader = read(snapshot(state, 1))
    assert number_of(reader) == 1


def test_snapshot_has_the_state_at_its_log_position() -> None:
    """The snapshot is of exactly its position."""
    state = some_state()
    reader = read(snapshot(state, 1))
    assert reader.state is not None
    assert reader.state.position == state.position == at(5)
