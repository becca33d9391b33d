"""Rebuilds one record in ZooKeeper that is missing or cannot be read, without a new era (`one_record` says what it
must be).

Rules
- A record that can be read is left alone: it is the truth, and what storage nodes hold may be behind it. Only a
  counter whose number cannot be right is rebuilt, too.
- All but Qa-1 of the storage nodes that may return must answer, with sound directories. Then one of them shows each
  acknowledged entry, and each note that was answered.
- Each write is a compare-and-set from the version that was found before storage nodes were asked. Who loses it begins
  again, and finds what the other one has written.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from oncelog.core.errors import Conflict, ServiceUnavailable
from oncelog.core.formats.topic_record import DEDUP_CURSOR, TopicRecord, decode_topic
from oncelog.core.ids import Incarnation, LedgerId, OwnerEpoch, TopicId
from oncelog.core.rebuild.evidence import Evidence
from oncelog.core.rebuild.restore_events import NodeSeen
from oncelog.core.rebuild.result import Asked, CopiedRecords, Review
from oncelog.core.records.id_claim import decode_counter
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.metadata.restore.node_reader import NodeContents, NodeReader, knowledge_from
from oncelog.metadata.restore.noted_records import copied_records, newest_of, records_of
from oncelog.metadata.restore.one_record import Draft, Gathered, counter_fault, draft, topic_ledgers, topic_of_ledger
from oncelog.metadata.restore.performer import RestoreSources
from oncelog.metadata.restore.progress import now_ms
from oncelog.metadata.restore.record_kinds import Kind, RecordPlace, place_of
from oncelog.metadata.restore.tree_nodes import registered_nodes
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterState, ClusterStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.page_store import PageStore
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import (
    CreateStep,
    Step,
    StoreSession,
    WriteStep,
    Znode,
    create_or_write,
)

T = TypeVar("T")
#: Records that are read at once.
_READS_MAX = 64


@dataclass(frozen=True, slots=True)
class RebuiltRecord:
    """fault: why the record could not be read; "missing". records: {path: value} that are written, or would be.
    unreadable: further records of the topic that must be rebuilt. silent: {storage node or address: why it did not
    answer}."""

    path: str
    fault: str
    records: dict[str, bytes]
    written: bool
    reviews: tuple[Review, ...] = ()
    unreadable: tuple[str, ...] = ()
    owner_epoch: OwnerEpoch = OwnerEpoch(0)
    nodes: tuple[Incarnation, ...] = ()
    silent: dict[str, str] = field(default_factory=dict)


class RecordRebuild:
    def __init__(self, sources: RestoreSources) -> None:
        self._sources = sources

    async def rebuild(self, path: str, *, dry_run: bool, accept: bool, by: str) -> RebuiltRecord:
        """accept: what the review says. by: the operator.

        Raises InvalidArgument for a path of another kind; Conflict if the record can be read, something must be decided
        or rebuilt first, or another one wrote meanwhile; NotFound if nothing says what the record was;
        ServiceUnavailable if too few storage nodes answer; StoreUnavailable; IdsExhausted.
        """
        place = place_of(path)
        cluster = await self._cluster()
        session = self._sources.session.below(paths.era_root(cluster.era.number))
        node = await session.read(path)
        fault = "it is missing" if node is None else place.fault(node.data)
        if fault is None and place.kind is not Kind.COUNTER:
            raise _sound(path)
        version = ABSENT_VERSION if node is None else node.version
        async with NodeReader(self._sources.credentials) as reader:
            seen, contents, asked = await self._ask(reader, session, cluster)
            known = await self._gather(reader, session, cluster, contents, asked, place, by)
            if place.kind is Kind.STARTS:
                members = [node for node, each in (await Registry(session).cookies()).items() if each.may_return]
                serving = [node for node, each in seen.items() if each.joined]
                known = replace(known, members=members, serving=serving, refusing=[*seen.keys() - {*serving}])
            if node is not None and fault is None:
                fault = counter_fault(decode_counter(node.data), place, known)
            if fault is None:
                raise _sound(path)
            drafted = await asyncio.to_thread(draft, place, version, known)
            if drafted.wanted:
                known = await _with_lengths(reader, known, drafted)
                drafted = draft(place, version, known)
            silent = dict(reader.silent)
        if drafted.reviews and not accept and not dry_run:
            found = "; ".join(f"{each.reason.value}: {each.message}" for each in drafted.reviews[:3])
            raise Conflict(f"{path} cannot be proved: {found}. Look at a dry run, and accept what it says", path=path)
        if not dry_run:
            await self._write(session, place, drafted)
        done = RebuiltRecord(
            path, fault, {each: value for each, (value, _) in drafted.records.items()}, not dry_run, drafted.reviews,
            drafted.unreadable, drafted.owner_epoch, tuple(sorted(contents)), silent,
        )  # fmt: skip
        await self._sources.audit.write(
            "record of ZooKeeper rebuilt",
            {"path": path, "fault": fault, "written": done.written, "by": by, "records": sorted(done.records)},
        )
        return done

    async def _cluster(self) -> ClusterRecord:
        found = await ClusterStore(self._sources.session).find()
        if found is None or found.value.state is not ClusterState.SERVING:
            raise Conflict("the cluster is not served: restore all records (`oncelog admin backup restore`)")
        return found.value

    # --- what is known ------------------------------------------------------------------------------------------------

    async def _ask(
        self, reader: NodeReader, session: StoreSession, cluster: ClusterRecord
    ) -> tuple[dict[Incarnation, NodeSeen], dict[Incarnation, NodeContents], Asked]:
        """Raises ServiceUnavailable if too few nodes answer."""
        addresses = [*self._sources.nodes(), *await registered_nodes(Registry(session))]
        seen, _ = await reader.survey((), recorded=addresses, cluster_id=cluster.cluster_id)
        contents = await reader.collect(seen)
        knowledge = knowledge_from(contents)
        quorums = [quorum for quorum in (cluster.ack_quorum, knowledge.ack_quorum) if quorum]
        quorum = min(quorums, default=1)
        cookies = await Registry(session).cookies()
        gone = {node for node, cookie in cookies.items() if not cookie.may_return}
        counted = ({node for node, counts in knowledge.nodes.items() if counts} | {*contents, *cookies}) - gone
        sound = {node for node, each in contents.items() if each.inventory.limbo_below == 0}
        missing = tuple(sorted(counted - sound))
        if len(missing) >= quorum or not sound:
            raise ServiceUnavailable(
                f"{len(sound)} of {len(counted)} storage nodes can be used, and at most {quorum - 1} may be missing. "
                f"Silent, or with a directory that has lost records: {', '.join(missing[:10])}. Start them, and repeat",
                missing=len(missing),
            )
        return seen, contents, Asked(missing, quorum, owed_below=cluster.owed_below)

    async def _gather(
        self,
        reader: NodeReader,
        session: StoreSession,
        cluster: ClusterRecord,
        contents: dict[Incarnation, NodeContents],
        asked: Asked,
        place: RecordPlace,
        by: str,
    ) -> Gathered:
        notes = [note for each in contents.values() for note in each.notes]
        newest, copied = newest_of((), notes), CopiedRecords()
        of_topic = place.kind in (Kind.TOPIC, Kind.CURSOR, Kind.PAGE, Kind.DELETION, Kind.LEDGER)
        # A restore may have closed rights and retired nodes a moment ago, and noted nothing yet: its copy says it.
        if of_topic or place.path in newest.damaged or newest.era(place.path) < cluster.era.number:
            eras = {node: each.inventory.era for node, each in contents.items()}
            committed = {cluster.era}.union(*(each.inventory.committed_eras for each in contents.values()))
            copies, _ = await reader.copies(eras, cluster.cluster_id, self._sources.copy_keys(), committed=committed)
            newest = newest_of(copies, notes)
            copied = records_of(copies, newest.unreadable)
        inventories = [contents[node].inventory for node in sorted(contents)]
        noted = newest.noted()
        evidence = Evidence(inventories, noted, copied, asked)
        highest = max(await LedgerStore(session).ids(), default=LedgerId(0))
        known = Gathered(evidence, newest, cluster.era, now_ms(), by, highest_ledger=highest)
        topic_id = topic_of_ledger(evidence, place.ledger_id) if place.kind is Kind.LEDGER else place.topic_id
        if not topic_id or place.kind in (Kind.DELETION, Kind.TOMBSTONE):
            return known
        if await session.read(paths.tombstone(topic_id)) is not None:
            raise Conflict(f"topic {topic_id} was deleted", topic_id=topic_id)
        live = await _live(session, topic_id, topic_ledgers(evidence, topic_id))
        whole = Evidence(inventories, noted, _newer(copied, live), asked)
        pages = {page.name: page for page in copied_records(live.records).pages.get(topic_id, ())}
        return replace(known, evidence=whole, topic=live.topic, bad=live.bad, pages=pages)

    # --- writing ------------------------------------------------------------------------------------------------------

    @staticmethod
    async def _write(session: StoreSession, place: RecordPlace, drafted: Draft) -> None:
        """Raises Conflict, StoreUnavailable."""
        if place.kind in (Kind.TOPIC, Kind.PAGE):
            await session.ensure_path(paths.pages(place.topic_id))
        if place.kind is Kind.STARTS:
            await session.ensure_path(paths.STORAGE_ENDS)
        if place.kind in (Kind.NAME, Kind.NOTED) and place.path.count("/") > 1:  # its folder may be lost with it
            await session.ensure_path(place.path.rpartition("/")[0])
        for path, (value, version) in drafted.records.items():
            if path in drafted.together:
                continue
            if path == place.path and place.kind is Kind.TOPIC and version == ABSENT_VERSION:
                steps = [CreateStep(path, value), CreateStep(paths.cursors(place.topic_id))]
                _require(await session.transact(steps), path)
                continue
            replaced = await _version(session, path) if version is None else version
            _require((await create_or_write(session, path, value, version=replaced)).status, path)
        if drafted.together:
            together = [_step(path, *drafted.records[path]) for path in drafted.together]
            _require(await session.transact(together), place.path)


def _sound(path: str) -> Conflict:
    return Conflict(f"{path} can be read, so it is left as it is", path=path)


async def _version(session: StoreSession, path: str) -> int:
    node = await session.read(path)
    return ABSENT_VERSION if node is None else node.version


def _step(path: str, value: bytes, version: int | None) -> Step:
    assert version is not None, "what is written together has a version"
    return CreateStep(path, value) if version == ABSENT_VERSION else WriteStep(path, value, version)


def _require(status: WriteStatus, path: str) -> None:
    """Raises Conflict."""
    if status is not WriteStatus.OK:
        raise Conflict(f"{path} was written meanwhile, or it is unknown whether it is written: repeat this", path=path)


# --- the records around it --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Live:
    """Records of one topic in ZooKeeper. bad: {path: version} of those that are missing or cannot be read."""

    records: dict[str, bytes] = field(default_factory=dict)
    topic: tuple[TopicRecord, int] | None = None
    bad: dict[str, int] = field(default_factory=dict)


async def _live(session: StoreSession, topic_id: TopicId, ledgers: Sequence[LedgerId]) -> _Live:
    """Raises StoreUnavailable."""
    live = _Live()
    topic_path, cursor_path = paths.topic(topic_id), paths.cursor(topic_id, DEDUP_CURSOR)
    pages = [paths.page(topic_id, name) for name in await PageStore(session).names(topic_id)]
    wanted = [topic_path, cursor_path, *pages, *map(paths.ledger, ledgers)]
    found: list[Znode | None] = []
    for start in range(0, len(wanted), _READS_MAX):
        found += await asyncio.gather(*map(session.read, wanted[start : start + _READS_MAX]))
    for path, node in zip(wanted, found, strict=True):
        unreadable: dict[str, str] = {}
        if node is not None:
            copied_records({path: node.data}, unreadable)
        if node is None or unreadable:
            live.bad[path] = ABSENT_VERSION if node is None else node.version
            continue
        live.records[path] = node.data
        if path == topic_path:
            live.topic = decode_topic(node.data), node.version
    return live


def _newer(copied: CopiedRecords, live: _Live) -> CopiedRecords:
    """Records in ZooKeeper are the truth, as far as they can be read."""
    found = copied_records(live.records)
    pages = dict(copied.pages)
    for topic_id, some in found.pages.items():
        pages[topic_id] = [*{page.name: page for page in (*pages.get(topic_id, ()), *some)}.values()]
    return replace(
        copied, topics={**copied.topics, **found.topics}, cursors={**copied.cursors, **found.cursors},
        ledgers={**copied.ledgers, **found.ledgers}, pages=pages,
    )  # fmt: skip


async def _with_lengths(reader: NodeReader, known: Gathered, drafted: Draft) -> Gathered:
    """Raises ServiceUnavailable if no holder gives one."""
    lengths = await reader.lengths(drafted.wanted, known.era)
    lacking = [each.ledger_id for each in drafted.wanted if each.ledger_id not in lengths]
    if lacking:
        raise ServiceUnavailable(f"no storage node gives the last entry of ledgers {lacking[:10]}: repeat")
    return replace(known, lengths=lengths)
