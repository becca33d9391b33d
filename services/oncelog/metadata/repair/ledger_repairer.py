"""Performs the repair of one ledger (`core.repair.ledger_repair`): records in ZooKeeper, copies between storage nodes.

Every decision is a compare-and-set on the ledger's record, so two of these may work on one ledger at once: one of them
meets a conflict, and looks again.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from oncelog.core.errors import CorruptEntry, StoreUnavailable
from oncelog.core.ids import LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerKey, LedgerMetadata
from oncelog.core.ledger.storage_nodes import StorageNodes
from oncelog.core.records.records import ABSENT_VERSION, ReadRecord, RecordWritten, WriteRecord
from oncelog.core.records.status import WriteStatus
from oncelog.core.repair.events import (
    CopyEntries,
    RepairEffect,
    RepairEvent,
    RepairFinished,
    RepairJob,
    RepairNodesChanged,
    RepairRecordRead,
    RepairRequest,
    RepairStarted,
    RestoreEntries,
    ReviewLedger,
    VerifyCopy,
)
from oncelog.core.repair.ledger_repair import LedgerRepair
from oncelog.metadata.repair.copy_requests import CopyRequests
from oncelog.metadata.repair.owner_memory import OwnersMemory
from oncelog.metadata.repair.record_changes import record_changes
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.session.answers import sent_once, until_answered
from oncelog.metadata_store.session.shared_reads import SharedReads
from oncelog.runtime.observing.events import EventRing

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RepairParts:
    """What all repairs of one process share."""

    ledgers: LedgerStore
    #: all ledgers that a topic lists
    lists: SharedReads[TopicId, frozenset[LedgerId]]
    requests: CopyRequests
    owners: OwnersMemory
    events: EventRing


class LedgerRepairer:
    """One job. `run` it once; `nodes_changed` may be called meanwhile."""

    def __init__(self, job: RepairJob, nodes: StorageNodes, parts: RepairParts, *, wall_ms: Callable[[], int]) -> None:
        self.core = LedgerRepair(job, nodes)
        self.began_ms = wall_ms()
        self._parts = parts
        self._events: asyncio.Queue[RepairEvent] = asyncio.Queue()
        self._finished: RepairFinished | None = None
        #: the kind of the last effect, for reports
        self.step = "LOOK"

    async def run(self) -> RepairFinished:
        """Return how it ended. Waits while ZooKeeper does not answer."""
        async with asyncio.TaskGroup() as tasks:
            self._events.put_nowait(RepairStarted())
            while self._finished is None:
                event = await self._events.get()
                for effect in self.core.handle(event):
                    self._begin(effect, tasks)
                self.core.check_invariants()
        return self._finished

    def nodes_changed(self, nodes: StorageNodes) -> None:
        """The storage nodes have changed."""
        self._events.put_nowait(RepairNodesChanged(nodes))

    def _begin(self, effect: RepairEffect, tasks: asyncio.TaskGroup) -> None:
        if isinstance(effect, RepairFinished):
            self._finished = effect
        else:
            tasks.create_task(self._perform(effect))

    async def _perform(self, effect: RepairRequest) -> None:
        event: RepairEvent
        match effect:
            case ReadRecord():
                self.step = "LOOK"
                event = await self._read(effect.key.ledger_id)
            case WriteRecord():
                event = await self._write(effect)
            case VerifyCopy():
                self.step = "ATTEST"
                event = await self._parts.requests.verify(effect)
            case CopyEntries():
                self.step = "COPY"
                event = await self._parts.requests.copy(effect)
            case ReviewLedger():
                self.step = "WHOLE"
                event = await self._parts.requests.review(effect)
            case RestoreEntries():
                self.step = "RESTORE"
                event = await self._parts.owners.restore(effect)
            case _:
                assert_never(effect)
        self._events.put_nowait(event)

    async def _read(self, ledger_id: LedgerId) -> RepairRecordRead:
        try:
            return await until_answered(
                "the record of a ledger to repair", lambda: self._read_once(ledger_id), retried=(StoreUnavailable,)
            )
        except CorruptEntry:
            return RepairRecordRead(None, ABSENT_VERSION, listed=False)

    async def _read_once(self, ledger_id: LedgerId) -> RepairRecordRead:
        stored = await self._parts.ledgers.read(ledger_id)
        # A repair touches nothing that no list names (hazard repair-of-an-open-ledger).
        listed = stored is not None and ledger_id in await self._parts.lists.get(stored.value.topic_id)
        record, version = stored or (None, ABSENT_VERSION)
        return RepairRecordRead(record, version, listed)

    async def _write(self, effect: WriteRecord[LedgerKey, LedgerMetadata]) -> RecordWritten[LedgerKey, LedgerMetadata]:
        record, former = effect.value, self.core.record
        self.step = "SWAP" if record.joining is None else "JOIN"
        written = await sent_once(self._parts.ledgers.write(record, version=effect.version))
        if written.status is WriteStatus.OK and former is not None:
            self._note(former, record)
        return effect.answered(*written)

    def _note(self, former: LedgerMetadata, record: LedgerMetadata) -> None:
        changes = [*record_changes(former, record, self.core.job.damaged)]
        for kind, level, message, node, fields in changes:
            self._parts.events.note(
                kind, logger, message, level=level, node=node, ledger_id=record.ledger_id, **fields
            )  # fmt: skip
        if not changes:
            fields = {"ledger_id": record.ledger_id, "members": record.members, "whole": record.verified}
            logger.info("repair changed a ledger's record", extra={"fields": fields})
