"""Cursor records: the ledgers of a topic's cursors, and the owner epoch that may add to them.

A cursor is stored under its topic's id and is deleted with the topic. A cursor of a deleted topic cannot be created.
"""

from oncelog.core.errors import NotFound, TopicNotFound
from oncelog.core.formats.topic_record import CursorRecord, decode_cursor, encode_cursor
from oncelog.core.ids import TopicId
from oncelog.core.records.status import WriteStatus
from oncelog.metadata_store.records.json_records import decoded
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession, Versioned, WriteResult, create_or_write


class CursorStore:
    def __init__(self, session: StoreSession) -> None:
        self._session = session

    async def read(self, topic_id: TopicId, cursor: str) -> Versioned[CursorRecord] | None:
        """The record after a sync; None if it does not exist. Raises StoreUnavailable, CorruptEntry."""
        path = paths.cursor(topic_id, cursor)
        node = await self._session.read(path)
        if node is None:
            return None
        return Versioned(decoded("a cursor record", node.data, decode_cursor, path=path), node.version)

    async def write(self, topic_id: TopicId, cursor: str, record: CursorRecord, *, version: int) -> WriteResult:
        """One compare-and-set from `version`; ABSENT_VERSION creates. Raises TopicNotFound for a deleted topic."""
        path = paths.cursor(topic_id, cursor)
        try:
            return await create_or_write(self._session, path, encode_cursor(record), version=version)
        except NotFound as error:
            raise TopicNotFound(f"topic {topic_id} was deleted: it can have no cursor", topic_id=topic_id) from error

    async def delete(self, topic_id: TopicId, cursor: str, *, version: int) -> WriteStatus:
        return await self._session.delete(paths.cursor(topic_id, cursor), version=version)

    async def names(self, topic_id: TopicId) -> list[str]:
        """Names of the topic's cursors, sorted. Raises TopicNotFound for a deleted topic."""
        try:
            elements = await self._session.children(paths.cursors(topic_id))
        except NotFound as error:
            raise TopicNotFound(f"there is no topic {topic_id}", topic_id=topic_id) from error
        return sorted(paths.unquoted(element) for element in elements)
