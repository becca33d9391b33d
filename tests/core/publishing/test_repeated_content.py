"""Other content under stored ids: told where the log can compare it, and unknown, never equal, where it cannot."""

from collections.abc import Sequence

import pytest

from oncelog.core.formats.batch import decode_batch, deltas_of
from oncelog.core.formats.compression import Compression
from oncelog.core.formats.outcome import Outcome, ResultKind, ResultRange
from oncelog.core.publishing.dedup_state import DedupState
from oncelog.core.publishing.dedup_table import DedupTable, NothingNew
from oncelog.core.publishing.recent_batches import RECENT_BATCHES_MAX
from oncelog.core.publishing.repeated_content import with_content
from tests.core.builders import MONOTONIC, PID, LogOf, batch, checksum, fold, grant, received
from tests.core.publishing.test_dedup import DedupWorld
from tests.core.topic.test_topic import serving, stored

pytestmark = pytest.mark.hazard("other-content")
LATER_MS = 1_767_225_600_000


def differs(
    table: DedupTable,
    ids: Sequence[int],
    payload: bytes = b"payload",
    *,
    generation: int = 1,
    publish_time_ms: int = LATER_MS,
    compression: Compression = Compression.NONE,
) -> bool | None:
    """What the answer to this batch says about its content; none of its messages is new."""
    data = batch(ids, payload=payload, generation=generation, publish_time_ms=publish_time_ms, compression=compression)
    header = decode_batch(data, checksum)
    verdict = table.check(header, deltas_of(header, data))
    assert isinstance(verdict, NothingNew), verdict
    outcome: Outcome = with_content(verdict.known, table, header, data, checksum)
    found = {each.content_differs for each in outcome}
    assert len(found) == 1, outcome
    return found.pop()


@pytest.mark.parametrize("ids", [[7], range(3), [5, 9, 300]])
def test_repeated_batch_is_compared_with_the_stored_one(ids: list[int] | range) -> None:
    """While it is in flight, and when it is durable. The time of its packing is no content."""
    world = DedupWorld()
    world.write(ids)
    for _ in range(2):
        assert differs(world.table, ids) is False
        assert differs(world.table, ids, b"another") is True
        assert differs(world.table, ids, b"payloae") is True
        world.persist()


def test_newer_instance_repeats_the_same_content() -> None:
    """Nor is the generation of the instance: a restarted program sends the same again."""
    world = DedupWorld().stored([1])
    world.grant(generation=2)
    world.persist()
    assert differs(world.table, [1], generation=2) is False
    assert differs(world.table, [1], b"another", generation=2) is True


def test_content_that_cannot_be_compared_is_unknown() -> None:
    """Another split of the same ids, a batch that was stored in part, one that is forgotten, one that is compressed."""
    world = DedupWorld().stored(range(4), [2, 3, 4, 5])
    for ids in (range(3), [2, 3], [4], range(6), [4, 5]):
        for payload in (b"payload", b"another"):
            assert differs(world.table, ids, payload) is None
    for codec in (Compression.ZLIB, Compression.ZSTD, Compression.LZ4):
        assert differs(world.table, range(4), b"another", compression=codec) is None
    for number in range(6, 6 + RECENT_BATCHES_MAX):
        world.stored([number])
    assert differs(world.table, range(4), b"another") is None


@pytest.mark.parametrize("codec", [Compression.ZLIB, Compression.ZSTD, Compression.LZ4])
def test_compressed_batch_is_not_remembered(codec: Compression) -> None:
    """Another version of its library may compress the same content to other bytes."""
    log = LogOf()
    log.granted(grant())
    body = batch([1], compression=codec)
    header = decode_batch(body, checksum)
    state = DedupState()
    entry = log.stored([1])
    state.fold(*log.entries[0])
    state.fold_messages(entry, header, b"")
    assert differs(DedupTable(state), [1], b"another") is None
    assert differs(DedupTable(state), [1], b"another", compression=codec) is None


@pytest.mark.parametrize("idle", [False, True])
def test_next_owner_compares_as_well(idle: bool) -> None:
    """After a replay, and from the bytes of an idle producer, which are those of a snapshot."""
    world = DedupWorld(MONOTONIC).stored(range(3), [10], range(20, 25))
    state = fold(world.log.entries)
    if idle:
        state.producers.make_idle(before_ms=1 << 60)
        assert not state.producers[PID].recent_batches.is_open
    table = DedupTable(state)
    for ids in (range(3), [10], range(20, 25)):
        assert differs(table, ids) is False
        assert differs(table, ids, b"another") is True


def test_owner_tells_and_counts_other_content() -> None:
    """The session goes on: the message is a duplicate like any other, and what to do is the producer's decision."""
    _, owner = serving()
    session = owner.open().session
    owner.send(session, received(1, [0]), received(2, [0], payload=b"another"), received(3, [1]))
    owner.run()
    result = owner.result(2)
    assert isinstance(result, tuple)
    (told,) = result
    assert isinstance(told, ResultRange)
    assert (told.kind, told.content_differs) == (ResultKind.DUPLICATE, True)
    assert owner.result(3) == stored(2, 1, index=1)
    assert owner.core.serving is not None
    counters = owner.core.serving.sessions.counters
    assert (counters["duplicate"], counters["content_differs"]) == (1, 1)
