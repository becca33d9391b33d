"""The outbox relay: every order of steps of two relays, an operator, databases, and what is under way to the log.

In each state the faults could end: then every committed row must be in the log once, behind what was committed before
it began, and gone from its database; no step may store an event twice, or delete a row that the log does not have; and
a relay may stop with an error only if a database was restored, or there are two. The decisions are those of
`core.outbox`. `python -m tests.effects.model.relay` prints what was explored, and the steps to each violation.
"""

import pytest

from tests.effects.model.relay_state import Rules
from tests.effects.model.relay_variants import CLEAN, MISTAKES, STATES_MAX, RelayScenario, explored
from tests.model.planted import Mistake


@pytest.mark.parametrize("scenario", CLEAN, ids=lambda scenario: scenario.name)
def test_every_row_is_stored_once(scenario: RelayScenario) -> None:
    found = explored(scenario, Rules(), states_max=CLEAN[scenario])
    assert found.violation is None, "\n".join([found.violation, *found.trace])
    assert found.complete or found.states >= CLEAN[scenario]


@pytest.mark.hazard("row-committed-behind-a-higher-number")
@pytest.mark.hazard("numbers-given-twice-after-a-restore")
@pytest.mark.hazard("log-read-before-the-producer-is-opened")
@pytest.mark.hazard("row-id-given-anew")
@pytest.mark.hazard("restored-row-sent-again")
@pytest.mark.hazard("duplicate-of-another-row")
@pytest.mark.hazard("stale-relay-finds-a-contradiction")
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.hazard}: {mistake.name}")
def test_planted_mistake_of_a_relay_breaks_a_promise(mistake: Mistake[RelayScenario]) -> None:
    """Each rule is needed, or it is one of two that guard each other."""
    found = explored(mistake.scenario, mistake.of(Rules()), states_max=STATES_MAX)
    assert found.violation is not None, f"none of {found.states} states breaks a promise"


@pytest.mark.parametrize(
    "mistake", [each for each in MISTAKES if len(each.without) > 1], ids=lambda mistake: mistake.name
)
def test_rules_of_a_relay_that_guard_each_other_suffice_alone(mistake: Mistake[RelayScenario]) -> None:
    assert explored(mistake.scenario, mistake.alone.of(Rules()), states_max=3_000).violation is None
