"""Explores a model breadth first, or by random walks; both stop at the first broken promise."""

import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from tests.model.repairing import repairer_steps
from tests.model.state import Budget, Ledger, Presence, Record, Rules, State, Violated
from tests.model.storing import check, fault_steps, node_steps
from tests.model.writing import reader_steps, recoverer_steps, writer_steps

StateT = TypeVar("StateT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Where the model begins: at `begin`, after the steps of `after`.

    restored: what a backup of the record contains. proves_losses: repairers look for entries that no node holds.
    """

    name: str
    begin: State
    after: tuple[str, ...] = ()
    restored: Record | None = None
    proves_losses: bool = False

    def start(self, rules: Rules) -> State:
        """Raises KeyError if a step of `after` is not possible."""
        state = self.begin
        for label in self.after:
            state = dict(steps_of(state, rules, self))[label]
        return state


@dataclass(slots=True)
class Exploration:
    """states: different ones that were reached. complete: there are no others. trace: the steps to `violation`."""

    states: int = 0
    steps: int = 0
    complete: bool = False
    violation: str | None = None
    trace: list[str] = field(default_factory=list)


def steps_of(state: State, rules: Rules, scenario: Scenario) -> Iterator[tuple[str, State]]:
    """Every step that some actor may take now. Raises Violated where a step itself breaks a promise."""
    yield from writer_steps(state, rules)
    yield from recoverer_steps(state, rules)
    yield from repairer_steps(state, rules, proves_losses=scenario.proves_losses)
    yield from node_steps(state, rules)
    yield from reader_steps(state, rules)
    yield from fault_steps(state, rules, scenario.restored)


def breadth_first(scenario: Scenario, rules: Rules, *, states_max: int) -> Exploration:
    """The trace of a violation is a shortest one."""
    steps = partial(steps_of, rules=rules, scenario=scenario)
    return explore(scenario.start(rules), steps, check, states_max=states_max)


def explore(
    start: StateT,
    steps: Callable[[StateT], Iterable[tuple[str, StateT]]],
    check: Callable[[StateT], None],
    *,
    states_max: int,
) -> Exploration:
    """Breadth first. steps: what may happen in a state, and the state behind it. check: called with each new state.
    Both raise Violated where a promise is broken."""
    result = Exploration()
    came_from: dict[StateT, tuple[StateT, str] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        try:
            for label, after in steps(state):
                result.steps += 1
                if after in came_from:
                    continue
                came_from[after] = (state, label)
                state_before, state = state, after
                check(after)
                state = state_before
                waiting.append(after)
        except Violated as violation:
            result.violation = str(violation)
            result.trace = _trace(came_from, state)
            break
        if len(came_from) >= states_max:
            break
    result.states = len(came_from)
    result.complete = not waiting and result.violation is None
    return result


def _trace(came_from: dict[StateT, tuple[StateT, str] | None], state: StateT) -> list[str]:
    labels: list[str] = []
    while (before := came_from[state]) is not None:
        state, label = before
        labels.append(label)
    return labels[::-1]


# --- walks -----------------------------------------------------------------------------------------------------------

#: Faults end a walk's progress; a walk takes one in about so many steps.
FAULT_EVERY = 12
HEALING_STEPS_MAX = 3_000


def walk(scenario: Scenario, rules: Rules, *, seed: int, length: int) -> Exploration:
    """A random walk, then no further faults: the ledger must become whole, if every entry has a copy left."""
    random_ = random.Random(seed)
    result = Exploration()
    state = scenario.start(rules)
    try:
        for _ in range(length):
            state = _step(state, rules, scenario, random_, result, faults=random_.randrange(FAULT_EVERY) == 0)
        if state.repairers and _curable(state):
            for _ in range(HEALING_STEPS_MAX):
                if state.record.whole and not any(state.nodes[member].bad for member in state.record.members):
                    break
                state = _step(_healed(state), rules, scenario, random_, result, faults=False)
            else:
                raise Violated("the ledger does not become whole without faults")
    except Violated as violation:
        result.violation = str(violation)
    return result


def _step(
    state: State, rules: Rules, scenario: Scenario, random_: random.Random, result: Exploration, *, faults: bool
) -> State:
    calm = state._replace(budget=Budget())
    possible = list(steps_of(state if faults else calm, rules, scenario))
    if not faults:
        possible = [(label, after._replace(budget=state.budget)) for label, after in possible]
    if not possible:
        return state
    label, after = random_.choice(possible)
    result.trace.append(label)
    result.steps += 1
    check(after)
    return after


def _curable(state: State) -> bool:
    """CLOSED, each entry is held by a node that is not gone, and enough nodes for the members are left."""
    present = [node for node in state.nodes if node.presence is not Presence.GONE]
    held = 0
    for node in present:
        held |= node.holds
    closed = state.record.ledger is Ledger.CLOSED
    return closed and not state.record.entries & ~held and len(present) >= len(state.record.members)


def _healed(state: State) -> State:
    """Every absent node is back."""
    nodes = tuple(n._replace(presence=Presence.UP) if n.presence is Presence.DOWN else n for n in state.nodes)
    return state._replace(nodes=nodes)
