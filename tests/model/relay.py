"""`python -m tests.model.relay` explores the model of the outbox relay and prints a table; `--trace` also the steps to
each violation."""

import sys

from tests.model.planted import print_table
from tests.model.relay_state import Rules
from tests.model.relay_variants import CLEAN, MISTAKES, STATES_MAX, explored

if __name__ == "__main__":
    sys.exit(print_table(__doc__, explored, Rules(), CLEAN, MISTAKES, STATES_MAX))
