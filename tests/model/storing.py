"""The steps of the storage nodes by themselves, and the faults."""

from collections.abc import Iterator

from tests.model.state import (
    ACK_QUORUM,
    Erasing,
    Ledger,
    Node,
    Presence,
    Record,
    Recoverer,
    Rules,
    State,
    Violated,
    with_node,
    written,
)

Step = tuple[str, State]


def node_steps(state: State, rules: Rules) -> Iterator[Step]:
    """Erasing, and the end of limbo."""
    record = state.record
    if record.ledger is not Ledger.CLOSED:
        return
    for number, node in enumerate(state.nodes):
        if node.presence is not Presence.UP:
            continue
        if node.limbo and number in record.members and not record.entries & ~node.holds:
            yield (
                f"{number} leaves limbo",
                with_node(state, number, node._replace(limbo=False, fenced=rules.limbo_ends_with_fence)),
            )
        if not node.holds:
            continue
        if node.erasing is Erasing.NO:
            if number not in record.named and (record.whole or not rules.erasing_needs_whole):
                yield (
                    f"{number} may erase",
                    with_node(state, number, node._replace(erasing=Erasing.DECIDED, quiet=rules.erasing_refuses_calls)),
                )
        else:
            yield from _erasing(state, rules, number, node)


def _erasing(state: State, rules: Rules, number: int, node: Node) -> Iterator[Step]:
    if node.erasing is Erasing.DECIDED and rules.erasing_needs_claim:
        claimed = with_node(written(state, state.record, node=number), number, node._replace(erasing=Erasing.CLAIMED))
        yield f"{number} claims the record for erasing", claimed
    elif node.erasing is Erasing.DECIDED_STALE and rules.erasing_needs_claim:
        yield (
            f"{number} may not erase any more",
            with_node(state, number, node._replace(erasing=Erasing.NO, quiet=False)),
        )
    else:
        gone = with_node(
            state,
            number,
            node._replace(holds=0, erased=True, erasing=Erasing.NO, quiet=False, fenced=rules.tombstone_keeps_fence),
        )
        for member in gone.record.members:
            if gone.record.entries & ~(gone.nodes[member].holds | gone.nodes[member].hurt):
                raise Violated(f"{number} erases its copy, while member {member} does not hold the whole ledger")
        yield f"{number} erases", gone


def fault_steps(state: State, rules: Rules, restored: Record | None) -> Iterator[Step]:
    """restored: what a backup of the record contains. Nodes are restarted when a backup is restored."""
    budget = state.budget
    another_may_go = sum(each.presence is Presence.DOWN for each in state.nodes) < budget.down
    for number, node in enumerate(state.nodes):
        if node.presence is Presence.DOWN:
            yield f"{number} is back", with_node(state, number, node._replace(presence=Presence.UP))
        if node.presence is not Presence.UP:
            continue
        if another_may_go:
            down = node._replace(
                presence=Presence.DOWN, erasing=Erasing.NO, quiet=False, fenced=_kept_fence(node, rules)
            )
            yield f"{number} is down", with_node(state, number, down)
        if budget.restarts:
            again = node._replace(erasing=Erasing.NO, quiet=False, fenced=_kept_fence(node, rules))
            if again != node:
                left = state._replace(budget=budget._replace(restarts=budget.restarts - 1))
                yield f"{number} restarts", with_node(left, number, again)
        if budget.wipes and node != Node():
            left = state._replace(budget=budget._replace(wipes=budget.wipes - 1))
            yield f"{number} is wiped", with_node(left, number, _wiped(node, rules))
        if budget.damages and node != Node():
            left = state._replace(budget=budget._replace(damages=budget.damages - 1))
            for kept in _remains(node.holds):
                kept_entries = [entry for entry in range(8) if kept >> entry & 1]
                yield (
                    f"{number} is damaged and keeps {kept_entries}",
                    with_node(left, number, _damaged(node, kept, rules)),
                )
    if budget.restores and restored is not None and state.record.ledger is Ledger.CLOSED:
        left = state._replace(budget=budget._replace(restores=budget.restores - 1))
        left = left._replace(
            recoverers=(Recoverer(),) * len(state.recoverers),
            nodes=tuple(node._replace(erasing=Erasing.NO, quiet=False) for node in state.nodes),
        )
        yield "the record is restored from a backup", written(left, restored)


def _kept_fence(node: Node, rules: Rules) -> bool:
    return node.fenced and rules.fence_survives_restart


def _wiped(node: Node, rules: Rules) -> Node:
    hurt = node.hurt | node.holds
    return Node(hurt=hurt) if not rules.wiped_node_is_another else Node(hurt=hurt, presence=Presence.GONE)


def _damaged(node: Node, kept: int, rules: Rules) -> Node:
    """It starts again without its fence, without its tombstone, and with these entries."""
    return Node(holds=kept, hurt=node.hurt | node.holds & ~kept, limbo=rules.damage_is_limbo)


def _remains(holds: int) -> tuple[int, ...]:
    """What may be left of these entries: each subset."""
    return tuple(kept for kept in range(holds + 1) if kept & holds == kept)


# --- promises --------------------------------------------------------------------------------------------------------


def check(state: State) -> None:
    """Raises Violated unless the state keeps the promises. Single steps check what only they can break."""
    record, nodes, acked = state.record, state.nodes, state.acked
    if record.ledger is Ledger.CLOSED:
        if acked > record.end + 1:
            raise Violated(f"entry {acked - 1} is acknowledged, and the ledger was closed at {record.end}")
        for member in record.members if record.whole else ():
            if record.entries & ~(nodes[member].holds | nodes[member].hurt):
                raise Violated(f"the ledger is whole, and member {member} does not hold all of it")
    for entry in range(max(acked, record.end + 1)):
        copies = sum((node.holds | node.hurt) >> entry & 1 for node in nodes)
        if copies < ACK_QUORUM:
            raise Violated(f"entry {entry} has {copies} copies, those included that faults have destroyed")
