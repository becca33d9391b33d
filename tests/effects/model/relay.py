"""`python -m tests.effects.model.relay` explores the model of the outbox relay and prints a table; `--trace` also the
steps to each violation."""

import sys

from tests.effects.model.relay_state import Rules
from tests.effects.model.relay_variants import CLEAN, MISTAKES, STATES_MAX, explored
from tests.model.planted import print_table

if __name__ == "__main__":
    sys.exit(print_table(__doc__, explored, Rules(), CLEAN, MISTAKES, STATES_MAX))
