"""A topic is deleted before, while or after the store is lost, as `metadata.topics.topic_deletions` does it.

    record, cursor -> tombstone, in one transaction -> notes on storage nodes -> answered -> records of ledgers removed

What is answered is deleted for ever. A topic whose deletion is not answered may be there after a restore, or not. When
the deletion is answered, another topic gets the name.
"""

from typing import TYPE_CHECKING

from oncelog.core.formats.note import Note, NoteOrder
from oncelog.core.ids import Incarnation, TopicId
from oncelog.core.names import parse_topic
from oncelog.metadata_store.notes.noting_session import deletion_of
from oncelog.metadata_store.records.topic_store import NameRecord, encode_name
from oncelog.metadata_store.session import paths
from tests.simulation.servers.metadata.metadata_server import MetadataServer
from tests.simulation.servers.nodes.storage_server import StorageServer
from tests.simulation.servers.store.decoding import decode_ledger
from tests.simulation.servers.store.store import ABSENT, Store

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.faults.faults import Faults

#: storage nodes that must have the notes of what is answered
ACK_QUORUM = 2
REPEAT_TICKS = 60


def name_note(name: str, topic_id: TopicId) -> Note:
    path = paths.topic_name(parse_topic(name))
    return Note(path, NoteOrder(1, 1, False, 0), encode_name(NameRecord(topic_id)))


def delete_topic(faults: "Faults") -> None:
    """Once in a run, by any metadata replica, also one of a former era."""
    cluster, world = faults.cluster, faults.world
    alive = [replica for replica in cluster.metadata if replica.alive and not replica.paused]
    if cluster.spare is None or cluster.watch.deleted or not alive:
        return
    replica, topic_id = world.rng.choice(alive), world.rng.choice(cluster.topic_ids)
    _Deletion(cluster, replica.store, topic_id).begin(replica)


class _Deletion:
    def __init__(self, cluster: "Cluster", store: Store, topic_id: TopicId) -> None:
        self.cluster = cluster
        self.store = store
        self.topic_id = topic_id
        self.name = cluster.watch.topics[topic_id].record.name
        order = NoteOrder(store.era.number, cluster.world.steps, False, 0)
        name = deletion_of(order, name_note(self.name, topic_id).path)
        self.notes = (name, Note(paths.tombstone(topic_id), order, b""))
        self.noted_by: dict[Incarnation, None] = {}
        self.answered = False

    def begin(self, replica: MetadataServer) -> None:
        network = self.cluster.network
        self.cluster.world.after(network.delay(replica.name, "store"), "store deletes a topic", self._transact)

    def _transact(self) -> None:
        store, cluster = self.store, self.cluster
        if store.lost or store.get(f"topics/{self.topic_id}")[0] is None or cluster.watch.deleted:
            return
        cluster.world.count("topic deleted")
        if store is cluster.store:
            cluster.watch.begin_deletion(self.topic_id)
            cluster.forget_topic(self.topic_id)
        store.put(f"tombstones/{self.topic_id}", b"", ABSENT)
        for path in (f"topics/{self.topic_id}", f"cursors/{self.topic_id}"):
            store.remove(path)
        self._note()

    def _note(self) -> None:
        """By each replica: one that finds an unfinished deletion goes on with it."""
        cluster, network = self.cluster, self.cluster.network
        if self.answered or (cluster.owner_parts.healed and self.store is not cluster.store):
            return
        cluster.world.after(REPEAT_TICKS, "notes a deletion again", self._note)
        for replica in cluster.metadata:
            for node in cluster.nodes.values() if replica.alive and replica.store is self.store else ():
                network.send(replica.name, node, "notes", lambda n=node, r=replica: self._at_node(n, r))  # type: ignore[misc]

    def _at_node(self, node: StorageServer, replica: MetadataServer) -> None:
        if node.refuses(self.store.era):
            self.cluster.world.count("note of a former era refused")
            return
        node.notes |= {note.path: note for note in self.notes}
        self.cluster.network.send(node.name, replica, "noted", lambda: self._noted(node.incarnation))

    def _noted(self, node: Incarnation) -> None:
        self.noted_by[node] = None
        if self.answered or len(self.noted_by) < ACK_QUORUM:
            return
        self.answered = True
        cluster, spare = self.cluster, self.cluster.spare
        cluster.watch.deleted[self.topic_id] = True
        if spare is not None and self.store is cluster.store:
            cluster.world.count("deletion of a topic answered")
            cluster.create_topic(spare, self.name)
            self._release()

    def _release(self) -> None:
        """No record of a ledger is removed before all owners have released the topic."""
        cluster, store = self.cluster, self.store
        if store is not cluster.store:
            return
        shells = [owner.topics.get(self.topic_id) for owner in cluster.owners.values() if owner.alive]
        if not all(shell is None or shell.over for shell in shells):
            for owner in cluster.owners.values():
                if owner.alive and self.topic_id in owner.topics:
                    owner.post(1, "hears of a deletion", lambda o=owner: o.assign(self.topic_id))  # type: ignore[misc]
            cluster.world.after(REPEAT_TICKS, "releases a deleted topic", self._release)
            return
        cluster.world.count("deleted topic released")
        for name in store.children("ledgers"):
            if decode_ledger(store.records[f"ledgers/{name}"][0]).topic_id == self.topic_id:
                store.remove(f"ledgers/{name}")
        for name in store.children(f"pages/{self.topic_id}"):
            store.remove(f"pages/{self.topic_id}/{name}")
