"""Faults of storage directories in runs with repair: disks replaced in turn, holes, and spoiled entries.

A directory loses something only where the rule that operators follow allows it (`core.repair.replacement`), so that the
faults alone explain no lost entry.
"""

from typing import TYPE_CHECKING

from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata, LedgerState, decode_ledger
from oncelog.core.repair.assessment import StorageNodes
from oncelog.core.repair.replacement import may_replace
from oncelog.core.storage.ledger import JournalRecord, RecordKind
from oncelog.core.storage.node import DamageFound
from tests.simulation.repair_server import directory_views, listed_ledgers_of
from tests.simulation.storage_server import StorageServer

if TYPE_CHECKING:
    from tests.simulation.faults import Faults


def _listed_records(faults: "Faults") -> list[LedgerMetadata]:
    store = faults.cluster.store
    found = [store.get(f"ledgers/{ledger_id}")[0] for ledger_id in listed_ledgers_of(store)]
    return [decode_ledger(data) for data in found if data is not None]


def may_lose(faults: "Faults", server: StorageServer) -> bool:
    """Whether an operator would replace this directory now: every other member of its ledgers answers, and has
    everything."""
    cluster = faults.cluster
    if any(node.name != server.name and not _answers(faults, node) for node in cluster.nodes.values()):
        return False
    damage = {node.incarnation: node.disk.damaged for node in cluster.nodes.values()}

    def damaged(ledger_id: LedgerId) -> list[Incarnation]:
        limbo = [n.incarnation for n in cluster.nodes.values() if n.core.ledgers.limbo.covers(ledger_id)]
        return limbo + [node for node, found in damage.items() if any(each == ledger_id for each, _ in found)]

    nodes = StorageNodes(directory_views(cluster.store))
    records = _listed_records(faults)
    if len(records) < len(listed_ledgers_of(cluster.store)):
        return False  # a record is missing for a while
    return may_replace(server.incarnation, records, nodes, damaged, ()).allowed


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
    cluster.crash(server)
    disk = server.disk
    ledgers = list(dict.fromkeys(record.ledger_id for record in disk.records if record.ledger_id))
    lost = dict.fromkeys(rng.sample(ledgers, rng.randint(0, len(ledgers))))
    kept = [r for r in disk.records if r.ledger_id not in lost or rng.random() < 0.3]
    disk.taken += [r for r in disk.records if r not in kept]
    disk.records = kept
    # Above every ledger that exists: what the synced ledger counter shows at the start.
    below = LedgerId(1 + max((int(name) for name in cluster.store.children("ledgers")), default=0))
    disk.records.append(JournalRecord(0, RecordKind.LIMBO, max(below, *ledgers, LedgerId(1)), EntryId(0), b""))
    disk.synced = len(disk.records)
    for ledger_id in lost:
        cluster.watch.copies.spoiled.setdefault(ledger_id, {})[server.incarnation] = None
    faults.world.after(rng.randint(20, 300), f"{server.name} starts with a hole", lambda: cluster.revive(server))


def spoil(faults: "Faults") -> None:
    """The medium spoils entries of a whole ledger at one member; a scrubber finds them later."""
    rng, cluster = faults.world.rng, faults.cluster
    whole = [r for r in _listed_records(faults) if r.whole and r.end >= 0] if cluster.shape.repair else []
    if not whole:
        return
    record = rng.choice(whole)
    member = rng.choice(record.members)
    server = cluster.watch.copies.existing(member)
    if server is None or not may_lose(faults, server):
        return
    faults.world.count("entries spoiled")
    ids = tuple(EntryId(n) for n in sorted(rng.sample(range(record.end + 1), rng.randint(1, min(3, record.end + 1)))))
    for entry_id in ids:
        server.disk.damaged[record.ledger_id, entry_id] = None
    cluster.watch.copies.spoiled.setdefault(record.ledger_id, {})[member] = None
    server.post(rng.randint(1, 400), "scrubs", lambda: server.handle(DamageFound(record.ledger_id, ids)))


def scrub_all(faults: "Faults") -> None:
    """Every node reads all of its entries, and finds the spoiled ones."""
    for server in faults.cluster.nodes.values():
        found: dict[LedgerId, list[EntryId]] = {}
        for ledger_id, entry_id in server.disk.damaged:
            found.setdefault(ledger_id, []).append(entry_id)
        for ledger_id, ids in found.items():
            damage = DamageFound(ledger_id, tuple(ids))
            server.post(faults.world.rng.randint(1, 400), "scrubs", lambda s=server, d=damage: s.handle(d))  # type: ignore[misc]


def not_whole(faults: "Faults") -> list[LedgerMetadata]:
    """The listed CLOSED ledgers that are not whole by their record, or not on the disks of their members."""
    nodes, copies = faults.cluster.nodes, faults.cluster.watch.copies
    live = {node.incarnation for node in nodes.values() if _answers(faults, node)}

    def well(record: LedgerMetadata) -> bool:
        members = all(member in live and not copies.lacking(record, member) for member in record.members)
        return record.whole and record.joining is None and members

    return [r for r in _listed_records(faults) if r.state is LedgerState.CLOSED and not well(r)]
