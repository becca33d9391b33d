"""The bisection for one sequence id, in logs of one producer and of many."""

import random
from bisect import bisect_right
from math import log2
from operator import itemgetter

import pytest

from oncelog.core.search.id_search import IdSearch

#: (producer, index of the first message, first id, last id) of each batch; indexes ascend
Log = list[tuple[int, int, int, int]]


def log_of(rng: random.Random, batches: int, share: float) -> Log:
    """Of producer 1, whose ids have holes, and of others. share: of producer 1."""
    log: Log = []
    index, following = 10, 0
    for _ in range(batches):
        count = rng.randint(1, 5)
        mine = rng.random() < share
        first = following + rng.randint(0, 3) if mine else rng.randint(0, 9)
        log.append((1 if mine else 2, index, first, first + count - 1))
        following = first + count if mine else following
        index += count
    return log


def end_of(log: Log) -> int:
    _, index, first, last = log[-1]
    return index + last - first + 1


def searched(log: Log, wanted: int, *, look: int) -> tuple[int | None, int]:
    """(index, looks). look: batches of others that are read before a look ends."""
    search = IdSearch(10, end_of(log), wanted)
    while (at := search.next_index) is not None:
        begin = max(0, bisect_right(log, at, key=itemgetter(1)) - 1)  # `at` may be between two batches
        behind = [each for each in log[begin : begin + look + 1] if each[1] + each[3] - each[2] >= at][:look]
        assert behind, "a look is inside of the log"
        read = at
        for producer, index, first, last in behind:
            read = index + last - first + 1
            if producer == 1:
                if search.batch(min(at, index), index, read, first, last):
                    return index + wanted - first, search.looks
                break
        else:
            search.nothing(at, read)
    return None, search.looks


@pytest.mark.parametrize("share", [1.0, 0.5, 0.05])
@pytest.mark.parametrize("look", [1, 4, 1000])
def test_each_stored_id_is_found_and_no_other(share: float, look: int) -> None:
    rng = random.Random(f"{share} {look}")
    for _ in range(3):
        log = log_of(rng, rng.randint(1, 60), share)
        stored = {
            first + offset: index + offset
            for producer, index, first, last in log
            if producer == 1
            for offset in range(last - first + 1)
        }
        for wanted in range(-1, max(stored, default=0) + 3):
            assert searched(log, wanted, look=look)[0] == stored.get(wanted)


def test_looks_are_few_where_the_producer_is_not_rare() -> None:
    log = log_of(random.Random(1), 5_000, 0.3)
    mine = [each for each in log if each[0] == 1]
    for _, index, first, _ in random.Random(2).sample(mine, 20):
        found, looks = searched(log, first, look=64)
        assert found == index
        assert looks <= 2 * log2(len(log))


def test_empty_log_has_nothing() -> None:
    assert IdSearch(5, 5, 1).next_index is None
