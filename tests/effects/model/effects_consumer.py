"""The steps of a consumer, in the order of `oncelog_effects.source`, by the decisions of `core.effects`."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from oncelog.core.acks.changes import IndexRange
from oncelog.core.delivery.store_binding.events import SubscriptionEffects
from oncelog.core.effect_errors import EffectsFenced, StoreMissing
from oncelog.core.ids import Generation, SeekEpoch, SubscriptionNumber
from oncelog_effects.core.effects.giving_up import given_up, settled
from oncelog_effects.core.effects.ordered import (
    Outranked,
    Rank,
    Received,
    StoredPosition,
    claimed,
    lost,
    next_step,
    outranked_by,
    passes_gap,
    went_back,
)
from oncelog_effects.core.effects.ordered import Step as Do
from tests.effects.model import effects_log
from tests.effects.model.effects_log import Log, asked, bits_of
from tests.effects.model.effects_state import (
    NOBODY,
    Ack,
    Consumer,
    Phase,
    Row,
    Rules,
    State,
    Tag,
    Transaction,
)
from tests.effects.model.effects_store import Step, committed, current, delivers_again, spent, with_consumer
from tests.model.state import Violated

BATCH_MAX = 2


def consumer_steps(state: State, rules: Rules, index: int) -> Iterator[Step]:
    me, name = state.consumers[index], f"C{index + 1}"
    if me.phase is Phase.STOPPED:
        return
    if me.grant.generation and not current(state, index):
        yield f"{name} learns what its owner did", learned(state, index)
    match me.phase:
        case Phase.UNSURE:
            if me.grant.generation:
                yield from _asks(state, rules, index)
            if me.waiting and state.budget.gives_up and not rules.store_gives_up_first:
                yield f"{name} gives {me.waiting[0]} up at its owner", spent(_dead(state, me.waiting[0]), "gives_up")
        case Phase.ASKED:
            yield from _claims(state, rules, index)
        case Phase.CLAIMED:
            yield f"{name} compares", _compared(state, rules, index)
        case Phase.WORKING:
            yield from _works(state, rules, index)


def learned(state: State, index: int) -> State:
    """Of a seek, or that another one is active. What was received before is void then."""
    me, log = state.consumers[index], state.log
    if state.active == index:
        return with_consumer(state, index, me._replace(grant=me.grant._replace(epoch=log.epoch)))
    return with_consumer(state, index, me._replace(grant=Tag()))


def _own_acks(state: State, index: int) -> bool:
    return any(ack.sender == index for ack in state.acks)


def _acknowledges(state: State, index: int) -> State:
    me = state.consumers[index]
    if not me.unacked:
        return state
    acks = tuple(sorted((*state.acks, Ack(index, me.unacked_tag, me.unacked))))
    return with_consumer(state._replace(acks=acks), index, me._replace(unacked=0, unacked_tag=Tag()))


def _asks(state: State, rules: Rules, index: int) -> Iterator[Step]:
    me, row, name = state.consumers[index], state.store.row, f"C{index + 1}"
    if me.unacked:
        yield f"{name} acknowledges below {me.unacked}", _acknowledges(state, index)
        return
    if rules.settles and _own_acks(state, index):
        return
    if not rules.position_of_the_claim and me.seen == NOBODY:
        seen = 0 if row is None else row.position
        yield f"{name} reads position {seen}", with_consumer(state, index, me._replace(seen=seen))
        return
    asking = me._replace(phase=Phase.ASKED, asked=state.log, era=state.era)
    yield f"{name} asks the log", with_consumer(state, index, asking)


def _claims(state: State, rules: Rules, index: int) -> Iterator[Step]:
    me, name, row = state.consumers[index], f"C{index + 1}", state.store.row
    assert me.asked is not None
    open_ = state.transaction
    if open_ is not None and rules.claim_waits:
        return
    effects = _known(me.asked, state.size, rules)
    if row is None and not rules.missing_row_is_an_error:
        effects = replace(effects, store_id="")
    try:
        decided = _claimed(row, effects, state.fresh_claim())
    except Outranked as error:
        if rules.lower_rank_is_refused:
            found = outranked_by(error.stored, _known(state.log, state.size, rules))
            if not isinstance(found, EffectsFenced):
                raise Violated(f"{name} stops, and nothing was restored: {type(found).__name__}") from None
            yield f"{name} is outranked", with_consumer(state, index, me._replace(phase=Phase.UNSURE, asked=None))
            return
        assert row is not None
        decided = replace(_claimed(None, replace(effects, store_id=""), state.fresh_claim()), position=row.position)
    except StoreMissing:
        yield f"{name} misses its row", with_consumer(state, index, Consumer(phase=Phase.STOPPED))
        return
    if not rules.redo_never_ahead and row is not None and row.redo_epoch < effects.redo_epoch:
        decided = replace(decided, position=effects.redo_index)
    new = _row(decided, me.era, me.asked.epoch)
    if not rules.debts_are_no_effects:
        new = new._replace(dead=NOBODY)
    after = state._replace(store=state.store._replace(row=new))
    if open_ is not None:  # it read the row, and writes it when the transaction has ended
        after = committed(state, open_)
        after = after._replace(store=after.store._replace(row=new))
    yield (
        f"{name} claims position {new.position}",
        with_consumer(after, index, me._replace(phase=Phase.CLAIMED, new=new)),
    )


def _known(log: Log, size: int, rules: Rules) -> SubscriptionEffects:
    effects = asked(log, size)
    if not rules.redo_from_its_index:
        effects = replace(effects, redo_index=effects.mark_delete)
    if not rules.rank_has_number:
        effects = replace(effects, number=SubscriptionNumber(1))
    if not rules.rank_has_redo:
        effects = replace(effects, redo_epoch=SeekEpoch(0))
    return effects


@cache
def _stored(row: Row) -> StoredPosition:
    return StoredPosition(
        Rank(row.number, row.redo_epoch, row.generation),
        str(row.claim),
        row.position,
        "",
        None if row.dead == NOBODY else row.dead,
    )


def _row(stored: StoredPosition, era: int, epoch: int) -> Row:
    dead = NOBODY if stored.pending_dead is None else stored.pending_dead
    return Row(*stored.rank, int(stored.claim), stored.position, era, epoch, dead)


def _claimed(row: Row | None, effects: SubscriptionEffects, claim: int) -> StoredPosition:
    return claimed(None if row is None else _stored(row), effects, effects_log.STORE_ID, str(claim))


def _compared(state: State, rules: Rules, index: int) -> State:
    me = state.consumers[index]
    assert me.asked is not None
    assert me.new is not None
    new, before, known = me.new, me.stored, me.asked
    if not rules.position_of_the_claim and known.known_from >= 0:
        new = new._replace(position=me.seen)
    unsure = me._replace(phase=Phase.UNSURE, asked=None, new=None, seen=NOBODY)
    if known.known_from < 0:
        log = effects_log.bound(state.log, known.epoch, known.generation)
        if log.known_from < 0:  # void
            return with_consumer(state, index, unsure)
        state = state._replace(log=log)
    missing = lost(_stored(new), _known(known, state.size, rules))
    if not rules.only_consumed_is_lost and new.position < known.mark_delete:
        missing = (IndexRange(new.position, known.mark_delete - 1),)
    if missing:
        return _rewinds(state, rules, index, unsure, missing)
    if before is not None and before[:3] != new[:3] and not rules.claim_keeps_received:
        me = me._replace(waiting=())
    if rules.attaches_again and went_back(None if before is None else _stored(before), _stored(new)):
        return _attaches_again(state, index)
    working = me._replace(phase=Phase.WORKING, asked=None, new=None, seen=NOBODY, stored=new)
    return with_consumer(state, index, working)


def _rewinds(state: State, rules: Rules, index: int, unsure: Consumer, missing: tuple[IndexRange, ...]) -> State:
    known, row = state.consumers[index].asked, state.store.row
    assert known is not None
    if rules.only_consumed_is_lost:
        log = effects_log.rewound(state.log, known.epoch, known.generation, missing)
    else:
        log = effects_log.sought(state.log, missing[0].first, redo=False)
    if log == state.log:
        return with_consumer(state, index, unsure)
    names = bits_of(missing)
    if names & ~state.ever:
        raise Violated("a rewind brings back a message that never took effect")
    if row is not None and row.era == state.era and names & ((1 << row.position) - 1):
        raise Violated("a rewind brings back a message whose effect the store has")
    if not rules.rewind_voids:
        log = log._replace(epoch=state.log.epoch)
        me = state.consumers[index]
        kept = unsure._replace(phase=Phase.WORKING, stored=me.new)
        return with_consumer(state._replace(log=log), index, kept)
    after = with_consumer(state._replace(log=log), index, unsure._replace(stored=None, waiting=(), tag=Tag()))
    after = delivers_again(after)
    return learned(after, index) if after.active == index else after


def _attaches_again(state: State, index: int) -> State:
    """The acknowledgements that it sent may land still."""
    state = _acknowledges(state, index)
    acks = tuple(sorted(ack._replace(sender=NOBODY) if ack.sender == index else ack for ack in state.acks))
    active = NOBODY if state.active == index else state.active
    return with_consumer(state._replace(acks=acks, active=active), index, Consumer())


def _works(state: State, rules: Rules, index: int) -> Iterator[Step]:
    me, name = state.consumers[index], f"C{index + 1}"
    stored = me.stored
    assert stored is not None
    first = None
    if me.waiting:
        is_void = me.tag != me.grant or me.tag.epoch < stored.epoch
        first = Received(me.waiting[0], SeekEpoch(me.tag.epoch), is_void)
    epoch = stored.epoch if rules.claims_each_epoch else me.tag.epoch
    generation = Generation(me.grant.generation if me.grant.number in (0, stored.number) else 0)
    do = next_step(first, _stored(stored), SeekEpoch(epoch), generation)
    if do in (Do.DROP, Do.CLAIM):
        left = me._replace(waiting=(), tag=Tag()) if do is Do.DROP else me
        yield f"{name} has to {do.value}", with_consumer(state, index, left._replace(phase=Phase.UNSURE))
        return
    if stored.dead != NOBODY:
        yield from _owes(state, rules, index)
        return
    if me.unacked:
        yield f"{name} acknowledges below {me.unacked}", _acknowledges(state, index)
    if first is None:
        yield from _receives(state, index)
        if rules.verifies_by_timer and not _own_acks(state, index):
            yield f"{name} verifies", with_consumer(state, index, me._replace(phase=Phase.UNSURE))
        return
    if do is Do.ACKNOWLEDGE:
        known = [message for message in me.waiting if message < stored.position]
        left = me._replace(waiting=me.waiting[len(known) :], unacked=known[-1] + 1, unacked_tag=me.tag)
        yield f"{name} has applied {known[0]} before", with_consumer(state, index, left)
        return
    if do is Do.CHECK_GAP and rules.gap_is_checked:
        if me.unacked or _own_acks(state, index):
            return  # they are answered first
        if not passes_gap(first.index, asked(state.log, state.size)):
            yield f"{name} misses messages before {first.index}", _attaches_again(state, index)
            return
    yield from _begins(state, rules, index)


def _receives(state: State, index: int) -> Iterator[Step]:
    me, log = state.consumers[index], state.log
    if not current(state, index):
        return
    ready = [i for i in range(me.following, state.size) if not log.acked >> i & 1][:BATCH_MAX]
    for count in range(1, len(ready) + 1):
        waiting = tuple(ready[:count])
        taken = me._replace(waiting=waiting, tag=me.grant, following=waiting[-1] + 1)
        yield f"C{index + 1} receives {waiting}", with_consumer(state, index, taken)
    if len(ready) > 1 and state.budget.lost_messages:
        missed = spent(with_consumer(state, index, me._replace(following=ready[0] + 1)), "lost_messages")
        yield f"message {ready[0]} gets lost in C{index + 1}", missed


def _begins(state: State, rules: Rules, index: int) -> Iterator[Step]:
    me, row, name = state.consumers[index], state.store.row, f"C{index + 1}"
    stored = me.stored
    assert stored is not None
    if state.transaction is not None:
        return  # it waits for the row
    messages = me.waiting[:1]
    for message in me.waiting[1:]:
        if message == messages[-1] + 1:
            messages += (message,)
    if not _fits(row, stored, rules):
        yield f"{name} has lost its claim", with_consumer(state, index, me._replace(phase=Phase.UNSURE))
        return
    if stored.era < state.era and me.tag[:2] >= state.starts[-1]:
        raise Violated(f"{messages} are delivered for a redo, and take effect before the redo's claim")
    applying = with_consumer(state, index, me._replace(phase=Phase.APPLYING))
    begun = Transaction(index, messages, messages[-1] + 1, stored.era)
    yield f"{name} begins to apply {messages}", applying._replace(transaction=begun)
    if state.budget.gives_up:
        passed = _row(given_up(_stored(stored), messages[0], ""), stored.era, stored.epoch)
        dead = Transaction(index, messages[:1], passed.position, stored.era, passed.dead, runs=False)
        yield f"{name} gives {messages[0]} up", spent(applying._replace(transaction=dead), "gives_up")
    if state.budget.gives_up and not rules.owner_gives_nothing_up:
        yield f"the owner gives {messages[0]} up", spent(_dead(state, messages[0]), "gives_up")


def _fits(row: Row | None, stored: Row, rules: Rules) -> bool:
    """Whether the row is as an apply names it."""
    return (
        row is not None
        and (not rules.apply_names_claim or row.claim == stored.claim)
        and (not rules.apply_names_position or row.position == stored.position)
        and row.dead == stored.dead
    )


def _owes(state: State, rules: Rules, index: int) -> Iterator[Step]:
    """A dead letter is asked for, and when the log has it, the store forgets it."""
    me, log, name = state.consumers[index], state.log, f"C{index + 1}"
    stored = me.stored
    assert stored is not None
    if not state.log.acked >> stored.dead & 1:
        void = me.grant != (log.number, log.epoch, log.generation)
        after = with_consumer(state, index, me._replace(phase=Phase.UNSURE)) if void else _dead(state, stored.dead)
        yield f"{name} asks for the dead letter {stored.dead}", after
    elif not _fits(state.store.row, stored, rules):
        yield f"{name} has lost its claim", with_consumer(state, index, me._replace(phase=Phase.UNSURE))
    elif state.transaction is None:
        free = _row(settled(_stored(stored)), stored.era, stored.epoch)
        done = Transaction(index, (), free.position, stored.era, free.dead, runs=False)
        applying = with_consumer(state, index, me._replace(phase=Phase.APPLYING))
        yield f"{name} settles the dead letter {stored.dead}", applying._replace(transaction=done)


def _dead(state: State, message: int) -> State:
    if state.has_effect(message):
        raise Violated(f"message {message} takes effect and is a dead letter")
    return state._replace(log=effects_log.dead_lettered(state.log, message), dead=state.dead | 1 << message)
