"""Where the explorations of effects begin, and the planted mistakes: variants that lack a rule, or several.

Some rules guard each other, so that a mistake is harmless alone: then a variant lacks both, and says so.
"""

from dataclasses import dataclass
from functools import partial

from tests.effects.model.effects_log import Log
from tests.effects.model.effects_state import Budget, Consumer, Rules, State, Store
from tests.effects.model.effects_steps import Healing, steps_of
from tests.model.explorer import Exploration, explore
from tests.model.planted import Mistake

STATES_MAX = 12_000


@dataclass(frozen=True, slots=True)
class EffectsScenario:
    """size: messages of the topic. empty_backup: there is a backup of the store from before its first claim."""

    name: str
    size: int
    budget: Budget
    empty_backup: bool = False

    @property
    def start(self) -> State:
        store = Store(None, ((0,) * self.size,))
        return State(
            Log(), (Consumer(), Consumer()), store, self.budget, backup=store if self.empty_backup else None
        )  # fmt: skip


def explored(scenario: EffectsScenario, rules: Rules, *, states_max: int) -> Exploration:
    steps = partial(steps_of, rules=rules)
    return explore(scenario.start, steps, Healing(rules).check, states_max=states_max)


_FORGETS = Budget(grants=1, backups=1, restores=1)

TAKEOVER = EffectsScenario("takeovers, two messages", 2, Budget(grants=2))
ZOMBIE = EffectsScenario("takeovers to and fro", 1, Budget(grants=3))
ANSWERS = EffectsScenario("lost answers, a crash", 1, Budget(grants=3, lost_answers=2, crashes=1))
FORGETS = EffectsScenario("the store forgets", 2, _FORGETS)
FORGETS_MORE = EffectsScenario("the store forgets, three messages", 3, _FORGETS._replace(lost_answers=1))
FORGETS_ALL = EffectsScenario("the store is emptied", 1, _FORGETS._replace(backups=0), empty_backup=True)
FORGETS_TAKEOVER = EffectsScenario("the store forgets, a takeover", 2, _FORGETS._replace(grants=2))
FORGETS_CRASH = EffectsScenario("the store forgets, a crash", 1, _FORGETS._replace(grants=2, crashes=1, lost_answers=1))
SKIP = EffectsScenario("an operator skips", 2, _FORGETS._replace(skips=1))
SEEK = EffectsScenario("an operator seeks", 2, _FORGETS._replace(seeks=1, lost_messages=1))
REDO = EffectsScenario("a redo", 1, _FORGETS._replace(grants=2, redos=1))
REDO_TWO = EffectsScenario("a redo, two messages", 2, _FORGETS._replace(redos=1))
REDO_SECOND = EffectsScenario("a redo of the second message", 2, _FORGETS._replace(redos=1, redo_from=1))
REDO_ZOMBIE = EffectsScenario("a redo, takeovers to and fro", 1, Budget(grants=3, redos=1))
REDO_TAKEOVER = EffectsScenario("a redo, a takeover, two messages", 2, Budget(grants=2, redos=1))
RECREATED = EffectsScenario("the subscription is recreated", 1, _FORGETS._replace(grants=3, recreations=1))
LOST = EffectsScenario("a message gets lost in a consumer", 2, Budget(grants=1, lost_messages=1))
GIVES_UP = EffectsScenario("a function fails for good", 2, Budget(grants=2, gives_up=1, crashes=1))
GIVES_UP_UNSURE = EffectsScenario(
    "a function fails for good, the store forgets", 2, _FORGETS._replace(gives_up=1, lost_answers=1)
)
GIVES_UP_REDO = EffectsScenario("a function fails for good, a redo", 1, Budget(grants=2, gives_up=1, redos=1))

#: All rules hold in so many states of each, or in all that there are.
CLEAN = {
    TAKEOVER: 6_000,
    ANSWERS: 6_000,
    FORGETS_TAKEOVER: 8_000,
    FORGETS_MORE: 4_000,
    FORGETS_CRASH: 6_000,
    FORGETS_ALL: 2_000,
    SKIP: 6_000,
    SEEK: 6_000,
    REDO: 6_000,
    REDO_SECOND: 6_000,
    REDO_ZOMBIE: 4_000,
    RECREATED: 6_000,
    LOST: 2_000,
    GIVES_UP: 6_000,
    GIVES_UP_UNSURE: 4_000,
    GIVES_UP_REDO: 4_000,
}


MISTAKES = (
    Mistake(
        "acknowledgement-under-way", "the log is asked while acknowledgements are under way", FORGETS,
        ("settles", "attaches_again"),
    ),
    Mistake("rewound-in-place", "a rewind voids nothing", FORGETS_MORE, ("rewind_voids",)),
    Mistake("skipped-message-rewound", "what is below mark_delete counts as lost", SKIP, ("only_consumed_is_lost",)),
    Mistake(
        "skipped-message-counted-as-consumed", "every acknowledgement counts as consumed", SKIP,
        ("only_new_is_consumed",),
    ),
    Mistake("store-read-first", "the store is read before the log", ZOMBIE, ("position_of_the_claim",)),
    Mistake("plain-read-of-a-position", "a claim does not wait for the row", ANSWERS, ("claim_waits",)),
    Mistake(
        "redo-restored-to-before", "a redo begins at mark_delete", REDO_TWO,
        ("redo_from_its_index", "redo_never_ahead"),
    ),
    Mistake("redo-hides-what-is-before-it", "a redo moves a position forward", REDO_SECOND, ("redo_never_ahead",)),
    Mistake(
        "redo-hides-what-is-before-it", "a redo forgets all that was consumed", REDO_SECOND, ("redo_keeps_consumed",),
    ),
    Mistake("effects-table-dropped", "a missing row begins silently", FORGETS_ALL, ("missing_row_is_an_error",)),
    Mistake("verified-before-a-late-ack", "an idle consumer never compares again", FORGETS, ("verifies_by_timer",)),
    Mistake(
        "position-without-claim", "the position is read before the claim, and the apply does not name it", TAKEOVER,
        ("apply_names_position", "position_of_the_claim"),
    ),
    Mistake("position-without-claim", "an apply names the position alone", REDO_TAKEOVER, ("apply_names_claim",)),
    Mistake(
        "position-without-claim", "an apply names nothing", TAKEOVER, ("apply_names_claim", "apply_names_position"),
    ),
    Mistake("recreated-subscription-outranked", "the rank begins with the redo epoch", RECREATED, ("rank_has_number",)),
    Mistake("", "the rank lacks the redo epoch", REDO_ZOMBIE, ("rank_has_redo",)),
    Mistake("", "a lower rank claims", REDO_ZOMBIE, ("lower_rank_is_refused",)),
    Mistake(
        "dead-letter-beside-the-store", "the owner gives up by its own count", GIVES_UP, ("owner_gives_nothing_up",),
    ),
    Mistake(
        "dead-letter-beside-the-store", "the log is asked first, and the store marked later", GIVES_UP_UNSURE,
        ("store_gives_up_first",),
    ),
    Mistake(
        "dead-letter-beside-the-store", "what is owed as a dead letter is taken for an effect", GIVES_UP,
        ("debts_are_no_effects",),
    ),
    Mistake("gap-passed-over", "any gap is passed", LOST, ("gap_is_checked",)),
    Mistake("redo-under-an-old-claim", "a claim is good for every seek epoch", REDO, ("claims_each_epoch",)),
    Mistake("received-and-forgotten", "another rank drops what was received", REDO, ("claim_keeps_received",)),
)  # fmt: skip
