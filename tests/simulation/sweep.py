"""One sweep for all tests of a session: every outcome is kept, so that coverage costs no second run.

The same seeds each time: those that failed once, those that find planted bugs, and those that reach what few others do.
New ones are beside them, 105 for each half of a day: the part `simulation/new-seeds` of the suite (`new_seeds`).
"""

from functools import cache
from pathlib import Path

from tests.simulation.planted.mutants import MUTANTS
from tests.simulation.run import Outcome, run
from tests.simulation.shapes import KIND_SEEDS

#: In these occurs what few runs reach, most of it in repairs: a node that flaps, a marked directory of the past, an
#: answer of a lower epoch.
RARE = (
    19, 30, 79, 81, 93, 105, 114, 144, 149, 154, 197, 199, 214, 234, 247, 274, 279, 289, 292, 314, 374, 389, 414, 474,
    514, 574,
    1_000_037, 5_000_019, 5_000_035,
    6_000_045, 6_000_057, 6_000_081, 6_000_095, 6_000_115, 6_000_139, 6_000_365, 6_001_031, 6_001_061, 6_001_077,
)  # fmt: skip
CHUNK = 35


@cache
def outcome_of(seed: int) -> Outcome:
    return run(seed)


def kept_seeds() -> list[int]:
    """The seeds of seeds.txt: each failed once."""
    lines = (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


@cache
def swept_seeds() -> tuple[int, ...]:
    """Without their bugs, runs that find planted bugs pass, too."""
    finders = [mutant.first_seed for mutant in MUTANTS if mutant.first_seed is not None]
    return tuple(sorted({*RARE, *kept_seeds(), *finders}))


def swept(*first_seeds: int) -> tuple[int, ...]:
    """The swept seeds of the kinds with these first seeds."""
    return tuple(seed for seed in swept_seeds() if seed // KIND_SEEDS * KIND_SEEDS in first_seeds)


@cache
def counts(*first_seeds: int) -> dict[str, int]:
    """{what happened in the swept runs of these kinds: how often}"""
    total: dict[str, int] = {}
    for seed in swept(*first_seeds):
        for what, times in outcome_of(seed).counts.items():
            total[what] = total.get(what, 0) + times
    return total
