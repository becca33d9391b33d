"""One sweep for all tests of a session: every outcome is kept, so that coverage costs no second run."""

from functools import cache
from itertools import chain
from pathlib import Path

from tests.simulation.run import Outcome, run
from tests.simulation.shapes import ACK_SEEDS, CONSUMER_SEEDS, EFFECT_SEEDS, LEASE_SEEDS, RESTORE_SEEDS

#: In these occurs what few runs reach: a frozen repair, a marked directory of the past, an answer of a lower epoch.
RARE = (105, 197, 247, 292, 319, 504, 514, 574, 674)
#: The runs of the cluster: a hundred of all kinds, and further ones with repair, where most rare conditions are.
SEEDS = (*range(100), *range(104, 300, 5), *RARE)
#: of the runs that change subscriptions, too
ACK_RUNS = range(ACK_SEEDS, ACK_SEEDS + 50)
#: of the runs with consumers
CONSUMER_RUNS = range(CONSUMER_SEEDS, CONSUMER_SEEDS + 40)
#: of the runs with effects in a store
EFFECT_RUNS = range(EFFECT_SEEDS, EFFECT_SEEDS + 14)
#: of the runs in which ids are leased and producers expire
LEASE_RUNS = range(LEASE_SEEDS, LEASE_SEEDS + 20)
#: of the runs whose ledgers begin with heads, and in which the records are restored; the last one in a failed write
RESTORE_RUNS = (*range(RESTORE_SEEDS + 2, RESTORE_SEEDS + 26), RESTORE_SEEDS + 47)
CHUNK = 35


@cache
def outcome_of(seed: int) -> Outcome:
    return run(seed)


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
