"""The reads and writes that the core asks for while it checks or reviews a ledger (`core.node.review`).

CheckLedger   the ledger's record, read after a sync; retried until ZooKeeper answers
VerifyLedger  the ledger's entries, read back from the disk, a part at a time
TouchRecord   one compare-and-set on the ledger's record
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Protocol

from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.node.node_ledger import LedgerOrigin
from oncelog.core.node.review import (
    CheckLedger,
    LedgerChecked,
    LedgerVerified,
    RecordTouched,
    TouchRecord,
    VerifyLedger,
)
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.log_storage.directory.segment_reader import Verified
from oncelog.metadata_store.session.answers import sent_once, until_answered
from oncelog.metadata_store.session.store_session import Versioned, WriteResult
from oncelog.runtime.tasks import start

logger = logging.getLogger(__name__)

#: Bytes and entries of a ledger that a review reads back from the disk at a time.
VERIFY_BYTES = 4 * 1024 * 1024
VERIFY_ENTRIES = 1024


class LedgerRecords(Protocol):
    """What ZooKeeper holds about a ledger, read after a sync. The reads raise StoreUnavailable, CorruptEntry."""

    async def read(self, ledger_id: LedgerId) -> Versioned[LedgerMetadata] | None:
        """The ledger's record; None if there is none."""

    async def was_deleted(self, ledger_id: LedgerId, origin: LedgerOrigin) -> bool:
        """Whether a ledger without a record was certainly deleted; see `core.node.node_ledger`."""

    async def has_snapshots(self, ledger_id: LedgerId, topic_id: TopicId) -> bool:
        """Whether the topic's cursor names the ledger."""

    async def floor(self, origin: LedgerOrigin) -> LedgerId:
        """The floor of a chain; 0 if no ledger of it was deleted."""

    async def write(self, metadata: LedgerMetadata, *, version: int) -> WriteResult:
        """One compare-and-set."""


class Verify(Protocol):
    """Reads some entries back from the disk."""

    async def __call__(self, ledger_id: LedgerId, first: EntryId, entries_max: int, bytes_max: int) -> Verified: ...


class LedgerChecks:
    """The checks of one node. `handle` takes their results."""

    def __init__(
        self,
        incarnation: Incarnation,
        records: LedgerRecords,
        verify: Verify,
        handle: Callable[[LedgerChecked | LedgerVerified | RecordTouched], None],
    ) -> None:
        self._incarnation = incarnation
        self._records = records
        self._verify_range = verify
        self._handle = handle
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, effect: CheckLedger | VerifyLedger | TouchRecord) -> None:
        match effect:
            case CheckLedger():
                self._start(self._check(effect), "the check of a ledger")
            case VerifyLedger():
                self._start(self._verify(effect), "the verification of a ledger")
            case TouchRecord():
                self._start(self._touch(effect), "the compare-and-set before erasing")

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[None, None, None], what: str) -> None:
        task = start(work, what=what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _check(self, effect: CheckLedger) -> None:
        """Queued adds wait for the record; the core limits their bytes."""
        what = f"the record of ledger {effect.ledger_id}"
        self._handle(await until_answered(what, lambda: self._checked(effect)))

    async def _checked(self, effect: CheckLedger) -> LedgerChecked:
        ledger_id, deleted, floor = effect.ledger_id, False, LedgerId(0)
        stored = await self._records.read(ledger_id)
        if stored is None and effect.origin is not None:
            deleted = await self._records.was_deleted(ledger_id, effect.origin)
            floor = await self._records.floor(effect.origin) if deleted else floor
        snapshot = False
        if stored is not None and stored.value.lost:
            snapshot = await self._records.has_snapshots(ledger_id, stored.value.topic_id)
        metadata, version = stored or (None, ABSENT_VERSION)
        return LedgerChecked(
            ledger_id, effect.check, metadata, version=version, deleted=deleted, snapshot=snapshot, floor=floor
        )  # fmt: skip

    async def _verify(self, effect: VerifyLedger) -> None:
        ledger_id, first, beyond = effect.ledger_id, EntryId(0), effect.end + 1
        missing: list[EntryId] = []
        unreadable: list[EntryId] = []
        while first < beyond:
            found = await self._verify_range(ledger_id, first, min(VERIFY_ENTRIES, beyond - first), VERIFY_BYTES)
            missing += map(EntryId, found.missing)
            unreadable += map(EntryId, found.unreadable)
            first = EntryId(found.next_entry)
        self._handle(LedgerVerified(ledger_id, effect.check, tuple(missing), tuple(unreadable)))

    async def _touch(self, effect: TouchRecord) -> None:
        written = await sent_once(self._records.write(effect.metadata, version=effect.version))
        self._handle(RecordTouched(effect.ledger_id, effect.check, written.status))
