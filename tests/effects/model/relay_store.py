"""The log and the databases in the model of the outbox relay, and the promises that each of their writes keeps."""

from collections.abc import Iterable

from tests.effects.model.relay_state import Database, Fate, Relay, Row, State
from tests.model.state import Violated

Step = tuple[str, State]


def spent(state: State, what: str) -> State:
    return state._replace(budget=state.budget._replace(**{what: getattr(state.budget, what) - 1}))


def with_relay(state: State, index: int, relay: Relay) -> State:
    return state._replace(relays=(*state.relays[:index], relay, *state.relays[index + 1 :]))


def with_database(state: State, index: int, database: Database) -> State:
    return state._replace(databases=(*state.databases[:index], database, *state.databases[index + 1 :]))


def settled(database: Database, gone: Iterable[Row], log: tuple[int, ...]) -> Database:
    """Without these rows. Raises Violated."""
    gone = set(gone)
    lost = sorted(row.event for row in gone if row.event not in log)
    if lost:
        raise Violated(f"the rows of events {lost} are deleted, and the log does not have them")
    return database._replace(rows=tuple(row for row in database.rows if row not in gone))


def landed(state: State, number: int) -> State:
    """At the owner of the topic, whether somebody waits for it or not. Raises Violated."""
    send, log = state.sends[number], state.log
    fate = Fate.STORED
    if send.opening != state.holder or send.first > len(log):
        fate = Fate.FENCED
    else:
        for at, event in enumerate(send.events, send.first):
            if at < len(log):
                fate = Fate.FOREIGN
            else:
                _check_stored(state, log, event)
                log = (*log, event)
    waits = any(relay.opening == send.opening for relay in state.relays)
    answer = (send._replace(fate=fate),) if waits else ()
    return state._replace(log=log, sends=(*state.sends[:number], *answer, *state.sends[number + 1 :]))


def _check_stored(state: State, log: tuple[int, ...], event: int) -> None:
    if event in log:
        raise Violated(f"event {event} is stored twice")
    overtaken = [each for each in log if state.before[each] >> event & 1]
    if overtaken:
        raise Violated(f"event {event} was committed before events {overtaken} began, and is stored behind them")
