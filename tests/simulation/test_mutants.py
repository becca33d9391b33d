"""Each planted bug is found by its known seed."""

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.planted_bug import Mutant
from tests.simulation.sweep import outcome_of


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_planted_bug_is_found(mutant: Mutant) -> None:
    """With the bug the seed fails; without the bug the same seed passes."""
    assert mutant.run(mutant.first_seed).problem is not None
    assert outcome_of(mutant.first_seed).problem is None
