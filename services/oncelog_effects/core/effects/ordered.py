"""The store of an ordered source: one position, below which every message has taken effect.

    wait for the grant -> wait for own acknowledgements -> ask the log -> claim the store -> compare
        nothing is lost -> apply and acknowledge, until anything is unknown: then begin again
        lost -> rewind, and begin again

Rules
- The log is asked before the store is read: what is acknowledged is in the store already, so nothing seems to be lost
  that only was not applied yet (hazard store-read-first).
- Own acknowledgements are answered before the log is asked (hazard acknowledgement-under-way).
- The rank begins with the subscription's number, so a recreated subscription outranks the old one, whatever its
  generations were (hazard recreated-subscription-outranked). Then comes the redo epoch, then the generation.
- A lower rank never claims. A claim carries a fresh nonce; each apply names the nonce and the position that it expects,
  so what is still under way from before the claim changes nothing (hazards position-without-claim and
  plain-read-of-a-position).
- A redo begins where the log says, not where the subscription is acknowledged (hazard redo-restored-to-before), but
  never ahead of the store: one that is restored lacks what is before the redo, too (hazard
  redo-hides-what-is-before-it).
- Only what consumers acknowledged can be lost (hazard skipped-message-rewound).
- A generation orders claims because one consumer has it. The log answers a consumer that is not active any more, too,
  and names the generation of its successor then: such an answer is no ground for a claim, nor for a comparison after
  it (hazard claim-under-the-grant-of-another).
- What was delivered at a later seek epoch than the claim knows needs another claim: the seek may be a redo (hazard
  redo-under-an-old-claim). Of what was received, only what is void is dropped: the owner does not deliver the rest
  again (hazard received-and-forgotten).
- The position passes a gap only if everything in it is acknowledged (hazard gap-passed-over).
- A bound subscription without its row in the store is an error, never a silent start (hazard effects-table-dropped).
- A store may keep nothing, because what has taken effect is recognized when it is done again (topics). It is where the
  subscription is, and has lost nothing that the log could know of. Or its content says where it is, and it keeps
  neither rank nor redo (mirrors).
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.store_binding.events import SubscriptionEffects
from oncelog.core.effect_errors import EffectsFenced, RedoLost, StoreAhead, StoreMissing, StoreTooOld
from oncelog.core.errors import StoreMismatch
from oncelog.core.ids import Generation, SeekEpoch


class Source(NamedTuple):
    """What one row of a store is about. effect: the user's name of it. partition: -1 for a topic without partitions."""

    effect: str
    topic_id: str
    partition: int


class Rank(NamedTuple):
    """Who may claim the store: the highest. All zero: nobody has claimed it yet."""

    subscription_number: int
    redo_epoch: int
    generation: int


def rank_of(effects: SubscriptionEffects) -> Rank:
    return Rank(effects.number, effects.redo_epoch, effects.generation)


def is_under_grant(effects: SubscriptionEffects, generation: Generation) -> bool:
    """Whether the log answered the consumer that is active, so that it may claim. generation: of the consumer's grant
    as it is now; 0: it is not active."""
    return effects.generation == generation


class Keeps(Enum):
    """What a store keeps of a source besides the effects."""

    ROW = "everything"
    POSITION = "the position"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """The row of a source. position: every message below it has taken effect, or was given up. last_message: the id of
    the message at position - 1; empty: unknown. claim: 32 hexadecimal digits, of who may write. pending_dead: the index
    of a message that was given up and is not known to be a dead letter in the log yet; None: there is none."""

    rank: Rank
    claim: str
    position: int
    last_message: str
    pending_dead: int | None = None
    keeps: Keeps = Keeps.ROW


def found_at(position: int, last_message: str) -> StoredPosition:
    """What stands for the row of a store whose content says where it is."""
    return StoredPosition(Rank(0, 0, 0), "", position, last_message, keeps=Keeps.POSITION)


#: Stands for the row of a store that keeps nothing.
AT_SUBSCRIPTION = StoredPosition(Rank(0, 0, 0), "", -1, "", keeps=Keeps.NOTHING)


def is_expected(found: StoredPosition | None, claimed: StoredPosition) -> bool:
    """Whether an apply that names this row may write: under its claim, at its position, with the same dead letter owed
    (hazard position-without-claim)."""
    return found is not None and (
        (found.claim, found.position, found.pending_dead) == (claimed.claim, claimed.position, claimed.pending_dead)
    )


def claimed(stored: StoredPosition | None, effects: SubscriptionEffects, store_id: str, claim: str) -> StoredPosition:
    """The row that the consumer with this knowledge of the log writes, while it holds the row's lock.

    Raises StoreMismatch, StoreMissing, Outranked.
    """
    if effects.store_id and effects.store_id != store_id:
        raise StoreMismatch(
            f"the effects of the subscription are in store {effects.store_id}, and this is store {store_id}: start the "
            "program with that store. If this is a database that replaces it, run `oncelog effects rebind`; else give "
            "the program another subscription"
        )
    rank = rank_of(effects)
    if stored is None:
        if effects.store_id:
            raise StoreMissing(
                f"the log knows that store {store_id} has the effects of the subscription up to index "
                f"{effects.mark_delete}, and the store has no row of them: restore the store. Of a database, say what "
                "it has with `oncelog effects adopt --position`; or, to have every effect again, empty your own "
                "tables, and run `oncelog effects rebind --empty`. With any other store, begin anew in an empty one, "
                "under another subscription"
            )
        return StoredPosition(rank, claim, effects.mark_delete, "")
    if stored.keeps is not Keeps.ROW:
        position = effects.mark_delete if stored.keeps is Keeps.NOTHING else stored.position
        return replace(stored, rank=rank, claim=claim, position=position)
    if stored.rank > rank:
        raise Outranked(stored.rank)
    if stored.rank[:2] < rank[:2] and effects.redo_epoch and effects.redo_index < stored.position:
        return StoredPosition(rank, claim, effects.redo_index, "")
    return StoredPosition(rank, claim, stored.position, stored.last_message, stored.pending_dead)


class Outranked(Exception):
    """The store was claimed with a higher rank. `outranked_by` says what that means, once the log was asked again."""

    def __init__(self, stored: Rank) -> None:
        super().__init__(stored)
        self.stored = stored


def outranked_by(stored: Rank, effects: SubscriptionEffects) -> EffectsFenced | RedoLost | StoreAhead:
    """effects: asked after the claim failed."""
    if rank_of(effects) >= stored:
        return EffectsFenced("another consumer of the subscription is active since, and has claimed the store")
    if stored.subscription_number == effects.number and stored.redo_epoch > effects.redo_epoch:
        return RedoLost(
            f"the store was redone at seek epoch {stored.redo_epoch}, and the log knows a redo at "
            f"{effects.redo_epoch} only: its ack log was given up or restored. To keep the store's position, run "
            "`oncelog effects adopt`; to redo it again, after that `oncelog effects redo`",
            stored=stored.redo_epoch,
            redo_epoch=effects.redo_epoch,
        )
    return StoreAhead(
        f"the store was claimed by subscription {stored.subscription_number} with generation {stored.generation}, and "
        f"the log knows subscription {effects.number} with generation {effects.generation}: the log was restored to an "
        "older state. Restore the store to the same time; or say below which index the store has the effects of the "
        "log's messages, with `oncelog effects adopt --position`"
    )


def lost(stored: StoredPosition, effects: SubscriptionEffects) -> tuple[IndexRange, ...]:
    """The consumed messages whose effects the store does not have; empty: none.

    effects: of before the claim, with what was consumed from the position on. Raises StoreAhead, StoreTooOld.
    """
    if stored.keeps is Keeps.NOTHING:
        return ()
    position = stored.position
    if position > effects.next_index:
        raise StoreAhead(
            f"the store has effects up to index {position}, and the topic ends at {effects.next_index}: the log was "
            "restored to an older state. Restore the store to the same time; or say below which index the store has "
            "the effects of the log's messages, with `oncelog effects adopt --position`",
            position=position,
            next_index=effects.next_index,
        )
    parts = (IndexRange(max(first, position), last) for first, last in effects.consumed if last >= position)
    found = tuple(parts)
    if position < effects.forgotten_below or (found and found[0].first < effects.first_index):
        raise StoreTooOld(
            f"the store has effects up to index {position}; of the messages behind it, those below index "
            f"{max(effects.first_index, effects.forgotten_below)} are not in the log any more: restore a newer backup; "
            "or, to have every effect again, empty your own tables, and run `oncelog effects redo`; or go on without "
            "what is missing, with `oncelog effects adopt --position`",
            position=position,
            first_index=effects.first_index,
        )
    return found


class Step(Enum):
    """What a consumer does with the first message that it has received and not applied."""

    #: it and what follows it without a gap take effect
    APPLY = "apply"
    #: it is acknowledged: its effect is in the store
    ACKNOWLEDGE = "acknowledge"
    #: it takes effect if the log has acknowledged everything before it (`passes_gap`); else the consumer attaches anew
    CHECK_GAP = "check_gap"
    #: it is void: the owner delivers it again
    DROP = "drop"
    #: nothing is known of the store under this grant, or since this seek; what was received is kept
    CLAIM = "claim"


class Received(NamedTuple):
    """The first message that waits in a consumer. is_void: it was delivered before a seek or a grant that the consumer
    knows of, or before the seek that its claim knows of."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which has no use here
    seek_epoch: SeekEpoch
    is_void: bool


def next_step(first: Received | None, stored: StoredPosition, seek_epoch: SeekEpoch, generation: Generation) -> Step:
    """first: None: nothing waits. stored: of the newest claim, and of what was applied since. seek_epoch: that the
    claim knows. generation: of the consumer's grant as it is now; 0: it is not active."""
    if first is not None and first.is_void:
        return Step.DROP
    if generation != stored.rank.generation or (first is not None and first.seek_epoch > seek_epoch):
        return Step.CLAIM
    if first is None or first.index == stored.position:
        return Step.APPLY
    return Step.ACKNOWLEDGE if first.index < stored.position else Step.CHECK_GAP


def passes_gap(index: int, effects: SubscriptionEffects) -> bool:
    """Whether everything below the message is acknowledged: skipped, evicted, or expired. If it is not, it was
    delivered to this consumer and got lost in it. effects: asked when all own acknowledgements were answered."""
    return effects.mark_delete >= index


def went_back(before: StoredPosition | None, stored: StoredPosition) -> bool:
    """Whether the store has forgotten what this consumer has applied under the same grant: what it holds is ahead, so
    it attaches anew. before: of its claim before; None: there is none."""
    return before is not None and before.rank == stored.rank and stored.position < before.position
