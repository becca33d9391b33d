"""The steps of the model of the outbox relay: application, log, relays, faults; and how it ends without faults."""

from collections.abc import Iterator

from oncelog.core.errors import EffectsError
from oncelog_effects.core.outbox.streams import check_end, check_found
from tests.effects.model.relay_operator import operator_steps
from tests.effects.model.relay_state import (
    TOPIC_ID,
    Budget,
    Database,
    Fate,
    Insert,
    Phase,
    Relay,
    Row,
    Rules,
    Send,
    State,
    messages_of,
)
from tests.effects.model.relay_store import Step, landed, settled, spent, with_database, with_relay
from tests.model.state import Violated

#: Rows of one look and of one send, and sends under way.
LOOK_MAX = 2
SEND_MAX = 1
SENDS_MAX = 2


def steps_of(state: State, rules: Rules) -> Iterator[Step]:
    """Everything that may happen next. Raises Violated where that breaks a promise."""
    for index in range(len(state.relays)):
        yield from relay_steps(state, rules, index)
    seen: set[int] = set()
    for number, send in enumerate(state.sends):
        if send.fate is Fate.UNDER_WAY and send.opening not in seen:
            seen.add(send.opening)
            yield f"events {send.events} arrive from {send.first} on", landed(state, number)
    yield from _application_steps(state)
    yield from _fault_steps(state, rules)
    yield from operator_steps(state, rules)


# --- application and faults ------------------------------------------------------------------------------------------


def _application_steps(state: State) -> Iterator[Step]:
    if state.budget.inserts:
        for index, database in enumerate(state.databases):
            insert = Insert(index, database.next_id, len(state.before))
            after = with_database(state, index, database._replace(next_id=insert.id + 1))
            after = after._replace(
                inserts=tuple(sorted((*state.inserts, insert))), before=(*state.before, database.committed)
            )
            yield f"event {insert.event} takes id {insert.id} in D{index + 1}", spent(after, "inserts")
    for insert in state.inserts:
        yield f"event {insert.event} is committed", committed(state, insert)


def committed(state: State, insert: Insert) -> State:
    database = state.databases[insert.database]
    rows = tuple(sorted((*database.rows, Row(insert.id, insert.event))))
    database = database._replace(rows=rows, committed=database.committed | 1 << insert.event)
    left = tuple(each for each in state.inserts if each != insert)
    return with_database(state._replace(inserts=left), insert.database, database)


def _fault_steps(state: State, rules: Rules) -> Iterator[Step]:
    budget, (database, *others) = state.budget, state.databases
    if budget.backups and not others:
        yield "a backup is made", spent(state._replace(backup=database), "backups")
    if budget.restores and state.backup is not None:
        restored = state.backup._replace(incarnation=database.incarnation + 1)
        aborted = tuple(each for each in state.inserts if each.database)
        after = state._replace(databases=(restored, *others), inserts=aborted, disturbed=True)
        yield "the database is restored", spent(after, "restores")
    if budget.splits and not others:
        second = Relay(database=1)
        after = state._replace(databases=(database, database), relays=(state.relays[0], second), disturbed=True)
        yield "the database has two primaries", spent(after, "splits")


# --- relays ----------------------------------------------------------------------------------------------------------


def relay_steps(state: State, rules: Rules, index: int) -> Iterator[Step]:
    me, name = state.relays[index], f"R{index + 1}"
    match me.phase:
        case Phase.OFF:
            if state.budget.claims:
                yield f"{name} claims", spent(_claimed(state, index), "claims")
        case Phase.CLAIMED:
            if not rules.opens_before_reading and me.read is None:
                yield f"{name} reads the log", with_relay(state, index, me._replace(read=state.log))
            else:
                yield f"{name} opens", _opened(state, rules, index)
        case Phase.READING:
            yield f"{name} compares", _compared(state, rules, index)
        case Phase.READY:
            yield from _works(state, rules, index)
        case Phase.FENCED:
            following = Phase.CLAIMED if _has_claim(state, rules, index) else Phase.OFF
            yield f"{name} renews its claim", _to(state, index, following)
        case Phase.CONTRADICTED:
            if not rules.contradiction_needs_claim or _has_claim(state, rules, index):
                if not state.disturbed:
                    raise Violated(f"{name} stops with an error, and no database was restored")
                yield f"{name} stops with an error", _to(state, index, Phase.STOPPED)
            else:
                yield f"{name} has lost its claim", _to(state, index, Phase.OFF)


def _to(state: State, index: int, phase: Phase) -> State:
    """An OFF relay has forgotten everything; what it has sent and not stored loses its sender."""
    me = state.relays[index]
    if phase in (Phase.OFF, Phase.STOPPED):
        state = _void(state, index)
        return with_relay(state, index, Relay(database=me.database, phase=phase))
    return with_relay(state, index, me._replace(phase=phase))


def _void(state: State, index: int) -> State:
    """The answers of what was sent so far will not be heard."""
    opening = state.relays[index].opening
    left = tuple(each for each in state.sends if each.opening != opening or each.fate is Fate.UNDER_WAY)
    return state._replace(sends=left)


def _has_claim(state: State, rules: Rules, index: int) -> bool:
    """Whether a transaction of this relay may write."""
    me, database = state.relays[index], state.databases[state.relays[index].database]
    if rules.claims_each_connection and me.incarnation != database.incarnation:
        return False  # the connection is broken
    return database.claim == me.claim or not rules.writes_name_claim


def _claimed(state: State, index: int) -> State:
    me = state.relays[index]
    database = state.databases[me.database]._replace(claim=state.fresh_claim())
    rows = database.numbered(database.confirmed + 1, database.next_number)
    relay = Relay(
        me.database, Phase.CLAIMED, database.claim, database.incarnation, database.next_number, database.confirmed,
        tuple((row.number, row.event) for row in rows), sent=database.confirmed, stored=database.confirmed,
        ids=tuple((row.number, row.id) for row in rows),
    )  # fmt: skip
    return with_relay(with_database(state, me.database, database), index, relay)


def _opened(state: State, rules: Rules, index: int) -> State:
    state = _void(state, index)
    me, opening = state.relays[index], state.fresh_opening()
    last = len(state.log if me.read is None else me.read) - 1
    me = me._replace(opening=opening, opened_at=last, sent=me.stored, looked=())
    state = with_relay(state._replace(holder=opening), index, me)
    if not rules.compares_each_opening:
        return _ready(state, index, me.stored)
    try:
        check_end(me.stream, me.heads(), TOPIC_ID, last, stored=me.stored)
    except EffectsError:
        return _to(state, index, Phase.CONTRADICTED)
    return _ready(state, index, last) if last == me.confirmed else _to(state, index, Phase.READING)


def _compared(state: State, rules: Rules, index: int) -> State:
    me = state.relays[index]
    log = state.log if me.read is None else me.read
    found = tuple((number, log[number]) for number in range(me.confirmed + 1, me.opened_at + 1))
    try:
        check_found(me.stream, me.heads(), messages_of(found), me.opened_at)
    except EffectsError:
        return _to(state, index, Phase.CONTRADICTED)
    return _ready(state, index, me.opened_at)


def _ready(state: State, index: int, stored: int) -> State:
    me = state.relays[index]
    stored = max(me.stored, stored)
    return with_relay(state, index, me._replace(phase=Phase.READY, sent=stored, stored=stored, read=None))


def _works(state: State, rules: Rules, index: int) -> Iterator[Step]:
    """What makes progress comes first."""
    me, name = state.relays[index], f"R{index + 1}"
    mine = [each for each in state.sends if each.opening == me.opening]
    if mine and mine[0].fate is not Fate.UNDER_WAY:
        yield f"{name} is answered up to {mine[0].last}: {mine[0].fate.name}", _answered(state, rules, index)
        if state.budget.lost_answers:
            yield f"an answer to {name} is lost", spent(_to(state, index, Phase.CLAIMED), "lost_answers")
    if me.stored > me.confirmed and (rules.numbers_before_sending or not me.looked):
        yield f"{name} confirms up to {me.stored}", _confirmed(state, rules, index)
    if me.numbered and me.sent < me.numbered[-1][0] and len(mine) < SENDS_MAX:
        yield f"{name} sends from {me.sent + 1} on", _sent(state, rules, index)
    database = state.databases[me.database]
    if me.looked:
        yield f"{name} numbers {len(me.looked)} rows", _numbered(state, rules, index)
        return
    waiting = [row for row in database.waiting() if rules.numbers_what_is_committed or row.id > database.highest]
    if not _has_claim(state, rules, index):
        yield f"{name} finds that its claim is lost", _to(state, index, Phase.OFF)
    elif waiting and not (me.numbered and me.sent < me.numbered[-1][0]):
        looked = tuple((row.id, row.event) for row in waiting[:LOOK_MAX])
        looking = with_relay(state, index, me._replace(looked=looked))
        if rules.numbers_before_sending:
            yield f"{name} looks at {len(looked)} rows", looking
        else:
            events = tuple(event for _, event in looked)
            yield f"{name} looks at {len(looked)} rows and sends", _under_way(looking, index, me.next_number, events)


def _answered(state: State, rules: Rules, index: int) -> State:
    me = state.relays[index]
    first = next(each for each in state.sends if each.opening == me.opening)
    if first.fate is Fate.FENCED:
        return _to(_void(state, index), index, Phase.FENCED)
    if first.fate is Fate.FOREIGN and rules.duplicates_by_event_id:
        return _to(_void(state, index), index, Phase.CLAIMED)
    state = state._replace(sends=tuple(each for each in state.sends if each != first))
    return with_relay(state, index, me._replace(stored=max(me.stored, first.last)))


def _confirmed(state: State, rules: Rules, index: int) -> State:
    if not _has_claim(state, rules, index):
        return _to(state, index, Phase.OFF)
    me = state.relays[index]
    database = state.databases[me.database]
    if rules.confirms_by_number:
        gone = database.numbered(0, me.stored)
    else:
        stored = {row for number, row in me.ids if number <= me.stored}
        gone = tuple(row for row in database.rows if row.id in stored)
    database = settled(database, gone, state.log)._replace(confirmed=me.stored)
    numbered = tuple(each for each in me.numbered if each[0] > me.stored)
    ids = tuple(each for each in me.ids if each[0] > me.stored)
    me = me._replace(confirmed=me.stored, numbered=numbered, ids=ids)
    return with_relay(with_database(state, me.database, database), index, me)


def _sent(state: State, rules: Rules, index: int) -> State:
    """Keys and values are read without the claim."""
    me = state.relays[index]
    database = state.databases[me.database]
    if rules.claims_each_connection and me.incarnation != database.incarnation:
        return _to(state, index, Phase.OFF)
    rows = database.numbered(me.sent + 1, me.sent + SEND_MAX)
    if not rows:
        return _to(state, index, Phase.OFF)
    return _under_way(state, index, me.sent + 1, tuple(row.event for row in rows))


def _under_way(state: State, index: int, first: int, events: tuple[int, ...]) -> State:
    me = state.relays[index]
    send = Send(me.opening, first, events)
    return with_relay(state._replace(sends=(*state.sends, send)), index, me._replace(sent=send.last))


def _numbered(state: State, rules: Rules, index: int) -> State:
    """One transaction: all of the rows, and the next number of the stream."""
    me = state.relays[index]
    database = state.databases[me.database]
    if not _has_claim(state, rules, index) or database.next_number != me.next_number:
        return _to(state, index, Phase.OFF)
    waiting = {(row.id, row.event) for row in database.waiting()}
    if not waiting.issuperset(me.looked):
        return with_relay(state, index, me._replace(looked=()))
    given = {row: me.next_number + offset for offset, (row, _) in enumerate(me.looked)}
    rows = tuple(row._replace(number=given.get(row.id, row.number)) for row in database.rows)
    following = me.next_number + len(given)
    database = database._replace(rows=rows, next_number=following, highest=max(database.highest, *given))
    numbered = (*me.numbered, *((given[row], event) for row, event in me.looked))
    ids = (*me.ids, *((given[row], row) for row, _ in me.looked))
    me = me._replace(next_number=following, numbered=numbered, looked=(), ids=ids)
    return with_relay(with_database(state, me.database, database), index, me)


# --- the end ---------------------------------------------------------------------------------------------------------

_HEALING_STEPS_MAX = 200


class Healing:
    """Without further faults every committed row is stored, and gone from its database; where a relay has stopped, an
    operator resumes. One for each exploration."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._whole: set[State] = set()

    def check(self, state: State) -> None:
        """Raises Violated."""
        state = state._replace(budget=Budget(inserts=0, claims=0), backup=None)
        passed: list[State] = []
        for _ in range(_HEALING_STEPS_MAX):
            if state in self._whole:
                break
            passed.append(state)
            after = self._progress(state)
            if after is None:
                left = [row.event for database in state.databases for row in database.rows]
                if left:
                    raise Violated(f"events {left} are never stored")
                break
            state = after
        else:
            raise Violated("no end: the relays do the same again and again")
        self._whole.update(passed)

    def _progress(self, state: State) -> State | None:
        for number, send in enumerate(state.sends):
            if send.fate is Fate.UNDER_WAY:
                return landed(state, number)
        if state.inserts:
            return committed(state, state.inserts[0])
        if state.operator.phase is not Phase.OFF:
            return next(operator_steps(state, self._rules))[1]
        for index, database in enumerate(state.databases):
            after = self._relayed(state, index, database)
            if after is not None:
                return after
        return None

    def _relayed(self, state: State, index: int, database: Database) -> State | None:
        """By the relay that has the claim, or by the first one of the database."""
        mine = [number for number, relay in enumerate(state.relays) if relay.database == index]
        stopped = [number for number in mine if state.relays[number].phase is Phase.STOPPED]
        if stopped:
            budget = state.budget._replace(resumes=1)
            return next(operator_steps(state._replace(budget=budget), self._rules, database=index))[1]
        holders = [number for number in mine if state.relays[number].phase is not Phase.OFF]
        current = [number for number in holders if state.relays[number].claim == database.claim]
        for number in (*current, *holders):
            for _, after in relay_steps(state, self._rules, number):
                return after
        return _claimed(state, mine[0]) if database.rows and not holders else None
