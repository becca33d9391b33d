"""Chunks of messages, one by one, for readers and consumers that join them.

A chunk that a stored message names never changes, so its answer needs no proof of ownership. That a chunk is lost
needs one: a newer owner may know the ledger.
"""

import asyncio

from oncelog.core.access import Caller, Right
from oncelog.core.errors import CorruptEntry, EntriesLost
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import EntryKind, peek_header
from oncelog.core.ids import EntryId, LedgerId, OwnerEpoch, Position, TopicId
from oncelog.topic_owner.shell.log_view import LogView
from oncelog.topic_owner.shell.topic_registry import TopicRegistry
from oncelog.topic_owner.shell.topic_runner import TopicRunner
from oncelog.topic_owner.streams.authorization import authorize
from oncelog.wire import owner_pb2 as pb

#: Chunks that are in memory for answers; further requests wait.
CHUNKS_AT_ONCE = 16
#: Below the client's timeout of the call, so that the client learns why there is no answer.
CHUNK_TIMEOUT_MS = 3_000


class ChunkService:
    """The handler."""

    def __init__(self, topics: TopicRegistry) -> None:
        self._topics = topics
        self._room = asyncio.Semaphore(CHUNKS_AT_ONCE)

    async def read(self, request: pb.ReadChunkRequest, caller: Caller) -> pb.ReadChunkAnswer:
        """Raises CorruptEntry for an entry that is no chunk, TopicLoading for one that is not confirmed here yet, and
        the errors of `storage_client.reader`."""
        runner = self._topics.runner(TopicId(request.topic_id), request.topic)
        await authorize(runner, caller, Right.CONSUME)
        if request.owner_epoch_seen > runner.owner_epoch:
            await runner.ownership_proofs.until_current(OwnerEpoch(request.owner_epoch_seen))
        position = Position(LedgerId(request.ledger_id), EntryId(request.entry_id))
        async with self._room:
            try:
                data = await runner.explained(_chunk(runner, position))
            except EntriesLost:
                await runner.ownership_proofs.until_current(OwnerEpoch(request.owner_epoch_seen))
                data = await runner.explained(_chunk(runner, position))
            return pb.ReadChunkAnswer(
                owner_epoch=runner.owner_epoch, trimmed=data is None, entry=b"" if data is None else bytes(data)
            )


async def _chunk(runner: TopicRunner, position: Position) -> Buffer | None:
    """None: it was trimmed."""
    data = await LogView(runner.log, timeout_ms=CHUNK_TIMEOUT_MS).entry_at(position, headers_only=False)
    if data is not None and peek_header(data).kind != EntryKind.CHUNK:
        raise CorruptEntry(
            f"entry {position} is no chunk", ledger_id=position.ledger_id, entry_id=position.entry_id
        )  # fmt: skip
    return data
