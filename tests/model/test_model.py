"""The design's rules keep its promises in every state that was explored, and without a rule a promise breaks.

`python -m tests.model --trace` prints what was explored, and the steps to each violation.
Source: BookKeeper's TLA+ specification (github.com/Vanlightly/bookkeeper-tlaplus), without ensemble changes, with
joining, erasing and limbo.
"""

import pytest

from tests.model.explorer import Exploration, Scenario, breadth_first, walk
from tests.model.state import Rules
from tests.model.variants import (
    BROKEN_COPIES,
    BROKEN_ERASED,
    BROKEN_IDENTITY,
    BROKEN_JOINING,
    BROKEN_LIMBO,
    BROKEN_LOSSES,
    BROKEN_RECOVERY,
    BROKEN_SWAPS,
    BROKEN_WHOLE,
    CLEAN,
    LIFE,
    STATES_MAX,
    WALK_LENGTH,
    WALKS,
    Broken,
)


def story(found: Exploration) -> str:
    return "\n".join([str(found.violation), *found.trace])


def breaks(broken: Broken) -> None:
    found = breadth_first(broken.scenario, broken.rules, states_max=STATES_MAX)
    assert found.violation is not None, f"{broken.name}: none of {found.states} states breaks a promise"


@pytest.mark.parametrize("scenario", CLEAN, ids=lambda scenario: scenario.name)
def test_rules_keep_every_promise(scenario: Scenario) -> None:
    """No acknowledged entry is behind the end or on too few nodes, and nothing is erased that is still needed."""
    found = breadth_first(scenario, Rules(), states_max=CLEAN[scenario])
    assert found.violation is None, story(found)
    assert found.complete or found.states >= CLEAN[scenario]


def test_ledger_becomes_whole_after_any_faults() -> None:
    """Random walks from the first write on; afterwards no fault happens any more."""
    for seed in range(WALKS):
        found = walk(LIFE, Rules(), seed=seed, length=WALK_LENGTH)
        assert found.violation is None, f"seed {seed}: {story(found)}"


@pytest.mark.parametrize("broken", BROKEN_RECOVERY, ids=lambda broken: broken.name)
def test_recovery_without_a_rule_is_not_safe(broken: Broken) -> None:
    """The end of a ledger is wrong, or an entry has too few copies."""
    breaks(broken)


@pytest.mark.hazard("former-incarnation")
@pytest.mark.parametrize("broken", BROKEN_IDENTITY, ids=lambda broken: broken.name)
def test_wiped_node_must_be_another_node(broken: Broken) -> None:
    """As its former self it would answer "missing" for what it had acknowledged."""
    breaks(broken)


@pytest.mark.hazard("copy-erased-before-joining")
@pytest.mark.parametrize("broken", BROKEN_JOINING, ids=lambda broken: broken.name)
def test_joining_and_erasing_need_the_record(broken: Broken) -> None:
    """A node erases what a repairer counts on."""
    breaks(broken)


@pytest.mark.hazard("replaced-member-erased-early")
@pytest.mark.parametrize("broken", BROKEN_WHOLE, ids=lambda broken: broken.name)
def test_copies_stay_until_the_ledger_is_whole(broken: Broken) -> None:
    """Another member may lack the entry."""
    breaks(broken)


@pytest.mark.hazard("copy-of-one-source")
@pytest.mark.parametrize("broken", BROKEN_COPIES, ids=lambda broken: broken.name)
def test_every_entry_is_copied(broken: Broken) -> None:
    """No single member need hold all of them."""
    breaks(broken)


@pytest.mark.hazard("late-repairer")
@pytest.mark.parametrize("broken", BROKEN_SWAPS, ids=lambda broken: broken.name)
def test_swap_needs_the_version_of_the_join(broken: Broken) -> None:
    """A repairer that was paused would make a node a member that has erased its copy meanwhile."""
    breaks(broken)


@pytest.mark.hazard("answer-of-a-former-member")
@pytest.mark.parametrize("broken", BROKEN_ERASED, ids=lambda broken: broken.name)
def test_erased_copy_proves_nothing(broken: Broken) -> None:
    """By an old record, two members that have erased their copies would end the ledger or mislead a reader."""
    breaks(broken)


@pytest.mark.hazard("damaged-fence")
@pytest.mark.parametrize("broken", BROKEN_LIMBO, ids=lambda broken: broken.name)
def test_damaged_node_must_be_in_limbo(broken: Broken) -> None:
    """Entries and the fence may have been in the damage."""
    breaks(broken)


@pytest.mark.hazard("lost-too-early")
@pytest.mark.parametrize("broken", BROKEN_LOSSES, ids=lambda broken: broken.name)
def test_loss_needs_the_answer_of_every_node(broken: Broken) -> None:
    """A silent member may hold the entry, and one that was asked early may have got it since."""
    breaks(broken)
