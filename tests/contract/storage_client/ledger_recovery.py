"""Recovers and closes one ledger outside of a topic: performs the effects of `core.ledger.recovery`.

In production the owner of a topic recovers the topic's ledgers as part of its takeover.
"""

import asyncio

from crc32c import crc32c

from oncelog.core.errors import UnreadableEntry
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
from oncelog.metadata_store.records.ledger_store import LedgerStore
from oncelog.metadata_store.session.answers import sent_once, until_answered
from oncelog.storage_client.client import StorageClient


async def recover_ledger(ledger_id: LedgerId, ledgers: LedgerStore, links: StorageClient) -> LedgerMetadata:
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
                    tasks.append(group.create_task(_perform(effect, ledgers, links, events)))
            if outcome is None:
                effects = recovery.handle(await events.get())
        # Members that coverage did not need may never answer.
        for task in tasks:
            task.cancel()
    if isinstance(outcome, RecoveryFailed):
        raise UnreadableEntry(outcome.reason, ledger_id=ledger_id)
    return outcome.metadata


async def _perform(
    effect: RecoveryEffect, ledgers: LedgerStore, links: StorageClient, events: "asyncio.Queue[RecoveryEvent]"
) -> None:
    match effect:
        case ReadRecord(key):
            stored = await until_answered("a ledger's record", lambda: ledgers.read(key.ledger_id))
            record, version = stored or (None, ABSENT_VERSION)
            events.put_nowait(RecordRead(key, record, version))
        case WriteRecord(_, metadata, version):
            written = await sent_once(ledgers.write(metadata, version=version))
            events.put_nowait(effect.answered(*written))
        case FenceMember(ledger_id, member):
            events.put_nowait(await links.fence(member, ledger_id))
        case RecoveryRead(ledger_id, member, first, count):
            events.put_nowait(await links.recovery_read(member, ledger_id, first, count))
        case RecoveryAdd(ledger_id, member, entries):
            events.put_nowait(await links.recovery_add(member, ledger_id, entries))
