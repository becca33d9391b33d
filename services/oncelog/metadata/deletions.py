"""Deleting topics: the name goes at once, the rest is done here, by whichever replica, until it is done.

    name and record gone (stores.deletion_store) -> the owner lets go -> the ledgers' records are removed -> the end
    a partitioned topic: its name is a tombstone -> each part the same way                                -> the end

Rules
- Every step may be done twice, by two replicas at once, and again after a crash: each replica looks for what is left at
  its start and ever again after.
- An owner is told by an assignment, which has it read the record: it finds none, refuses everybody and forgets the
  topic. Before it did, or its session has ended, no record of a ledger is removed: it would find a hole.
- Storage nodes find out by themselves that the records are gone, and drop the entries.
"""

import asyncio
import logging
from dataclasses import dataclass, replace

from oncelog.core.errors import Conflict, CorruptEntry, DeadlineExceeded, OncelogError, TopicNotFound
from oncelog.core.ids import OwnerEpoch, TopicId
from oncelog.core.names import TopicName, parse_topic
from oncelog.metadata.owner_calls import OwnerCalls
from oncelog.metadata.owners import Owners, Start
from oncelog.stores.deletion_store import Deletion, DeletionStore
from oncelog.stores.ledger_store import LedgerStore
from oncelog.stores.topic_store import TopicStore

logger = logging.getLogger(__name__)

#: Whoever deletes a topic waits so long for its owner to let go; the name is gone before.
FINISH_WAIT_MS = 5_000
#: Between two looks for deletions that are not at their end.
RESUME_PAUSE_MS = 5_000
LET_GO_TIMEOUT_MS = 10_000
LET_GO_PAUSE_MS = 10
#: Records of ledgers, or parts, that are removed at the same time.
REMOVALS_MAX = 32


@dataclass(frozen=True, slots=True)
class DeletionParts:
    """What a deletion stands on."""

    topics: TopicStore
    deletions: DeletionStore
    ledgers: LedgerStore
    owners: Owners
    calls: OwnerCalls


class TopicDeletions:
    """All deletions of one replica."""

    def __init__(self, parts: DeletionParts, start: Start) -> None:
        self._parts = parts
        self._start = start
        #: {topic id: done when its deletion has ended, or has failed for now}
        self._finishing: dict[TopicId, asyncio.Event] = {}

    async def delete(self, name: TopicName) -> None:
        """Delete a topic; returns when its name is free and its owner has let go, or takes its time about that.

        Raises TopicNotFound, Conflict for a topic with parts and for the part of one.
        """
        found = await self._parts.topics.find(name)
        if found is not None and found.value.partitions:
            count = found.value.partitions
            raise Conflict(f"{name} has {count} parts: delete {name} as a partitioned topic", field="topic")
        if name.partition is not None:
            whole = replace(name, partition=None)
            of = await self._parts.topics.find(whole)
            if of is not None and name.partition < of.value.partitions:
                raise Conflict(f"{name} is a part of {whole}: it goes with all of its parts", field="topic")
        await self._delete(name)

    async def delete_partitioned(self, name: TopicName) -> None:
        """Delete a topic with all its parts; returns as `delete`. Raises TopicNotFound, Conflict for one without."""
        found = await self._parts.topics.find(name)
        if found is not None and not found.value.deleted and not found.value.partitions:
            raise Conflict(f"{name} has no parts: delete it as a topic", field="topic")
        await self._delete(name)

    async def _delete(self, name: TopicName) -> None:
        begun = await self._parts.deletions.begin(name)
        logger.info("a topic is deleted", extra={"fields": {"topic": str(name), "topic_id": begun.topic_id}})
        finished = self._finish_soon(begun.topic_id)
        try:
            async with asyncio.timeout(FINISH_WAIT_MS / 1000):
                await finished.wait()
        except TimeoutError:
            logger.info("the owner of a deleted topic has not let go yet", extra={"fields": {"topic": str(name)}})

    # --- what is left to do -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Finish what any replica has begun; never returns."""
        while True:
            await self.resume()
            await asyncio.sleep(RESUME_PAUSE_MS / 1000)

    async def resume(self) -> None:
        """Finish what can be finished now."""
        try:
            pending = await self._parts.deletions.pending()
        except OncelogError as error:
            logger.warning("deletions cannot be looked for yet: %s", error.message)
            return
        for finished in [self._finish_soon(topic_id) for topic_id in pending]:
            await finished.wait()

    def _finish_soon(self, topic_id: TopicId) -> asyncio.Event:
        """Set when the deletion has ended, or has failed for now. One at a time for each topic."""
        finished = self._finishing.get(topic_id)
        if finished is None:
            finished = self._finishing[topic_id] = asyncio.Event()
            self._start(self._try_to_finish(topic_id, finished))
        return finished

    async def _try_to_finish(self, topic_id: TopicId, finished: asyncio.Event) -> None:
        try:
            await self.finish(topic_id)
        except CorruptEntry as error:
            logger.error("a deletion cannot be finished: %s", error.message)
        except OncelogError as error:
            logger.warning("a deletion is not finished yet: %s", error.message)
        finally:
            del self._finishing[topic_id]
            finished.set()

    async def finish(self, topic_id: TopicId) -> None:
        """Do what is left; nothing where that was done. Raises why it cannot be done now."""
        deletion = await self._parts.deletions.read(topic_id)
        if deletion is None:
            return
        name = parse_topic(deletion.name)
        await self._until_let_go(deletion)
        for start in range(0, len(deletion.ledgers), REMOVALS_MAX):
            some = deletion.ledgers[start : start + REMOVALS_MAX]
            await asyncio.gather(*(self._parts.ledgers.remove(ledger_id) for ledger_id in some))
        for start in range(0, deletion.partitions, REMOVALS_MAX):
            beyond = min(start + REMOVALS_MAX, deletion.partitions)
            parts = [replace(name, partition=partition) for partition in range(start, beyond)]
            await asyncio.gather(*map(self._delete_part, parts))
        await self._parts.deletions.end(deletion, name)

    async def _delete_part(self, part: TopicName) -> None:
        """A part that was never used is not there, and none is made any more; one may be another replica's already."""
        try:
            begun = await self._parts.deletions.begin(part)
        except TopicNotFound:
            return
        await self.finish(begun.topic_id)

    async def _until_let_go(self, deletion: Deletion) -> None:
        """Return when the owner holds the topic no more. Raises a retriable error when it does not answer."""
        owners, calls = self._parts.owners, self._parts.calls
        if deletion.owner is None:
            return
        await owners.refresh()
        live = owners.find(deletion.owner)
        if live is None or owners.is_lost(deletion.owner):
            return  # dead; or it looks at its records before it goes on under another session
        try:
            async with asyncio.timeout(LET_GO_TIMEOUT_MS / 1000):
                while await calls.state(live, deletion.topic_id, internal=False) is not None:
                    await calls.assign(live, deletion.topic_id, OwnerEpoch(0))
                    await asyncio.sleep(LET_GO_PAUSE_MS / 1000)
        except TimeoutError as error:
            raise DeadlineExceeded(f"owner {deletion.owner} holds on to {deletion.name}") from error
