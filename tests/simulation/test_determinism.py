"""A run depends only on its seed: neither on the order of sets nor on the process."""

import os
import subprocess
import sys

import pytest

from tests.simulation.sweep import outcome_of

SEEDS = 6


def traces(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.simulation", "--traces", str(SEEDS)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_hash_seed_does_not_change_a_run(hash_seed: str) -> None:
    """String hashes differ between processes by default, so an iteration over a set would change the run."""
    lines = traces(hash_seed).splitlines()
    assert [line.split()[:3] for line in lines] == [
        [str(o.seed), f"{o.trace:08x}", str(o.steps)] for o in (outcome_of(seed) for seed in range(SEEDS))
    ]


def test_different_seeds_give_different_runs() -> None:
    """Control: a trace that never changes would pass the test above, too."""
    assert len({outcome_of(seed).trace for seed in range(SEEDS)}) == SEEDS
