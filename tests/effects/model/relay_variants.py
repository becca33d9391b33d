"""Where the explorations of the outbox relay begin, and the planted mistakes: variants that lack a rule, or several."""

from dataclasses import dataclass
from functools import partial

from tests.effects.model.relay_state import Budget, Rules, State
from tests.effects.model.relay_steps import Healing, steps_of
from tests.model.explorer import Exploration, explore
from tests.model.planted import Mistake

STATES_MAX = 30_000


@dataclass(frozen=True, slots=True)
class RelayScenario:
    name: str
    budget: Budget


def explored(scenario: RelayScenario, rules: Rules, *, states_max: int) -> Exploration:
    steps = partial(steps_of, rules=rules)
    return explore(State(scenario.budget), steps, Healing(rules).check, states_max=states_max)


TAKEOVER = RelayScenario("takeovers", Budget(inserts=2, claims=2, lost_answers=1))
ZOMBIE = RelayScenario("takeovers to and fro, one row", Budget(inserts=1, claims=3))
ORDER = RelayScenario("three transactions", Budget(inserts=3, claims=1))
RESTORED = RelayScenario("the database is restored", Budget(inserts=2, claims=2, backups=1, restores=1, resumes=1))
RESTORED_TAKEOVER = RelayScenario(
    "the database is restored, takeovers", Budget(inserts=2, claims=3, backups=1, restores=1, resumes=2)
)
RESUMED = RelayScenario(
    "the database is restored, one row", Budget(inserts=1, claims=3, backups=1, restores=1, resumes=2)
)
SPLIT = RelayScenario("two primaries", Budget(inserts=2, claims=2, splits=1, resumes=2))

#: All rules hold in so many states of each, or in all that there are.
CLEAN = {
    TAKEOVER: 8_000,
    ZOMBIE: 8_000,
    ORDER: 8_000,
    RESTORED: 10_000,
    RESTORED_TAKEOVER: 8_000,
    RESUMED: 8_000,
    SPLIT: 10_000,
}

MISTAKES = (
    Mistake(
        "row-committed-behind-a-higher-number", "a look passes over ids below the highest one", ORDER,
        ("numbers_what_is_committed",),
    ),
    Mistake("", "rows are sent before their numbers are committed", TAKEOVER, ("numbers_before_sending",)),
    Mistake(
        "log-read-before-the-producer-is-opened", "the log is read, and then the producer is opened", RESTORED,
        ("opens_before_reading", "duplicates_by_event_id"),
    ),
    Mistake(
        "numbers-given-twice-after-a-restore", "a restored counter gives used numbers", RESTORED,
        ("duplicates_by_event_id", "compares_each_opening"),
    ),
    Mistake(
        "restored-row-sent-again", "a resume raises the counter only", RESTORED, ("resume_recognizes_events",),
    ),
    Mistake("restored-row-sent-again", "a resume gives the new end first", RESUMED, ("resume_ends_last",)),
    Mistake(
        "row-id-given-anew", "what is stored is deleted by the id of its row", RESTORED,
        ("confirms_by_number", "claims_each_connection"),
    ),
    Mistake(
        "duplicate-of-another-row", "an answer that a number was stored before is believed", SPLIT,
        ("duplicates_by_event_id", "compares_each_opening"),
    ),
    Mistake("", "a write names no claim", TAKEOVER, ("writes_name_claim",)),
    Mistake(
        "stale-relay-finds-a-contradiction", "a contradiction ends a relay without its claim", TAKEOVER,
        ("contradiction_needs_claim",),
    ),
)  # fmt: skip
