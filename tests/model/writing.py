"""The steps of the writer, of the recoverers and of the reader."""

from collections.abc import Iterator

from tests.model.state import (
    ACK_QUORUM,
    COVERAGE,
    WRITE_QUORUM,
    Ledger,
    Node,
    Reader,
    Recoverer,
    Rules,
    State,
    Violated,
    bits,
    with_node,
    written,
)

Step = tuple[str, State]


def writer_steps(state: State, rules: Rules) -> Iterator[Step]:
    """Any add may reach its member at any time: the writer may be paused, and deposed long ago.

    Its members are those of the beginning, 0 to 2: the members of a ledger that is not CLOSED do not change.
    """
    for entry, confirmed in enumerate(state.confirmed):
        for number in range(WRITE_QUORUM):
            if confirmed >> number & 1:
                continue
            node = state.nodes[number]
            if _takes_add(state, rules, node):
                after = with_node(state, number, _with_entry(node, entry))
                masks = (*state.confirmed[:entry], confirmed | 1 << number, *state.confirmed[entry + 1 :])
                yield f"add {entry} at {number}", after._replace(confirmed=masks)


def _takes_add(state: State, rules: Rules, node: Node) -> bool:
    """An ordinary add. The first one of a ledger needs a synced read that shows it OPEN."""
    if not node.serves or node.fenced or node.erased or (node.limbo and rules.limbo_refuses_adds):
        return False
    return node.holds != 0 or state.record.ledger is Ledger.OPEN


def _with_entry(node: Node, entry: int) -> Node:
    return node._replace(holds=node.holds | 1 << entry, hurt=node.hurt & ~(1 << entry))


# --- recovery --------------------------------------------------------------------------------------------------------


def recoverer_steps(state: State, rules: Rules) -> Iterator[Step]:
    for index, recoverer in enumerate(state.recoverers):
        if not recoverer.active:
            if state.record.ledger is not Ledger.CLOSED:
                record = state.record._replace(ledger=Ledger.IN_RECOVERY)
                begun = state if record == state.record else written(state, record)
                yield f"recovery {index} begins", _with(begun, index, Recoverer(active=True))
            continue
        yield f"recovery {index} dies", _with(state, index, Recoverer())
        for number in state.record.members:
            yield from _member_steps(state, rules, index, recoverer, number)
        yield from _decisions(state, rules, index, recoverer)


def _member_steps(state: State, rules: Rules, index: int, recoverer: Recoverer, number: int) -> Iterator[Step]:
    node, bit = state.nodes[number], 1 << number
    if not node.serves or (node.erased and rules.erased_proves_nothing):
        return
    if recoverer.fenced.bit_count() < COVERAGE:
        if not recoverer.fenced & bit:
            fenced = with_node(state, number, node._replace(fenced=True))
            yield (
                f"recovery {index} fences {number}",
                _with(fenced, index, recoverer._replace(fenced=recoverer.fenced | bit)),
            )
        return
    if recoverer.found:
        if not recoverer.confirmed & bit and not node.erased:
            added = with_node(state, number, _with_entry(node, recoverer.entry))
            yield (
                f"recovery {index} writes {recoverer.entry} back to {number}",
                _with(added, index, recoverer._replace(confirmed=recoverer.confirmed | bit)),
            )
        return
    if recoverer.missing & bit or recoverer.entry >= len(state.confirmed):
        return
    after = with_node(state, number, node._replace(fenced=True)) if rules.recovery_reads_fence else state
    if node.holds >> recoverer.entry & 1:
        yield (
            f"recovery {index} finds {recoverer.entry} at {number}",
            _with(after, index, recoverer._replace(found=True, missing=0)),
        )
    elif not node.limbo:
        yield (
            f"recovery {index} misses {recoverer.entry} at {number}",
            _with(after, index, recoverer._replace(missing=recoverer.missing | bit)),
        )


def _decisions(state: State, rules: Rules, index: int, recoverer: Recoverer) -> Iterator[Step]:
    if state.record.ledger is Ledger.CLOSED:
        yield f"recovery {index} adopts the end", _with(state, index, Recoverer())
        return
    if recoverer.found:
        if recoverer.confirmed.bit_count() >= (ACK_QUORUM if rules.write_back_needs_quorum else 1):
            following = Recoverer(active=True, fenced=recoverer.fenced, entry=recoverer.entry + 1)
            yield f"recovery {index} goes on to {following.entry}", _with(state, index, following)
        return
    negatives = COVERAGE if rules.end_needs_coverage else 1
    at_last = recoverer.entry == len(state.confirmed) and recoverer.fenced.bit_count() >= COVERAGE
    if at_last or recoverer.missing.bit_count() >= negatives:
        end = recoverer.entry - 1
        closed = written(state, state.record._replace(ledger=Ledger.CLOSED, end=end))
        yield f"recovery {index} closes at {end}", _with(closed, index, Recoverer())


def _with(state: State, index: int, recoverer: Recoverer) -> State:
    return state._replace(recoverers=(*state.recoverers[:index], recoverer, *state.recoverers[index + 1 :]))


# --- the reader ------------------------------------------------------------------------------------------------------


def reader_steps(state: State, rules: Rules) -> Iterator[Step]:
    """It has a cached record, and asks that record's members for entry 0."""
    reader = state.reader
    if reader is None:
        return
    if not reader.fresh:
        yield "the reader reads the record", state._replace(reader=Reader(state.record))
    for number in reader.seen.members:
        node = state.nodes[number]
        if node.serves and not reader.refused >> number & 1 and not node.holds & 1:
            refused = reader._replace(refused=reader.refused | 1 << number)
            yield f"the reader is refused by {number}", state._replace(reader=refused)
    if len(bits(reader.refused)) == len(reader.seen.members) and (reader.fresh or not rules.reader_reads_again):
        if state.record.whole and any(state.nodes[member].holds & 1 for member in state.record.members):
            raise Violated("the reader reports that entry 0 cannot be read, while members of a whole ledger hold it")
        yield "the reader reports that entry 0 cannot be read", state._replace(reader=reader._replace(refused=0))
