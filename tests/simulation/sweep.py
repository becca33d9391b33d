"""One sweep for all tests of a session: every outcome is kept, so that coverage costs no second run."""

from functools import cache
from itertools import chain
from pathlib import Path

from tests.simulation.run import Outcome, run
from tests.simulation.shapes import ACK_SEEDS, CONSUMER_SEEDS, EFFECT_SEEDS, LEASE_SEEDS, RESTORE_SEEDS

#: In these, most of them with repair, occurs what few runs reach: a frozen repair, a marked directory of the past, an
#: answer of a lower epoch.
RARE = (
    62, 66, 80, 81, 93, 105, 109, 114, 144, 154, 164, 174, 184, 197, 199, 214, 229, 234, 239, 244, 247, 274, 289, 292,
    299, 319, 504, 514, 574, 674,
)  # fmt: skip
#: The runs of the cluster: forty of all kinds, each history of repair, and the rare ones. `make sim` has new seeds.
SEEDS = (*range(40), *range(44, 100, 5), *RARE)
#: of the runs that change subscriptions, too
ACK_RUNS = tuple(ACK_SEEDS + n for n in (*range(15), 25, 37, 44))
#: of the runs with consumers
CONSUMER_RUNS = range(CONSUMER_SEEDS, CONSUMER_SEEDS + 22)
#: of the runs with effects in a store
EFFECT_RUNS = range(EFFECT_SEEDS + 4, EFFECT_SEEDS + 14)
#: of the runs in which ids are leased and producers expire
LEASE_RUNS = tuple(LEASE_SEEDS + n for n in (*range(12), 17, 18))
#: of the runs whose ledgers begin with heads, and in which the records are restored; the last one in a failed write
RESTORE_RUNS = (*range(RESTORE_SEEDS + 2, RESTORE_SEEDS + 26), RESTORE_SEEDS + 35, RESTORE_SEEDS + 47)
CHUNK = 35


@cache
def outcome_of(seed: int) -> Outcome:
    return run(seed)


def is_swept(seed: int) -> bool:
    """Whether `test_seeds.py` runs the seed."""
    return any(seed in runs for runs in (SEEDS, ACK_RUNS, CONSUMER_RUNS, EFFECT_RUNS, LEASE_RUNS, RESTORE_RUNS))


def kept_seeds() -> list[int]:
    """The seeds of seeds.txt: each failed once."""
    lines = (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


@cache
def counts(runs: tuple[range | tuple[int, ...], ...] = (SEEDS, ACK_RUNS)) -> dict[str, int]:
    """{what happened in these runs: how often}"""
    total: dict[str, int] = {}
    for seed in chain(*runs):
        for what, times in outcome_of(seed).counts.items():
            total[what] = total.get(what, 0) + times
    return total
