"""The index set of a consumer, against a set of integers."""

from random import Random

import pytest

from oncelog.core.sdk.consumer.index_set import IndexSet

END = 40


@pytest.mark.parametrize("seed", range(50))
def test_index_set_equals_a_set_of_integers(seed: int) -> None:
    """Ranges are added and removed in any order, most of them at either end; every answer agrees."""
    random = Random(seed)
    indexes, model = IndexSet(), set[int]()
    for _ in range(60):
        first = random.choice([random.randrange(END), max(model, default=-1) + 1, min(model, default=0)])
        last = first + random.randrange(4)
        wanted = set(range(first, last + 1))
        if random.random() < 0.5:
            indexes.add(first, last)
            model |= wanted
        else:
            indexes.remove(first, last)
            model -= wanted
        indexes.check_invariants()
        assert {i for low, high in indexes for i in range(low, high + 1)} == model
        assert {i for low, high in indexes.overlap(first, last) for i in range(low, high + 1)} == model & wanted
        assert {i for low, high in indexes.gaps(first, last) for i in range(low, high + 1)} == wanted - model
        assert (first in indexes, bool(indexes)) == (first in model, bool(model))
        parts = list(indexes.parts(3))
        assert [i for part in parts for low, high in part for i in range(low, high + 1)] == sorted(model)
        assert all(sum(high - low + 1 for low, high in part) == 3 for part in parts[:-1])
