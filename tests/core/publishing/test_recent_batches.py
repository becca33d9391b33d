"""The recent batches of a producer in few bytes: what goes in comes out, in either form."""

import random

import pytest

from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.batch import encode_deltas
from oncelog.core.ids import GENERATION_MAX, SEQUENCE_ID_MAX, EntryId, LedgerId, Position, SequenceId
from oncelog.core.publishing.recent_batches import RecentBatch, RecentBatches


def drawn(rng: random.Random, count: int) -> list[RecentBatch]:
    """Ascending recent batches, dense and with holes, in one ledger and over many, near to each other and far."""
    recent_batches: list[RecentBatch] = []
    last, ledger, entry = -1, 0, -1
    for _ in range(count):
        if rng.random() < 0.2:
            ledger, entry = ledger + rng.choice((1, 2, 1 << 40)), -1
        entry += rng.choice((1, 1, 1, 7, 1 << 33))
        first = last + rng.choice((1, 1, 2, 300, 1 << 20))
        size = rng.choice((1, 1, 5, 200))
        ids = [first]
        for _ in range(size - 1):
            ids.append(ids[-1] + rng.choice((1, 1, 9) if rng.random() < 0.1 else (1,)))
        last = ids[-1]
        place = Position(LedgerId(ledger), EntryId(entry))
        recent_batches.append(
            RecentBatch(
                SequenceId(first),
                SequenceId(last),
                size,
                place,
                rng.choice((0, 0, 3)),
                encode_deltas(ids),
                *rng.choice(((), (1 + len(recent_batches), rng.randrange(1 << 41), rng.getrandbits(32)))),
            )
        )
    return recent_batches


def without_ids(recent_batches: list[RecentBatch]) -> list[RecentBatch]:
    return [recent if recent.dense else recent._replace(deltas=None) for recent in recent_batches]


@pytest.mark.parametrize("seed", range(20))
def test_recent_batches_round_trip_through_every_form(seed: int) -> None:
    """Packed, unpacked, opened again. Only ids of batches with holes are left to their entries."""
    rng = random.Random(seed)
    given = drawn(rng, rng.randint(1, 64))
    recent_batches = RecentBatches(given)
    assert list(recent_batches) == given
    spans = [(recent.first, recent.last) for recent in given]
    assert list(recent_batches.spans()) == list(RecentBatches.unpack(recent_batches.packed()).spans()) == spans
    assert RecentBatches.unpack(recent_batches.packed()) == without_ids(given)
    dropped = rng.randrange(len(given))
    recent_batches.drop_first(dropped)
    assert list(recent_batches) == given[dropped:]
    recent_batches.pack()
    assert (list(recent_batches), len(recent_batches), recent_batches.is_open) == (
        without_ids(given[dropped:]),
        len(given) - dropped,
        False,
    )
    recent_batches.append(given[-1]._replace(first=SequenceId(1 << 62), last=SequenceId(1 << 62), count=1, deltas=b""))
    assert recent_batches.is_open
    assert list(recent_batches)[:-1] == without_ids(given[dropped:])


def test_largest_numbers_fit() -> None:
    recent = RecentBatch(
        SequenceId(0),
        SequenceId(SEQUENCE_ID_MAX),
        2,
        Position(LedgerId(2**63 - 1), EntryId(2**63 - 1)),
        2**32 - 2,
        None,
        GENERATION_MAX,
        -(2**63),
        2**32 - 1,
    )
    assert list(RecentBatches.unpack(RecentBatches([recent]).packed())) == [recent]


def hundreds(count: int) -> list[RecentBatch]:
    """Batches of 100 messages, without checksums."""
    return [
        RecentBatch(SequenceId(n * 100), SequenceId(n * 100 + 99), 100, Position(LedgerId(7), EntryId(9 * n)), 0, b"")
        for n in range(count)
    ]


def test_batches_packed_without_checksums_are_read() -> None:
    """The form that snapshots had before batches had checksums. A reader of that form refuses the newer one."""
    packed = RecentBatches(hundreds(3)).packed()
    assert packed[0] == 3
    assert list(RecentBatches.unpack(packed)) == hundreds(3)
    mixed = [*hundreds(2), hundreds(3)[2]._replace(generation=4, publish_time_ms=7, checksum=9)]
    newer = RecentBatches(mixed).packed()
    assert newer[0] == 128 + 3
    assert list(RecentBatches.unpack(newer)) == mixed
    for damaged in (newer[:-1], bytes((3,)) + newer[1:], bytes((128 + 4,)) + newer[1:], b"\x80"):
        with pytest.raises(CorruptEntry):
            RecentBatches.unpack(damaged)


def test_few_batches_cost_few_bytes() -> None:
    """An idle producer with a few batches, among very many of them."""
    sent_ms = 1_767_225_600_000
    recent_batches = RecentBatches(
        each._replace(generation=1, publish_time_ms=sent_ms + 250 * n, checksum=(1 << 32) - 1 - n)
        for n, each in enumerate(hundreds(64))
    )
    assert len(recent_batches.packed()) < 64 * 16
    open_bytes = recent_batches.bytes
    recent_batches.pack()
    assert recent_batches.bytes < open_bytes / 3
    few = RecentBatches(list(recent_batches)[:3])
    few.pack()
    assert few.bytes < 140


def test_reading_statistics_unpacks_no_batches() -> None:
    """Otherwise reading statistics would fill the memory that the budget counts as packed."""
    recent_batches = RecentBatches(drawn(random.Random(1), 10))
    recent_batches.pack()
    assert (
        len(recent_batches),
        recent_batches[0].first,
        recent_batches.last_of(9),
        len(recent_batches[2:4]),
        len(list(recent_batches)),
    ) == (
        10,
        recent_batches[0].first,
        recent_batches[9].last,
        2,
        10,
    )
    assert not recent_batches.is_open


@pytest.mark.parametrize(
    "packed", [b"", b"\x01", b"\x01\0\0\0\0\0", b"\x01\0\0\0\0\0\x80", b"\0\0", b"\x02" + bytes(6)]
)
def test_bytes_that_are_no_packed_batches_are_corrupt(packed: bytes) -> None:
    with pytest.raises(CorruptEntry):
        RecentBatches.unpack(packed)
