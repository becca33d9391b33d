"""Messages in chunks: every order of steps of two instances of a producer, their owners, and what is under way.

In each state, each durable message must be whole and the only one of its id, and what was acknowledged must be there.
The rules are those of `core.publishing.uploads`. `python -m tests.model.chunks.variants` prints what was explored.
"""

import pytest

from tests.model.chunks.state import Rules, Scenario
from tests.model.chunks.variants import CLEAN, MISTAKES, STATES_MAX, explored
from tests.model.planted import Mistake


@pytest.mark.parametrize("scenario", CLEAN, ids=lambda scenario: scenario.name)
def test_message_in_chunks_is_whole_and_stored_once(scenario: Scenario) -> None:
    found = explored(scenario, Rules(), states_max=CLEAN[scenario])
    assert found.violation is None, "\n".join([found.violation, *found.trace])
    assert found.complete or found.states >= CLEAN[scenario]


@pytest.mark.hazard("chunk-moves-the-mark")
@pytest.mark.hazard("chunk-trimmed-before-its-message")
@pytest.mark.hazard("chunks-of-two-values")
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.hazard}: {mistake.name}")
def test_planted_mistake_breaks_a_promise(mistake: Mistake[Scenario]) -> None:
    """Each rule is needed, or it is one of two that guard each other."""
    found = explored(mistake.scenario, mistake.of(Rules()), states_max=STATES_MAX)
    assert found.violation is not None, f"none of {found.states} states breaks a promise"


@pytest.mark.parametrize("mistake", [each for each in MISTAKES if len(each.without) > 1], ids=lambda each: each.name)
def test_rules_that_guard_each_other_suffice_alone(mistake: Mistake[Scenario]) -> None:
    """So the table says truly which rules a mistake has to lack."""
    assert explored(mistake.scenario, mistake.alone.of(Rules()), states_max=STATES_MAX).violation is None


def test_fencing_and_deduplication_guard_each_other() -> None:
    """An older instance whose session opens again stores nothing twice."""
    lacking = Mistake("", "", next(iter(CLEAN)), ("fenced",))
    assert explored(lacking.scenario, lacking.of(Rules()), states_max=STATES_MAX).violation is None
