"""`python -m tests.effects.model.effects` explores the model of effects and prints a table; `--trace` also the steps to
each violation."""

import sys

from tests.effects.model.effects_state import Rules
from tests.effects.model.effects_variants import CLEAN, MISTAKES, STATES_MAX, explored
from tests.model.planted import print_table

if __name__ == "__main__":
    sys.exit(print_table(__doc__, explored, Rules(), CLEAN, MISTAKES, STATES_MAX))
