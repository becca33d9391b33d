"""The state of the model of ordered effects: a subscription, two consumers, a store, and what is under way.

What a state leaves out, and why nothing is lost by that
- The function, and what it writes. A committed transaction is a count for each of its messages.
- Messages between consumer and owner. A request is executed and answered in one step, at any later time; acknowledge-
  ments alone are under way for themselves, for nobody waits for them.
- Time. Every consumer may be slow at each of its steps, so each may be the zombie of another one.
- Nonces of claims are small numbers; a fresh one is the lowest that nobody knows.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tests.effects.model.effects_log import Log
from tests.model.state import _Named

NOBODY = -1


class Phase(_Named):
    """Of a consumer, as in `oncelog_effects.source`."""

    UNSURE = 0
    #: the log was asked
    ASKED = 1
    #: the store was claimed
    CLAIMED = 2
    WORKING = 3
    #: its transaction is open, or its outcome is not answered yet
    APPLYING = 4
    #: it has ended with an error that an operator has to see
    STOPPED = 5


class Row(NamedTuple):
    """The row in the store, and what its consumer knew when it claimed it: the seek epoch, and the era, which counts
    the redos. dead: owed as a dead letter; NOBODY: none."""

    number: int
    redo_epoch: int
    generation: int
    claim: int
    position: int
    era: int
    epoch: int
    dead: int = NOBODY


class Tag(NamedTuple):
    """What messages were delivered under."""

    number: int = 0
    epoch: int = 0
    generation: int = 0


class Consumer(NamedTuple):
    """grant: of this consumer, as it knows; generation 0: it is not active. following: the next message that its owner
    sends. waiting: received and not applied. asked: the log's answer, `era` then. seen: the position in the store
    before that; used by variants only. stored: its newest row, from which it applies; new: claimed and not compared
    yet. unacked: everything below is applied and not acknowledged."""

    grant: Tag = Tag()
    phase: Phase = Phase.UNSURE
    following: int = 0
    waiting: tuple[int, ...] = ()
    tag: Tag = Tag()
    asked: Log | None = None
    era: int = 0
    seen: int = NOBODY
    stored: Row | None = None
    new: Row | None = None
    unacked: int = 0
    unacked_tag: Tag = Tag()


class Ack(NamedTuple):
    """Under way to the owner. sender: NOBODY: it has died."""

    sender: int
    tag: Tag
    below: int


class Store(NamedTuple):
    """effects: {times that it was redone: {message: how often its effect is there}}, as tuples."""

    row: Row | None = None
    effects: tuple[tuple[int, ...], ...] = ()


class Transaction(NamedTuple):
    """Open in the store, with the row locked. owner: NOBODY: its consumer does not know what became of it. messages:
    that its consumer has done with. dead: of the row behind it; with `runs` the function takes part."""

    owner: int
    messages: tuple[int, ...]
    position: int
    era: int
    dead: int = NOBODY
    runs: bool = True


class Budget(NamedTuple):
    """How often something may still happen."""

    grants: int = 2
    crashes: int = 0
    restores: int = 0
    backups: int = 0
    skips: int = 0
    redos: int = 0
    #: where a redo begins
    redo_from: int = 0
    seeks: int = 0
    recreations: int = 0
    lost_answers: int = 0
    lost_messages: int = 0
    #: how often a function fails for good
    gives_up: int = 0


class State(NamedTuple):
    """active: the consumer with the newest grant. skipped: messages that an operator has passed over. ever: those that
    took effect in this era, whatever a store has forgotten. dead: those that are dead letters. starts: of each era, the
    number of the subscription and the seek epoch. redone_from: of each redo, the first message that takes effect
    again."""

    log: Log
    consumers: tuple[Consumer, ...]
    store: Store
    budget: Budget
    active: int = NOBODY
    transaction: Transaction | None = None
    backup: Store | None = None
    acks: tuple[Ack, ...] = ()
    skipped: int = 0
    ever: int = 0
    dead: int = 0
    starts: tuple[tuple[int, int], ...] = ((0, 0),)
    redone_from: tuple[int, ...] = ()

    def times_redone(self, era: int, message: int) -> int:
        """How often a redo before that era has asked for its effect again: where the store has it."""
        return sum(first <= message for first in self.redone_from[:era])

    def has_effect(self, message: int) -> bool:
        """In this era."""
        return bool(self.store.effects[self.times_redone(self.era, message)][message])

    @property
    def size(self) -> int:
        return len(self.store.effects[0])

    @property
    def era(self) -> int:
        return len(self.starts) - 1

    def fresh_claim(self) -> int:
        rows = [self.store.row, None if self.backup is None else self.backup.row]
        rows += [row for each in self.consumers for row in (each.stored, each.new)]
        used = {row.claim for row in rows if row is not None}
        return next(number for number in range(1, len(used) + 2) if number not in used)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of `core.effects.ordered` and of `effects.source`; a variant lacks some."""

    #: own acknowledgements are answered before the log is asked
    settles: bool = True
    #: a rewind is a new seek epoch: what was delivered before, and the memory of the claim, are void
    rewind_voids: bool = True
    #: only what consumers acknowledged can be lost
    only_consumed_is_lost: bool = True
    #: only what was not acknowledged before counts as consumed
    only_new_is_consumed: bool = True
    #: the position that is compared and applied from is that of the claim, not one read before the log was asked
    position_of_the_claim: bool = True
    #: a claim waits for the transaction that holds the row
    claim_waits: bool = True
    #: a redo begins where the log says, and never ahead of the store
    redo_from_its_index: bool = True
    redo_never_ahead: bool = True
    #: what was consumed before the place of a redo stays consumed
    redo_keeps_consumed: bool = True
    #: a bound subscription without its row is an error
    missing_row_is_an_error: bool = True
    #: an idle consumer compares again
    verifies_by_timer: bool = True
    #: an apply names its claim, and its position
    apply_names_claim: bool = True
    apply_names_position: bool = True
    #: the rank of a claim begins with the subscription's number, then the redo epoch, then the generation
    rank_has_number: bool = True
    rank_has_redo: bool = True
    lower_rank_is_refused: bool = True
    #: the position passes a gap only if it is acknowledged
    gap_is_checked: bool = True
    #: what was delivered at another seek epoch than that of the claim needs another claim
    claims_each_epoch: bool = True
    #: another claim drops of what was received only what is void: the rest is not delivered again
    claim_keeps_received: bool = True
    #: a consumer whose store went back attaches anew
    attaches_again: bool = True
    #: what is given up is given up in the store first; the owner gives nothing up by itself
    store_gives_up_first: bool = True
    owner_gives_nothing_up: bool = True
    #: what the store owes as a dead letter is not taken for an effect
    debts_are_no_effects: bool = True
