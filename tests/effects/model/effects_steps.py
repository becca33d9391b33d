"""The steps of the model of ordered effects: its consumers, faults and operators; and how it ends without faults."""

from collections.abc import Iterator

from tests.effects.model import effects_log
from tests.effects.model.effects_consumer import consumer_steps
from tests.effects.model.effects_state import NOBODY, Budget, Consumer, Phase, Rules, State
from tests.effects.model.effects_store import (
    Step,
    answered,
    delivers_again,
    granted,
    landed,
    spent,
    transaction_steps,
    with_consumer,
)
from tests.model.state import Violated


def steps_of(state: State, rules: Rules) -> Iterator[Step]:
    """Everything that may happen next. Raises Violated where that breaks a promise."""
    for index in range(len(state.consumers)):
        yield from consumer_steps(state, rules, index)
        if state.budget.grants and state.active != index and state.consumers[index].phase is not Phase.STOPPED:
            yield f"C{index + 1} becomes active", spent(granted(state, index), "grants")
    yield from transaction_steps(state)
    for number, ack in enumerate(state.acks):
        yield f"the acknowledgement below {ack.below} of C{ack.sender + 1} lands", landed(state, rules, number)
    yield from _fault_steps(state)
    yield from _operator_steps(state, rules)


# --- faults and operators --------------------------------------------------------------------------------------------


def _fault_steps(state: State) -> Iterator[Step]:
    if state.budget.crashes:
        for index, me in enumerate(state.consumers):
            if me != Consumer():
                yield f"C{index + 1} dies and starts", spent(_died(state, index), "crashes")
    if state.budget.backups:
        yield "a backup is made", spent(state._replace(backup=state.store), "backups")
    if state.budget.restores and state.backup is not None:
        restored = state._replace(store=state.backup, transaction=None)
        transaction = state.transaction
        if transaction is not None and transaction.owner != NOBODY:
            unsure = state.consumers[transaction.owner]._replace(phase=Phase.UNSURE)
            restored = with_consumer(restored, transaction.owner, unsure)
        yield "the store forgets", spent(restored, "restores")


def _died(state: State, index: int) -> State:
    state = state._replace(consumers=(*state.consumers[:index], Consumer(), *state.consumers[index + 1 :]))
    acks = tuple(sorted(ack._replace(sender=NOBODY) if ack.sender == index else ack for ack in state.acks))
    transaction = state.transaction
    if transaction is not None and transaction.owner == index:
        transaction = transaction._replace(owner=NOBODY)
    return state._replace(acks=acks, transaction=transaction, active=NOBODY if state.active == index else state.active)


def _operator_steps(state: State, rules: Rules) -> Iterator[Step]:
    budget, log = state.budget, state.log
    if budget.skips:
        for index in range(state.size):
            if not log.acked >> index & 1:
                after = state._replace(log=effects_log.skipped(log, index), skipped=state.skipped | 1 << index)
                yield f"an operator skips {index}", spent(after, "skips")
    if budget.seeks:
        back = delivers_again(state._replace(log=effects_log.sought(log, 0, redo=False)))
        yield "an operator seeks to 0", spent(back, "seeks")
        passed = state.skipped | ((1 << state.size) - 1 & ~log.acked)
        ahead = state._replace(log=effects_log.sought(log, state.size, redo=False), skipped=passed)
        yield f"an operator seeks to {state.size}", spent(delivers_again(ahead), "seeks")
    if budget.redos:
        first = budget.redo_from
        yield f"an operator redoes from {first}", spent(_redone(state, rules, first), "redos")
    if budget.recreations:
        fresh = state._replace(log=effects_log.recreated(log), active=NOBODY)
        yield "the subscription is recreated", spent(fresh, "recreations")


def _redone(state: State, rules: Rules, index: int) -> State:
    """What is before the index and was not acknowledged is passed over."""
    before = (1 << index) - 1
    passed = (state.skipped | ~state.log.acked) & before
    log = effects_log.sought(state.log, index, redo=True)
    if not rules.redo_keeps_consumed and log.known_from >= 0:
        log = log._replace(consumed=0, known_from=index)
    none = (0,) * state.size
    backup = state.backup
    if backup is not None:
        backup = backup._replace(effects=(*backup.effects, none))
    store = state.store._replace(effects=(*state.store.effects, none))
    after = state._replace(
        log=log, store=store, backup=backup, starts=(*state.starts, (log.number, log.epoch)),
        redone_from=(*state.redone_from, index), ever=state.ever & before, skipped=passed, dead=state.dead & before,
    )  # fmt: skip
    return delivers_again(after)


# --- the end ---------------------------------------------------------------------------------------------------------

CALM = Budget(grants=0)
_HEALING_STEPS_MAX = 300


class Healing:
    """Without further faults everything takes effect: the state that a state comes to. One for each exploration."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._whole: set[State] = set()

    def check(self, state: State) -> None:
        """Raises Violated."""
        state = state._replace(budget=CALM, backup=None)
        passed: list[State] = []
        verified: object = None
        for _ in range(_HEALING_STEPS_MAX):
            if state in self._whole:
                break
            if verified is None:
                passed.append(state)
            after = self._progress(state)
            if after is None:
                if state.active != NOBODY and state.consumers[state.active].phase is Phase.STOPPED:
                    break
                durable = (state.log, state.store.effects, state.active)
                if durable == verified or not self._rules.verifies_by_timer or state.active == NOBODY:
                    self._check_effects(state)
                    break
                verified = durable
                me = state.consumers[state.active]
                after = with_consumer(state, state.active, me._replace(phase=Phase.UNSURE))
            state = after
        else:
            raise Violated("no end: the consumers do the same again and again")
        self._whole.update(passed)

    def _progress(self, state: State) -> State | None:
        if state.acks:
            return landed(state, self._rules, 0)
        if state.transaction is not None:
            return answered(state)
        if state.active == NOBODY:
            free = [index for index, each in enumerate(state.consumers) if each.phase is not Phase.STOPPED]
            return granted(state, free[0]) if free else None
        for label, after in consumer_steps(state, self._rules, state.active):
            if not label.endswith("verifies"):
                return after
        return None

    def _check_effects(self, state: State) -> None:
        if state.active == NOBODY:
            return  # each has stopped with an error
        passed = state.skipped | state.dead
        missing = [index for index in range(state.size) if not state.has_effect(index) and not passed >> index & 1]
        if missing:
            raise Violated(f"the effects of {missing} are lost")
