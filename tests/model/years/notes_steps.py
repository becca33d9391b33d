"""The steps of the model of notes, and its promises."""

from collections.abc import Iterator
from itertools import combinations

from tests.model.state import Violated
from tests.model.years.notes_state import (
    ACK_QUORUM,
    MISSING_MAX,
    NODES,
    Node,
    Operation,
    Phase,
    Record,
    Rules,
    Service,
    State,
    kept,
)


def steps_of(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    for number, service in enumerate(state.services):
        name = f"{service.operation.name.lower()} {number}"
        if service.phase is Phase.BEGINS:
            yield from _writes(state, number, service, name)
        elif service.phase is Phase.WRITTEN:
            yield f"{name} is read back", _with_note(state, number, service, rules)
        elif service.phase is Phase.NOTES:
            yield from _sends(state, number, service, name, rules)
    yield from _node_steps(state, rules)
    budget = state.budget
    if budget.copies:
        copied = state._replace(copy=state.record, budget=budget._replace(copies=budget.copies - 1))
        yield "a copy of the records is made", copied


def check(state: State, rules: Rules) -> None:
    """What a restore finds is not older than what was answered, and it was in ZooKeeper."""
    everywhere = [node.note for node in state.nodes]
    _judge(state, _newest(everywhere, rules))
    for count in range(1, NODES + 1):
        for asked in combinations(range(NODES), count):
            members = sum(not state.nodes[number].joining for number in asked)
            if NODES - members > MISSING_MAX and rules.too_few_is_closed:
                continue
            found = _newest([state.nodes[number].note for number in asked], rules)
            if state.copy is not None:
                found = _newest([found, state.copy], rules) if rules.newest_of_both else state.copy
            _judge(state, found)


def _judge(state: State, found: Record | None) -> None:
    if found is not None and found not in state.history:
        raise Violated(f"a restore finds {found}, which never was")
    if found is None or state.history.index(found) < state.answered:
        raise Violated(f"a restore finds {found}, and {state.history[state.answered]} was answered")


def _newest(notes: list[Record | None], rules: Rules) -> Record | None:
    newest: Record | None = None
    for note in notes:
        if note is not None:
            newest = _higher(newest, note, rules)
    return newest


def _higher(former: Record | None, note: Record, rules: Rules) -> Record:
    if rules.created_counts or former is None:
        return kept(former, note)
    return max(former, note, key=lambda each: (each.deleted, each.version))


# --- services ---------------------------------------------------------------------------------------------------------


def _writes(state: State, number: int, service: Service, name: str) -> Iterator[tuple[str, State]]:
    intent = _change(state.record, service.operation, number + 1, len(state.history))
    if intent is None:
        return
    waits = service._replace(phase=Phase.WRITTEN, intent=intent)
    written = state._replace(history=(*state.history, intent)).with_service(number, waits)
    yield f"{name} is written", written
    budget = state.budget
    if budget.unknown:
        # Whether it was applied makes a difference to the record only: the service does the same.
        lost = state.with_service(number, waits)
        yield f"{name} is not written, and unknown", lost._replace(budget=budget._replace(unknown=budget.unknown - 1))


def _change(record: Record, operation: Operation, value: int, transaction: int) -> Record | None:
    """None: it is not possible."""
    if operation is Operation.CREATE:
        return Record(transaction + 1, 0, value) if record.deleted else None
    if record.deleted:
        return None
    if operation is Operation.DELETE:
        return record._replace(deleted=True)
    return record._replace(version=record.version + 1, value=value)


def _with_note(state: State, number: int, service: Service, rules: Rules) -> State:
    note = state.record if rules.note_is_read else service.intent
    if note is not None and note.deleted and not rules.deletion_is_a_note:
        # Nothing is sent, so nothing is waited for.
        answered = max(state.answered, state.history.index(note))
        return state._replace(answered=answered).with_service(number, service._replace(phase=Phase.DONE))
    return state.with_service(number, service._replace(phase=Phase.NOTES, note=note))


def _sends(state: State, number: int, service: Service, name: str, rules: Rules) -> Iterator[tuple[str, State]]:
    note = service.note
    assert note is not None
    for at, node in enumerate(state.nodes):
        if service.stored >> at & 1:
            continue
        stays = _higher(node.note, note, rules) if rules.highest_stays else note
        counts = 0 if node.joining else 1 << at
        after = state.with_node(at, node._replace(note=stays))
        yield (
            f"the note of {name} reaches {at}",
            after.with_service(number, service._replace(stored=service.stored | counts)),
        )
    if service.stored.bit_count() >= ACK_QUORUM or not rules.answer_waits_for_notes:
        # A write without a definite answer may have told nothing: then the note is of another one, and no answer.
        answered = max(state.answered, state.history.index(note)) if note in state.history else state.answered
        done = service._replace(phase=Phase.DONE)
        yield f"{name} is answered", state._replace(answered=answered).with_service(number, done)


# --- nodes ------------------------------------------------------------------------------------------------------------


def _node_steps(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    budget = state.budget
    for number, node in enumerate(state.nodes):
        if node.joining:
            copied = node._replace(note=_higher(node.note, state.record, rules), joining=False)
            yield f"{number} has copied all notes", state.with_node(number, copied)
        if budget.replaced and _may_replace(state, number, rules):
            fresh = state.with_node(number, Node(None, joining=rules.member_has_notes))
            services = tuple(each._replace(stored=each.stored & ~(1 << number)) for each in state.services)
            left = budget._replace(replaced=budget.replaced - 1)
            yield f"the disk of {number} is replaced", fresh._replace(services=services, budget=left)


def _may_replace(state: State, number: int, rules: Rules) -> bool:
    if not rules.replacement_counts_holders:
        return True
    newest = state.history[state.answered]
    others = [node for at, node in enumerate(state.nodes) if at != number and not node.joining]
    return any(node.note is not None and node.note.order >= newest.order for node in others)
