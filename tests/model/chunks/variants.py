"""Where the explorations of messages in chunks begin, and the planted mistakes: variants that lack a rule, or several.
`python -m tests.model.chunks.variants` prints what was explored; `--trace` also the steps to each violation."""

import sys
from functools import partial

from tests.model.chunks.state import Rules, Scenario
from tests.model.chunks.steps import check, steps_of
from tests.model.explorer import Exploration, explore
from tests.model.planted import Mistake, print_table

STATES_MAX = 10_000


def explored(scenario: Scenario, rules: Rules, *, states_max: int) -> Exploration:
    return explore(scenario.start, partial(steps_of, rules=rules), check, states_max=states_max)


TWO = Scenario("two faults", 2)
THREE = Scenario("three faults", 3)
FOUR = Scenario("four faults", 4)
#: {scenario: states that are explored}
CLEAN = {TWO: 10_000, THREE: 30_000, FOUR: 20_000}

MISTAKES = [
    Mistake("chunk-moves-the-mark", "a chunk moves the producer's mark", TWO, ("message_alone_counts",)),
    Mistake("chunk-trimmed-before-its-message", "an upload outlives its ledger", TWO, ("one_ledger",)),
    Mistake("chunks-of-two-values", "a message is stored whatever its session has of it", TWO, ("names_checked",)),
    Mistake(
        "chunks-of-two-values", "an upload outlives its session, and names are not checked", TWO,
        ("one_session", "names_checked"),
    ),
    Mistake("", "what is stored is stored again", TWO, ("deduplicated",)),
]  # fmt: skip

if __name__ == "__main__":
    sys.exit(print_table(__doc__, explored, Rules(), CLEAN, MISTAKES, STATES_MAX))
