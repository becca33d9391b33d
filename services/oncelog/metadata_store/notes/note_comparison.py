"""What the elected metadata service does each minute, or interval, so that all storage nodes hold the same notes as
ZooKeeper.

    records that are new or have changed -> notes to all nodes -> digest of each node
        equal to that of ZooKeeper's records    the node holds all notes
        else                                    read its notes: send what it lacks, and for a record that ZooKeeper has
                                                no more a note of the deletion; compare again
    digests of the deletions differ         read these notes of all nodes, and send each node what it lacks

Rules
- Nobody waits for the notes of names that topics got by use. This sends them.
- A higher note of a record than ZooKeeper's, or a name without its record and without the tombstone of its topic,
  shows that ZooKeeper went back in time. Then nothing is taken for deleted, and the node does not count as whole.
- That does not hold for a note of a former era: what a restore has not found is no more.
- No process deletes the cookie of a storage node, or the policies of a namespace that has names. Such a record that is
  missing was lost: it is not taken for deleted, so that it can be rebuilt, and until then no node counts as whole.
- A process of a former era notes nothing. Its records are not those of the era that the cluster's record names.
- A damaged record is not sent, and is no difference: nodes keep the note of what it was. They keep that of a record
  that has become too large for one, too, and do not count as whole.
- A deletion is in no record, so what has damaged its note at one node is mended from the others (hazard holders-fade).
- A node that is joining copies the notes itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable

from oncelog.core.address import join_address
from oncelog.core.era import FIRST_ERA
from oncelog.core.errors import InvariantViolated, OncelogError, StoreUnavailable
from oncelog.core.formats.note import Note, NoteOrder, NotesDigest
from oncelog.core.ids import Incarnation
from oncelog.metadata_store.notes.noted_records import GROUP_MAX, NotedRecords, proof_of_deletion
from oncelog.metadata_store.notes.noting_session import deletion_of
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterStore
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.rpc.channel import Channel
from oncelog.rpc.channels import Channels
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.storage_client.note_calls import notes_digests, put_notes, read_notes

logger = logging.getLogger(__name__)

#: Until the next look whether this replica is elected.
ELECTION_PAUSE_S = 1.0
CALL_TIMEOUT_MS = 10_000
#: Changed records whose notes are sent without a look at what a node lacks. A replica that was just elected knows none:
#: then the digests decide.
SENT_AT_ONCE_MAX = 1_024


class NoteComparison:
    """Used inside one event loop."""

    def __init__(self, session: StoreSession, peers: Credentials = PLAIN, *, interval_ms: int = 60_000) -> None:
        """session: below the root of the era of `peers`."""
        self._interval_ms = interval_ms
        self._cluster = ClusterStore(session)
        self._registry = Registry(session)
        self._records = NotedRecords(session)
        self._channels = Channels(peers)
        self._era = peers.era or FIRST_ERA
        self._looked = False
        #: {registered node that is no more joining: whether it held all notes at the last round}
        self.whole: dict[Incarnation, bool] = {}

    async def run(self, elected: Callable[[], str | None]) -> None:
        """Compare while elected; never returns."""
        while True:
            if elected() is None:
                self.whole = {}
                await asyncio.sleep(ELECTION_PAUSE_S)
                continue
            try:
                await self.round()
            except InvariantViolated:
                raise
            except OncelogError as error:
                logger.info("could not compare the notes of storage nodes; will retry: %s", error.message)
            await asyncio.sleep(self._interval_ms / 1000)

    async def round(self) -> None:
        """Compare once. Raises StoreUnavailable, and what the cluster's record is wrong with."""
        cluster = await self._cluster.require()
        if cluster.era != self._era:
            self.whole = {}
            return
        changed: list[Note] = []
        async for group in self._records.refresh(cluster):
            changed += group if self._looked and len(changed) < SENT_AT_ONCE_MAX else ()
        self._looked = True
        for path in sorted(self._records.too_large):
            logger.error("a record is too large for a note", extra={"fields": {"record": path}})
        for path, why in sorted(self._records.damaged.items()):
            fields = {"record": path, "reason": why}
            logger.error("a damaged record is not noted: `oncelog admin backup rebuild`", extra={"fields": fields})
        live = [node for node in (await self._registry.storage_nodes.live()).values() if not node.joining]
        addresses = {node.incarnation: join_address(node.host, node.port) for node in live}
        self._channels.retain(addresses.values())
        channels = {one: self._channels.shared(address) for one, address in addresses.items()}
        found = await asyncio.gather(*(self._compare(*each, changed, cluster) for each in channels.items()))
        holders = await self._share_deletions(channels)
        self.whole = {one: equal and one in holders for one, equal in zip(channels, found, strict=True)}

    async def _compare(self, node: Incarnation, channel: Channel, changed: list[Note], cluster: ClusterRecord) -> bool:
        """Whether the node holds all notes now."""
        try:
            await put_notes(channel, node, changed, timeout_ms=CALL_TIMEOUT_MS)
            if await self._is_equal(node, channel):
                return True
            await self._mend(node, channel, cluster)
            return await self._is_equal(node, channel)
        except (InvariantViolated, StoreUnavailable):
            raise
        except OncelogError as error:
            logger.info("storage node %s did not compare its notes: %s", node, error.message)
            return False

    async def _is_equal(self, node: Incarnation, channel: Channel) -> bool:
        return (await notes_digests(channel, node, timeout_ms=CALL_TIMEOUT_MS)).records == self._records.digest

    async def _mend(self, node: Incarnation, channel: Channel, cluster: ClusterRecord) -> None:
        """Send what the node lacks."""
        known = self._records.known
        held: dict[str, NoteOrder] = {}
        # What this replica does not know: the record was made or changed a moment ago, or it was deleted.
        unknown: dict[str, Note] = {}
        async for note in read_notes(channel, node, timeout_ms=CALL_TIMEOUT_MS):
            held[note.path] = note.order
            if not note.order.deleted if note.path not in known else note.order > known[note.path].order:
                unknown[note.path] = note
        doubtful = [*unknown, *filter(None, map(proof_of_deletion, unknown.values()))]
        for start in range(0, len(doubtful), GROUP_MAX):
            await self._records.look_again(doubtful[start : start + GROUP_MAX], cluster)
        for path in unknown.keys() & self._records.damaged.keys():
            self._records.take_held(unknown.pop(path))
        for path in unknown.keys() & self._records.too_large:
            del unknown[path]
        older = [path for path, note in unknown.items() if self._is_older(note)]
        if older:
            logger.error(
                "ZooKeeper is older than the notes of a storage node: it was restored from a backup, or is another one",
                extra={"fields": {"node": node, "records": len(older), "record": older[0]}},
            )
            return
        used = self._used()
        lost = [path for path, note in unknown.items() if path not in known and self._is_lost(note, used)]
        for path in lost:
            logger.error("a record is missing that nobody has deleted: `oncelog admin backup rebuild %s`", path)
        gone = [deletion_of(held[path], path) for path in unknown if path not in known and path not in lost]
        await put_notes(channel, node, gone, timeout_ms=CALL_TIMEOUT_MS)
        readable = (each for each in known.items() if each[0] not in self._records.damaged)
        lacking = [path for path, one in readable if path not in held or held[path] < one.order]
        for start in range(0, len(lacking), GROUP_MAX):
            some = await self._records.look_again(lacking[start : start + GROUP_MAX], cluster)
            await put_notes(channel, node, some, timeout_ms=CALL_TIMEOUT_MS)
        fields = {"node": node, "sent": len(lacking), "deletions": len(gone)}
        logger.info("a storage node lacked notes", extra={"fields": fields})

    async def _share_deletions(self, channels: dict[Incarnation, Channel]) -> set[Incarnation]:
        """Send each node the deletions that another one has noted. Returns those that hold all."""
        digests: dict[Incarnation, NotesDigest | None] = {}
        held: dict[Incarnation, dict[str, Note]] = {}

        async def look(node: Incarnation) -> None:
            digests[node] = (await notes_digests(channels[node], node, timeout_ms=CALL_TIMEOUT_MS)).deletions

        async def read(node: Incarnation) -> None:
            notes = read_notes(channels[node], node, timeout_ms=CALL_TIMEOUT_MS)
            held[node] = {note.path: note async for note in notes if note.order.deleted}

        async def send(node: Incarnation) -> None:
            lacking = [note for path, note in newest.items() if held[node].get(path) != note]
            await put_notes(channels[node], node, lacking, timeout_ms=CALL_TIMEOUT_MS)
            if lacking:
                fields = {"node": node, "deletions": len(lacking)}
                logger.info("a storage node lacked notes of deletions", extra={"fields": fields})

        answered = await self._of_each(look, channels)
        if len({digest for digest in digests.values() if digest is not None}) < 2:
            return answered
        answered = await self._of_each(read, [one for one, digest in digests.items() if digest is not None])
        newest: dict[str, Note] = {}
        for note in (note for notes in held.values() for note in notes.values()):
            if note.path not in newest or newest[note.path].order < note.order:
                newest[note.path] = note
        older = {one for one, digest in digests.items() if digest is None}
        return older | await self._of_each(send, answered)

    async def _of_each(
        self, call: Callable[[Incarnation], Awaitable[None]], nodes: Iterable[Incarnation]
    ) -> set[Incarnation]:
        """The nodes of which this call has succeeded."""

        async def succeeds(node: Incarnation) -> bool:
            try:
                await call(node)
            except (InvariantViolated, StoreUnavailable):
                raise
            except OncelogError as error:
                logger.info("storage node %s did not compare its notes of deletions: %s", node, error.message)
                return False
            return True

        asked = list(nodes)
        found = await asyncio.gather(*map(succeeds, asked))
        return {one for one, succeeded in zip(asked, found, strict=True) if succeeded}

    def _is_older(self, note: Note) -> bool:
        """Whether this note shows that ZooKeeper went back in time."""
        known = self._records.known
        if note.path in known:
            return note.order > known[note.path].order
        if note.order.era < self._era.number:
            return False
        proof = proof_of_deletion(note)
        return proof is not None and proof not in known

    def _used(self) -> set[str]:
        """The records of tenants and namespaces that have topics. Collected once: of both there may be many."""
        names = f"{paths.NAMES}/"
        folders = {path.rpartition("/")[0] for path in self._records.known if path.startswith(names)}
        namespaces = {paths.NAMESPACES + folder.removeprefix(paths.NAMES) for folder in folders}
        return namespaces | {namespace.rpartition("/")[0] for namespace in namespaces}

    def _is_lost(self, note: Note, used: Collection[str]) -> bool:
        """Whether this record that is missing in ZooKeeper cannot have been deleted."""
        if note.order.era < self._era.number:
            return False
        return note.path.startswith(f"{paths.STORAGE_COOKIES}/") or note.path in used

    async def close(self) -> None:
        await self._channels.close()
