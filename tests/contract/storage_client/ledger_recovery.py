"""Recovers and closes one ledger outside of a topic: performs the effects of `core.ledger.recovery`.

In production the owner of a topic recovers the topic's ledgers as part of its takeover.
"""

import asyncio
import logging
from typing import Protocol

from crc32c import crc32c

from oncelog.core.errors import StoreUnavailable, UnreadableEntry
from oncelog.core.ids import LedgerId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.recovery import (
    FenceMember,
    LedgerRecovered,
    LedgerRecovery,
    RecoveryAdd,
    RecoveryEffect,
    RecoveryEvent,
    RecoveryFailed,
    RecoveryRead,
)
from oncelog.core.records.records import ABSENT_VERSION, ReadRecord, RecordRead, WriteRecord
from oncelog.core.records.status import WriteStatus
from oncelog.runtime.backoff import Backoff
from oncelog.storage_client.client import StorageClient

logger = logging.getLogger(__name__)


class StoredLedger(Protocol):
    """A ledger's record as read, and the version that its next write names."""

    @property
    def value(self) -> LedgerMetadata: ...

    @property
    def version(self) -> int: ...


class WrittenLedger(Protocol):
    @property
    def status(self) -> WriteStatus: ...

    @property
    def version(self) -> int: ...


class LedgerRecords(Protocol):
    """Where ledgers' records are; `stores.ledger_store` is one."""

    async def read(self, ledger_id: LedgerId) -> StoredLedger | None:
        """After a sync. Raises StoreUnavailable."""

    async def write(self, metadata: LedgerMetadata, *, version: int) -> WrittenLedger: ...


async def recover_ledger(ledger_id: LedgerId, records: LedgerRecords, links: StorageClient) -> LedgerMetadata:
    """Fence, recover and close the ledger, however long its members are away; returns its CLOSED record.

    Raises UnreadableEntry when nothing can be decided: the ledger stays as it is, and a later try may succeed.
    """
    recovery = LedgerRecovery(ledger_id, crc32c)
    events: asyncio.Queue[RecoveryEvent] = asyncio.Queue()
    outcome: LedgerRecovered | RecoveryFailed | None = None
    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[None]] = []
        effects = recovery.start()
        while outcome is None:
            for effect in effects:
                if isinstance(effect, LedgerRecovered | RecoveryFailed):
                    outcome = effect
                else:
                    tasks.append(group.create_task(_perform(effect, records, links, events)))
            if outcome is None:
                effects = recovery.handle(await events.get())
        # Members that coverage did not need may never answer.
        for task in tasks:
            task.cancel()
    if isinstance(outcome, RecoveryFailed):
        raise UnreadableEntry(outcome.reason, ledger_id=ledger_id)
    return outcome.metadata


async def _perform(
    effect: RecoveryEffect, records: LedgerRecords, links: StorageClient, events: "asyncio.Queue[RecoveryEvent]"
) -> None:
    match effect:
        case ReadRecord(key):
            stored = await _read(records, key.ledger_id)
            if stored is None:
                events.put_nowait(RecordRead(key, None, ABSENT_VERSION))
            else:
                events.put_nowait(RecordRead(key, stored.value, stored.version))
        case WriteRecord(_, metadata, version):
            try:
                written = await records.write(metadata, version=version)
                events.put_nowait(effect.answered(written.status, written.version))
            except StoreUnavailable:
                events.put_nowait(effect.answered(WriteStatus.UNKNOWN))
        case FenceMember(ledger_id, member):
            events.put_nowait(await links.fence(member, ledger_id))
        case RecoveryRead(ledger_id, member, first, count):
            events.put_nowait(await links.recovery_read(member, ledger_id, first, count))
        case RecoveryAdd(ledger_id, member, entries):
            events.put_nowait(await links.recovery_add(member, ledger_id, entries))


async def _read(records: LedgerRecords, ledger_id: LedgerId) -> StoredLedger | None:
    backoff = Backoff()
    while True:
        try:
            return await records.read(ledger_id)
        except StoreUnavailable as error:
            logger.warning("the record of ledger %d cannot be read yet: %s", ledger_id, error.message)
            await backoff.pause()
