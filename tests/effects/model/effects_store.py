"""The owner of the subscription and the store, in the model of ordered effects."""

from collections.abc import Iterator

from tests.effects.model import effects_log
from tests.effects.model.effects_state import NOBODY, Consumer, Phase, Rules, State, Store, Tag, Transaction
from tests.model.state import Violated

Step = tuple[str, State]


def spent(state: State, what: str) -> State:
    return state._replace(budget=state.budget._replace(**{what: getattr(state.budget, what) - 1}))


def with_consumer(state: State, index: int, consumer: Consumer) -> State:
    consumers = (*state.consumers[:index], consumer, *state.consumers[index + 1 :])
    return state._replace(consumers=consumers)


# --- the owner -------------------------------------------------------------------------------------------------------


def granted(state: State, index: int) -> State:
    """The former active consumer does not know of it yet."""
    log = effects_log.granted(state.log)
    grant = Tag(log.number, log.epoch, log.generation)
    consumer = state.consumers[index]._replace(grant=grant, following=log.mark_delete)
    return with_consumer(state._replace(log=log, active=index), index, consumer)


def landed(state: State, rules: Rules, number: int) -> State:
    ack = state.acks[number]
    log = effects_log.acknowledged(state.log, *ack.tag, ack.below)
    if not rules.only_new_is_consumed and log.known_from >= 0 and log != state.log:
        below = (1 << ack.below) - (1 << log.known_from)
        log = log._replace(consumed=log.consumed | max(below, 0))
    return state._replace(log=log, acks=state.acks[:number] + state.acks[number + 1 :])


def delivers_again(state: State) -> State:
    """The owner's view of what it has sent begins anew."""
    if state.active == NOBODY:
        return state
    consumer = state.consumers[state.active]._replace(following=state.log.mark_delete)
    return with_consumer(state, state.active, consumer)


def current(state: State, index: int) -> bool:
    """Whether the owner takes this consumer for the active one, and the consumer knows of every seek."""
    log = state.log
    return state.active == index and state.consumers[index].grant == (log.number, log.epoch, log.generation)


# --- the store -------------------------------------------------------------------------------------------------------


def committed(state: State, transaction: Transaction) -> State:
    """Without the answer."""
    row, effects, ever = state.store.row, [list(each) for each in state.store.effects], state.ever
    assert row is not None
    for message in transaction.messages if transaction.runs else ():
        if state.dead >> message & 1:
            raise Violated(f"message {message} takes effect and is a dead letter")
        redone = state.times_redone(transaction.era, message)
        effects[redone][message] += 1
        if effects[redone][message] > 1:
            raise Violated(f"message {message} takes effect twice")
        if redone == state.times_redone(state.era, message):
            ever |= 1 << message
    store = Store(
        row._replace(position=transaction.position, dead=transaction.dead), tuple(tuple(each) for each in effects)
    )
    return state._replace(store=store, transaction=None, ever=ever)


def answered(state: State) -> State:
    """The open transaction is committed, and its consumer learns it."""
    transaction = state.transaction
    assert transaction is not None
    after = committed(state, transaction)
    if transaction.owner == NOBODY:
        return after
    me = after.consumers[transaction.owner]
    assert me.stored is not None
    done = me._replace(
        phase=Phase.WORKING,
        stored=me.stored._replace(position=transaction.position, dead=transaction.dead),
        waiting=me.waiting[len(transaction.messages) :],
    )
    if transaction.messages:
        done = done._replace(unacked=transaction.position, unacked_tag=me.tag)
    return with_consumer(after, transaction.owner, done)


def transaction_steps(state: State) -> Iterator[Step]:
    transaction = state.transaction
    if transaction is None:
        return
    owner, name = transaction.owner, f"C{transaction.owner + 1}"
    yield f"the transaction of {name} commits", answered(state)
    if owner == NOBODY:
        yield "the transaction of nobody is rolled back", state._replace(transaction=None)
    elif state.budget.lost_answers:
        left = state._replace(transaction=transaction._replace(owner=NOBODY))
        unsure = state.consumers[owner]._replace(phase=Phase.UNSURE)
        yield f"{name} loses its connection", spent(with_consumer(left, owner, unsure), "lost_answers")
