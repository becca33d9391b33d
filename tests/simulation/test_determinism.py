"""A run is its seed: neither the order of sets nor the process it runs in leaves a trace."""

import os
import subprocess
import sys

import pytest

from tests.simulation.run import run

SEEDS = 6


def traces(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.simulation", "--traces", str(SEEDS)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_hash_seed_does_not_change_a_run(hash_seed: str) -> None:
    """Strings hash otherwise in every process unless told; a walk over a set would show here."""
    lines = traces(hash_seed).splitlines()
    assert [line.split()[:3] for line in lines] == [
        [str(o.seed), f"{o.trace:08x}", str(o.steps)] for o in (run(seed) for seed in range(SEEDS))
    ]


def test_different_seeds_give_different_runs() -> None:
    """The control: a trace that never changes would hold, too."""
    assert len({run(seed).trace for seed in range(SEEDS)}) == SEEDS
