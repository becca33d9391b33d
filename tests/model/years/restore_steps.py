"""The steps of the model of restores, and its promises."""

from collections.abc import Iterator

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.node.era import EraState, EraVerdict, StoredEra
from oncelog.core.rebuild.restore_events import (
    Collect,
    JoinRecords,
    RaiseEras,
    RestoreEnded,
    Survey,
)
from tests.model.state import Violated, bits
from tests.model.years.restore_state import (
    ERA_MAX,
    FIRST_COPY,
    HEAD_AND_COPY,
    NUMBERS,
    Answers,
    CollectedEvent,
    CommitEvent,
    Node,
    RaisedEvent,
    Restorer,
    Rules,
    State,
    SurveyEvent,
    own_entry,
    pending,
)


def steps_of(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    for restorer in range(len(state.restorers)):
        yield from _restore_steps(state, restorer, rules)
    yield from _owner_steps(state, rules)
    yield from _node_steps(state, rules)


def check(state: State) -> None:
    committed = [each for each in state.restorers if each.committed is not None]
    if len({each.committed.number for each in committed if each.committed is not None}) < len(committed):
        raise Violated("two restores of one era serve")
    eras = {FIRST_COPY: FIRST_ERA, HEAD_AND_COPY: FIRST_ERA}
    eras |= {own_entry(number): each.committed for number, each in enumerate(state.restorers) if each.committed}
    for each in committed:
        assert each.committed is not None
        for entry in state.acked:
            if eras[entry].number < each.committed.number and not each.found & entry:
                raise Violated(f"entry {entry} is acknowledged, and era {each.committed.number} does not know it")
        if each.found & FIRST_COPY and each.found & HEAD_AND_COPY:
            raise Violated("a message is stored twice")


# --- owners -----------------------------------------------------------------------------------------------------------


def _owner_steps(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    for at, answers in enumerate(state.answers):
        era = FIRST_ERA if answers.entry <= HEAD_AND_COPY else _era_of(state, answers.entry)
        for number, node in enumerate(state.nodes):
            if answers.nodes >> number & 1 or not _takes(state, number, era, rules):
                continue
            stored = answers._replace(nodes=answers.nodes | 1 << number)
            after = state._replace(answers=(*state.answers[:at], stored, *state.answers[at + 1 :]))
            held = node._replace(holds=node.holds | answers.entry)
            yield f"{number} stores entry {answers.entry}", after.with_node(number, held)
    if state.may_give_up and not state.gave_up and FIRST_COPY not in state.acked:
        sent = (*state.answers, Answers(HEAD_AND_COPY))
        yield "the owner gives up ledger 1", state._replace(gave_up=True, answers=sent)


def _era_of(state: State, entry: int) -> Era:
    [era] = [each.committed for number, each in enumerate(state.restorers) if own_entry(number) == entry]
    assert era is not None
    return era


def _takes(state: State, number: int, era: Era, rules: Rules) -> bool:
    """Whether this node takes an ordinary add of an owner of this era."""
    node = state.nodes[number]
    if rules.calls_have_eras and node.era.judge(era) is not EraVerdict.SAME:
        return False
    if node.turned_back:
        return False
    noted = sum(each.knows_last for at, each in enumerate(state.nodes) if at != state.last) >= state.quorum
    return number != state.last or noted or not rules.member_is_noted


# --- nodes ------------------------------------------------------------------------------------------------------------


def _node_steps(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    begun = any(each.events for each in state.restorers)
    for number, node in enumerate(state.nodes):
        if not node.knows_last and (node.era.era == FIRST_ERA or not rules.calls_have_eras):
            yield f"{number} has the note of the last node", state.with_node(number, node._replace(knows_last=True))
        for each in state.restorers:
            learned = node.era if each.committed is None else node.era.raised(each.committed, committed=True)
            if learned != node.era:
                yield f"{number} reads era {learned.era.number}", state.with_node(number, node._replace(era=learned))
        if state.turned_back and not begun:
            older = state.with_node(number, Node(turned_back=True))
            yield f"the disk of {number} goes back", older._replace(turned_back=state.turned_back - 1)


# --- restores ---------------------------------------------------------------------------------------------------------


def _restore_steps(state: State, number: int, rules: Rules) -> Iterator[tuple[str, State]]:
    restorer = state.restorers[number]
    effect, era = pending(number, restorer.events)
    if era.number > ERA_MAX:
        return
    match effect:
        case Survey():
            for reach in (restorer.reach,) if restorer.reach else state.reaches:
                after = _surveyed(state, number, restorer._replace(reach=reach), rules)
                yield f"restore {number} surveys {bits(reach)}", after
        case RaiseEras():
            yield from _raises(state, number, effect, rules)
        case Collect():
            yield f"restore {number} collects", _collected(state, number, effect, rules)
        case JoinRecords():
            yield f"restore {number} commits era {era.number}", _committed(state, number, era)
        case RestoreEnded():
            return


def _known(state: State, asked: tuple[int, ...], rules: Rules) -> tuple[int, ...]:
    """The nodes that the notes of those that were asked name."""
    if not rules.noted_nodes_count:
        return ()
    noted = any(state.nodes[each].knows_last for each in asked)
    return tuple(each for each in range(len(state.nodes)) if each != state.last or noted)


def _told_quorum(state: State, rules: Rules) -> int:
    return state.quorum if rules.lowest_quorum_bounds else state.quorum + 1


def _seen(state: State, asked: tuple[int, ...], rules: Rules) -> tuple[tuple[int, Era, bool], ...]:
    nodes = state.nodes
    return tuple((each, nodes[each].era.era, nodes[each].limbo and rules.limbo_is_missing) for each in asked)


def _surveyed(state: State, number: int, restorer: Restorer, rules: Rules) -> State:
    """The operator names all nodes but the last one; that one is asked if a note names it."""
    named = tuple(each for each in bits(restorer.reach) if each != state.last)
    asked = bits(restorer.reach) if any(state.nodes[each].knows_last for each in named) else named
    claimed = any(isinstance(each, SurveyEvent) for each in restorer.events)
    era = pending(number, restorer.events)[1] if claimed else None
    event = SurveyEvent(era, _seen(state, asked, rules), _known(state, asked, rules), _told_quorum(state, rules))
    early = 0
    for each in asked:
        early |= state.nodes[each].holds
    return state.with_restorer(number, restorer._replace(events=(*restorer.events, event), raised=(), early=early))


def _raises(state: State, number: int, effect: RaiseEras, rules: Rules) -> Iterator[tuple[str, State]]:
    restorer = state.restorers[number]
    done = dict(restorer.raised)
    for each in (NUMBERS[node] for node in effect.nodes):
        if each in done:
            continue
        if not restorer.reach >> each & 1:
            done[each] = None
            continue
        node = state.nodes[each]
        stored = _stored(node.era, effect.era, rules)
        after = state.with_node(each, node._replace(era=stored))
        told = restorer._replace(raised=(*restorer.raised, (each, stored.era)))
        yield f"{each} stores era {effect.era.number} of restore {number}", after.with_restorer(number, told)
    if len(done) == len(effect.nodes):
        event = RaisedEvent(tuple(sorted(done.items())))
        told = restorer._replace(events=(*restorer.events, event), raised=())
        yield f"restore {number} has raised", state.with_restorer(number, told)


def _stored(now: StoredEra, era: Era, rules: Rules) -> StoredEra:
    if not rules.ballots_differ and era.number == now.era.number:
        return StoredEra(era, EraState.CLAIMED)
    return now.raised(era, committed=False)


def _collected(state: State, number: int, effect: Collect, rules: Rules) -> State:
    restorer = state.restorers[number]
    asked = tuple(NUMBERS[node] for node in effect.nodes)
    found = 0
    for each in asked:
        found |= state.nodes[each].holds
    if not rules.inventory_behind_era:
        found = restorer.early
    known = _known(state, asked, rules) if rules.notes_read_again else ()
    event = CollectedEvent(_seen(state, asked, rules), known, _told_quorum(state, rules))
    if found & HEAD_AND_COPY and rules.ends_by_next_head:
        found &= ~FIRST_COPY  # its ledger ends before it
    return state.with_restorer(number, restorer._replace(events=(*restorer.events, event), found=found))


def _committed(state: State, number: int, era: Era) -> State:
    """Its owner begins to write at once."""
    restorer = state.restorers[number]
    done = restorer._replace(events=(*restorer.events, CommitEvent()), committed=era)
    after = state.with_restorer(number, done)
    return after._replace(answers=(*state.answers, Answers(own_entry(number))))
