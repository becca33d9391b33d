"""The steps of the repairers: one of them at a time is elected, but that is only a hint, so any of them may act.

    LOOK -> JOIN -> COPY -> ATTEST -> SWAP -> WHOLE; any other write of the record, or a crash -> LOOK

A lost reply of a compare-and-set is a crash directly after it.
"""

from collections.abc import Iterator

from tests.model.state import (
    NOBODY,
    Ledger,
    Node,
    Presence,
    Record,
    Repairer,
    Rules,
    State,
    Violated,
    bits,
    with_node,
    written,
)

Step = tuple[str, State]


def repairer_steps(state: State, rules: Rules, *, proves_losses: bool) -> Iterator[Step]:
    """proves_losses: they also look for entries that no node holds."""
    if state.record.ledger is not Ledger.CLOSED or not state.repairers:
        return
    yield from _copies(state, rules)
    for index, repairer in enumerate(state.repairers):
        if not repairer.fresh:
            yield f"repair {index} looks", _with(state, index, Repairer(fresh=True, seen=_kept(state, rules)))
        else:
            yield f"repair {index} dies", _with(state, index, Repairer())
            yield from _attests(state, rules, index, repairer)
            yield from _joins(state, rules, index, repairer)
            yield from _marks(state, rules, index, repairer)
            if proves_losses:
                yield from _losses(state, rules, index, repairer)
        yield from _swaps(state, rules, index, repairer)


def _kept(state: State, rules: Rules) -> Record | None:
    return None if rules.swap_names_version else state.record


def _target(state: State, rules: Rules, repairer: Repairer) -> int:
    """The node that is being filled, as this repairer sees it."""
    if repairer.seen is not None:
        return repairer.seen.joining
    return state.record.joining if rules.joining_is_recorded else repairer.target


def _copies(state: State, rules: Rules) -> Iterator[Step]:
    """From any node that holds the entry to a node that a synced read of the record shows as member or joining.

    The bytes are verbatim, so it does not matter which repairer copies, or by which record.
    """
    record = state.record
    targets = record.named if rules.joining_is_recorded else (*record.members, *(r.target for r in state.repairers))
    for number in dict.fromkeys(targets):
        if number == NOBODY or not state.nodes[number].serves:
            continue
        node = state.nodes[number]
        for entry in bits(record.entries & ~node.holds):
            if any(source.serves and source.holds >> entry & 1 for source in state.nodes):
                copy = node._replace(holds=node.holds | 1 << entry, hurt=node.hurt & ~(1 << entry), erased=False)
                yield f"entry {entry} is copied to {number}", with_node(state, number, copy)


def _attests(state: State, rules: Rules, index: int, repairer: Repairer) -> Iterator[Step]:
    """A node reads all of 0..end back from its disk."""
    target = _target(state, rules, repairer)
    for number in dict.fromkeys((*state.record.members, target)):
        if number == NOBODY or repairer.attested >> number & 1 or not state.nodes[number].serves:
            continue
        complete = not state.record.entries & ~state.nodes[number].holds
        if complete or (number == target and not rules.copies_every_entry and state.nodes[number].holds):
            attested = repairer._replace(attested=repairer.attested | 1 << number)
            yield f"{number} attests to repair {index}", _with(state, index, attested)


def _joins(state: State, rules: Rules, index: int, repairer: Repairer) -> Iterator[Step]:
    record, nodes = state.record, state.nodes
    target = _target(state, rules, repairer)
    if target == NOBODY:
        if not any(nodes[member].bad for member in record.members):
            return
        for number, node in enumerate(nodes):
            if number in record.members or node.presence is not Presence.UP:
                continue
            if rules.joining_is_recorded:
                joined = record._replace(joining=number)
                yield f"repair {index} lets {number} join", _wrote(state, index, repairer, joined)
            else:
                yield f"repair {index} fills {number}", _with(state, index, repairer._replace(target=number))
    elif nodes[target].presence is not Presence.UP or not any(nodes[member].bad for member in record.members):
        if rules.joining_is_recorded:
            dropped = _wrote(state, index, repairer, record._replace(joining=NOBODY))
            yield f"repair {index} gives {target} up", dropped
        else:
            yield f"repair {index} gives {target} up", _with(state, index, repairer._replace(target=NOBODY))


def _swaps(state: State, rules: Rules, index: int, repairer: Repairer) -> Iterator[Step]:
    """From the version of the join. `seen`: the variant that writes what it read long ago, whatever is there now."""
    record = state.record if repairer.seen is None else repairer.seen
    target = _target(state, rules, repairer)
    if target == NOBODY or not repairer.attested >> target & 1:
        return
    for old in record.members:
        if not state.nodes[old].bad:
            continue
        members = tuple(target if member == old else member for member in record.members)
        swapped = record._replace(members=members, joining=NOBODY, whole=False)
        if record.entries & ~(state.nodes[target].holds | state.nodes[target].hurt):
            raise Violated(f"{target} becomes a member, and holds not all of the ledger")
        done = repairer._replace(target=NOBODY)
        yield f"repair {index} swaps {old} for {target}", _wrote(state, index, done, swapped)


def _marks(state: State, rules: Rules, index: int, repairer: Repairer) -> Iterator[Step]:
    record, nodes = state.record, state.nodes
    if not record.whole and all(repairer.attested >> member & 1 for member in record.members):
        yield f"repair {index} marks it whole", _wrote(state, index, repairer, record._replace(whole=True))
    if record.whole and any(nodes[member].bad for member in record.members):
        yield f"repair {index} marks it damaged", _wrote(state, index, repairer, record._replace(whole=False))


def _losses(state: State, rules: Rules, index: int, repairer: Repairer) -> Iterator[Step]:
    record, nodes = state.record, state.nodes
    if record.lost and any(node.serves and node.holds & 1 for node in nodes):
        yield f"repair {index} takes the loss back", _wrote(state, index, repairer, record._replace(lost=False))
    if record.lost or record.end < 0:
        return
    asked = [number for number, node in enumerate(nodes) if number in record.named or node.presence is Presence.UP]
    complete = all(repairer.denied >> number & 1 or _proves_nothing(state, number) for number in asked)
    sure = not rules.lost_is_asked_twice or all(
        repairer.again >> number & 1 or _proves_nothing(state, number) for number in asked
    )
    for number, node in enumerate(nodes):
        if not repairer.denied >> number & 1 and _denies(node, rules):
            yield (
                f"{number} denies entry 0 to repair {index}",
                _with(state, index, repairer._replace(denied=repairer.denied | 1 << number)),
            )
        elif complete and rules.lost_is_asked_twice and not repairer.again >> number & 1 and _denies(node, rules):
            yield (
                f"{number} denies entry 0 to repair {index} again",
                _with(state, index, repairer._replace(again=repairer.again | 1 << number)),
            )
    if complete and sure:
        if any(nodes[number].holds & 1 for number in asked):
            raise Violated("entry 0 is written as lost, while a node holds it")
        yield f"repair {index} marks entry 0 lost", _wrote(state, index, repairer, record._replace(lost=True))


def _denies(node: Node, rules: Rules) -> bool:
    """Missing, damaged, UNKNOWN with its scan done, or retired and not registered; neither silence nor ERASED."""
    if node.presence is Presence.DOWN:
        return not rules.lost_needs_answers
    if node.presence is Presence.GONE:
        return True
    return node.serves and not node.holds & 1 and not (node.erased and rules.erased_proves_nothing)


def _proves_nothing(state: State, number: int) -> bool:
    """A node that is not named in the record, and that has erased its copy: its answer is not needed."""
    node = state.nodes[number]
    return number not in state.record.named and node.erased and node.serves and not node.holds & 1


def _wrote(state: State, index: int, repairer: Repairer, record: Record) -> State:
    after = written(state, record, repairer=index)
    return _with(after, index, repairer._replace(denied=0, again=0, seen=None if repairer.seen is None else record))


def _with(state: State, index: int, repairer: Repairer) -> State:
    return state._replace(repairers=(*state.repairers[:index], repairer, *state.repairers[index + 1 :]))
