"""The scrubber: reads every stored entry, and every note, back from the disk, at a pace that finishes in a set time.

Bits rot in entries that no reader asks for. Damage that is found early is repaired while other copies exist.

Rules
- Entries are read ledger by ledger, from the disk and not from the page cache; the checksum of the record and that of
  the entry are both checked. What cannot be read is noted, as a read notes it.
- A pass takes `interval_ms`: after each batch the scrubber waits for the batch's share of that time. The next pass
  begins when the interval is over, so a node with few bytes reads them once per interval, too.
- Notes are read back, too. One that cannot be read is forgotten and sent again, while other nodes hold it (hazard
  holders-fade).
- A ledger counts as verified at the moment at which its reading began, if all of its entries were sound.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from oncelog.log_storage.directory.segment_reader import Verified
from oncelog.log_storage.serve.journal import Journal
from oncelog.log_storage.serve.notes import NodeNotes

logger = logging.getLogger(__name__)

BATCH_ENTRIES = 256
BATCH_BYTES = 1024 * 1024


class Scrubber:
    """`watch` never returns."""

    def __init__(
        self,
        journal: Journal,
        notes: NodeNotes,
        *,
        interval_ms: int,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._journal = journal
        self._notes = notes
        self._interval_ms = interval_ms
        self._now_ms = now_ms
        #: {ledger_id: when its last sound reading began}
        self.verified_ms: dict[int, int] = {}
        #: when the last pass over everything ended; None: not yet in this run
        self.finished_ms: int | None = None
        self.read_bytes = 0

    @property
    def finished_ms_ago(self) -> int:
        """Time since everything was read once; -1: not yet."""
        return -1 if self.finished_ms is None else max(0, self._now_ms() - self.finished_ms)

    def verified_ms_ago(self, ledger_id: int) -> int:
        """Time since the last sound reading of the ledger began; -1: not yet."""
        verified_ms = self.verified_ms.get(ledger_id)
        return -1 if verified_ms is None else max(0, self._now_ms() - verified_ms)

    async def watch(self) -> None:
        while True:
            began_ms = self._now_ms()
            await self.scrub()
            rest_ms = max(1_000, self._interval_ms - (self._now_ms() - began_ms))
            await asyncio.sleep(rest_ms / 1000)

    async def scrub(self) -> None:
        """One pass over everything that is stored when it begins."""
        index = self._journal.index
        total_bytes = max(1, sum(index.live_bytes.values()))
        await self._scrub_notes(total_bytes)
        ledgers = list(index.ledgers())
        for ledger_id in ledgers:
            await self._scrub_ledger(ledger_id, total_bytes)
        held = set(ledgers)
        self.verified_ms = {ledger_id: at for ledger_id, at in self.verified_ms.items() if ledger_id in held}
        self.finished_ms = self._now_ms()
        logger.info("all entries were read once", extra={"fields": {"ledgers": len(ledgers), "bytes": total_bytes}})

    async def _scrub_notes(self, total_bytes: int) -> None:
        after, size = await self._notes.verify("")
        while after:
            self.read_bytes += size
            await self._pause(size, total_bytes)
            after, size = await self._notes.verify(after)

    async def _pause(self, read_bytes: int, total_bytes: int) -> None:
        """At most the interval in all, also when entries are added meanwhile."""
        await asyncio.sleep(min(1.0, read_bytes / total_bytes) * self._interval_ms / 1000)

    async def _scrub_ledger(self, ledger_id: int, total_bytes: int) -> None:
        journal, began_ms, sound, following = self._journal, self._now_ms(), True, 0
        last = journal.index.last_entry(ledger_id)
        while last is not None and following <= last:
            verified, damaged = await self._verify(ledger_id, following)
            if damaged and journal.index.last_entry(ledger_id) is not None:
                sound = False
                logger.error(
                    "damaged entries found; repair looks for sound copies elsewhere",
                    extra={"fields": {"ledger_id": ledger_id, "entries": damaged[:20], "count": len(damaged)}},
                )
            self.read_bytes += verified.bytes
            following = verified.next_entry
            await self._pause(verified.bytes, total_bytes)
        if sound:
            self.verified_ms[ledger_id] = began_ms

    async def _verify(self, ledger_id: int, first: int) -> tuple[Verified, list[int]]:
        """The next entries of the ledger, and those of them that are damaged.

        The plan ends with this call: compaction waits for it, and the pause that follows may take hours.
        """
        plan = self._journal.plan_verify(
            ledger_id=ledger_id, first=first, entries_max=BATCH_ENTRIES, bytes_max=BATCH_BYTES
        )
        verified = await asyncio.to_thread(self._journal.reader.verify, plan)
        return verified, [entry_id for entry_id in verified.unreadable if entry_id not in plan.unsynced]
