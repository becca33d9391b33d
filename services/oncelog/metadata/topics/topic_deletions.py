"""Deletion of topics. The name is removed at once; any replica then finishes the deletion in the background.

    name and record removed (stores.deletion_store) -> the owner releases the topic, the last ledgers are fenced
                                                    -> the ledgers' records, pages and proofs are removed -> end
    partitioned topic: its name becomes a tombstone -> each partition in the same way   -> end

Rules
- Every step may be repeated: by two replicas at once, or after a crash. Each replica looks for unfinished deletions at
  its start and every RESUME_PAUSE_MS.
- The owner learns of the deletion by an assignment, which makes it read the topic record. It finds no record, rejects
  all producers and readers, and releases the topic. No ledger record is removed before the owner has released the topic
  or its session has ended, because the owner would otherwise find a gap in the log.
- A partitioned topic's deletion ends after those of all its partitions, whichever replica has begun them.
- The last ledgers of the log and of the ack log are fenced, so that neither an owner without a session nor a stale
  owner that was replaced can acknowledge further messages, or confirm further acknowledgements (`ledger_fences`).
- The request that deletes a topic is answered when the deletion has ended. If that takes too long, the answer is a
  retriable error; the deletion continues, and a repeated request joins it. Failed calls are retried.
- Storage nodes notice by themselves that the records are gone, and then drop the entries.
"""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass, replace

from oncelog.core.errors import (
    Conflict,
    CorruptEntry,
    DeadlineExceeded,
    OncelogError,
    ServiceUnavailable,
    TopicNotFound,
)
from oncelog.core.ids import OwnerEpoch, TopicId
from oncelog.core.names import TopicName, parse_topic
from oncelog.metadata.owners.owner_calls import OwnerCalls
from oncelog.metadata.owners.owners import Owners, Start
from oncelog.metadata.topics.ledger_fences import LedgerFences
from oncelog.metadata_store.records.deletion_store import Deletion, DeletionStore
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.records.proof_store import ProofStore
from oncelog.metadata_store.records.registry import LiveOwner
from oncelog.metadata_store.records.topic_store import TopicStore

logger = logging.getLogger(__name__)

#: How long a request waits for a deletion to end, before it is answered with a retriable error.
FINISH_WAIT_MS = 5_000
#: Between two attempts to finish a deletion that a request waits for.
ATTEMPT_PAUSE_MS = 100
#: Between two searches for unfinished deletions.
RESUME_PAUSE_MS = 5_000
RELEASE_TIMEOUT_MS = 10_000
RELEASE_POLL_MS = 10
#: Pause after a call to the owner has failed.
CALL_FAILED_PAUSE_MS = 200
#: Partitions that are removed concurrently.
REMOVALS_MAX = 32


@dataclass(frozen=True, slots=True)
class DeletionParts:
    """What the deletion of a topic needs."""

    topics: TopicStore
    deletions: DeletionStore
    ledgers: LedgerStore
    proofs: ProofStore
    owners: Owners
    calls: OwnerCalls
    fences: LedgerFences


class TopicDeletions:
    """The deletions that one replica works on."""

    def __init__(self, parts: DeletionParts, start: Start) -> None:
        self._parts = parts
        self._start = start
        #: how long a request waits for the end of a deletion
        self.wait_ms = FINISH_WAIT_MS
        #: {topic id: set when the current attempt to finish its deletion has ended}
        self._finishing: dict[TopicId, asyncio.Event] = {}
        #: {topic id: the error of the last attempt to finish its deletion}
        self._failures: dict[TopicId, OncelogError] = {}

    async def delete(self, name: TopicName) -> None:
        """Delete a topic. Returns when its records are removed and no message can be acknowledged for it any more.

        Raises TopicNotFound; Conflict for a partitioned topic and for a single partition; ServiceUnavailable if the
        deletion takes longer than `wait_ms`: it then continues, and another call waits for its end.
        """
        found = await self._parts.topics.find(name)
        if found is not None and found.value.partitions:
            count = found.value.partitions
            raise Conflict(f"topic {name} has {count} partitions: delete it as a partitioned topic", field="topic")
        if name.partition is not None:
            whole = replace(name, partition=None)
            of = await self._parts.topics.find(whole)
            if of is not None and name.partition < of.value.partitions_created_max:
                raise Conflict(f"{name} is a partition of {whole}: delete the partitioned topic instead", field="topic")
        await self._delete(name)

    async def delete_partitioned(self, name: TopicName) -> None:
        """Delete a topic with all its partitions, like `delete`. Raises TopicNotFound, Conflict if it has none."""
        found = await self._parts.topics.find(name)
        if found is not None and not found.value.deleted and not found.value.partitions:
            raise Conflict(f"topic {name} is not partitioned: delete it as a topic", field="topic")
        await self._delete(name)

    async def _delete(self, name: TopicName) -> None:
        try:
            begun = await self._parts.deletions.begin(name)
        except TopicNotFound:
            pending = await self._pending_of({str(name)})
            if not pending:
                raise
            begun = pending[0]
        else:
            logger.info("deleting a topic", extra={"fields": {"topic": str(name), "topic_id": begun.topic_id}})
        await self._until_finished(begun.topic_id, name)

    async def _pending_of(self, names: Collection[str]) -> list[Deletion]:
        """The unfinished deletions of topics of these names."""
        found: list[Deletion] = []
        for topic_id in await self._parts.deletions.pending():
            try:
                deletion = await self._parts.deletions.read(topic_id)
            except CorruptEntry:
                continue
            if deletion is not None and deletion.name in names:
                found.append(deletion)
        return found

    async def until_free(self, name: TopicName) -> None:
        """Wait until a deleted partitioned topic has released its name, so that the name can be used again.

        Raises ServiceUnavailable if that takes too long.
        """
        found = await self._parts.topics.find(name)
        if found is not None and found.value.deleted:
            await self._until_finished(found.value.topic_id, name)

    async def _until_finished(self, topic_id: TopicId, name: TopicName) -> None:
        """Raises ServiceUnavailable at the deadline; the deletion continues, here or at another replica."""
        try:
            async with asyncio.timeout(self.wait_ms / 1000):
                while True:
                    await self._finish_soon(topic_id).wait()
                    if await self._parts.deletions.read(topic_id) is None:
                        return
                    await asyncio.sleep(ATTEMPT_PAUSE_MS / 1000)
        except TimeoutError as error:
            why = self._failures.get(topic_id)
            raise ServiceUnavailable(
                f"the deletion of {name} has not finished yet: "
                f"{why.message if why else 'its owner has not confirmed it'}; retry to wait for it",
                topic=str(name),
            ) from error

    # --- background work ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Finish the deletions that any replica has begun; never returns."""
        while True:
            await self.resume()
            await asyncio.sleep(RESUME_PAUSE_MS / 1000)

    async def resume(self) -> None:
        """Try once to finish all unfinished deletions."""
        try:
            pending = await self._parts.deletions.pending()
        except OncelogError as error:
            logger.warning("could not list unfinished deletions; will retry: %s", error.message)
            return
        for finished in [self._finish_soon(topic_id) for topic_id in pending]:
            await finished.wait()

    def _finish_soon(self, topic_id: TopicId) -> asyncio.Event:
        """Start an attempt, unless one runs for this topic. The event is set when the attempt ends."""
        finished = self._finishing.get(topic_id)
        if finished is None:
            finished = self._finishing[topic_id] = asyncio.Event()
            self._start(self._try_to_finish(topic_id, finished))
        return finished

    async def _try_to_finish(self, topic_id: TopicId, finished: asyncio.Event) -> None:
        try:
            await self.finish(topic_id)
            self._failures.pop(topic_id, None)
        except CorruptEntry as error:
            self._failures[topic_id] = error
            logger.error("could not finish a deletion because of a corrupt record: %s", error.message)
        except OncelogError as error:
            self._failures[topic_id] = error
            logger.warning("could not finish a deletion; will retry: %s", error.message)
        finally:
            del self._finishing[topic_id]
            finished.set()

    async def finish(self, topic_id: TopicId) -> None:
        """Perform the remaining steps; nothing if the deletion has ended. Raises OncelogError if a step fails."""
        deletion = await self._parts.deletions.read(topic_id)
        if deletion is None:
            return
        name = parse_topic(deletion.name)
        await asyncio.gather(self._until_released(deletion), self._end_adds(deletion))
        await self._parts.ledgers.delete_all(deletion.ledgers)
        await self._delete_pages(topic_id)
        await self._parts.proofs.delete(topic_id)
        for start in range(0, deletion.partitions, REMOVALS_MAX):
            beyond = min(start + REMOVALS_MAX, deletion.partitions)
            partitions = [replace(name, partition=number) for number in range(start, beyond)]
            await asyncio.gather(*map(self._delete_partition, partitions))
        if deletion.partitions:
            names = {str(replace(name, partition=number)) for number in range(deletion.partitions)}
            for begun in await self._pending_of(names):  # by another replica
                await self.finish(begun.topic_id)
        await self._parts.deletions.end(deletion, name)

    async def _delete_pages(self, topic_id: TopicId) -> None:
        """Delete the records of the ledgers in pages, and each page after them."""
        pages = self._parts.topics.pages
        for name in await pages.names(topic_id):
            page = await pages.read(topic_id, name)
            if page is not None:
                await self._parts.ledgers.delete_all([ledger.ledger_id for ledger in page.ledgers])
                await pages.delete(topic_id, name)
        await pages.delete_folder(topic_id)

    async def _delete_partition(self, partition: TopicName) -> None:
        """A partition that was never used does not exist; another replica may have begun to delete this one."""
        try:
            begun = await self._parts.deletions.begin(partition)
        except TopicNotFound:
            return
        await self.finish(begun.topic_id)

    async def _end_adds(self, deletion: Deletion) -> None:
        last = [ledger_id for ledger_id in (deletion.last, deletion.last_acks) if ledger_id is not None]
        await asyncio.gather(*map(self._parts.fences.end_adds, last))

    async def _until_released(self, deletion: Deletion) -> None:
        """Return when the owner has released the topic, or its session has ended.

        Calls without an answer are repeated. Raises DeadlineExceeded if that takes too long.
        """
        if deletion.owner is None:
            return
        why = "no answer"
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_MS / 1000):
                while True:
                    await self._parts.owners.refresh()
                    live = self._parts.owners.find(deletion.owner)
                    if live is None or self._parts.owners.is_lost(deletion.owner):
                        return  # dead; if it comes back with a new session, it reads its topic records first
                    try:
                        if await self._has_released(live, deletion.topic_id):
                            return
                        await asyncio.sleep(RELEASE_POLL_MS / 1000)
                    except OncelogError as error:
                        if not error.retriable:
                            raise
                        why = error.message
                        await asyncio.sleep(CALL_FAILED_PAUSE_MS / 1000)
        except TimeoutError as error:
            raise DeadlineExceeded(f"owner {deletion.owner} has not released {deletion.name}: {why}") from error

    async def _has_released(self, owner: LiveOwner, topic_id: TopicId) -> bool:
        calls = self._parts.calls
        if await calls.state(owner, topic_id, internal=False) is None:
            return True
        await calls.assign(owner, topic_id, OwnerEpoch(0))
        return False
