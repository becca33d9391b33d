"""Faults that meet a takeover in the middle: they wait for a moment and strike there.

A fault at a random tick seldom falls between two answers of one recovery; these look for the moment instead. What they
do there is nothing that could not happen by chance.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from oncelog.core.ledger_recovery import RecoveryPhase
from oncelog.core.storage_node import RecordKind
from oncelog.core.topic import Phase
from tests.simulation.owner_server import OwnerServer
from tests.simulation.storage_server import StorageServer

if TYPE_CHECKING:
    from tests.simulation.faults import Faults


def watch_for(faults: "Faults", ticks: int, look: Callable[[], None]) -> None:
    """Look again and again, every other tick, for so long."""

    def again(left: int) -> None:
        look()
        if left and faults.on:
            faults.world.after(2, "looks for a moment", lambda: again(left - 1))

    again(ticks // 2)


def theft(faults: "Faults") -> None:
    """A topic is placed elsewhere while its owner is alive, writing, and slow on the way to some storage nodes.

    In the worst case one node is restarted when it was fenced, the next owner does not reach another one, and the old
    owner's entries are late at the third.
    """
    rng, cluster, now = faults.world.rng, faults.cluster, faults.world.now
    owner, replica = rng.choice(list(cluster.owners.values())), rng.choice(cluster.metadata)
    if not owner.alive or not replica.alive:
        return
    faults.world.count("topic taken from a live owner")
    nodes = rng.sample(list(cluster.nodes.values()), len(cluster.nodes))
    for node in nodes[: rng.randint(1, len(nodes))]:
        cluster.network.clogs[owner.name, node.name] = now + rng.randint(20, 300)
    if rng.random() < 0.5:
        for other in cluster.owners.values():
            if other is not owner:
                cluster.network.cuts[other.name, nodes[-1].name] = now + rng.randint(100, 600)
        cluster.network.clogs[owner.name, nodes[-1].name] = now + rng.randint(0, 60)
        faults.world.after(rng.randint(10, 250), f"{nodes[1].name} is restarted", lambda: faults.crash(nodes[1], 5))
    for topic_id in cluster.topic_ids:
        replica.post(rng.randint(1, 20), "unload", lambda t=topic_id: replica.unload(t, owner.incarnation))  # type: ignore[misc]
    for node in nodes[: rng.randint(0, 2)]:
        faults.world.after(rng.randint(20, 150), f"{node.name} is restarted", lambda n=node: faults.crash(n, 5))  # type: ignore[misc]


def crash_while_recovering(faults: "Faults") -> None:
    """Storage nodes are restarted just when they have taken entries from a recovery and not synced them."""
    faults.crash(faults.world.rng.choice(list(faults.cluster.owners.values())), 50)

    def look() -> None:
        struck = [node for node in faults.cluster.nodes.values() if node.alive and _recovered_unsynced(node)]
        for node in struck:
            faults.world.count("storage node crashed with unsynced recovery")
            faults.crash(node, faults.world.rng.randint(2, 10))

    watch_for(faults, 600, look)


def _recovered_unsynced(node: StorageServer) -> bool:
    disk = node.disk
    return any(record.kind is RecordKind.RECOVERY_ADD for record in disk.records[disk.synced :])


def split_fence(faults: "Faults") -> None:
    """One member is not reached by the fence and soon after by the reads; another's answers to the reads are late.

    Meanwhile the old owner's last entries reach the first member late, and the third not at all.
    """
    rng, cluster, now = faults.world.rng, faults.cluster, faults.world.now
    serving = [
        o for o in cluster.owners.values() if o.alive and any(s.core.phase is Phase.SERVING for s in o.topics.values())
    ]
    replica = rng.choice(cluster.metadata)
    if not serving or not replica.alive:
        return
    faults.world.count("fence split")
    owner = rng.choice(serving)
    holder, lost, late = rng.sample(list(cluster.nodes), 3)
    cuts, clogs = cluster.network.cuts, cluster.network.clogs
    cuts[owner.name, lost] = now + 300
    clogs[owner.name, late] = now + rng.randint(70, 130)
    for topic_id in cluster.topic_ids:
        replica.unload(topic_id, owner.incarnation)

    def look() -> None:
        for other in cluster.owners.values():
            phase = _recovery_phase(other) if other is not owner else None
            if phase is RecoveryPhase.MARKING:
                cuts[other.name, late] = faults.world.now + 3
                clogs[owner.name, holder] = faults.world.now + 300
            elif phase is RecoveryPhase.COPYING:
                clogs[holder, other.name] = faults.world.now + 60

    watch_for(faults, 140, look)


def _recovery_phase(owner: OwnerServer) -> RecoveryPhase | None:
    for shell in owner.topics.values():
        takeover = shell.core.takeover
        if takeover is not None and takeover._recovery is not None:
            return takeover._recovery.phase
    return None
