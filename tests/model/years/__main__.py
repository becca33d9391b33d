"""`python -m tests.model.years` explores both models of a lost ZooKeeper and prints a table for each. `--trace` prints
also the steps to each violation, `--states` sets how far each goes."""

import sys

from tests.model.planted import print_table
from tests.model.years.notes_state import Rules as NotesRules
from tests.model.years.restore_state import Rules as RestoreRules
from tests.model.years.variants import (
    CLEAN_NOTES,
    CLEAN_RESTORES,
    NOTES_MISTAKES,
    RESTORE_MISTAKES,
    STATES_MAX,
    explored_notes,
    explored_restores,
)

if __name__ == "__main__":
    notes = print_table(__doc__, explored_notes, NotesRules(), CLEAN_NOTES, NOTES_MISTAKES, STATES_MAX)
    restores = print_table(__doc__, explored_restores, RestoreRules(), CLEAN_RESTORES, RESTORE_MISTAKES, STATES_MAX)
    sys.exit(notes or restores)
