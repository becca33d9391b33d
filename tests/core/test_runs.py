"""The recent batches of a producer in few bytes: what goes in comes out, in either form."""

import random

import pytest

from oncelog.core.dedup.recent_batches import Run, Runs
from oncelog.core.errors import CorruptEntry
from oncelog.core.formats.batch import encode_deltas
from oncelog.core.ids import SEQUENCE_ID_MAX, EntryId, LedgerId, Position, SequenceId


def drawn(rng: random.Random, count: int) -> list[Run]:
    """Ascending runs, dense and with holes, in one ledger and over many, near to each other and far."""
    runs: list[Run] = []
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
        runs.append(Run(SequenceId(first), SequenceId(last), size, place, rng.choice((0, 0, 3)), encode_deltas(ids)))
    return runs


def without_ids(runs: list[Run]) -> list[Run]:
    return [run if run.dense else run._replace(deltas=None) for run in runs]


@pytest.mark.parametrize("seed", range(20))
def test_runs_survive_every_form(seed: int) -> None:
    """Packed, unpacked, opened again: all but the ids of runs with holes, which their entries have."""
    rng = random.Random(seed)
    given = drawn(rng, rng.randint(1, 64))
    runs = Runs(given)
    assert list(runs) == given
    assert Runs.unpack(runs.packed()) == without_ids(given)
    dropped = rng.randrange(len(given))
    runs.drop_first(dropped)
    assert list(runs) == given[dropped:]
    runs.pack()
    assert (list(runs), len(runs), runs.is_open) == (without_ids(given[dropped:]), len(given) - dropped, False)
    runs.append(given[-1]._replace(first=SequenceId(1 << 62), last=SequenceId(1 << 62), count=1, deltas=b""))
    assert runs.is_open
    assert list(runs)[:-1] == without_ids(given[dropped:])


def test_largest_numbers_fit() -> None:
    run = Run(
        SequenceId(0),
        SequenceId(SEQUENCE_ID_MAX),
        2,
        Position(LedgerId(2**63 - 1), EntryId(2**63 - 1)),
        2**32 - 1,
        None,
    )
    assert list(Runs.unpack(Runs([run]).packed())) == [run]


def test_few_batches_cost_few_bytes() -> None:
    """An idle producer with a few batches, among very many of them."""
    runs = Runs(
        Run(SequenceId(n * 100), SequenceId(n * 100 + 99), 100, Position(LedgerId(7), EntryId(9 * n)), 0, b"")
        for n in range(64)
    )
    assert len(runs.packed()) < 64 * 10
    open_bytes = runs.bytes
    runs.pack()
    assert runs.bytes < open_bytes / 4
    few = Runs(list(runs)[:3])
    few.pack()
    assert few.bytes < 120


def test_reading_opens_nothing() -> None:
    """Else a look at the statistics would fill the memory that the budget has counted as packed."""
    runs = Runs(drawn(random.Random(1), 10))
    runs.pack()
    assert (len(runs), runs[0].first, runs.last_of(9), len(runs[2:4]), len(list(runs))) == (
        10,
        runs[0].first,
        runs[9].last,
        2,
        10,
    )
    assert not runs.is_open


@pytest.mark.parametrize(
    "packed", [b"", b"\x01", b"\x01\0\0\0\0\0", b"\x01\0\0\0\0\0\x80", b"\0\0", b"\x02" + bytes(6)]
)
def test_bytes_that_are_no_packed_runs_are_corrupt(packed: bytes) -> None:
    with pytest.raises(CorruptEntry):
        Runs.unpack(packed)
