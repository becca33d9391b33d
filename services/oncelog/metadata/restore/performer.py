"""Performs one attempt of a restore: the effects of `core.rebuild.restore_plan`, over storage nodes and ZooKeeper."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import InvariantViolated, OncelogError, ServiceUnavailable
from oncelog.core.formats.note import Note
from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.placement.level import Level
from oncelog.core.process_version import FIRST_VERSION
from oncelog.core.rebuild.join import join
from oncelog.core.rebuild.restore_events import (
    Claimed,
    ClaimEra,
    ClusterSeen,
    Collect,
    Collected,
    CommitEra,
    EraCommitted,
    ErasRaised,
    JoinRecords,
    Knowledge,
    NodeSeen,
    RaiseEras,
    RecordsJoined,
    RecordsWritten,
    RestoreEffect,
    RestoreEnded,
    RestoreEvent,
    RestoreRequest,
    RestoreStep,
    Survey,
    Surveyed,
    WriteRecords,
)
from oncelog.core.rebuild.restore_plan import REPLACED, Restore
from oncelog.core.rebuild.result import Asked, CopiedRecords, Rebuilt, RebuiltTopic
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.retention.paging import PageSettings
from oncelog.metadata.restore.lost_records import review_lost
from oncelog.metadata.restore.new_tree import NewTree, new_tree
from oncelog.metadata.restore.node_reader import NodeContents, NodeReader, knowledge_from
from oncelog.metadata.restore.noted_records import (
    NewestRecords,
    knowledge_of,
    newest_of,
    noted_cookies,
    records_of,
)
from oncelog.metadata.restore.progress import ReportedNode, RestoreProgress, RestoreState, now_ms, shown_time
from oncelog.metadata.restore.tree_nodes import era_of, look_at_cluster, nodes_in_trees
from oncelog.metadata.restore.tree_writer import FencedError, TreeWriter
from oncelog.metadata_store.copies.copy_file import CopiedRecord, CopyHeader, RecordCopy, copy_of
from oncelog.metadata_store.copies.copy_folder import name_by_content
from oncelog.metadata_store.copies.copy_keys import CopyKey
from oncelog.metadata_store.records.cluster_store import (
    ClusterRecord,
    ClusterState,
    ClusterStore,
    Rights,
    encode_cluster,
)
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.runtime.backoff import Backoff
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.runtime.observing.audit_log import AuditLog

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RestoreSources:
    """session: at the root of the cluster, whatever the era. audit: gets a line for each step. nodes: addresses of
    storage nodes, as far as settings name them; called at each survey. copy_keys: that copies may be encrypted with."""

    session: StoreSession
    audit: AuditLog
    nodes: Callable[[], Sequence[str]] = tuple
    copy_keys: Callable[[], Sequence[CopyKey]] = tuple
    credentials: Credentials = PLAIN


class Performer:
    """One attempt. `progress` is what it shows."""

    def __init__(
        self,
        sources: RestoreSources,
        request: RestoreRequest,
        *,
        given: Sequence[str],
        by: str,
        progress: RestoreProgress,
    ) -> None:
        """given: addresses of storage nodes. by: the operator."""
        self.progress = progress
        #: what it finds is compared with the records that are there, so it is not the end of the work
        self.compared_next = False
        #: called with the era before it is claimed
        self.on_claim: Callable[[Era], None] = lambda _: None
        self._sources = sources
        self._session = sources.session
        self._cluster = ClusterStore(sources.session)
        self._given = given
        self._by = by
        self._restore = Restore(request)
        self._reader = NodeReader(sources.credentials)
        #: the record that the claim has written, or the one that was found
        self._record: ClusterRecord | None = None
        #: the era that served before; None: unknown
        self._former: Era | None = None
        #: the version of the committed record
        self._committed = ABSENT_VERSION
        self._backoff = Backoff()
        self._seen: dict[Incarnation, NodeSeen] = {}
        self._surveyed: list[Note] = []
        self._contents: dict[Incarnation, NodeContents] = {}
        self.newest = NewestRecords()
        self._copied = CopiedRecords()
        self._unreadable: dict[str, str] = {}
        #: the oldest first
        self._copies: list[RecordCopy] = []
        self._ack_quorum = 0
        self.rebuilt: Rebuilt | None = None

    async def run(self) -> None:
        """Returns when it is done or refused. Raises OncelogError: it can be resumed."""
        self.progress.begin(by=self._by, dry_run=self._restore.request.dry_run)
        async with self._reader:
            effects = self._restore.begin()
            while effects:
                (effect,) = effects
                if isinstance(effect, RestoreEnded):
                    await self._end(effect)
                    return
                await self._note_step()
                event = await self._perform(effect)
                effects = self._restore.handle(event)

    async def _note_step(self) -> None:
        restore, progress = self._restore, self.progress
        changed = progress.step is not restore.step
        self._show_step()
        if changed or restore.step is RestoreStep.PLAN:
            await self._sources.audit.write("restore of ZooKeeper's records", progress.brief())

    def _show_step(self) -> None:
        self.progress.step = self._restore.step
        if self._restore.era != FIRST_ERA:
            self.progress.era, self.progress.restore_id = self._restore.era

    async def _end(self, effect: RestoreEnded) -> None:
        self._show_step()
        if self.compared_next and not effect.refusal:
            self.progress.step = RestoreStep.COMPARE
        else:
            state = RestoreState.REFUSED if effect.refusal else RestoreState.DONE
            if effect.remark and self._record is not None:
                self.progress.rights_closed = self._record.rights is Rights.CLOSED
            self.progress.end(state, effect.refusal or effect.remark)
        await self._sources.audit.write("restore of ZooKeeper's records", self.progress.brief())

    async def _perform(self, effect: RestoreEffect) -> RestoreEvent:
        match effect:
            case Survey():
                return await self._survey()
            case ClaimEra():
                return await self._claim(effect)
            case RaiseEras():
                return await self._raise(effect)
            case Collect():
                return await self._collect(effect)
            case JoinRecords():
                return await self._join(effect)
            case WriteRecords():
                return await self._write(effect)
            case CommitEra():
                return await self._commit(effect)
            case RestoreEnded():
                raise AssertionError("the end is no work")
            case _:
                assert_never(effect)

    # --- PLAN, CLAIM ---

    async def _survey(self) -> Surveyed:
        if self._surveyed:
            await self._backoff.pause()  # another restore has outbid this one, or claims at the same time
        found, version = await self._cluster.find_replaceable()
        tree: ClusterSeen | None = None
        addresses = [*self._given, *self._sources.nodes()]
        recorded: dict[str, Incarnation] = {}
        owners: tuple[str, ...] = ()
        known = Knowledge()
        if version != ABSENT_VERSION:
            serving = None if found is None or found.value.state is ClusterState.RESTORING else found.value.era
            in_tree, known = await nodes_in_trees(self._session, serving)
            recorded |= in_tree
            self._reader.named |= in_tree
        if found is not None:
            self._record = found.value
            tree, owners = await look_at_cluster(self._session, found)
            self._former = self._former or (None if tree.restoring else tree.era)
        self._seen, self._surveyed = await self._reader.survey(addresses, recorded=recorded)
        if tree is not None:
            known = known.with_further(Knowledge(ack_quorum=tree.ack_quorum))
        knowledge = knowledge_of(self._surveyed).with_further(known)
        self._report_nodes(knowledge)
        return Surveyed(tree, self._seen, knowledge, owners, version)

    async def _claim(self, effect: ClaimEra) -> Claimed:
        await self._session.ensure_path("")
        newest = NewestRecords()
        newest.add(note for note in self._surveyed if note.path == paths.CLUSTER)
        record = self._record or newest.cluster() or ClusterRecord(effect.cluster_id, Level(FIRST_VERSION))
        record = replace(
            _with_noted(record, newest.cluster()),
            cluster_id=effect.cluster_id,
            era=effect.era,
            state=ClusterState.RESTORING,
        )
        self.on_claim(effect.era)
        written = await self._cluster.write(record, version=effect.version)
        self._record = record
        return Claimed(written.status, written.version)

    # --- RAISE, COLLECT, JOIN ---

    async def _raise(self, effect: RaiseEras) -> ErasRaised:
        cookies = noted_cookies([*self._surveyed, *(note for each in self._contents.values() for note in each.notes)])
        await self._reader.find(cookies[node] for node in effect.nodes if node in cookies)
        return ErasRaised(await self._reader.raise_eras(effect.nodes, effect.era, self._restore.cluster_id))

    async def _collect(self, effect: Collect) -> Collected:
        self._contents = await self._reader.collect(effect.nodes)
        await self._read_copies()
        knowledge = await asyncio.to_thread(self._knowledge)
        self._ack_quorum = knowledge.ack_quorum
        self._report_nodes(knowledge)
        return Collected(self._nodes(), knowledge)

    def _nodes(self) -> dict[Incarnation, NodeSeen]:
        """Those whose contents were collected."""
        return {
            node: NodeSeen(each.inventory.cluster_id, each.inventory.era, each.inventory.limbo_below > 0)
            for node, each in self._contents.items()
        }

    async def _read_copies(self) -> None:
        """The newest copy that storage nodes keep, and the pinned ones."""
        found, unreadable = await self._reader.copies(
            {node: each.inventory.era for node, each in self._contents.items()},
            self._restore.cluster_id,
            self._sources.copy_keys(),
            committed={self._former or FIRST_ERA}.union(
                *(each.inventory.committed_eras for each in self._contents.values())
            ),
        )
        self._copies = found
        self.progress.copies = [f"era {copy.header.era.number}, {shown_time(copy.header.created_ms)}" for copy in found]
        self.progress.warnings = [f"copy {name} is not used: {why}" for name, why in unreadable.items()]

    def _knowledge(self) -> Knowledge:
        """What nodes and copies say."""
        self._unreadable = {}
        self._copied = records_of(self._copies, self._unreadable)
        quorums = [ledger.ack_quorum for ledger in self._copied.ledgers.values()]
        further = Knowledge(ack_quorum=min(quorums, default=0))
        return knowledge_from(self._contents, self._copies).with_further(further)

    async def _join(self, effect: JoinRecords) -> RecordsJoined:
        self.newest = await asyncio.to_thread(self._newest)
        inventories = [self._contents[node].inventory for node in sorted(self._contents)]
        given_up = self._restore.request.absent
        # Notes that were written after the survey, or that a node has which it did not reach.
        record, noted = self._record, self.newest.cluster()
        self._record = noted if record is None else _with_noted(record, noted)
        owed_below = LedgerId(0) if self._record is None else self._record.owed_below
        by = self._by if given_up else ""
        asked = Asked(effect.missing, self._ack_quorum, by, given_up, owed_below, self._restore.emptied)
        era = self._restore.era
        # Ledgers of which no time is known must not look old to retention because this service's clock is behind.
        node = await self._session.read(paths.CLUSTER)
        time_ms = max(now_ms(), 0 if node is None else node.modified_ms)
        lost = await asyncio.to_thread(review_lost, self.newest, inventories, self._copied, era)
        # In a thread: with 100,000 ledgers it takes seconds, and this process answers its operator meanwhile.
        rebuilt = await asyncio.to_thread(
            join, inventories, self.newest.noted(), self._copied, asked, era, PageSettings(), time_ms
        )
        rebuilt = replace(rebuilt, reviews=(*lost, *rebuilt.reviews))
        self.rebuilt = await self._with_lengths(rebuilt)
        progress = self.progress
        progress.topics, progress.ledgers = len(rebuilt.topics), rebuilt.ledgers
        progress.deleted_topics, progress.reviews = rebuilt.deleted, [*rebuilt.reviews]
        progress.without_holder = sum(topic.without_holder for topic in rebuilt.topics.values())
        progress.gives_up = effect.gives_up
        if self._restore.request.dry_run:
            progress.rights_closed = self._rights(effect.gives_up) is Rights.CLOSED
        progress.warnings += [f"{path} cannot be read: {why}" for path, why in self.newest.unreadable.items()]
        older = (each for each in self.newest.damaged.items() if each[0] not in self.newest.lost)
        progress.warnings += [f"{path} was damaged, and an older state of it is taken: {why}" for path, why in older]
        review = tuple(dict.fromkeys(review.name or review.topic_id for review in rebuilt.reviews))
        return RecordsJoined(review, frozenset(rebuilt.topics) | frozenset(rebuilt.names))

    def _newest(self) -> NewestRecords:
        notes = (note for each in self._contents.values() for note in each.notes)
        return newest_of(self._copies, notes, self._unreadable)

    async def _with_lengths(self, rebuilt: Rebuilt) -> Rebuilt:
        """Raises ServiceUnavailable if no holder gives one that is wanted."""
        wanted = [one for topic in rebuilt.topics.values() for one in topic.wanted]
        if not wanted:
            return rebuilt
        found = await self._reader.lengths(wanted, self._restore.era)
        lacking = [one.ledger_id for one in wanted if one.ledger_id not in found]
        if lacking:
            raise ServiceUnavailable(f"no storage node gives the last entries of ledgers {lacking[:10]}: repeat")

        def with_lengths(topic: RebuiltTopic) -> RebuiltTopic:
            ledgers = tuple(
                replace(each, length=found[each.ledger_id]) if each.ledger_id in found else each
                for each in topic.ledgers
            )
            return replace(topic, ledgers=ledgers)

        topics = {each: with_lengths(topic) if topic.wanted else topic for each, topic in rebuilt.topics.items()}
        return replace(rebuilt, topics=topics)

    # --- WRITE, COMMIT ---

    async def tree(self, *, retired: tuple[Incarnation, ...] = (), gives_up: bool = False) -> NewTree:
        """All records, once JOIN is done. retired: nodes that never come back. gives_up: so many are missing that
        rights are closed."""
        assert self.rebuilt is not None, "JOIN is done"
        rights, era, by = self._rights(gives_up), self._restore.era, self._by
        return await asyncio.to_thread(
            new_tree, self.rebuilt, self.newest, era=era, retired=retired, rights=rights, by=by, gives_up=gives_up
        )

    async def _write(self, effect: WriteRecords) -> RecordsWritten:
        progress = self.progress
        retired = tuple(node for node in effect.absent if node not in self._seen)
        tree = await self.tree(retired=retired, gives_up=effect.gives_up)
        progress.records = len(tree.records)
        progress.warnings += [f"namespace {name} has no note: it gets default policies" for name in tree.namespaces]
        try:
            await self._write_tree(effect, tree)
        except FencedError:
            return RecordsWritten(fenced=True)
        await self._keep_copy(tree, self._serving(closes_rights=effect.gives_up), effect.version)
        return RecordsWritten()

    async def _keep_copy(self, tree: NewTree, cluster: ClusterRecord, claim: int) -> None:
        """A later restore knows by it what this one has left out, retired and closed, also before anything of it is
        noted. Without it, that restore could list a ledger that this one left out, and lose what was acknowledged since
        (hazard left-out-ledger-returns). cluster: what COMMIT writes. claim: the version of the claimed record. Raises
        ServiceUnavailable."""
        era, level = self._restore.era, cluster.level.stored
        header = CopyHeader(self._restore.cluster_id, era, level, now_ms())
        kept = [each for each in tree.records.items() if not each[0].startswith(paths.IDS)]
        kept.append((paths.CLUSTER, encode_cluster(cluster)))
        records = [CopiedRecord(path, value, version=claim) for path, value in kept]
        try:
            copy = await asyncio.to_thread(lambda: copy_of(header, self._sources.copy_keys(), records))
            await self._reader.keep_copy(self._nodes(), self._ack_quorum, name_by_content(header, copy), copy)
        except InvariantViolated:
            raise
        except OncelogError as error:
            raise ServiceUnavailable(
                f"no copy of the restored records is on enough storage nodes: {error.message}. A later restore would "
                "not know what this one has left out: free space on the disks of storage nodes"
            ) from error

    async def _write_tree(self, effect: WriteRecords, tree: NewTree) -> None:
        """Raises FencedError."""
        remover = TreeWriter(self._session, effect.version, on_progress=lambda _: None)
        root = paths.era_root(effect.era.number)
        await remover.remove(root, root=root)

        def written(count: int) -> None:
            self.progress.records_written = count

        await TreeWriter(self._session, effect.version, on_progress=written).write(
            paths.era_root(effect.era.number), tree
        )

    def _serving(self, *, closes_rights: bool) -> ClusterRecord:
        """The cluster's record as COMMIT writes it."""
        assert self._record is not None, "it follows CLAIM"
        assert self.rebuilt is not None, "it follows JOIN"
        quorums = [quorum for quorum in (self._record.ack_quorum, self._ack_quorum) if quorum]
        return replace(
            self._record,
            state=ClusterState.SERVING,
            rights=self._rights(closes_rights),
            gave_up_in=self._restore.era.number if self.rebuilt.beyond_bound else self._record.gave_up_in,
            ack_quorum=min(quorums, default=0),
        )

    async def _commit(self, effect: CommitEra) -> EraCommitted:
        record = self._serving(closes_rights=effect.rights_closed)
        self.progress.rights_closed = record.rights is Rights.CLOSED
        written = await self._cluster.write(record, version=effect.version)
        self._committed = written.version
        return EraCommitted(written.status)

    async def remove_old_roots(self) -> None:
        """The records of all eras before the one that served before this restore: that one is kept, to look at. Raises
        FencedError, StoreUnavailable."""
        if self._committed == ABSENT_VERSION:
            return
        remover = TreeWriter(self._session, self._committed, on_progress=lambda _: None)
        eras = [era_of(name) for name in await self._session.children("")]
        former = 0 if self._former is None else self._former.number
        for number in sorted(each for each in eras if 1 < each < former):
            await remover.remove(paths.era_root(number), root=paths.era_root(number))
        if former > 1:
            for folder in (*paths.FOLDERS, paths.KEY_DATASET, paths.REPAIR):
                if folder.count("/") == 1 and await self._session.read_unsynced(folder) is not None:
                    await remover.remove(folder, root="")

    def _rights(self, closed: bool) -> Rights:
        """Rights that were not confirmed after the restore before stay closed."""
        before = Rights.OPEN if self._record is None else self._record.rights
        return Rights.CLOSED if closed else before

    # --- report ---

    def _report_nodes(self, knowledge: Knowledge) -> None:
        reader, absent = self._reader, self._restore.request.absent
        nodes = [
            ReportedNode(node, reader.addresses[node], "limbo" if seen.limbo else "used")
            for node, seen in sorted(self._seen.items())
        ]
        away = {node: None for node, counts in knowledge.nodes.items() if counts and node not in self._seen}
        for node in away:
            places = [key for key in sorted(reader.silent) if reader.named.get(key) == node]
            address = reader.addresses.get(node) or next(iter(places), "")
            why = reader.silent.get(node) or reader.silent.get(address, "")
            state = "retired" if node in knowledge.replaced else "silent"
            why = REPLACED if node in knowledge.replaced else why
            nodes.append(ReportedNode(node, address, "absent" if node in absent else state, why))
        # A node that answers elsewhere has left its former addresses.
        known = {**away, **dict.fromkeys(self._seen)}
        nodes += [
            ReportedNode("", key, "silent", why)
            for key, why in sorted(reader.silent.items())
            if key not in away and reader.named.get(key) not in known
        ]
        self.progress.nodes = nodes


def _with_noted(record: ClusterRecord, noted: ClusterRecord | None) -> ClusterRecord:
    """What is in the tree may be older than its note: the level only rises, closed rights are closed, and
    what was given up stays given up."""
    if noted is None:
        return record
    closed = Rights.CLOSED in (record.rights, noted.rights)
    level = max(record.level, noted.level, key=lambda level: level.stored)
    gave_up = max(record.gave_up_in, noted.gave_up_in)
    return replace(record, level=level, rights=Rights.CLOSED if closed else Rights.OPEN, gave_up_in=gave_up)
