"""Deleting topics: the name goes at once, the rest is done here, by whichever replica, until it is done.

    name and record gone (stores.deletion_store) -> the owner lets go, the last ledger is fenced
                                                 -> the ledgers' records are removed -> the end
    a partitioned topic: its name is a tombstone -> each part the same way                                -> the end

Rules
- Every step may be done twice, by two replicas at once, and again after a crash: each replica looks for what is left at
  its start and ever again after.
- An owner is told by an assignment, which has it read the record: it finds none, refuses everybody and forgets the
  topic. Before it did, or its session has ended, no record of a ledger is removed: it would find a hole.
- The last ledger of the log is fenced, so that neither an owner without a session nor one that was deposed and does not
  know it acknowledges anything more (`fences`).
- Whoever deletes is answered when the deletion is at its end. Until then the answer is an error that may be tried
  again; the deletion goes on meanwhile, and asking again joins it. A call that fails is no end: nothing is swallowed.
- Storage nodes find out by themselves that the records are gone, and drop the entries.
"""

import asyncio
import logging
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
from oncelog.metadata.coordination.ledger_fences import LedgerFences
from oncelog.metadata.coordination.owner_calls import OwnerCalls
from oncelog.metadata.coordination.owners import Owners, Start
from oncelog.stores.deletion_store import Deletion, DeletionStore
from oncelog.stores.ledger_store import LedgerStore
from oncelog.stores.registry import LiveOwner
from oncelog.stores.topic_store import TopicStore

logger = logging.getLogger(__name__)

#: Whoever deletes a topic, or creates one whose name is not free yet, waits so long; then it is told to try again.
FINISH_WAIT_MS = 5_000
#: Between two attempts to finish for somebody who waits.
ATTEMPT_PAUSE_MS = 100
#: Between two looks for deletions that are not at their end.
RESUME_PAUSE_MS = 5_000
LET_GO_TIMEOUT_MS = 10_000
LET_GO_PAUSE_MS = 10
#: After a call that the owner did not answer.
CALL_FAILED_PAUSE_MS = 200
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
    fences: LedgerFences


class TopicDeletions:
    """All deletions of one replica."""

    def __init__(self, parts: DeletionParts, start: Start) -> None:
        self._parts = parts
        self._start = start
        #: how long a caller waits for the end of a deletion
        self.wait_ms = FINISH_WAIT_MS
        #: {topic id: done when its deletion has ended, or has failed for now}
        self._finishing: dict[TopicId, asyncio.Event] = {}
        #: {topic id: why the last attempt to finish its deletion failed}
        self._failures: dict[TopicId, OncelogError] = {}

    async def delete(self, name: TopicName) -> None:
        """Delete a topic; returns when nothing of it is left, and nothing can be acknowledged for it.

        Raises TopicNotFound, Conflict for a topic with parts and for the part of one, ServiceUnavailable while that
        takes longer: the name is free then, the deletion goes on, and calling again waits for it.
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
        try:
            begun = await self._parts.deletions.begin(name)
        except TopicNotFound:
            pending = await self._pending_of(name)
            if pending is None:
                raise
            begun = pending
        else:
            logger.info("a topic is deleted", extra={"fields": {"topic": str(name), "topic_id": begun.topic_id}})
        await self._until_finished(begun.topic_id, name)

    async def _pending_of(self, name: TopicName) -> Deletion | None:
        """A deletion under this name that is not at its end."""
        for topic_id in await self._parts.deletions.pending():
            try:
                deletion = await self._parts.deletions.read(topic_id)
            except CorruptEntry:
                continue
            if deletion is not None and deletion.name == str(name):
                return deletion
        return None

    async def until_free(self, name: TopicName) -> None:
        """Wait while the parts of a deleted topic of this name are going, so that it can be created.

        Raises ServiceUnavailable when that takes too long.
        """
        found = await self._parts.topics.find(name)
        if found is not None and found.value.deleted:
            await self._until_finished(found.value.topic_id, name)

    async def _until_finished(self, topic_id: TopicId, name: TopicName) -> None:
        """Raises ServiceUnavailable at the deadline; the deletion goes on, here or at another replica."""
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
                f"the deletion of {name} is under way and not at its end: "
                f"{why.message if why else 'its owner has not confirmed it'}; try again in a moment",
                topic=str(name),
            ) from error

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
            self._failures.pop(topic_id, None)
        except CorruptEntry as error:
            self._failures[topic_id] = error
            logger.error("a deletion cannot be finished: %s", error.message)
        except OncelogError as error:
            self._failures[topic_id] = error
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
        await asyncio.gather(self._until_let_go(deletion), self._end_adds(deletion))
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

    async def _end_adds(self, deletion: Deletion) -> None:
        if deletion.last is not None:
            await self._parts.fences.end_adds(deletion.last)

    async def _until_let_go(self, deletion: Deletion) -> None:
        """Return when the owner has confirmed that it holds the topic no more, or has no session any more.

        An owner that does not answer is asked again. Raises DeadlineExceeded when that takes too long.
        """
        if deletion.owner is None:
            return
        why = "it does not answer"
        try:
            async with asyncio.timeout(LET_GO_TIMEOUT_MS / 1000):
                while True:
                    await self._parts.owners.refresh()
                    live = self._parts.owners.find(deletion.owner)
                    if live is None or self._parts.owners.is_lost(deletion.owner):
                        return  # dead; or it looks at its records before it goes on under another session
                    try:
                        if await self._lets_go(live, deletion.topic_id):
                            return
                        await asyncio.sleep(LET_GO_PAUSE_MS / 1000)
                    except OncelogError as error:
                        if not error.retriable:
                            raise
                        why = error.message
                        await asyncio.sleep(CALL_FAILED_PAUSE_MS / 1000)
        except TimeoutError as error:
            raise DeadlineExceeded(f"owner {deletion.owner} holds on to {deletion.name}: {why}") from error

    async def _lets_go(self, owner: LiveOwner, topic_id: TopicId) -> bool:
        calls = self._parts.calls
        if await calls.state(owner, topic_id, internal=False) is None:
            return True
        await calls.assign(owner, topic_id, OwnerEpoch(0))
        return False
