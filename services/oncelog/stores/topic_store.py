"""Topics: names that point to topic ids, and the record that each topic turns on (hazards 1 and 3).

Rules
- A name and the record it points to are created in one transaction: a name never points to nothing, and a creation
  that lost the race leaves nothing behind.
- Each attempt to create has a topic id of its own. After a lost reply the name itself tells who won, and an attempt
  that is applied late can never bring back an id that was removed meanwhile.
- A deleted topic leaves a tombstone, which keeps the version of the name's node ascending; creating it anew replaces
  the tombstone by compare-and-set, under another id. Delete: take over, fence, close, `write_tombstone`, `remove`.
- A partitioned topic is a name only, with its number of parts; each part (`TopicName.partition`) is a topic of its own.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from uuid import uuid4

from oncelog.core.errors import CorruptEntry, NamespaceNotFound, NotFound
from oncelog.core.ids import TopicId
from oncelog.core.names import NamespaceName, TopicName
from oncelog.core.store_status import WriteStatus
from oncelog.core.topic_record import TopicRecord, decode_topic, encode_topic
from oncelog.stores import paths
from oncelog.stores.json_record import decode_record, encode_record
from oncelog.stores.store_session import CreateStep, DeleteStep, Step, Stored, StoreSession, WriteStep, Written

#: Names read at a time when a namespace is listed.
LISTING_READS_MAX = 64


@dataclass(frozen=True, slots=True)
class NameRecord:
    """partitions: 0 for a topic, else the number of its parts. deleted: a tombstone; topic_id is the last one's."""

    topic_id: TopicId
    partitions: int = 0
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """name: what the name points to now, whoever made it. created: it was made by this call."""

    name: Stored[NameRecord]
    created: bool


def random_topic_id() -> TopicId:
    return TopicId(uuid4().hex)


class TopicStore:
    def __init__(self, session: StoreSession, *, new_topic_id: Callable[[], TopicId] = random_topic_id) -> None:
        self._session = session
        self._new_topic_id = new_topic_id

    async def find(self, name: TopicName) -> Stored[NameRecord] | None:
        """What the name points to, after a sync: a topic, a tombstone, or None if it never did."""
        node = await self._session.read(paths.topic_name(name))
        return None if node is None else Stored(_decode_name(node.data), node.version)

    async def create(self, name: TopicName, *, partitions: int = 0) -> TopicCreation:
        """Create the topic unless it exists, and return what the name points to then; tried until that is known.

        Raises NamespaceNotFound, and StoreUnavailable when ZooKeeper does not answer: it may then exist or not.
        """
        ours: set[TopicId] = set()
        while True:
            found = await self.find(name)
            if found is not None and not found.value.deleted:
                return TopicCreation(found, created=found.value.topic_id in ours)
            topic_id = self._new_topic_id()
            ours.add(topic_id)
            steps = _creation(name, topic_id, partitions, tombstone=found)
            try:
                await self._session.transact(steps)
            except NotFound as error:
                namespace = str(name.namespace_name)
                raise NamespaceNotFound(f"there is no namespace {namespace}: create it", namespace=namespace) from error

    async def write_tombstone(self, name: TopicName, *, version: int) -> Written:
        """From now on the name points to nothing; `version` as read by `find`. Its record and cursors are left."""
        path = paths.topic_name(name)
        node = await self._session.read(path)
        if node is None or node.version != version:
            return Written(WriteStatus.CONFLICT)
        tombstone = replace(_decode_name(node.data), deleted=True)
        return await self._session.write(path, _encode_name(tombstone), version=version)

    async def write_partitions(self, name: TopicName, partitions: int, *, version: int) -> Written:
        """Change the number of parts; `version` as read by `find`."""
        path = paths.topic_name(name)
        node = await self._session.read(path)
        if node is None or node.version != version:
            return Written(WriteStatus.CONFLICT)
        changed = replace(_decode_name(node.data), partitions=partitions)
        return await self._session.write(path, _encode_name(changed), version=version)

    async def read(self, topic_id: TopicId, *, timeout_ms: int | None = None) -> Stored[TopicRecord] | None:
        """The topic record after a sync; None: removed, or never made. Raises StoreUnavailable, CorruptEntry."""
        node = await self._session.read(paths.topic(topic_id), timeout_ms=timeout_ms)
        return None if node is None else Stored(decode_topic(node.data), node.version)

    async def write(self, record: TopicRecord, *, version: int) -> Written:
        """One compare-and-set. CONFLICT also when the topic was removed."""
        return await self._session.write(paths.topic(record.topic_id), encode_topic(record), version=version)

    async def remove(self, topic_id: TopicId) -> None:
        """Remove record, cursors and policies of a topic whose name is a tombstone; tried until they are gone."""
        while (record := await self._session.read(paths.topic(topic_id))) is not None:
            steps: list[Step] = []
            for cursor in await self._cursors(topic_id):
                steps += await self._deletion(f"{paths.cursors(topic_id)}/{cursor}")
            steps += await self._deletion(paths.cursors(topic_id))
            steps += await self._deletion(paths.topic_policies(topic_id))
            steps.append(DeleteStep(paths.topic(topic_id), record.version))
            await self._session.transact(steps)

    async def each(self) -> AsyncGenerator[TopicRecord | CorruptEntry, None]:
        """The record of every topic, none older than this call, or why it cannot be read. Raises StoreUnavailable."""
        topic_ids = await self._session.children(paths.TOPICS)
        for start in range(0, len(topic_ids), LISTING_READS_MAX):
            some = topic_ids[start : start + LISTING_READS_MAX]
            nodes = await asyncio.gather(*(self._session.read_unsynced(f"{paths.TOPICS}/{one}") for one in some))
            for node in nodes:
                try:
                    if node is not None:
                        yield decode_topic(node.data)
                except CorruptEntry as error:
                    yield error

    async def topics(self, namespace: NamespaceName, *, deleted: bool = False) -> dict[str, NameRecord]:
        """{last element of the name: record} of the namespace, by name; with `deleted` the tombstones too.

        Raises NamespaceNotFound.
        """
        folder = paths.namespace_names(namespace)
        try:
            names = await self._session.children(folder)
        except NotFound as error:
            raise NamespaceNotFound(f"there is no namespace {namespace}", namespace=str(namespace)) from error
        listed: dict[str, NameRecord] = {}
        for start in range(0, len(names), LISTING_READS_MAX):
            some = names[start : start + LISTING_READS_MAX]
            # The children were synced, on this same connection: nothing is gained by doing so for each.
            nodes = await asyncio.gather(*(self._session.read_unsynced(f"{folder}/{name}") for name in some))
            records = {name: _decode_name(node.data) for name, node in zip(some, nodes, strict=True) if node}
            listed |= {name: record for name, record in records.items() if deleted or not record.deleted}
        return listed

    async def _cursors(self, topic_id: TopicId) -> list[str]:
        try:
            return await self._session.children(paths.cursors(topic_id))
        except NotFound:
            return []  # another removal came first

    async def _deletion(self, path: str) -> list[Step]:
        node = await self._session.read(path)
        return [] if node is None else [DeleteStep(path, node.version)]


def _creation(
    name: TopicName, topic_id: TopicId, partitions: int, *, tombstone: Stored[NameRecord] | None
) -> list[Step]:
    path, data = paths.topic_name(name), _encode_name(NameRecord(topic_id, partitions))
    pointer = CreateStep(path, data) if tombstone is None else WriteStep(path, data, tombstone.version)
    if partitions:
        return [pointer]
    record = encode_topic(TopicRecord(topic_id, str(name)))
    return [CreateStep(paths.topic(topic_id), record), CreateStep(paths.cursors(topic_id)), pointer]


def _encode_name(record: NameRecord) -> bytes:
    return encode_record({"topic_id": record.topic_id, "partitions": record.partitions, "deleted": record.deleted})


def _decode_name(data: bytes) -> NameRecord:
    return decode_record(
        data, "the record of a topic name", lambda f: NameRecord(f["topic_id"], f["partitions"], f["deleted"])
    )
