"""A lost ZooKeeper: every order of steps of those who change notes, and of restores beside owners of a lower era.

What was answered is found by any restore, and only that; an acknowledged message is known to each restore that serves,
and stored once. The decisions are the product's own: `core.node.notes`, `core.node.era`, `core.rebuild.restore_plan`.
`python -m tests.model.years --trace` prints what was explored, and the steps to each violation.
"""

import pytest

from tests.model.explorer import Exploration
from tests.model.planted import Mistake
from tests.model.years import notes_state, restore_state
from tests.model.years.variants import (
    CLEAN_NOTES,
    CLEAN_RESTORES,
    NOTES_MISTAKES,
    RESTORE_MISTAKES,
    STATES_MAX,
    explored_notes,
    explored_restores,
)


def keeps(found: Exploration, states_max: int) -> None:
    assert found.violation is None, "\n".join([found.violation, *found.trace])
    assert found.complete or found.states >= states_max


@pytest.mark.parametrize("scenario", CLEAN_NOTES, ids=lambda scenario: scenario.name)
def test_restore_finds_what_was_answered(scenario: notes_state.Scenario) -> None:
    states_max = CLEAN_NOTES[scenario]
    keeps(explored_notes(scenario, notes_state.Rules(), states_max=states_max), states_max)


@pytest.mark.parametrize("scenario", CLEAN_RESTORES, ids=lambda scenario: scenario.name)
def test_restore_knows_what_was_acknowledged(scenario: restore_state.Scenario) -> None:
    states_max = CLEAN_RESTORES[scenario]
    keeps(explored_restores(scenario, restore_state.Rules(), states_max=states_max), states_max)


@pytest.mark.hazard("holders-fade")
@pytest.mark.hazard("late-note")
@pytest.mark.hazard("note-of-an-intent")
@pytest.mark.hazard("revoked-right-returns")
@pytest.mark.parametrize("mistake", NOTES_MISTAKES, ids=lambda mistake: f"{mistake.hazard}: {mistake.name}")
def test_notes_without_a_rule_break_a_promise(mistake: Mistake[notes_state.Scenario]) -> None:
    found = explored_notes(mistake.scenario, mistake.of(notes_state.Rules()), states_max=STATES_MAX)
    assert found.violation is not None, f"none of {found.states} states breaks a promise"


@pytest.mark.hazard("restore-at-too-few-nodes")
@pytest.mark.hazard("inventory-before-the-era")
@pytest.mark.hazard("a-tail-that-was-given-up")
@pytest.mark.hazard("two-restores")
@pytest.mark.hazard("unnoted-member")
@pytest.mark.hazard("older-disk-is-missing")
@pytest.mark.hazard("the-lost-ensemble-returns")
@pytest.mark.parametrize("mistake", RESTORE_MISTAKES, ids=lambda mistake: f"{mistake.hazard}: {mistake.name}")
def test_restores_without_a_rule_break_a_promise(mistake: Mistake[restore_state.Scenario]) -> None:
    found = explored_restores(mistake.scenario, mistake.of(restore_state.Rules()), states_max=STATES_MAX)
    assert found.violation is not None, f"none of {found.states} states breaks a promise"
