"""A snapshot that is encoded in steps, while the log goes on, is the state as of its last step."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.formats.entry import EntryKind
from oncelog.core.ids import EntryId
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.snapshots.dedup_encoder import SnapshotEncoder
from oncelog.core.snapshots.dedup_format import SnapshotManifest, SnapshotReader, encode_manifest
from tests.core.builders import LogOf, checksum, fold, grant, plain
from tests.core.snapshots.test_dedup_snapshot import LOGS, Written


def encode(encoder: SnapshotEncoder, *, previous: int, then: object = None) -> Written:
    """The entries of one snapshot. then: called between two steps."""
    written: Written = []
    while True:
        written += [(int(EntryKind.SNAPSHOT_CHUNK), chunk) for chunk in encoder.step()]
        if encoder.done:
            break
        assert callable(then)
        then()
    state = encoder.state
    manifest = SnapshotManifest(
        encoder.number, previous, state.position, state.next_index, len(state.producers), encoder.chunks_count,
        encoder.crc, time_ms=state.time_ms, lifetimes=state.lifetimes,
    )  # fmt: skip
    return [*written, (int(EntryKind.SNAPSHOT_MANIFEST), encode_manifest(manifest))]


def read(entries: Written, bytes_max: int) -> SnapshotReader:
    reader = SnapshotReader(checksum, bytes_max)
    for entry_id, (kind, body) in enumerate(entries):
        reader.feed(EntryId(entry_id), kind, body)
    return reader


@given(log=LOGS, folds=st.lists(st.integers(0, 4), max_size=30), step=st.integers(1, 3), snapshots=st.integers(1, 3))
def test_snapshot_in_steps_and_replay_equal_the_fold(log: LogOf, folds: list[int], step: int, snapshots: int) -> None:
    """snapshot(P) + replay(P..end) == fold(whole log), where P is the position at the last step, whatever was folded
    between the steps."""
    state, written, done, pauses = DedupState(), list[tuple[int, bytes]](), 0, iter(folds)

    def go_on() -> None:
        nonlocal done
        more = next(pauses, 0)
        fold(log.entries[done : done + more], into=state)
        done = min(done + more, len(log.entries))

    for number in range(1, snapshots + 1):
        go_on()
        go_on()
        encoder = SnapshotEncoder(state, number, checksum, number == 1, step)
        written += encode(encoder, previous=number - 1 if number > 1 else -1, then=go_on)
    reader = read(written, state.producers.bytes_max)
    assert reader.state is not None
    assert reader.manifest is not None
    assert (reader.manifest.number, reader.state.position) == (snapshots, state.position)
    whole = fold(log.entries)
    assert plain(fold(log.entries[done:], into=reader.state)) == plain(whole)
    assert (reader.state.unnamed, reader.state.time_ms) == (whole.unnamed, whole.time_ms)


def _many(count: int) -> DedupState:
    log = LogOf()
    for pid in range(1, count + 1):
        log.granted(grant(f"name {pid}", pid=pid))
        if pid % 2:
            log.stored([0], pid=pid)
    return fold(log.entries)


def test_no_step_encodes_more_than_its_producers() -> None:
    """Also where most producers are passed over in the first round, because they come in their order of activity."""
    state = _many(200)
    encoder = SnapshotEncoder(state, 1, checksum, True, 10)
    encoded, sizes = 0, []
    while not encoder.done:
        sizes.append(sum(int.from_bytes(chunk[12:16], "little") for chunk in encoder.step()))
        encoded += sizes[-1]
    assert encoded == 200
    assert max(sizes) == 10
    assert len(sizes) >= 20


def test_producers_that_change_all_the_time_do_not_keep_a_snapshot_from_its_end() -> None:
    """After some rounds the rest is encoded in one step."""
    state = _many(50)

    def change_all() -> None:
        state.dirty.update(dict.fromkeys(state.producers))

    written = encode(SnapshotEncoder(state, 1, checksum, True, 7), previous=-1, then=change_all)
    reader = read(written, state.producers.bytes_max)
    assert reader.state is not None
    assert plain(reader.state) == plain(state)
