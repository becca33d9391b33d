"""Each planted bug is found by its known seed, or by a test of its core."""

import pytest

from oncelog.core.errors import InvariantViolated
from tests.simulation.planted.mutants import MUTANTS
from tests.simulation.planted.planted_bug import Mutant

SIMULATED = [mutant for mutant in MUTANTS if mutant.core_test is None]


def _name(mutant: Mutant) -> str:
    return mutant.name.replace(" ", "-")


@pytest.mark.parametrize("mutant", SIMULATED, ids=_name)
def test_planted_bug_is_found(mutant: Mutant) -> None:
    """With the bug the seed fails; without the bug the same seed passes in the sweep."""
    assert mutant.first_seed is not None
    assert mutant.run(mutant.first_seed).problem is not None


@pytest.mark.parametrize("mutant", [each for each in MUTANTS if each not in SIMULATED], ids=_name)
def test_planted_bug_is_found_by_a_test_of_its_core(mutant: Mutant) -> None:
    """The test itself passes among the tests of the core."""
    assert mutant.core_test is not None
    with mutant.planted(), pytest.raises((AssertionError, InvariantViolated)):
        mutant.core_test(*mutant.core_arguments)
