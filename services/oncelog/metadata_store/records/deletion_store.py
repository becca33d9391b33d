"""Deletions of topics. One transaction removes the name; a record then holds the remaining work until it is done.

    name -> topic record, cursors, policies      begin: removed in one transaction
    /deletions/<topic_id>: owner, ledgers        the owner closes the topic, ledger records and partitions are deleted
    /pages/<topic_id>                            with the records of the ledgers that they list, page by page
    /tombstones/<topic_id>                       end: only this remains

Rules
- `begin` removes the name, the topic record, its cursors and its policies, and writes the deletion's record, all in one
  transaction on the versions that it has read. From then on every compare-and-set of an owner fails, and no replica can
  place the topic. A crash at any moment leaves either the topic, or a record of the remaining work.
- Each transaction names a node of that topic id: its record, or the record of its deletion. An id is never reused, so a
  request that arrives late does not affect a new topic of the same name (hazard recreated-topic).
- The topic's tombstone is created in the same transaction and stays for ever. It is the proof by which storage nodes
  delete the topic's ledgers; a missing record is no proof (`core.node.node_ledger`).
- A deletion does not end before it is noted (`noting_session`), also if a process has begun it that was killed then.
  So a repeated request that finds neither the topic nor a deletion may say that there is none.
- The name of a partitioned topic becomes a tombstone, so that none of its partitions is created again; `end` removes
  it. Until then the name is taken: the partitions of a new topic would be the old ones.
"""

from dataclasses import asdict, dataclass, replace

from oncelog.core.errors import CorruptEntry, NotFound, TopicNotFound
from oncelog.core.formats.record_fields import built
from oncelog.core.formats.topic_record import TopicRecord, decode_cursor, decode_topic
from oncelog.core.ids import Incarnation, LedgerId, TopicId
from oncelog.core.names import TopicName
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.json_records import decode_record, decoded, encode_record
from oncelog.metadata_store.records.topic_store import NameRecord, TopicStore, encode_name
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import (
    CreateStep,
    DeleteStep,
    Step,
    StoreSession,
    Versioned,
    WriteStep,
    Znode,
)


@dataclass(frozen=True, slots=True)
class Deletion:
    """The remaining work. owner: the process that may still serve the topic; None: there never was one.

    ledgers: of its log, its ack log and its cursors; those in pages stay there until then. last: the last ledger of
    its log, the only one of the log that may be open; None: no ledger. last_acks: the same for its ack log.
    partitions: if above 0, its partitions must be deleted, too; there is then neither an owner nor a ledger.
    """

    topic_id: TopicId
    name: str
    partitions: int = 0
    owner: Incarnation | None = None
    ledgers: tuple[LedgerId, ...] = ()
    last: LedgerId | None = None
    last_acks: LedgerId | None = None


class DeletionStore:
    def __init__(self, session: StoreSession) -> None:
        self._session = session
        self._topics = TopicStore(session)

    async def begin(self, name: TopicName) -> Deletion:
        """Make the name point to nothing. Retries until that is known, whichever process did it.

        Raises TopicNotFound if there is no topic, CorruptEntry for a record that cannot be read, StoreUnavailable: the
        outcome is then unknown.
        """
        begun: Deletion | None = None
        while True:
            found = await self._topics.find(name)
            if found is None or found.value.deleted or (begun and begun.topic_id != found.value.topic_id):
                if begun is None:
                    raise TopicNotFound(f"there is no topic {name}", topic=str(name))
                return begun
            planned = await self._plan(name, found)
            if planned is None:
                if begun is None and await self._topics.find(name) == found:
                    raise CorruptEntry(f"the name {name} points to {found.value.topic_id}, which has no record")
                continue  # another deletion was faster
            begun, steps = planned
            if await self._session.transact(steps) is WriteStatus.OK:
                return begun

    async def pending(self) -> list[TopicId]:
        """Topics whose deletion has not ended. Raises StoreUnavailable."""
        return [TopicId(name) for name in await self._session.children(paths.DELETIONS)]

    async def read(self, topic_id: TopicId) -> Deletion | None:
        """None if the deletion has ended. Raises StoreUnavailable, CorruptEntry."""
        node = await self._session.read(paths.deletion(topic_id))
        return None if node is None else decode_deletion(topic_id, node.data)

    async def has_ended(self, topic_id: TopicId) -> bool:
        """Whether the topic was deleted, and nothing of that is left to do. Raises StoreUnavailable."""
        if await self._session.read(paths.tombstone(topic_id)) is None:
            return False
        return await self._session.read(paths.deletion(topic_id)) is None

    async def end(self, deletion: Deletion, name: TopicName) -> None:
        """Remove the deletion's record, once it is noted. Retries until it is gone. Raises StoreUnavailable."""
        path = paths.deletion(deletion.topic_id)
        await self._session.note(
            [paths.topic_name(name), paths.topic_policies(deletion.topic_id), paths.tombstone(deletion.topic_id)],
            deleted=True,
        )
        while (node := await self._session.read(path)) is not None:
            steps: list[Step] = [DeleteStep(path, node.version)]
            tombstone = await self._topics.find(name)
            if deletion.partitions and tombstone is not None and tombstone.value.topic_id == deletion.topic_id:
                steps.append(DeleteStep(paths.topic_name(name), tombstone.version))
            await self._session.transact(steps)

    async def _plan(self, name: TopicName, found: Versioned[NameRecord]) -> tuple[Deletion, list[Step]] | None:
        """The remaining work, and the transaction; None if there is no topic record any more."""
        topic_id, partitions = found.value.topic_id, found.value.partitions_created_max
        node = await self._session.read(paths.topic(topic_id))
        folder = await self._session.read(paths.cursors(topic_id))
        if node is None or folder is None:
            return None
        record = decoded("a topic record", node.data, decode_topic, path=paths.topic(topic_id))
        cursors = await self._cursors(topic_id)
        policies = await self._session.read(paths.topic_policies(topic_id))
        last = record.ledgers[-1].ledger_id if record.ledgers else None
        deletion = Deletion(
            topic_id, str(name), partitions, record.owner, _ledgers(record, cursors), last,
            record.acks[-1] if record.acks else None,
        )  # fmt: skip
        steps: list[Step] = [DeleteStep(path, cursor.version) for path, cursor in cursors.items()]
        steps += [DeleteStep(paths.cursors(topic_id), folder.version), DeleteStep(paths.topic(topic_id), node.version)]
        if policies is not None:
            steps.append(DeleteStep(paths.topic_policies(topic_id), policies.version))
        if partitions:
            tombstone = encode_name(replace(found.value, deleted=True))
            steps.append(WriteStep(paths.topic_name(name), tombstone, found.version))
        else:
            steps.append(DeleteStep(paths.topic_name(name), found.version))
        steps.append(CreateStep(paths.deletion(topic_id), encode_deletion(deletion)))
        steps.append(CreateStep(paths.tombstone(topic_id)))
        return deletion, steps

    async def _cursors(self, topic_id: TopicId) -> dict[str, Znode]:
        """{path: node} of the cursors. If one is created or deleted meanwhile, the transaction fails."""
        try:
            names = await self._session.children(paths.cursors(topic_id))
        except NotFound:
            return {}
        every = [f"{paths.cursors(topic_id)}/{name}" for name in names]
        nodes = {path: await self._session.read(path) for path in every}
        return {path: node for path, node in nodes.items() if node is not None}


def _ledgers(record: TopicRecord, cursors: dict[str, Znode]) -> tuple[LedgerId, ...]:
    ledgers = [*(link.ledger_id for link in record.ledgers), *record.acks]
    for path, node in cursors.items():
        cursor = decoded("a cursor record", node.data, decode_cursor, path=path)
        ledgers += [link.ledger_id for link in cursor.ledgers]
    return tuple(ledgers)


def encode_deletion(deletion: Deletion) -> bytes:
    return encode_record({name: value for name, value in asdict(deletion).items() if name != "topic_id"})


def decode_deletion(topic_id: TopicId, data: bytes) -> Deletion:
    """Raises CorruptEntry."""
    return decode_record(
        data,
        "the record of a deletion",
        lambda f: built(Deletion, {"last_acks": None} | f, topic_id=topic_id),
        path=paths.deletion(topic_id),
    )
