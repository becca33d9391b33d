"""Faults of the whole store: its records are lost, or a former ensemble stays beside a new one, and they are restored
from the storage nodes while everything goes on: in any state, or just in a takeover, in a trim, in a repair, or when a
write has failed of which one node has a copy.

Or two operators do that at the same time, each into an ensemble that the other one does not see: a new one, or the one
that is there. Each reaches other storage nodes for a while. One of them may give up; a lost ensemble may return.

At most Qa-1 storage nodes are away. An older copy of the records may be at hand: a walk, which reads each record at
another time.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from oncelog.core.formats.topic_record import DEDUP_CURSOR, decode_topic
from oncelog.core.ids import LedgerId, TopicId
from oncelog.core.names import parse_topic
from oncelog.metadata_store.records.topic_store import NameRecord, encode_name
from oncelog.metadata_store.session import paths
from tests.simulation.faults import races
from tests.simulation.servers.metadata.restorer import RestoreParts, Restorer
from tests.simulation.servers.nodes.storage_server import StorageServer
from tests.simulation.servers.store.store import Store

if TYPE_CHECKING:
    from tests.simulation.faults.faults import Faults

#: How long a moment is waited for; how long each half of the walk of a copy takes.
MOMENT_TICKS, WALK_TICKS = 500, 75
#: In which half pages are read: after the topic records, so that no page is missing that one of these names.
PAGES_HALF = 1
RESTORES_MAX = 2


def lose_store(faults: "Faults") -> None:
    """At most twice in a run."""
    _at_a_moment(faults, lambda: _one_restore(faults))


def restore_twice(faults: "Faults") -> None:
    """Two operators restore at the same time, each into an ensemble that the other one does not see (hazard
    two-restores). Each reaches other storage nodes."""
    _at_a_moment(faults, lambda: _two_restores(faults))


def _at_a_moment(faults: "Faults", restore: Callable[[], None]) -> None:
    eras, world = faults.cluster.eras, faults.world
    if eras.is_restoring or eras.restores + eras.awaited >= RESTORES_MAX:
        return
    name = world.rng.choice(list(_MOMENTS))
    eras.awaited += 1
    until = world.now + MOMENT_TICKS
    is_now = _MOMENTS[name](faults)

    def look() -> None:
        if not faults.on:
            return
        met = is_now()
        if not met and world.now < until:
            world.after(3, f"waits for a {name}", look)
            return
        eras.awaited -= 1
        if not eras.is_restoring and _holes(faults) < faults.cluster.shape.settings.ack_quorum:
            world.count(f"store lost in a {name}" if met else "store lost at any time")
            restore()

    look()


def _one_restore(faults: "Faults") -> None:
    _lose(faults)
    eras, rng = faults.cluster.eras, faults.world.rng
    restorers = _restorers_of(faults, eras.restore(performers=rng.choice((1, 2, 2))))
    if rng.random() < 0.4:
        node = rng.choice(list(faults.cluster.nodes.values()))
        _cut_off(faults, restorers, [node], lambda: faults.world.now + rng.randint(300, 2500))


def _two_restores(faults: "Faults") -> None:
    eras, rng, world = faults.cluster.eras, faults.world.rng, faults.world
    former = faults.cluster.store
    _lose(faults)
    world.count("two restores")
    returned = not former.lost and rng.random() < 0.5
    world.count("restore in the former ensemble", returned)
    ensembles = [eras.restore(performers=1, ends=former.era if returned else None), eras.restore(performers=1)]
    nodes = rng.sample(list(faults.cluster.nodes.values()), len(faults.cluster.nodes))
    apart, half = rng.random() < 0.7, len(nodes) // 2
    until = world.now + rng.randint(600, 2500)
    for parts, others in zip(ensembles, (nodes[:half], nodes[-half:]), strict=True):
        restorers = _restorers_of(faults, parts)
        if apart:
            _cut_off(faults, restorers, others, lambda: until)
    if rng.random() < 0.4:
        loser = rng.choice(ensembles)
        world.after(rng.randint(300, 2000), "an operator gives up", lambda: eras.abandon(loser))
    if former.lost:
        eras.return_later(former, rng.randint(1000, 3000))


def _lose(faults: "Faults") -> None:
    eras, rng, world = faults.cluster.eras, faults.world.rng, faults.world
    lost = rng.random() < 0.4
    world.count("store lost" if lost else "store beside the former one")
    copied = _copy(faults.cluster.store, rng, rng.randint(0, world.now)) if rng.random() < 0.3 else None
    world.count("restore with a copy", copied is not None)
    eras.lose(lost=lost, copied=copied)


def _restorers_of(faults: "Faults", parts: RestoreParts) -> list[Restorer]:
    rng, world = faults.world.rng, faults.world
    restorers = [each for each in faults.cluster.eras.restorers if each.parts is parts]
    for restorer in restorers:
        if rng.random() < 0.6:
            effects = rng.randint(0, 4)
            world.after(310, f"{restorer.name} will crash", lambda r=restorer, e=effects: faults.crash_inside(r, e))  # type: ignore[misc]
    return restorers


def _cut_off(faults: "Faults", restorers: list[Restorer], nodes: list[StorageServer], until: Callable[[], int]) -> None:
    faults.world.count("storage node cut off from restorers")
    for restorer in restorers:
        for node in nodes:
            faults.cluster.network.cuts[restorer.name, node.name] = until()


def _holes(faults: "Faults") -> int:
    return sum(1 for node in faults.cluster.nodes.values() if node.core.ledgers.limbo.below > 0)


def _copy(store: Store, rng: random.Random, began: int) -> dict[str, bytes]:
    """By the paths of the product."""
    records: dict[str, bytes] = {}

    def walk(parent: str, path_of: Callable[[str], str], *, half: int = 0) -> None:
        from_tick = began + half * WALK_TICKS
        for name in store.ever(parent):
            data = store.get_at(f"{parent}/{name}", from_tick + rng.randint(0, WALK_TICKS))
            if data is not None:
                records[path_of(name)] = data

    walk("topics", lambda name: paths.topic(TopicId(name)))
    topics = [path.rpartition("/")[2] for path in records]
    names = [(record.name, record.topic_id) for record in map(decode_topic, list(records.values()))]
    records |= {paths.topic_name(parse_topic(name)): encode_name(NameRecord(each)) for name, each in names}
    ends = began + 2 * WALK_TICKS
    gone = [TopicId(name) for name in store.ever("tombstones") if store.get_at(f"tombstones/{name}", ends) is not None]
    records |= dict.fromkeys(map(paths.tombstone, gone), b"")
    walk("cursors", lambda name: paths.cursor(TopicId(name), DEDUP_CURSOR))
    walk("ledgers", lambda name: paths.ledger(LedgerId(int(name))))
    for topic_id in map(TopicId, topics):
        walk(f"pages/{topic_id}", partial(paths.page, topic_id), half=PAGES_HALF)
    return records


# --- moments ----------------------------------------------------------------------------------------------------------


def _any_time(_: "Faults") -> Callable[[], bool]:
    return lambda: False


def _takeover(faults: "Faults") -> Callable[[], bool]:
    """Another owner takes the topics of one whose last entries are on their way."""
    races.split_fence(faults)

    def taken() -> bool:
        owners = [owner for owner in faults.cluster.owners.values() if owner.alive]
        return any(shell.core.takeover is not None for owner in owners for shell in owner.topics.values())

    return taken


def _trim(faults: "Faults") -> Callable[[], bool]:
    before = faults.world.counts.get("ledger deleted", 0)
    races.trim_all(faults)
    return lambda: faults.world.counts.get("ledger deleted", 0) > before


def _repair(faults: "Faults") -> Callable[[], bool]:
    return lambda: any(replica.repairer is not None and replica.repairer.repairs for replica in faults.cluster.metadata)


def _failed_write(faults: "Faults") -> Callable[[], bool]:
    """One node has what is appended now, and the ledger is ended without it."""
    world, nodes = faults.world, list(faults.cluster.nodes.values())
    before = world.counts.get("AckQuorumLost", 0)
    for node in world.rng.sample(nodes, len(nodes) - 1):
        for owner in faults.cluster.owners:
            faults.cluster.network.cuts[owner, node.name] = world.now + MOMENT_TICKS
            faults.cluster.network.cuts[node.name, owner] = world.now + MOMENT_TICKS

    return lambda: world.counts.get("AckQuorumLost", 0) > before


_MOMENTS: dict[str, Callable[["Faults"], Callable[[], bool]]] = {
    "moment without an event": _any_time, "takeover": _takeover, "trim": _trim, "repair": _repair,
    "failed write": _failed_write,
}  # fmt: skip
