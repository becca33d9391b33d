"""Where the explorations of a lost ZooKeeper begin, and the planted mistakes: variants that lack a rule.
`python -m tests.model.years` prints what was explored; `--trace` also the steps to each violation."""

from functools import partial

from tests.model.explorer import Exploration, explore
from tests.model.planted import Mistake
from tests.model.years import notes_steps, restore_steps
from tests.model.years.notes_state import Budget, Operation, Rules, Scenario
from tests.model.years.restore_state import Rules as RestoreRules
from tests.model.years.restore_state import Scenario as RestoreScenario

STATES_MAX = 20_000


def explored_notes(scenario: Scenario, rules: Rules, *, states_max: int) -> Exploration:
    steps, check = partial(notes_steps.steps_of, rules=rules), partial(notes_steps.check, rules=rules)
    return explore(scenario.start, steps, check, states_max=states_max)


SET, DELETE, CREATE = Operation
TWO_CHANGES = Scenario("two changes", (SET, SET), Budget(unknown=1))
MADE_AGAIN = Scenario("deleted and made again", (DELETE, CREATE), Budget())
REPLACED = Scenario("two disks are replaced", (SET,), Budget(replaced=2))
COPIED = Scenario("a change and an older copy", (SET,), Budget(copies=1))

CLEAN_NOTES = {TWO_CHANGES: STATES_MAX, MADE_AGAIN: STATES_MAX, REPLACED: STATES_MAX, COPIED: STATES_MAX}
NOTES_MISTAKES: tuple[Mistake[Scenario], ...] = (
    Mistake("holders-fade", "a node is a member before it has the notes", REPLACED, ("member_has_notes",)),
    Mistake("holders-fade", "a replacement counts no holders", REPLACED, ("replacement_counts_holders",)),
    Mistake("late-note", "the last note stays", TWO_CHANGES, ("highest_stays",)),
    Mistake("late-note", "the higher version stays", MADE_AGAIN, ("created_counts",)),
    Mistake("late-note", "a deletion is no note", MADE_AGAIN, ("deletion_is_a_note",)),
    Mistake("note-of-an-intent", "what was to be written is noted", TWO_CHANGES, ("note_is_read",)),
    Mistake("revoked-right-returns", "an answer does not wait", COPIED, ("answer_waits_for_notes",)),
    Mistake("revoked-right-returns", "the copy wins", COPIED, ("newest_of_both",)),
    Mistake("revoked-right-returns", "too few are asked", COPIED, ("too_few_is_closed",)),
)


def explored_restores(scenario: RestoreScenario, rules: RestoreRules, *, states_max: int) -> Exploration:
    return explore(
        scenario.start, partial(restore_steps.steps_of, rules=rules), restore_steps.check, states_max=states_max
    )


ONE = RestoreScenario("one restore", nodes=3, quorum=2, gives_up=True)
LOWEST = RestoreScenario("one restore, Qa is 1", nodes=3, quorum=1)
OLDER = RestoreScenario("a disk went back", nodes=3, quorum=2, turned_back=1)
TWO = RestoreScenario("two restores", nodes=3, quorum=2, restorers=2)
HALVES = RestoreScenario("two restores, two nodes", nodes=2, quorum=2, restorers=2, writes=False)
JOINED = RestoreScenario("a node joined last", nodes=4, quorum=2, joins=True)
UNREACHED = RestoreScenario("a node joined last, two are reached", nodes=4, quorum=2, joins=True, reaches=(0b0110,))

CLEAN_RESTORES = {
    ONE: 10_000,
    LOWEST: 5_000,
    OLDER: 5_000,
    TWO: 10_000,
    HALVES: 5_000,
    JOINED: 10_000,
    UNREACHED: 5_000,
}
RESTORE_MISTAKES: tuple[Mistake[RestoreScenario], ...] = (
    Mistake("restore-at-too-few-nodes", "N is who answers", ONE, ("noted_nodes_count",)),
    Mistake("restore-at-too-few-nodes", "the bound is of a higher Qa", LOWEST, ("lowest_quorum_bounds",)),
    Mistake("inventory-before-the-era", "an inventory is read first", ONE, ("inventory_behind_era",)),
    Mistake("a-tail-that-was-given-up", "the end is what recovery finds", ONE, ("ends_by_next_head",)),
    Mistake("two-restores", "a node takes both of one era", HALVES, ("ballots_differ",)),
    Mistake("two-restores", "half of the nodes are enough", HALVES, ("noted_nodes_count",)),
    Mistake("unnoted-member", "the last node takes data at once", UNREACHED, ("member_is_noted",)),
    Mistake("unnoted-member", "notes are read once", UNREACHED, ("notes_read_again",)),
    Mistake("older-disk-is-missing", "an old disk counts as asked", OLDER, ("limbo_is_missing",)),
    Mistake("the-lost-ensemble-returns", "calls have no era", ONE, ("calls_have_eras",)),
)
