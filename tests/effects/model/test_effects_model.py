"""Ordered effects and their dead letters: every order of steps of two consumers, a store, and what is under way.

In each state the faults could end: then every message must have taken effect once in the newest redo epoch, or have
been skipped, or be a dead letter; and no step may let one take effect twice. The decisions are those of
`core.effects`, the changes of the log those of the fold of the ack log. `python -m tests.effects.model.effects` prints
what was explored, and the steps to each violation.
"""

import pytest

from tests.effects.model.effects_state import Rules
from tests.effects.model.effects_variants import CLEAN, MISTAKES, STATES_MAX, EffectsScenario, explored
from tests.model.planted import Mistake


@pytest.mark.parametrize("scenario", CLEAN, ids=lambda scenario: scenario.name)
def test_every_message_takes_effect_once(scenario: EffectsScenario) -> None:
    found = explored(scenario, Rules(), states_max=CLEAN[scenario])
    assert found.violation is None, "\n".join([found.violation, *found.trace])
    assert found.complete or found.states >= CLEAN[scenario]


@pytest.mark.hazard("skipped-message-rewound")
@pytest.mark.hazard("skipped-message-counted-as-consumed")
@pytest.mark.hazard("redo-restored-to-before")
@pytest.mark.hazard("effects-table-dropped")
@pytest.mark.hazard("plain-read-of-a-position")
@pytest.mark.hazard("position-without-claim")
@pytest.mark.hazard("recreated-subscription-outranked")
@pytest.mark.hazard("dead-letter-beside-the-store")
@pytest.mark.hazard("gap-passed-over")
@pytest.mark.hazard("redo-under-an-old-claim")
@pytest.mark.hazard("received-and-forgotten")
@pytest.mark.hazard("acknowledgement-under-way")
@pytest.mark.hazard("rewound-in-place")
@pytest.mark.hazard("store-read-first")
@pytest.mark.hazard("verified-before-a-late-ack")
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.hazard}: {mistake.name}")
def test_planted_mistake_breaks_a_promise(mistake: Mistake[EffectsScenario]) -> None:
    """Each rule is needed, or it is one of two that guard each other."""
    found = explored(mistake.scenario, mistake.of(Rules()), states_max=STATES_MAX)
    assert found.violation is not None, f"none of {found.states} states breaks a promise"


@pytest.mark.parametrize(
    "mistake", [each for each in MISTAKES if len(each.without) > 1], ids=lambda mistake: mistake.name
)
def test_rules_that_guard_each_other_suffice_alone(mistake: Mistake[EffectsScenario]) -> None:
    """So the table says truly which rules a mistake has to lack: the last one alone would make up for the others."""
    assert explored(mistake.scenario, mistake.alone.of(Rules()), states_max=3_000).violation is None
