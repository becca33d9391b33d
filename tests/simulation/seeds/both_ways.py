"""The world was made faster: records are read once for each content, and whether all ledgers are whole is decided at
the first one that is not. Both ways must say the same: `python -m tests.simulation --compare-slow N`.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.pool import Pool

from tests.simulation.run import run
from tests.simulation.servers.store.decoding import WAY
from tests.simulation.shapes import KINDS

#: One pool runs so many seeds of each kind, while the other waits.
SEEDS_AT_ONCE = 5


@contextmanager
def _pool(way: str, processes: int) -> Iterator[Pool]:
    """Its processes take the way when they start."""
    before = os.environ.get(WAY)
    os.environ[WAY] = way
    try:
        pool = get_context("spawn").Pool(processes)
    finally:
        del os.environ[WAY]
        if before is not None:
            os.environ[WAY] = before
    with pool:
        yield pool


def compare(first: int, count: int, *, processes: int) -> int:
    """Seeds first .. first + count - 1 of each kind, in both ways. Prints each that differs in its trace, its counts or
    its verdict, and each that fails. Returns how many differ."""
    print(f"{count} seeds of each kind in both ways, from {first} on", flush=True)
    began, differing = time.monotonic(), 0
    with _pool("fast", processes) as fast, _pool("slow", processes) as slow:
        for start in range(first, first + count, SEEDS_AT_ONCE):
            beyond = min(start + SEEDS_AT_ONCE, first + count)
            seeds = [kind + number for number in range(start, beyond) for kind in KINDS]
            differing += _compare(seeds, fast, slow)
            seconds = time.monotonic() - began
            print(f"{(beyond - first) * len(KINDS)} runs in {seconds:.0f} s, {differing} differ", flush=True)
    return differing


def _compare(seeds: Sequence[int], fast: Pool, slow: Pool) -> int:
    """How many differ."""
    pairs = list(zip(fast.map(run, seeds, chunksize=1), slow.map(run, seeds, chunksize=1), strict=True))
    for one, other in pairs:
        if one != other:
            print(f"seed {one.seed} differs: fast {one}; slow {other}", flush=True)
        elif one.problem:
            print(f"seed {one.seed}, in both ways: {one.problem}", flush=True)
    return sum(one != other for one, other in pairs)
