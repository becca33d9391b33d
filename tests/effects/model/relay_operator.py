"""`oncelog relay resume --after-restore` in the model of the outbox relay: the steps of `outbox.resuming`."""

from collections.abc import Iterator

from oncelog_effects.core.outbox.resume import recognized
from tests.effects.model.relay_state import NOBODY, Operator, Phase, Relay, Rules, State, messages_of
from tests.effects.model.relay_store import Step, settled, spent, with_database


def operator_steps(state: State, rules: Rules, *, database: int | None = None) -> Iterator[Step]:
    """database: of a new resume; None: each that a relay has stopped at."""
    me = state.operator
    if state.budget.resumes:
        stopped = {relay.database for relay in state.relays if relay.phase is Phase.STOPPED}
        for index in sorted(stopped) if database is None else [database]:
            begun = state._replace(operator=Operator())
            claimed = begun.databases[index]._replace(claim=begun.fresh_claim())
            begun = with_database(begun, index, claimed)
            begun = begun._replace(operator=Operator(Phase.CLAIMED, index, claimed.claim))
            yield f"an operator resumes D{index + 1}", spent(begun, "resumes")
    if me.phase is Phase.OFF:
        return
    here = state.databases[me.database]
    if here.claim != me.claim:
        yield "the resume has lost its claim", state._replace(operator=Operator())
        return
    match me.phase:
        case Phase.CLAIMED:
            found = tuple((number, state.log[number]) for number in range(here.confirmed + 1, len(state.log)))
            opened = me._replace(phase=Phase.READING, last=len(state.log) - 1, found=found)
            yield "the resume opens", state._replace(operator=opened, holder=state.fresh_opening())
        case Phase.READING:
            rows = tuple(row._replace(number=NOBODY) for row in here.rows)
            forgotten = here._replace(rows=rows)
            if not rules.resume_ends_last:
                forgotten = forgotten._replace(next_number=me.last + 1, confirmed=me.last)
            after = with_database(state, me.database, forgotten)
            yield "the rows lose their numbers", after._replace(operator=me._replace(phase=Phase.FORGOTTEN))
        case Phase.FORGOTTEN:
            by_event = {str(row.event): row.id for row in here.rows}
            known = recognized(messages_of(me.found), by_event)
            gone = {stored.row for stored in known.stored} if rules.resume_recognizes_events else set()
            left = settled(here, (row for row in here.rows if row.id in gone), state.log)
            after = with_database(state, me.database, left)
            yield f"{len(gone)} rows are settled", after._replace(operator=me._replace(phase=Phase.SETTLED))
        case Phase.SETTLED:
            yield "the stream gets its new end", _ended(state)


def _ended(state: State) -> State:
    """The relays that have stopped are started again."""
    me = state.operator
    ended = state.databases[me.database]._replace(next_number=me.last + 1, confirmed=me.last, claim=0)
    relays = tuple(
        Relay(database=relay.database) if (relay.phase, relay.database) == (Phase.STOPPED, me.database) else relay
        for relay in state.relays
    )
    return with_database(state._replace(operator=Operator(), relays=relays), me.database, ended)
