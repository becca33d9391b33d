"""The steps of the model of messages in chunks, and its promises."""

from collections.abc import Iterator

from tests.model.chunks.state import CHUNKS, Client, Entry, Kind, Ledger, Place, Rules, State, Upload
from tests.model.state import Violated


def steps_of(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    if state.last.durable < len(state.last.entries):
        yield "an entry becomes durable", _answered(state)
    for number, client in enumerate(state.clients):
        if client.answer is None:
            yield from _client_steps(state, rules, number, client)
    if state.budget:
        yield from _faults(state._replace(budget=state.budget - 1), rules)


def check(state: State) -> None:
    """Every durable message is whole, and there is one; an answer says where it is."""
    ledgers = {ledger.id: ledger for ledger in state.ledgers}
    found: list[Place] = []
    for ledger in state.ledgers:
        for at, entry in enumerate(ledger.entries[: ledger.durable]):
            if entry.kind is not Kind.MESSAGE:
                continue
            found.append(Place(ledger.id, at))
            parts: list[tuple[Kind, str, int]] = []
            for place in entry.named:
                holder = ledgers.get(place.ledger)
                if holder is None:
                    raise Violated("a chunk was trimmed before its message")
                if place.entry >= holder.durable:
                    raise Violated("a message is durable, and its chunk is not")
                chunk = holder.entries[place.entry]
                parts.append((chunk.kind, chunk.value, chunk.number))
            if parts != [(Kind.CHUNK, entry.value, number) for number in range(CHUNKS)]:
                raise Violated("a message names other chunks than its own")
    if len(found) > 1:
        raise Violated("one id is stored twice")
    for client in state.clients:
        answer = client.answer
        if answer is None or answer in found or answer.ledger not in ledgers:
            continue
        if answer.entry < ledgers[answer.ledger].durable:
            raise Violated("a message was acknowledged where there is none")


def _client_steps(state: State, rules: Rules, number: int, client: Client) -> Iterator[tuple[str, State]]:
    if not client.generation or client.generation != state.session:
        yield from _opened(state, rules, number, client)
    elif client.sent < CHUNKS:
        yield f"{client.value} sends a chunk", _chunk(state, rules, number, client)
    elif len(client.named) == CHUNKS and not client.final:
        yield f"{client.value} sends its message", _message(state, rules, number, client)


def _opened(state: State, rules: Rules, number: int, client: Client) -> Iterator[tuple[str, State]]:
    """The first session of an instance takes a grant, a later one a fault: something must have ended the one before."""
    if not client.generation:
        generation = state.generation + 1
        granted = state.appended(Entry(Kind.GRANT, generation))._replace(generation=generation)
        yield f"{client.value} is granted", _session(granted, rules, number, client._replace(generation=generation))
    elif client.generation == state.generation or not rules.fenced:
        yield f"{client.value} resumes", _session(state, rules, number, client)


def _session(state: State, rules: Rules, number: int, client: Client) -> State:
    state = _ended(state, rules)._replace(session=client.generation)
    return state.with_client(number, client._replace(attempt=client.attempt + 1))


def _ended(state: State, rules: Rules) -> State:
    """The session is over; its instance begins anew."""
    clients = tuple(client._replace(sent=0, named=(), final=False) for client in state.clients)
    return state._replace(clients=clients, session=0, upload=None if rules.one_session else state.upload)


def _chunk(state: State, rules: Rules, number: int, client: Client) -> State:
    if state.stored is not None and rules.deduplicated:
        return state.with_client(number, client._replace(answer=state.stored))
    upload = state.upload
    if client.sent == 0 and (rules.one_session or upload is None):
        upload = Upload(state.last.id, client.generation)
    lost = upload is None or (rules.one_ledger and upload.ledger != state.last.id)
    if upload is None or lost or (rules.one_session and len(upload.chunks) != client.sent):
        return _ended(state, rules)
    place = state.end
    state = state.appended(Entry(Kind.CHUNK, client.generation, client.attempt, client.value, client.sent))
    state = state._replace(upload=upload._replace(chunks=(*upload.chunks, place)))
    if not rules.message_alone_counts:
        state = state._replace(stored=state.stored or place)
    return state.with_client(number, client._replace(sent=client.sent + 1))


def _message(state: State, rules: Rules, number: int, client: Client) -> State:
    if state.stored is not None and rules.deduplicated:
        return state.with_client(number, client._replace(answer=state.stored))
    upload = state.upload
    mine = upload is not None and upload.chunks[-CHUNKS:] == client.named and upload.generation == client.generation
    whole = upload is not None and (upload.ledger == state.last.id or not rules.one_ledger)
    if not whole or (rules.names_checked and not mine):
        return _ended(state, rules)
    # Without the check, the owner names what it has: the first chunks of whatever upload there is.
    named = client.named if rules.names_checked or upload is None else upload.chunks[:CHUNKS]
    place = state.end
    state = state.appended(Entry(Kind.MESSAGE, client.generation, client.attempt, client.value, named=named))
    state = state._replace(upload=None, stored=state.stored or place)
    return state.with_client(number, client._replace(final=True))


def _answered(state: State) -> State:
    """The next entry is durable, and whoever waits for it in its session is told."""
    at = Place(state.last.id, state.last.durable)
    entry = state.last.entries[at.entry]
    state = state.with_last(state.last._replace(durable=at.entry + 1))
    for number, client in enumerate(state.clients):
        if client.generation != state.session or entry[1:3] != (client.generation, client.attempt):
            continue
        if entry.kind is Kind.CHUNK and entry.number == len(client.named) < client.sent:
            state = state.with_client(number, client._replace(named=(*client.named, at)))
        elif entry.kind is Kind.MESSAGE and client.final:
            state = state.with_client(number, client._replace(answer=at))
    return state


def _faults(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    last = state.last
    following = Ledger(last.id + 1)
    if state.session:
        yield "the session breaks", _ended(state, rules)
    if last.entries and last.durable == len(last.entries):
        rolled = state._replace(ledgers=(*state.ledgers[:-1], last._replace(closed=True), following))
        yield "the ledger rolls", rolled
    if last.durable < len(last.entries):
        kept = last._replace(entries=last.entries[: last.durable], closed=True)
        failed = _ended(state._replace(ledgers=(*state.ledgers[:-1], kept, following)), rules)
        yield "a write fails", _folded(failed, rules)
    for count in range(last.durable, len(last.entries) + 1):
        kept = Ledger(last.id, last.entries[:count], count, closed=True)
        taken = _ended(state, rules)._replace(ledgers=(*state.ledgers[:-1], kept, following), upload=None)
        yield f"another owner takes over, with {count - last.durable} entries in flight", _folded(taken, rules)
    if len(state.clients) == 1 and state.clients[0].generation:
        yield "a successor starts", state._replace(clients=(*state.clients, Client("B")))
    if len(state.ledgers) > 1:
        # What was trimmed stays known: it is in a snapshot.
        yield "the oldest ledger is trimmed", state._replace(ledgers=state.ledgers[1:])


def _folded(state: State, rules: Rules) -> State:
    """What the log says after its end was cut."""
    generation, stored = 0, None
    for ledger in state.ledgers:
        for at, entry in enumerate(ledger.entries):
            generation = max(generation, entry.generation if entry.kind is Kind.GRANT else 0)
            if entry.kind is Kind.MESSAGE or (entry.kind is Kind.CHUNK and not rules.message_alone_counts):
                stored = stored or Place(ledger.id, at)
    first = state.ledgers[0].id
    if state.stored is not None and state.stored.ledger < first:
        stored = state.stored
    return state._replace(generation=max(generation, 0 if first == 0 else state.generation), stored=stored)
