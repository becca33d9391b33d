"""Faults in the middle of a takeover: they wait for a certain moment.

A fault at a random tick seldom falls between two answers of one recovery, so these watch for the moment. Each of them
could also happen by chance.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from oncelog.core.ids import BEFORE_ALL, EntryId, LedgerId, Position
from oncelog.core.ledger.recovery import RecoveryPhase
from oncelog.core.node.node_ledger import RecordKind
from oncelog.core.topic.topic import Phase
from oncelog.core.topic_events.events import TrimRequested
from tests.simulation.faults.storage_faults import collect_all, make_hole, may_lose_open, open_ledgers
from tests.simulation.servers.nodes.storage_server import StorageServer
from tests.simulation.servers.owners.owner_server import OwnerServer
from tests.simulation.servers.owners.topic_shell import TopicShell
from tests.simulation.servers.store.decoding import decode_ledger
from tests.simulation.shapes import CURSOR_TICKS, is_drawn

if TYPE_CHECKING:
    from tests.simulation.faults.faults import Faults


def watch_for(faults: "Faults", ticks: int, look: Callable[[], None]) -> None:
    """Check the condition at every tick, for a limited time."""

    def again(left: int) -> None:
        look()
        if left and faults.on:
            faults.world.after(1, "looks for a moment", lambda: again(left - 1))

    again(ticks)


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
    """A node is restarted just when it took an entry of a recovery and did not sync it, and the third is not reached.

    The old owner's last entries reached one node only, so the restarted one is needed for the ack quorum.
    """
    split = _split(faults, unload=False)
    if split is None:
        return
    world, cluster, owner = faults.world, faults.cluster, split.owner
    faults.world.count("crash while recovering")
    for node in (split.lost, split.late):
        split.cuts[owner.name, node] = world.now + 100
    for other in cluster.owners.values():
        split.cuts[other.name, split.lost] = world.now + 1200
    # Not after `heal`: a crash during the closing would leave a topic that is never placed again.
    world.after(40, f"{owner.name} is crashed", lambda: faults.crash(owner, 600) if faults.on else None)
    second = cluster.nodes[split.late]
    life = second.life

    def look() -> None:
        if second.life == life and second.alive and _recovered_unsynced(second):
            world.count("storage node crashed with unsynced recovery")
            faults.crash(second, 3)

    watch_for(faults, 1000, look)


def _recovered_unsynced(node: StorageServer) -> bool:
    disk = node.disk
    return any(record.kind is RecordKind.RECOVERY_ADD for record in disk.records[disk.synced :])


class Split:
    """A serving owner loses its topic; its last entries are late at two members and do not reach the third at all."""

    def __init__(self, faults: "Faults", owner: OwnerServer) -> None:
        rng, cluster, now = faults.world.rng, faults.cluster, faults.world.now
        self.faults = faults
        self.owner = owner
        self.holder, self.lost, self.late = rng.sample(list(cluster.nodes), 3)
        self.cuts, self.clogs = cluster.network.cuts, cluster.network.clogs
        self.cuts[owner.name, self.lost] = now + 300
        self.clogs[owner.name, self.late] = now + rng.randint(70, 130)

    def others(self, phase: RecoveryPhase) -> list[OwnerServer]:
        """The other owners in this phase of a recovery."""
        owners = self.faults.cluster.owners.values()
        return [other for other in owners if other is not self.owner and _recovery_phase(other) is phase]


def _split(faults: "Faults", *, unload: bool = True) -> Split | None:
    cluster = faults.cluster
    serving = [o for o in cluster.owners.values() if o.alive and any(_serves(shell) for shell in o.topics.values())]
    replica = faults.world.rng.choice(cluster.metadata)
    if not serving or not replica.alive:
        return None
    split = Split(faults, faults.world.rng.choice(serving))
    for topic_id in cluster.topic_ids if unload else ():
        replica.unload(topic_id, split.owner.incarnation)
    return split


def _serves(shell: TopicShell) -> bool:
    return shell.core.phase is Phase.SERVING


def split_fence(faults: "Faults") -> None:
    """The late member is not reached by the fence and soon after by the reads; another's answers to those are late."""
    split = _split(faults)
    if split is None:
        return
    faults.world.count("fence split")

    def look() -> None:
        now = faults.world.now
        for other in split.others(RecoveryPhase.MARKING):
            split.cuts[other.name, split.late] = now + 3
            split.clogs[split.owner.name, split.holder] = now + 300
        for other in split.others(RecoveryPhase.COPYING):
            split.clogs[split.holder, other.name] = now + 60

    watch_for(faults, 140, look)


def restart_after_fence(faults: "Faults") -> None:
    """A fenced member is restarted, the late one is never fenced, and then the old owner's entries reach both."""
    split = _split(faults)
    if split is None:
        return
    faults.world.count("restart after a fence")
    split.clogs[split.owner.name, split.holder] = split.clogs[split.owner.name, split.late]
    for other in faults.cluster.owners.values():
        if other is not split.owner:
            split.cuts[other.name, split.late] = faults.world.now + 250

    def look() -> None:
        if split.others(RecoveryPhase.CLOSING):
            faults.crash(faults.cluster.nodes[split.holder], 3)

    watch_for(faults, 140, look)


def fence_in_hole(faults: "Faults") -> None:
    """A fenced member starts with a hole where the fence was, the late one is never fenced, and then the old owner's
    entries reach both (hazard damaged-fence)."""
    split = _split(faults) if faults.cluster.shape.repair else None
    if split is None:
        return
    faults.world.count("fence in a hole")
    # The old owner adds nothing until the node is back, and so does not learn that it was deposed.
    for client in faults.cluster.producers:
        split.clogs[client.name, split.owner.name] = faults.world.now + 150
    split.cuts[split.owner.name, split.lost] = faults.world.now + 900
    for other in faults.cluster.owners.values():
        if other is not split.owner:
            split.cuts[other.name, split.late] = faults.world.now + 900
    server = faults.cluster.nodes[split.holder]
    life = server.life

    def look() -> None:
        if server.life == life and split.others(RecoveryPhase.CLOSING) and may_lose_open(faults, server):
            faults.world.count("fence lost in a hole")
            make_hole(faults, server, lambda record: record.kind is RecordKind.FENCE, 3)

    watch_for(faults, 140, look)


def hole_while_recovering(faults: "Faults") -> None:
    """A node that held one of two copies of the newest entries starts without them. The recovering owner does not reach
    the other node for a while, and the third one never had them (hazard damaged-fence)."""
    cluster, world = faults.cluster, faults.world
    serving = [o for o in cluster.owners.values() if o.alive and any(_serves(s) for s in o.topics.values())]
    if not serving or not cluster.shape.repair:
        return
    owner = world.rng.choice(serving)
    hurt, holder, lost = world.rng.sample(list(cluster.nodes.values()), 3)
    world.count("hole while recovering")
    cluster.network.cuts[owner.name, lost.name] = world.now + 150
    for other in cluster.owners.values():
        if other is not owner:
            cluster.network.cuts[other.name, holder.name] = world.now + 700

    def lose_and_crash() -> None:
        if faults.on and may_lose_open(faults, hurt):
            world.count("entries of an open ledger lost in a hole")
            unclosed = dict.fromkeys(open_ledgers(faults))
            make_hole(faults, hurt, lambda record: record.ledger_id in unclosed, 20)
            faults.crash(owner, 600)

    world.after(60, "a node loses entries and an owner crashes", lose_and_crash)


def unreachable_snapshot(faults: "Faults") -> None:
    """Two members of the cursor's last ledger are not reached from the moment at which its recovery begins."""
    split = _split(faults)
    if split is None:
        return
    world, cuts = faults.world, split.cuts
    rng = random.Random(f"{world.seed}/cursor/{world.now}")
    world.count("snapshot unreachable")

    def look() -> None:
        for other in faults.cluster.owners.values():
            for ledger_id in _recovered_cursors(other):
                data, _ = faults.cluster.store.get(f"ledgers/{ledger_id}")
                members = decode_ledger(data).members if data is not None else ()
                for member in members[1:]:
                    if not faults.cluster.network.cut(other.name, member.split(".")[0]):
                        cuts[other.name, member.split(".")[0]] = world.now + CURSOR_TICKS + rng.randint(100, 600)

    watch_for(faults, 300, look)


def _recovered_cursors(owner: OwnerServer) -> list[LedgerId]:
    """The cursors' ledgers whose recovery takeovers of this owner wait for."""
    takeovers = [shell.core.takeover for shell in owner.topics.values() if shell.core.takeover is not None]
    recoveries = [one.snapshots.recovery for one in takeovers if one.snapshots is not None]
    return [recovery.ledger_id for recovery in recoveries if recovery is not None]


def long_sleep(faults: "Faults") -> None:
    """An owner sleeps until its ledger is closed, trimmed and collected, and then goes on to write to it."""
    serving = [o for o in faults.cluster.owners.values() if o.alive and any(_serves(s) for s in o.topics.values())]
    if not serving or any(o.paused for o in faults.cluster.owners.values()):
        return
    faults.world.count("owner slept long")
    sleeper = faults.world.rng.choice(serving)
    ticks = faults.world.rng.randint(1500, 2800)
    faults.pause(sleeper, ticks)
    # When it wakes, the store that could tell it is slower than the nodes that have forgotten.
    faults.cluster.network.clogs[sleeper.name, "store"] = faults.world.now + ticks + 100

    def look() -> None:
        trim_all(faults)
        collect_all(faults)

    for tick in range(600, 2800, 150):
        faults.world.after(tick, "trims and collects", lambda: look() if faults.on else None)


def wipe_while_recovering(faults: "Faults") -> None:
    """A node that held one of two copies comes back empty; who recovers does not reach the other one for a while."""
    cluster, world = faults.cluster, faults.world
    serving = [o for o in cluster.owners.values() if o.alive and any(_serves(s) for s in o.topics.values())]
    if not serving:
        return
    world.count("wiped while recovering")
    owner = world.rng.choice(serving)
    holder, lost = world.rng.sample([node for node in cluster.nodes.values() if node is not faults.wiped], 2)
    cuts = cluster.network.cuts
    cuts[owner.name, lost.name] = world.now + 150
    for other in cluster.owners.values():
        if other is not owner:
            cuts[other.name, holder.name] = world.now + 700

    def wipe_and_crash() -> None:
        if faults.on:
            faults.wipe(20)
            faults.crash(owner, 600)

    world.after(60, "a node is wiped and an owner crashed", wipe_and_crash)


def trim_all(faults: "Faults") -> None:
    """Let every owner trim as far as it may. No policy asks before such a trim: where messages have an age that must be
    reached, policies alone trim, whatever this fault is a part of."""
    shape = faults.cluster.shape.consumers
    if shape is not None and shape.expires:
        return
    beyond = Position(LedgerId(1 << 60), EntryId(0))
    for owner in faults.cluster.owners.values():
        for shell in list(owner.topics.values()):
            if owner.alive and not owner.paused and shell.confirmed != BEFORE_ALL:
                faults.world.count("trim wanted")
                shell.handle(TrimRequested(beyond))


def lose_ledger_record(faults: "Faults") -> None:
    """The record of a CLOSED ledger vanishes by an operator's mistake, and comes back from a backup.

    Storage nodes look for deleted ledgers meanwhile: they must not take the missing record for a deletion.
    """
    rng, world, cluster = faults.world.rng, faults.world, faults.cluster
    lost = [f"ledgers/{n}" for n in cluster.watch.closed if f"ledgers/{n}" in cluster.store.records]
    if not lost:
        return
    world.count("ledger record lost")
    ticks = rng.randint(50, 400)
    world.after(ticks, "a lost record is restored", cluster.store.lose(rng.choice(lost)))
    for _ in range(3):
        world.after(rng.randint(1, ticks), "collects", lambda: collect_all(faults))
    if "ids/producer" in cluster.store.records and is_drawn(world.seed, "lost counter", 0.4):
        world.count("counter lost")
        world.after(ticks, "a lost counter is restored", cluster.store.lose("ids/producer"))


def _recovery_phase(owner: OwnerServer) -> RecoveryPhase | None:
    for shell in owner.topics.values():
        takeover = shell.core.takeover
        chains = (takeover.log, takeover.snapshots) if takeover is not None else ()
        for chain in chains:
            if chain is not None and chain.recovery is not None:
                return chain.recovery.phase
    return None
