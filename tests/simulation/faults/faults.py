"""The faults of a run, drawn from its seed: which kinds, how often, where and for how long.

A run draws a few kinds of faults, so that some runs have many crashes and others only lose replies. Directories are
wiped at one place only, because a ledger of three members and Qa 2 survives the loss of one copy. In runs with repair
every directory may be lost, but only while all ledgers can do without it. All other faults may hit every process at
once.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import partial

from oncelog.core.ids import EntryId
from oncelog.core.topic_events.events import DedupToggled, DrainRequested
from tests.simulation.cluster import SESSION_TICKS, Cluster
from tests.simulation.faults import (
    consumer_faults,
    copy_faults,
    deletions,
    door_faults,
    lease_faults,
    opening_faults,
    past_faults,
    races,
    restored_record,
    restores,
    storage_faults,
)
from tests.simulation.network import NetworkFaults
from tests.simulation.servers.nodes.storage_server import StorageServer
from tests.simulation.servers.owners.owner_server import OwnerServer
from tests.simulation.servers.store.decoding import decode_cursor
from tests.simulation.servers.store.store import StoreFaults
from tests.simulation.shapes import SECOND_RESTORE, SECOND_RESTORES, is_drawn
from tests.simulation.world import Process

#: ticks between two faults of one kind; a name is left to a silent holder for 8 s, and a takeover begins that anew
EVERY, EVERY_WITH_DOORS = (150, 1500), (1500, 9000)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault: the probability that a run has it, how it is injected, and the ticks between two of them."""

    name: str
    probability: float
    inject: "Callable[[Faults], None]"
    #: None: those of the run
    every: tuple[int, int] | None = None


class Faults:
    """Injects faults into a cluster until `heal`."""

    def __init__(self, cluster: Cluster, only: tuple[str, ...] = ()) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.on = True
        self.every = EVERY_WITH_DOORS if cluster.doors is not None and self.world.seed % 2 else EVERY
        drawn = [kind for kind in KINDS if is_drawn(self.world.seed, kind.name, kind.probability)]
        if not cluster.shape.repair:
            drawn = [kind for kind in drawn if kind not in REPAIR_KINDS]
        if cluster.shape.leases is None:
            drawn = [kind for kind in drawn if kind not in LEASE_KINDS]
        else:
            # Clocks jump here, and append times tell what was stored while deduplication was off.
            drawn = [kind for kind in drawn if kind.inject is not _switch]
            if self.world.seed % 3:
                drawn = [kind for kind in drawn if kind in LEASE_KINDS or kind.name in CALM]
        if cluster.doors is None:
            drawn = [kind for kind in drawn if kind not in DOOR_KINDS]
        else:
            others = CALM if self.world.seed % 3 else (*CALM, *door_faults.AROUND_DOORS)
            drawn = [kind for kind in drawn if kind in DOOR_KINDS or kind.name in others]
        if not cluster.shape.restores:
            drawn = [kind for kind in drawn if kind not in RESTORE_KINDS]
        elif any(kind in drawn for kind in RESTORE_KINDS[:2]):
            drawn = [kind for kind in drawn if kind.name not in NOT_WITH_RESTORES]
        if cluster.spare is None:
            drawn = [kind for kind in drawn if kind.inject is not deletions.delete_topic]
        if cluster.shape.consumers is None:
            drawn = [kind for kind in drawn if kind not in CONSUMER_KINDS]
        elif cluster.shape.consumers.expires:
            # Here policies alone trim, and append times are those of clocks that differ.
            drawn = [kind for kind in drawn if kind.inject not in (races.trim_all, _switch)]
        if cluster.shape.consumers is not None and self.world.seed % 3:
            drawn = [kind for kind in drawn if kind in CONSUMER_KINDS or kind.name in CALM]
        self.kinds = [kind for kind in KINDS if kind.name in only] if only else drawn
        self._good_network = bool(only)
        #: the one place that is ever wiped
        self.wiped = self.world.rng.choice(list(cluster.nodes.values()))
        self.rotten = False
        #: the histories that this run follows
        self.histories: list[object] = []
        #: (when, kind) of each fault so far, and the numbers of those that are left out (`shrinking`)
        self.injected: list[tuple[int, str]] = []
        self.without: Container[int] = ()
        #: [from, to) in which deduplication was off at some owner
        self.dedup_off: list[tuple[int, int]] = []

    def start(self) -> None:
        if not self._good_network:
            self._network()
        for kind in self.kinds:
            self._later(kind)

    def _network(self) -> None:
        rng = self.world.rng
        lossy = rng.random() < 0.12
        if lossy:
            self.cluster.network.faults = NetworkFaults(
                delay_max=8, slow=0.15, slow_max=200, drop=0.12, duplicate=0.02, break_stream=0.01
            )
        elif rng.random() < 0.7:
            self.cluster.network.faults = NetworkFaults(
                delay_max=rng.choice((3, 8, 25)), slow=rng.choice((0.0, 0.01, 0.05)),
                drop=rng.choice((0.0, 0.01, 0.04)), duplicate=rng.choice((0.0, 0.02)),
                break_stream=rng.choice((0.0, 0.01, 0.03)),
            )  # fmt: skip
        if rng.random() < 0.5:
            self.cluster.store.faults = StoreFaults(
                lost_reply=rng.choice((0.02, 0.1)), lag_max=rng.choice((0, 300, 2000))
            )
        if rng.random() < 0.5:
            self.cluster.stale.probability = rng.choice((0.1, 0.4))

    def _later(self, kind: Kind) -> None:
        self.world.after(
            self.world.rng.randint(*(kind.every or self.every)), f"fault {kind.name}", lambda: self._inject(kind)
        )

    def _inject(self, kind: Kind) -> None:
        if self.on:
            number = len(self.injected)
            self.injected.append((self.world.now, kind.name))
            if number not in self.without:
                kind.inject(self)
            self._later(kind)

    def heal(self) -> None:
        """Inject no more faults, and restart all processes that are down."""
        self.on = False
        cluster = self.cluster
        cluster.owner_parts.healed = True
        cluster.network.heal()
        cluster.store.heal()
        cluster.stale.probability = 0.0
        self.switch(on=True)
        for process in cluster.processes():
            process.fuse = -1
            if process.paused:
                self._wake(process)
            cluster.revive(process)
        if cluster.shape.repair:
            storage_faults.scrub_all(self)

    # --- single faults, for scenarios too -----------------------------------------------------------------------------

    def crash(self, process: Process, ticks: int) -> None:
        if not process.alive:
            return
        self.cluster.crash(process)
        self.world.after(ticks, f"{process.name} starts again", lambda: self.cluster.revive(process))

    def crash_inside(self, process: Process, effects: int) -> None:
        """Crash the process between two effects of one step of its core."""
        if not process.alive:
            return
        process.fuse = effects
        life = process.life

        def look() -> None:
            if process.life == life:
                process.fuse = -1
                return
            self.cluster.crashed(process)
            self.cluster.revive(process)

        self.world.after(self.world.rng.randint(50, 400), f"{process.name} starts again", look)

    def pause(self, process: Process, ticks: int) -> None:
        """Stop the process for a while. A long pause ends its session; afterwards it continues where it was."""
        if not process.alive or process.paused:
            return
        process.pause()
        if ticks > SESSION_TICKS:
            self.cluster.crashed(process)
        life = process.life
        self.world.after(ticks, f"{process.name} wakes", lambda: self._wake(process) if process.life == life else None)

    def _wake(self, process: Process) -> None:
        if not process.paused:
            return
        process.wake()
        for path in [f"owners/{getattr(process, 'incarnation', '')}", f"storage/{getattr(process, 'incarnation', '')}"]:
            if isinstance(process, OwnerServer) or process in self.cluster.nodes.values():
                self.cluster.expire(path, process) if path not in self.cluster.store.records else None
        register = getattr(process, "register", None)
        if register is not None:
            process.post(self.world.rng.randint(5, 200), "registers again", register)
            self.world.after(201, "storage nodes are seen", self.cluster.nodes_changed)

    def wipe(self, ticks: int) -> None:
        if not self.cluster.shape.repair or storage_faults.may_lose(self, self.wiped):
            self.lose_directory(self.wiped, ticks)

    def lose_directory(self, server: StorageServer, ticks: int) -> None:
        if server.alive:
            self.cluster.crash(server)
        server.wipe()
        self.world.after(ticks, f"{server.name} starts empty", lambda: self.cluster.revive(server))

    def switch(self, *, on: bool) -> None:
        """Disable or enable dedup at all owners."""
        parts, now = self.cluster.owner_parts, self.world.now
        if parts.dedup_enabled == on:
            return
        parts.dedup_enabled = on
        if on:
            self.dedup_off[-1] = (self.dedup_off[-1][0], now + 1)
        else:
            self.dedup_off.append((now, 1 << 62))
        for owner in self.cluster.owners.values():
            for shell in list(owner.topics.values()):
                if owner.alive:
                    shell.handle(DedupToggled(on))


# --- kinds ------------------------------------------------------------------------------------------------------------


def _crash_owner(faults: Faults) -> None:
    rng = faults.world.rng
    owner = rng.choice(list(faults.cluster.owners.values()))
    faults.world.count("owner crashed")
    faults.crash(owner, rng.randint(20, 900))


def _crash_inside(faults: Faults) -> None:
    rng = faults.world.rng
    process = rng.choice([p for p in faults.cluster.processes() if not p.name.startswith("reader")])
    faults.crash_inside(process, rng.randint(0, 12))


def _crash_node(faults: Faults) -> None:
    rng = faults.world.rng
    faults.world.count("storage node crashed")
    for node in rng.sample(list(faults.cluster.nodes.values()), rng.choice((1, 1, 1, 2, 3))):
        faults.crash(node, rng.randint(10, 700))


def _crash_client(faults: Faults) -> None:
    rng = faults.world.rng
    faults.world.count("client crashed")
    faults.crash(rng.choice(faults.cluster.producers), rng.randint(10, 500))


def _crash_metadata(faults: Faults) -> None:
    rng = faults.world.rng
    faults.world.count("metadata replica crashed")
    faults.crash(rng.choice(faults.cluster.metadata), rng.randint(10, 500))


def _pause_owner(faults: Faults) -> None:
    rng = faults.world.rng
    faults.world.count("owner paused")
    faults.pause(rng.choice(list(faults.cluster.owners.values())), rng.choice((100, 700, 1500, 3000)))


def _pause_any(faults: Faults) -> None:
    rng = faults.world.rng
    faults.world.count("process paused")
    faults.pause(rng.choice(faults.cluster.processes()), rng.randint(50, 1500))


def _expire(faults: Faults) -> None:
    """An owner loses its session without noticing."""
    cluster = faults.cluster
    owner = faults.world.rng.choice(list(cluster.owners.values()))
    path = f"owners/{owner.incarnation}"
    if owner.alive and path in cluster.store.records:
        faults.world.count("session expired under a live owner")
        cluster.expire(path, owner, forced=True)


def _wipe(faults: Faults) -> None:
    """Sometimes while another owner must recover ledgers of the node, and another member is silent."""
    rng, cluster = faults.world.rng, faults.cluster
    faults.world.count("storage node wiped")
    faults.wipe(rng.randint(20, 600))
    if rng.random() < 0.6:
        faults.pause(rng.choice([n for n in cluster.nodes.values() if n is not faults.wiped]), rng.randint(300, 1200))
        faults.crash(rng.choice(list(cluster.owners.values())), rng.randint(20, 900))


def _rot(faults: Faults) -> None:
    """Make the newest closed ledger of a topic's snapshots unreadable, once in a run. The one before must be enough."""
    rng, cluster = faults.world.rng, faults.cluster
    topic_id = rng.choice(cluster.topic_ids)
    data, _ = cluster.store.get(f"cursors/{topic_id}")
    closed = (
        []
        if data is None
        else [link.ledger_id for link in decode_cursor(data).ledgers if link.ledger_id in cluster.watch.closed]
    )
    if not closed or faults.rotten or cluster.shape.repair:
        return
    races.trim_all(faults)
    faults.rotten = True
    faults.world.count("snapshot spoiled")
    for node in cluster.nodes.values():
        for disk in node.disks.values():
            disk.damaged[closed[-1], EntryId(0)] = None

    def restart(owner: OwnerServer) -> None:
        if faults.on:  # else the run may be closing its topics, and nothing places one that loses its owner
            faults.crash(owner, 20)

    for owner in cluster.owners.values():
        faults.world.after(rng.randint(10, 60), f"{owner.name} is restarted", partial(restart, owner))


def _power_cut(faults: Faults) -> None:
    """Stop all processes at once and restart them soon."""
    rng, cluster = faults.world.rng, faults.cluster
    faults.world.count("power cut")
    for process in (*cluster.owners.values(), *cluster.nodes.values()):
        faults.crash(process, rng.randint(10, 200))


def _stuck_write(faults: Faults) -> None:
    """So many members are silent that no ack quorum is left; meanwhile clients lose their streams and send again."""
    rng, cluster = faults.world.rng, faults.cluster
    faults.world.count("stuck write")
    for node in rng.sample(list(cluster.nodes.values()), len(cluster.nodes) - 1):
        faults.pause(node, rng.randint(150, 900))
    for client in cluster.producers:
        if client.link is not None and rng.random() < 0.7:
            faults.world.after(rng.randint(5, 60), f"{client.name} loses its stream", client.link.stream.sever)


def _id_rush(faults: Faults) -> None:
    """Request many ids at once without using them."""
    for owner in faults.cluster.owners.values():
        if owner.alive and not owner.paused:
            faults.world.count("ids wasted")
            for _ in range(faults.world.rng.randint(1, 5)):
                owner.post(0, "wants an id", lambda o=owner: o.producer_ids.want(lambda _: None))  # type: ignore[misc]


def _cut(faults: Faults) -> None:
    """Cut one direction of a link."""
    rng, cluster = faults.world.rng, faults.cluster
    names = [p.name for p in cluster.processes()]
    source, target = rng.sample(names, 2)
    faults.world.count("one-way cut")
    cluster.network.cuts[source, target] = faults.world.now + rng.randint(50, 1500)


def _clog(faults: Faults) -> None:
    rng, cluster = faults.world.rng, faults.cluster
    source, target = rng.sample([p.name for p in cluster.processes()] + ["store"], 2)
    faults.world.count("clog")
    cluster.network.clogs[source, target] = faults.world.now + rng.randint(50, 800)


def _stall(faults: Faults) -> None:
    faults.world.count("store stalled")
    faults.cluster.store.stalled_until = faults.world.now + faults.world.rng.randint(50, 900)


def _unload(faults: Faults) -> None:
    rng, cluster = faults.world.rng, faults.cluster
    owner, replica = rng.choice(list(cluster.owners.values())), rng.choice(cluster.metadata)
    for topic_id, shell in list(owner.topics.items()):
        if owner.alive and not owner.paused and replica.alive:
            faults.world.count("unload")
            if rng.random() < 0.6:
                shell.handle(DrainRequested())
            replica.post(rng.randint(1, 100), "unload", lambda t=topic_id: replica.unload(t, owner.incarnation))  # type: ignore[misc]


def _stranger(faults: Faults) -> None:
    cluster, rng = faults.cluster, faults.world.rng
    owner = rng.choice(list(cluster.owners.values()))
    # Where deduplication may be off, gaps are taken, and rightly.
    if owner.alive and all(kind.name != "switch" for kind in faults.kinds):
        cluster.stranger.visit(owner, rng.choice(cluster.topic_ids))


def _switch(faults: Faults) -> None:
    faults.world.count("deduplication switched")
    faults.switch(on=not faults.cluster.owner_parts.dedup_enabled)


#: faults of runs with consumers
CONSUMER_KINDS = (
    Kind("consumer crash", 0.7, consumer_faults.crash),
    Kind("consumer pause", 0.7, consumer_faults.pause),
    Kind("consumer cut", 0.7, consumer_faults.cut),
    Kind("subscription deletion", 0.3, consumer_faults.delete_subscription),
    Kind("frequent trim", 0.5, races.trim_all, every=(40, 300)),
)
#: faults of runs with leases
LEASE_KINDS = (
    Kind("clock jump", 0.8, lease_faults.jump_clock),
    Kind("lapse", 0.9, lease_faults.lapse, every=(100, 600)),
)
#: the other faults of most runs with consumers or leases, where storage nodes and ZooKeeper have none
CALM = ("owner crash", "crash inside a step", "owner pause", "theft", "unload", "session expiry")
#: faults of runs with doors
DOOR_KINDS = tuple(Kind(*each) for each in door_faults.DOOR_FAULTS)
#: faults of runs whose ledgers begin with heads from the beginning
RESTORE_KINDS = (
    Kind("lost store", 0.95, restores.lose_store),
    Kind(SECOND_RESTORE, SECOND_RESTORES, restores.restore_twice),
    Kind("topic deletion", 1.0, deletions.delete_topic),
)
KINDS = (
    *CONSUMER_KINDS,
    *LEASE_KINDS,
    *DOOR_KINDS,
    *RESTORE_KINDS,
    Kind("owner crash", 0.5, _crash_owner),
    Kind("crash inside a step", 0.35, _crash_inside),
    Kind("storage node crash", 0.4, _crash_node),
    Kind("client crash", 0.5, _crash_client),
    Kind("metadata crash", 0.2, _crash_metadata),
    Kind("owner pause", 0.4, _pause_owner),
    Kind("pause", 0.2, _pause_any),
    Kind("session expiry", 0.25, _expire),
    Kind("wipe", 0.2, _wipe),
    Kind("rot", 0.2, _rot),
    Kind("power cut", 0.2, _power_cut),
    Kind("stuck write", 0.3, _stuck_write),
    Kind("theft", 0.35, races.theft),
    Kind("crash while recovering", 0.12, races.crash_while_recovering),
    Kind("split fence", 0.3, races.split_fence),
    Kind("restart after fence", 0.15, races.restart_after_fence),
    Kind("unreachable snapshot", 0.15, races.unreachable_snapshot),
    Kind("long sleep", 0.2, races.long_sleep),
    Kind("wipe while recovering", 0.12, races.wipe_while_recovering),
    Kind("id rush", 0.2, _id_rush),
    Kind("cut", 0.3, _cut),
    Kind("clog", 0.2, _clog),
    Kind("store stall", 0.2, _stall),
    Kind("slow openings", 0.25, opening_faults.slow_openings),
    Kind("trim", 0.5, races.trim_all),
    Kind("unload", 0.25, _unload),
    Kind("stranger", 0.3, _stranger),
    Kind("switch", 0.1, _switch),
    Kind("collect", 0.4, storage_faults.collect_all),
    Kind("lost ledger record", 0.15, races.lose_ledger_record),
    Kind("disk replacement", 0.7, storage_faults.replace_disk),
    Kind("hole", 0.5, storage_faults.hole),
    Kind("spoiled entries", 0.5, copy_faults.spoil),
    Kind("power cut during a repair", 0.4, storage_faults.power_cut_during_repair),
    Kind("one holder", 0.4, copy_faults.leave_one_holder),
    Kind("spoiled everywhere", 0.25, copy_faults.spoil_everywhere),
    Kind("differing copies", 0.4, copy_faults.make_copies_differ),
    Kind("old backup", 0.3, storage_faults.restore_old_backup),
    Kind("late hole", 0.3, storage_faults.late_hole),
    Kind("flapping node", 0.3, storage_faults.flap),
    Kind("target crash", 0.0, storage_faults.crash_target),
    Kind("restored record", 0.0, restored_record.restore_record),
    Kind("fence in a hole", 0.2, races.fence_in_hole),
    Kind("hole while recovering", 0.2, races.hole_while_recovering),
    *(Kind(name, 0.15, inject) for name, inject in past_faults.PAST_FAULTS.items()),
)
#: Faults that no restore of the records meets: a directory that is lost leaves one node too few, and an older store
#: is shown by entries of a topic that no note names.
NOT_WITH_RESTORES = ("wipe", "wipe while recovering", "rot", "older store")
#: faults of runs with repair
REPAIR_KINDS = KINDS[[kind.name for kind in KINDS].index("disk replacement") :]
