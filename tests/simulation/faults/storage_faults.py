"""Faults of storage in runs with repair: disks replaced in turn, holes, spoiled and differing entries, old backups.

A directory loses something only where the rule that operators follow allows it (`core.repair.node_removal`), so that
the faults alone explain no lost entry.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState
from oncelog.core.ledger.storage_nodes import StorageNodes
from oncelog.core.node.node import DamageFound
from oncelog.core.node.node_ledger import JournalRecord, RecordKind
from oncelog.core.repair.node_removal import may_replace
from oncelog.core.repair.unlisted import can_go
from tests.simulation.cluster import SESSION_TICKS
from tests.simulation.servers.metadata.repair_server import directory_views
from tests.simulation.servers.nodes.storage_server import StorageServer
from tests.simulation.servers.store.decoding import SLOW, decode_ledger
from tests.simulation.servers.store.ledger_lists import chains_of, listed_ledgers_of

if TYPE_CHECKING:
    from tests.simulation.faults.faults import Faults

#: how often, and for how long, a fault waits for a repair that runs
LOOK_TICKS = 10
LOOKS_MAX = 60


#: the tick after which most inputs are done
LATE = 3000


def listed_records(faults: "Faults") -> list[LedgerMetadata]:
    store = faults.cluster.store
    found = [store.get(f"ledgers/{ledger_id}")[0] for ledger_id in listed_ledgers_of(store)]
    return [decode_ledger(data) for data in found if data is not None]


def may_lose(faults: "Faults", server: StorageServer) -> bool:
    """Whether an operator would replace this directory now: every other member of its ledgers answers, and has
    everything."""
    cluster = faults.cluster
    if any(node.name != server.name and not _answers(faults, node) for node in cluster.nodes.values()):
        return False
    if _another_in_limbo(faults, server) or _leaves_unlisted(faults, server):
        return False

    def damaged(ledger_id: LedgerId) -> list[Incarnation]:
        return [node.incarnation for node in cluster.nodes.values() if _is_hurt(faults, node, ledger_id)]

    nodes = StorageNodes(directory_views(cluster.store))
    records = listed_records(faults)
    if len(records) < len(listed_ledgers_of(cluster.store)):
        return False  # a record is missing for a while
    return may_replace(server.incarnation, records, nodes, damaged).allowed


def _answers(faults: "Faults", server: StorageServer) -> bool:
    return server.alive and not server.paused and f"storage/{server.incarnation}" in faults.cluster.store.records


def replace_disk(faults: "Faults") -> None:
    """Any node's directory is replaced by an empty one, as soon as this is allowed."""
    rng, cluster = faults.world.rng, faults.cluster
    if not cluster.shape.repair:
        return
    server = rng.choice(list(cluster.nodes.values()))
    if may_lose(faults, server):
        faults.world.count("disk replaced in turn")
        faults.lose_directory(server, rng.randint(20, 600))
    else:
        faults.world.count("disk not replaced, because a ledger needs it")


def hole(faults: "Faults") -> None:
    """A node starts with a part of its records missing: everything of some ledgers, fences included."""
    rng, cluster = faults.world.rng, faults.cluster
    if not cluster.shape.repair:
        return
    server = rng.choice(list(cluster.nodes.values()))
    if not may_lose(faults, server):
        return
    faults.world.count("hole in a directory")
    ledgers = list(dict.fromkeys(record.ledger_id for record in server.disk.records if record.ledger_id))
    lost = dict.fromkeys(rng.sample(ledgers, rng.randint(0, len(ledgers))))
    make_hole(faults, server, lambda record: record.ledger_id in lost and rng.random() >= 0.3, rng.randint(20, 300))


def late_hole(faults: "Faults") -> None:
    """A node starts with a hole that took nothing, when most topics are idle: their owners notice nothing, and each
    open ledger of the node stays in limbo until its owner is asked to roll (hazard repair-of-an-open-ledger)."""
    server = faults.world.rng.choice(list(faults.cluster.nodes.values()))
    if faults.cluster.shape.repair and faults.world.now > LATE and server.alive and may_lose_open(faults, server):
        faults.world.count("hole in a directory of idle topics")
        make_hole(faults, server, lambda _: False, 20)


def flap(faults: "Faults") -> None:
    """A node is away until the replacement of its copies has begun, and returns in the middle of it (hazard
    flapping-node)."""
    world, cluster = faults.world, faults.cluster
    server = world.rng.choice(list(cluster.nodes.values()))
    if not cluster.shape.repair or not server.alive or server.paused:
        return
    world.count("storage node flaps")
    incarnation, ticks = server.incarnation, world.rng.randint(400, 2500)
    cluster.crash(server)
    cluster.expire(f"storage/{incarnation}", server)

    def look(left: int) -> None:
        repairs = [r for replica in cluster.metadata if replica.repairer for r in replica.repairer.repairs.values()]
        if not left or any(repair.job.replace == incarnation for repair in repairs):
            world.count("storage node returned during its replacement", left > 0)
            cluster.revive(server)
        else:
            world.after(1, "looks for a replacement", lambda: look(left - 1))

    look(ticks)


def crash_target(faults: "Faults", looks: int = LOOKS_MAX) -> None:
    """A node that is being filled restarts within its session."""
    joining = [record.joining for record in listed_records(faults) if record.joining is not None]
    server = faults.cluster.watch.copies.existing(joining[0]) if joining else None
    if server is not None:
        faults.world.count("joining storage node crashed")
        faults.crash(server, faults.world.rng.randint(200, SESSION_TICKS))
    elif looks and faults.on:
        faults.world.after(LOOK_TICKS, "looks for a joining node", lambda: crash_target(faults, looks - 1))


def make_hole(faults: "Faults", server: StorageServer, loses: Callable[[JournalRecord], bool], ticks: int) -> None:
    """The node ends, loses these records, and starts with a hole."""
    cluster, disk = faults.cluster, server.disk
    cluster.crash(server)
    ledgers = list(dict.fromkeys(record.ledger_id for record in disk.records if record.ledger_id))
    lost = [record for record in disk.records if loses(record)]
    disk.take(lost)
    # Above every ledger that exists: what the synced ledger counter shows at the start.
    below = LedgerId(1 + max((int(name) for name in cluster.store.children("ledgers")), default=0))
    disk.records.append(JournalRecord(0, RecordKind.LIMBO, max(below, *ledgers, LedgerId(1)), EntryId(0), b""))
    disk.synced = len(disk.records)
    cluster.watch.copies.lost_by_fault(server.incarnation, lost)
    faults.world.after(ticks, f"{server.name} starts with a hole", lambda: cluster.revive(server))


def open_ledgers(faults: "Faults") -> list[LedgerId]:
    """The listed ledgers that are not CLOSED."""
    return [record.ledger_id for record in listed_records(faults) if record.state is not LedgerState.CLOSED]


def may_lose_open(faults: "Faults", server: StorageServer) -> bool:
    """Whether this directory can do without what it holds of ledgers that are not CLOSED."""
    unclosed = [record for record in listed_records(faults) if record.state is not LedgerState.CLOSED]
    return others_are_sound(faults, server, unclosed)


def others_are_sound(faults: "Faults", server: StorageServer, records: Iterable[LedgerMetadata]) -> bool:
    """Whether every other member of these ledgers is live, and has lost nothing."""
    cluster = faults.cluster
    if _another_in_limbo(faults, server) or _leaves_unlisted(faults, server):
        return False
    for record in records:
        for member in record.members:
            other = cluster.watch.copies.existing(member)
            if member != server.incarnation and (
                other is None or not other.alive or _is_hurt(faults, other, record.ledger_id)
            ):
                return False
    return True


def _another_in_limbo(faults: "Faults", server: StorageServer) -> bool:
    """Whether another node is in limbo, or will be when it joins the era that others are in.

    Then `notes_refusal` allows no operator to replace this one. To a restore both would be missing, and a ledger
    that an owner has prepared may have both as members before a list names it.
    """
    nodes = list(faults.cluster.nodes.values())
    newest = max(node.core.era.number for node in nodes)
    return any(
        node is not server and (node.core.ledgers.limbo.below > 0 or node.core.era.number < newest) for node in nodes
    )


def _leaves_unlisted(faults: "Faults", server: StorageServer) -> bool:
    """Whether a ledger that an owner has created, and may list yet, has this node and one that can hold nothing of it
    as members: it is gone, or holds the ledger of another topic that was given this id, too.

    The rule of operators looks at listed ledgers only. If two such members are lost while an owner links a ledger,
    and the owner ends before it closes it, nobody can close it: its topic waits for an operator to give it up, although
    nothing was ever written to it. The simulation has no operator who does that.
    """
    store, existing = faults.cluster.store, faults.cluster.watch.copies.existing
    listed = dict.fromkeys(listed_ledgers_of(store))
    for ledger_id in [LedgerId(int(name)) for name in store.children("ledgers")]:
        data, _ = store.get(f"ledgers/{ledger_id}")
        record = None if data is None or ledger_id in listed else decode_ledger(data)
        if record is None or record.state is LedgerState.CLOSED or server.incarnation not in record.members:
            continue
        others = [existing(member) for member in record.members if member != server.incarnation]
        if all(other is not None and not other.disk.has_foreign(ledger_id) for other in others):
            continue
        topic, cursor = (store.get(f"{kind}/{record.topic_id}")[0] for kind in ("topics", "cursors"))
        if topic is not None and not can_go(record, chains_of(store, record.topic_id, topic, cursor)):
            return True
    return False


def _is_hurt(faults: "Faults", server: StorageServer, ledger_id: LedgerId) -> bool:
    """Whether the node may lack what it should have of the ledger."""
    vanished = faults.cluster.watch.copies.vanished.get(ledger_id, {})
    if server.incarnation in vanished or server.disk.has_foreign(ledger_id):
        return True
    return server.core.ledgers.limbo.covers(ledger_id) or any(each == ledger_id for each, _ in server.disk.damaged)


def restore_old_backup(faults: "Faults") -> None:
    """The reviews of storage nodes see ZooKeeper as of an earlier time, for a while (hazard
    missing-record-is-no-deletion)."""
    rng, world, store = faults.world.rng, faults.world, faults.cluster.store
    if not faults.cluster.shape.repair:
        return
    world.count("old backup restored")
    store.backup_of = rng.randint(0, world.now)
    ticks = rng.randint(100, 500)
    for _ in range(4):
        world.after(rng.randint(1, ticks), "collects", lambda: collect_all(faults))

    def replaced() -> None:
        store.backup_of = None

    world.after(ticks, "the backup is replaced", replaced)


def collect_all(faults: "Faults") -> None:
    """Every storage node looks for ledgers that are no longer needed."""
    for node in faults.cluster.nodes.values():
        if node.alive and not node.paused:
            node.collect()


def power_cut_during_repair(faults: "Faults", looks: int = LOOKS_MAX) -> None:
    """Every storage node is down for a while, but not long enough to end its session: a repair finds all registered,
    and none answers."""
    cluster, world = faults.cluster, faults.world
    if not cluster.shape.repair:
        return
    if any(replica.alive and replica.repairer and replica.repairer.repairs for replica in cluster.metadata):
        world.count("power cut during a repair")
        for node in cluster.nodes.values():
            faults.crash(node, world.rng.randint(20, SESSION_TICKS))
    elif looks and faults.on:
        world.after(LOOK_TICKS, "looks for a repair", lambda: power_cut_during_repair(faults, looks - 1))


def scrub_all(faults: "Faults") -> None:
    """Every node reads all of its entries, and finds the spoiled ones."""
    for server in faults.cluster.nodes.values():
        found: dict[LedgerId, list[EntryId]] = {}
        for ledger_id, entry_id in server.disk.damaged:
            found.setdefault(ledger_id, []).append(entry_id)
        for ledger_id, ids in found.items():
            _scrub(faults, server, DamageFound(ledger_id, tuple(ids)), faults.world.rng.randint(1, 400))


def _scrub(faults: "Faults", server: StorageServer, damage: DamageFound, after: int) -> None:
    """A restart that was planned before the faults ended may come in between: then the node scrubs when it is back."""

    def scrub() -> None:
        if server.alive:
            server.handle(damage)
        else:
            _scrub(faults, server, damage, LOOK_TICKS)

    faults.world.after(after, f"{server.name} scrubs", scrub)


def all_whole(faults: "Faults") -> bool:
    """Whether no listed ledger needs repair."""
    found = not_whole(faults)
    return not list(found) if SLOW else next(found, None) is None


def not_whole(faults: "Faults") -> Iterator[LedgerId]:
    """The listed ledgers that need repair. Each CLOSED one is whole by its record, and on the disks of its members;
    others have no member in limbo. A frozen ledger waits for an operator."""
    nodes, copies = faults.cluster.nodes, faults.cluster.watch.copies
    live = {node.incarnation: node for node in nodes.values() if _answers(faults, node)}

    def well(record: LedgerMetadata) -> bool:
        if record.frozen or any(copies.has_another(member, record.ledger_id) for member in record.members):
            return True
        if record.state is not LedgerState.CLOSED:
            return not any(m in live and live[m].core.ledgers.limbo.covers(record.ledger_id) for m in record.members)
        if not record.verified or record.joining is not None:
            return False
        return all(member in live and not copies.lacking(record, member) for member in record.members)

    return (record.ledger_id for record in listed_records(faults) if not well(record))
