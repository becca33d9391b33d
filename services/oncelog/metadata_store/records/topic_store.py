"""Topics: names that point to topic ids, and the topic record, which decides everything about a topic (hazards
stale-record-after-conflict and 3).

Rules
- A name and its record are created in one transaction: a name never points to nothing, and a creation that lost the
  race leaves nothing behind.
- Each attempt to create a topic uses a new topic id. After a lost reply the name shows which attempt won, and an
  attempt that is applied late cannot bring back an id that was deleted meanwhile.
- A deletion (`deletion_store`) removes the name and its record in one transaction. The id is never reused, so a late
  request of that transaction finds no record and does not affect a new topic of the same name.
- A partitioned topic is a name with its number of partitions, and a record without an owner. Each of its partitions
  (`TopicName.partition`) is a topic of its own, created at its first use. While the partitions are being deleted, the
  name is a tombstone, under which neither a partition nor a topic can be created.
- A partitioned topic grows in two writes. After the first one (`growing_to`) the new partitions can be created, and the
  topic's subscriptions in them; after the second one clients use them. So a subscription misses no message of a new
  partition.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from oncelog.core.errors import CorruptEntry, NamespaceNotFound, NotFound, ServiceUnavailable, TopicNotFound
from oncelog.core.formats.ledger_page import ListPage
from oncelog.core.formats.record_fields import Further, built, no_fields
from oncelog.core.formats.topic_record import TopicRecord, decode_topic, encode_topic
from oncelog.core.ids import TopicId
from oncelog.core.names import NamespaceName, TopicName
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.json_records import decode_record, decoded, encode_record
from oncelog.metadata_store.records.namespace_store import note_missing_namespace
from oncelog.metadata_store.records.page_store import PageStore
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import (
    CheckStep,
    CreateStep,
    Step,
    StoreSession,
    Versioned,
    WriteResult,
    WriteStep,
)

#: Names read at a time by a listing of a namespace.
LISTING_READS_MAX = 64


@dataclass(frozen=True, slots=True)
class NameRecord:
    """partitions: 0 for a topic, else the number of partitions. deleted: a tombstone, until the last one is deleted.

    former_partitions: the numbers before each growth, ascending. growing_to: the partitions below this number may
    exist; 0 unless a growth is in progress. further: see `core.formats.record_fields`.
    """

    topic_id: TopicId
    partitions: int = 0
    deleted: bool = False
    former_partitions: tuple[int, ...] = ()
    growing_to: int = 0
    further: Further = field(default_factory=no_fields, hash=False)

    @property
    def partitions_created_max(self) -> int:
        """All partitions that exist are below this number."""
        return max(self.partitions, self.growing_to)

    def grown(self, partitions: int) -> "NameRecord":
        """With this number of partitions; unchanged if it has as many."""
        if partitions <= self.partitions:
            return self
        former = (*self.former_partitions, self.partitions)
        growing_to = self.growing_to if self.growing_to > partitions else 0
        return replace(self, partitions=partitions, former_partitions=former, growing_to=growing_to)


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """name: what the name points to now, whichever process created it. created: by this call.

    record: the topic record as this call has created it; None if it did not, or does not know.
    """

    name: Versioned[NameRecord]
    created: bool
    record: Versioned[TopicRecord] | None = None


def random_topic_id() -> TopicId:
    return TopicId(uuid4().hex)


class TopicStore:
    def __init__(self, session: StoreSession, *, new_topic_id: Callable[[], TopicId] = random_topic_id) -> None:
        self._session = session
        self._new_topic_id = new_topic_id
        self.pages = PageStore(session)

    async def find(self, name: TopicName) -> Versioned[NameRecord] | None:
        """What the name points to, after a sync: a topic or a tombstone; None for nothing."""
        path = paths.topic_name(name)
        node = await self._session.read(path)
        return None if node is None else Versioned(decode_name(node.data, path), node.version)

    async def create(self, name: TopicName, *, partitions: int = 0) -> TopicCreation:
        """Create the topic unless it exists, and return what the name points to. Retries until that is known.

        Raises NamespaceNotFound; TopicNotFound for a partition that its topic does not have; ServiceUnavailable while
        the partitions of a deleted topic of that name are being deleted; and StoreUnavailable if ZooKeeper does not
        answer: the topic may then exist or not.
        """
        ours: set[TopicId] = set()
        while True:
            steps = await self._require_part(name)
            topic_id = self._new_topic_id()
            ours.add(topic_id)
            record = TopicRecord(topic_id, str(name))
            steps += _creation(name, record, partitions)
            try:
                # First: who creates a topic has mostly looked for it before. If it exists, nothing is written.
                if await self._session.transact(steps) is WriteStatus.OK:
                    point = NameRecord(topic_id, partitions)
                    return TopicCreation(Versioned(point, 0), created=True, record=Versioned(record, 0))
            except NotFound as error:
                namespace = str(name.namespace_name)
                await note_missing_namespace(self._session, name.namespace_name)
                raise NamespaceNotFound(f"there is no namespace {namespace}: create it", namespace=namespace) from error
            found = await self.find(name)
            if found is not None and found.value.deleted:
                raise ServiceUnavailable(f"{name} is being deleted: retry in a moment", topic=str(name))
            if found is not None:
                return TopicCreation(found, created=found.value.topic_id in ours)

    async def _require_part(self, name: TopicName) -> list[Step]:
        """The conditions for creating a partition: its topic is unchanged, and has that many. Raises TopicNotFound."""
        if name.partition is None:
            return []
        whole = replace(name, partition=None)
        found = await self.find(whole)
        if found is None or found.value.deleted or name.partition >= found.value.partitions_created_max:
            raise TopicNotFound(f"{name.local} has no partition {name.partition}", topic=str(name))
        return [CheckStep(paths.topic_name(whole), found.version)]

    async def note(self, name: TopicName) -> None:
        """Return when what the name points to is noted: another process may have written it."""
        await self._session.note([paths.topic_name(name)])

    async def prepare_growth(self, name: TopicName, partitions: int) -> NameRecord:
        """Let the partitions below this number be created. Raises as `grow`."""
        return await self._change(
            name, lambda record: replace(record, growing_to=max(record.partitions_created_max, partitions))
        )

    async def grow(self, name: TopicName, partitions: int) -> NameRecord:
        """Let clients use this number of partitions, unless the topic has as many. Returns what the name points to now.

        Raises TopicNotFound, and StoreUnavailable: the outcome is then unknown, and the call can be repeated.
        """
        return await self._change(name, lambda record: record.grown(partitions))

    async def _change(self, name: TopicName, changed: Callable[[NameRecord], NameRecord]) -> NameRecord:
        """Compare-and-set until the record is as `changed` makes it: a change of that record changes nothing. It is
        written all the same: an earlier one may be written and not noted (`noting_session`)."""
        while True:
            found = await self.find(name)
            if found is None or found.value.deleted or not found.value.partitions:
                raise TopicNotFound(f"there is no partitioned topic {name}", topic=str(name))
            record = changed(found.value)
            written = await self._session.write(paths.topic_name(name), encode_name(record), version=found.version)
            if written.status is WriteStatus.OK:
                return record

    async def read(self, topic_id: TopicId, *, timeout_ms: int | None = None) -> Versioned[TopicRecord] | None:
        """The topic record after a sync; None: deleted, or never created. Raises StoreUnavailable, CorruptEntry."""
        path = paths.topic(topic_id)
        node = await self._session.read(path, timeout_ms=timeout_ms)
        if node is None:
            return None
        return Versioned(decoded("a topic record", node.data, decode_topic, path=path), node.version)

    async def write(self, record: TopicRecord, *, version: int, page: ListPage | None = None) -> WriteResult:
        """One compare-and-set. page: created in the same transaction. CONFLICT also if the topic was deleted.

        Raises InvalidArgument if the record is too large for ZooKeeper.
        """
        path, data = paths.topic(record.topic_id), encode_topic(record)
        if page is None:
            return await self._session.write(path, data, version=version)
        creation = await self.pages.creation(record.topic_id, page)
        status = await self._session.transact([WriteStep(path, data, version), *creation])
        return WriteResult(status, version + 1) if status is WriteStatus.OK else WriteResult(status)

    async def each(self) -> AsyncGenerator[TopicRecord | CorruptEntry, None]:
        """The record of every topic, none older than this call, or the error of reading it. Raises StoreUnavailable."""
        topic_ids = await self._session.children(paths.TOPICS)
        for start in range(0, len(topic_ids), LISTING_READS_MAX):
            some = [f"{paths.TOPICS}/{one}" for one in topic_ids[start : start + LISTING_READS_MAX]]
            nodes = await asyncio.gather(*map(self._session.read_unsynced, some))
            for path, node in zip(some, nodes, strict=True):
                try:
                    if node is not None:
                        yield decoded("a topic record", node.data, decode_topic, path=path)
                except CorruptEntry as error:
                    yield error

    async def topics(self, namespace: NamespaceName, *, deleted: bool = False) -> dict[str, NameRecord | CorruptEntry]:
        """{last element of the name: record, or the error of reading it} of the namespace, by name. deleted: include
        tombstones.

        Raises NamespaceNotFound.
        """
        folder = paths.namespace_names(namespace)
        try:
            names = await self._session.children(folder)
        except NotFound as error:
            raise NamespaceNotFound(f"there is no namespace {namespace}", namespace=str(namespace)) from error
        listed: dict[str, NameRecord | CorruptEntry] = {}
        for start in range(0, len(names), LISTING_READS_MAX):
            some = names[start : start + LISTING_READS_MAX]
            # The children were synced on this same connection, so these reads need no sync of their own.
            nodes = await asyncio.gather(*(self._session.read_unsynced(f"{folder}/{name}") for name in some))
            for name, node in zip(some, nodes, strict=True):
                if node is None:
                    continue
                try:
                    record = decode_name(node.data, f"{folder}/{name}")
                except CorruptEntry as error:
                    listed[name] = error
                else:
                    if deleted or not record.deleted:
                        listed[name] = record
        return listed


def _creation(name: TopicName, record: TopicRecord, partitions: int) -> list[Step]:
    topic_id = record.topic_id
    pointer = CreateStep(paths.topic_name(name), encode_name(NameRecord(topic_id, partitions)))
    return [CreateStep(paths.topic(topic_id), encode_topic(record)), CreateStep(paths.cursors(topic_id)), pointer]


def encode_name(record: NameRecord) -> bytes:
    fields: dict[str, Any] = {
        **record.further,
        "topic_id": record.topic_id,
        "partitions": record.partitions,
        "deleted": record.deleted,
    }
    if record.former_partitions:
        fields["former_partitions"] = list(record.former_partitions)
    if record.growing_to:
        fields["growing_to"] = record.growing_to
    return encode_record(fields)


def decode_name(data: bytes, path: str = "") -> NameRecord:
    """Raises CorruptEntry."""
    return decode_record(
        data,
        "the record of a topic name",
        lambda f: built(NameRecord, {"former_partitions": [], "growing_to": 0} | f),
        path=path,
    )
