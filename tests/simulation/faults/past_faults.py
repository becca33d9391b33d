"""Faults of a storage node's past: directories that go back in time, lose entries in silence or are copied, and a store
that is older than the data (hazards directory-went-back to ledger-id-given-twice). In runs with repair.

A directory loses something only while all other members of its ledgers are live and have lost nothing, so that the
faults alone explain no lost entry.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from oncelog.core.formats.entry import body_of, encode_header, peek_header
from oncelog.core.ids import EntryId, LedgerId, TopicId
from oncelog.core.node.node_ledger import ENTRY_KINDS, JournalRecord, RecordKind
from oncelog.core.node.starts import RESTORED, LastStart
from oncelog.core.records.id_claim import decode_counter, encode_counter
from oncelog.core.topic.topic import Phase
from tests.simulation.faults.copy_faults import when_sound
from tests.simulation.faults.storage_faults import listed_records, others_are_sound
from tests.simulation.servers.nodes.disk import Disk
from tests.simulation.servers.nodes.node_starts import NOTE_TICKS
from tests.simulation.servers.nodes.storage_server import StorageServer

if TYPE_CHECKING:
    from tests.simulation.faults.copy_faults import SoundLedger
    from tests.simulation.faults.faults import Faults
    from tests.simulation.servers.owners.owner_server import OwnerServer

#: a topic that the older store does not know
UNKNOWN_TOPIC = TopicId("f" * 32)


def go_back_in_time(faults: "Faults") -> None:
    """Entries are stored on two of three members. One of the two gets an older copy of its directory, or loses the end
    of its journal, and the recovering owner does not reach the other one for a while (hazard directory-went-back)."""
    cluster, world = faults.cluster, faults.world
    serving = _serving(faults)
    if not serving or not cluster.shape.repair:
        return
    owner = world.rng.choice(serving)
    past, holder, lost = world.rng.sample(list(cluster.nodes.values()), 3)
    if not past.alive:
        return
    copy, whole, interrupted = past.disk.copy(), world.rng.random() < 0.5, world.rng.random() < 0.3
    ticks = NOTE_TICKS + world.rng.randint(20, 200)
    incarnation = past.incarnation
    cluster.network.cuts[owner.name, lost.name] = world.now + ticks + 50
    for other in cluster.owners.values():
        if other is not owner:
            cluster.network.cuts[other.name, holder.name] = world.now + ticks + 700

    def restore() -> None:
        if (
            not faults.on
            or past.incarnation != incarnation
            or not others_are_sound(faults, past, listed_records(faults))
        ):
            return
        start = copy.last_start if whole else past.disk.last_start
        # Some are marked although the node would recognize them.
        marked = world.now % 3 == 0 or not past.present.knows_more_than(copy.end, start.start_id)
        world.count("directory of the past")
        world.count("directory of the past, marked", marked)
        faults.crash(owner, 600)
        cluster.crash(past)
        past.interrupted = interrupted
        cluster.watch.copies.lost_by_fault(incarnation, past.disk.go_back(copy, whole=whole))
        if marked:
            past.disk.last_start = LastStart(start_id=RESTORED, former_id=RESTORED)
        world.after(20, f"{past.name} starts with an older directory", lambda: cluster.revive(past))

    world.after(ticks, "a directory goes back in time", restore)


def vanish(faults: "Faults") -> None:
    """Entries of a whole ledger vanish at one member, and its start does not notice it (hazard
    verified-copy-is-missing)."""

    def do(ledger: "SoundLedger") -> None:
        server, ids = ledger.members[0], ledger.some_entries(3)
        faults.world.count("entries vanished")
        faults.cluster.crash(server)
        lost = [r for r in server.disk.records if r.ledger_id == ledger.ledger_id and _entry_id(r) in ids]
        server.disk.take(lost)
        server.disk.synced = len(server.disk.records)
        faults.cluster.watch.copies.lost_by_fault(server.incarnation, lost)
        faults.cluster.watch.copies.vanished.setdefault(ledger.ledger_id, {})[server.incarnation] = None
        faults.world.after(20, f"{server.name} starts without them", lambda: faults.cluster.revive(server))

    when_sound(faults, do)


def _entry_id(record: JournalRecord) -> EntryId | None:
    return record.entry_id if record.kind in ENTRY_KINDS else None


def start_copy(faults: "Faults") -> None:
    """A copy of a directory is started beside the original. Owners that connect from now on reach the copy (hazard
    copied-directory). Then the topics are placed elsewhere."""
    cluster, world = faults.cluster, faults.world
    serving = _serving(faults)
    if not serving or not cluster.shape.repair:
        return
    server = world.rng.choice(list(cluster.nodes.values()))
    registered = f"storage/{server.incarnation}" in cluster.store.records
    if not server.alive or server.paused or server.beside is not None or not registered:
        return
    world.count("copy of a directory started")
    copy = StorageServer(server.parts, f"{server.name}+copy")
    disk = Disk()
    disk.go_back(server.disk.copy(), whole=True)
    disk.damaged = dict(server.disk.damaged)
    copy.disks.clear()
    copy.mount(server.incarnation, disk)
    copy.start()
    server.beside = (copy, frozenset(each.name for each in cluster.processes() if each not in serving))
    if not copy.alive:
        server.beside = None
        copy.life += 2  # an operator stops it, so that it does not start again
    replica = world.rng.choice(cluster.metadata)
    for topic_id in cluster.topic_ids:
        for owner in serving:
            replica.post(world.rng.randint(1, 60), "unload", partial(replica.unload, topic_id, owner.incarnation))

    def stop() -> None:
        copy.crash()
        server.beside = None

    world.after(world.rng.randint(200, 800), "the copy is stopped", lambda: stop() if server.beside else None)


def older_store(faults: "Faults") -> None:
    """The store is restored from a backup of before a topic was created. Some nodes hold ledgers of this topic, whose
    ids are given again (hazard ledger-id-given-twice). All services were stopped for that. Later the counter of ids is
    put right."""
    cluster, world, store = faults.cluster, faults.world, faults.cluster.store
    counter, _ = store.get("ids/ledger")
    nodes = [node for node in cluster.nodes.values() if node.alive and not node.paused and node.disk.records]
    if counter is None or not nodes or not cluster.shape.repair or faults.histories:
        return
    rng = random.Random(f"{world.seed}/older store/{world.now}")
    faults.histories.append("older store")
    world.count("older store")
    first = decode_counter(counter).next
    ledgers = [LedgerId(n) for n in range(first, first + rng.randint(2, 8))]
    processes: list[OwnerServer | StorageServer] = [*cluster.owners.values(), *cluster.nodes.values()]
    for process in processes:
        folder = "storage" if isinstance(process, StorageServer) else "owners"
        path = f"{folder}/{process.incarnation}"
        cluster.crash(process)
        if path in store.records:
            cluster.expire(path, process)
        world.after(rng.randint(1, 100), f"{process.name} starts", partial(cluster.revive, process))
    for node in rng.sample(nodes, rng.randint(1, len(nodes))):
        for ledger_id in ledgers:
            _hold_unknown(faults, node.disk, ledger_id)

    def put_right() -> None:
        data, version = store.get("ids/ledger")
        assert data is not None
        record = decode_counter(data)
        if record.next <= ledgers[-1]:
            store.put("ids/ledger", encode_counter(type(record)(ledgers[-1] + 1, record.claimer, "put right")), version)

    world.after(rng.randint(500, 1500), "the counter is put right", put_right)


def _hold_unknown(faults: "Faults", disk: Disk, ledger_id: LedgerId) -> None:
    """The directory holds entries of this ledger: as they stand in another one, but of the unknown topic."""
    found = [record for record in disk.records if record.kind in ENTRY_KINDS and id(record) not in disk.foreign]
    for number, record in enumerate(found[:3]):
        header, body = peek_header(record.data), body_of(record.data)
        header = header._replace(topic_id=UNKNOWN_TOPIC, ledger_id=ledger_id, entry_id=EntryId(number))
        data = encode_header(header, body, faults.cluster.watch.checksum) + bytes(body)
        unknown = JournalRecord(0, RecordKind.ADD, ledger_id, EntryId(number), data)
        disk.records.append(unknown)
        disk.foreign[id(unknown)] = ledger_id
    disk.synced = len(disk.records)


def _serving(faults: "Faults") -> "list[OwnerServer]":
    owners = faults.cluster.owners.values()
    return [o for o in owners if o.alive and any(shell.core.phase is Phase.SERVING for shell in o.topics.values())]


#: what `faults` calls, by the name of the kind
PAST_FAULTS: dict[str, "Callable[[Faults], None]"] = {
    "directory of the past": go_back_in_time,
    "entries vanish": vanish,
    "copy of a directory": start_copy,
    "older store": older_store,
}
