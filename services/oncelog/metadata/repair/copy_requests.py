"""Copies entries of one CLOSED ledger from one storage node to another, and lets nodes read their copies back.

Rules
- Entries are copied byte for byte. Each is verified here before it is sent on, whatever the source verified.
- Bytes are paced: all copies of this process together, and the reading back on each node, by `repair_bytes_per_s`.
- Every request has an answer: a failure, a timeout and another incarnation are answers, too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from crc32c import crc32c

from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import decode_entry
from oncelog.core.ids import EntryId, Incarnation
from oncelog.core.ledger.entry_reading import EntryReading
from oncelog.core.ledger.member_status import AppendStatus, CopyState
from oncelog.core.repair.events import (
    CopyEntries,
    CopyOutcome,
    CopyVerified,
    EntriesCopied,
    LedgerReviewed,
    RestoreEntries,
    ReviewLedger,
    VerifyCopy,
    VerifyStatus,
)
from oncelog.rpc.codecs.storage_codec import VERIFY_ENTRIES_MAX
from oncelog.rpc.entry_reader import Frames
from oncelog.runtime.backoff import Backoff
from oncelog.storage_client.node_calls import DISK_TIMEOUT_MS, NodeCalls
from oncelog.storage_client.rate_limit import RateLimit
from oncelog.storage_client.reader import NodeReader
from oncelog.wire import storage_pb2 as pb

T = TypeVar("T")

#: Bytes that one Verify call reads from a disk.
VERIFY_BYTES_MAX = 16 * 1024 * 1024
#: Attempts of one request to a node that is busy or does not answer.
ATTEMPTS_MAX = 3

_OUTCOMES = {
    AppendStatus.READ_ONLY: CopyOutcome.TARGET_REFUSED,
    AppendStatus.CONFLICTING: CopyOutcome.TARGET_CONFLICTS,
    AppendStatus.NOT_WRITABLE: CopyOutcome.NOT_NAMED,
    AppendStatus.ERASED: CopyOutcome.NOT_NAMED,
}


class CopyRequests:
    """The requests of all repairs of one process."""

    def __init__(self, calls: NodeCalls, *, bytes_per_s: int) -> None:
        self._calls = calls
        self._bytes_per_s = bytes_per_s
        self._now_s = asyncio.get_running_loop().time
        self._copies = RateLimit(bytes_per_s, now_s=self._now_s)
        #: {node: the limit of its reading back}
        self._reads: dict[Incarnation, RateLimit] = {}
        #: since the start of the process
        self.copied_bytes = 0
        self.copied_entries = 0

    async def verify(self, effect: VerifyCopy) -> CopyVerified:
        """Let the node read some of its copies back from its disk."""
        count = min(effect.count, VERIFY_ENTRIES_MAX)
        request = pb.VerifyRequest(
            target=effect.node,
            ledger_id=effect.ledger_id,
            first_entry=effect.first,
            entries_max=count,
            bytes_max=VERIFY_BYTES_MAX,
            topic_id=effect.topic_id,
        )
        answer = await _attempts(lambda: self._calls.verify(request))
        if answer is None:
            return CopyVerified(effect.node, effect.first, VerifyStatus.SILENT)
        if answer.status == pb.STORAGE_STATUS_ERASED:
            return CopyVerified(effect.node, effect.first, VerifyStatus.ERASED)
        await self._reads_of(effect.node).wait(answer.bytes)
        return CopyVerified(
            effect.node,
            effect.first,
            VerifyStatus.ANSWERED,
            EntryId(answer.next_entry),
            list(answer.checksums),
            list(map(EntryId, answer.missing_ids)),
            list(map(EntryId, answer.unreadable_ids)),
        )

    async def copy(self, effect: CopyEntries) -> EntriesCopied:
        """Copy some entries. Stops at the first that the source cannot give, and after `bytes_max` bytes."""
        ids, entries = effect.ids, await self._read(effect)
        if not entries:
            return EntriesCopied(effect.source, effect.target, (), CopyOutcome.SOURCE_FAILED)
        size = sum(map(len, entries))
        await self._copies.wait(size)
        statuses = await _attempts(lambda: self._copied(effect.target, entries))
        if statuses is None:
            return EntriesCopied(effect.source, effect.target, (), CopyOutcome.TARGET_FAILED)
        copied = [entry_id for entry_id in ids[: len(entries)] if statuses.get(entry_id) is AppendStatus.OK]
        self.copied_entries += len(copied)
        self.copied_bytes += size if len(copied) == len(entries) else 0
        refused = [status for status in statuses.values() if status is not AppendStatus.OK]
        if refused or len(statuses) < len(entries):
            outcome = _OUTCOMES.get(refused[0], CopyOutcome.TARGET_FAILED) if refused else CopyOutcome.TARGET_FAILED
        elif len(entries) < len(ids) and size < effect.bytes_max:
            outcome = CopyOutcome.SOURCE_FAILED
        else:
            outcome = CopyOutcome.DONE
        return EntriesCopied(effect.source, effect.target, tuple(copied), outcome)

    async def store(self, effect: RestoreEntries, entries: Sequence[Buffer]) -> bool | None:
        """Append entries from an owner's memory to the target. Whether it took all; None: no answer."""
        await self._copies.wait(sum(map(len, entries)))
        statuses = await _attempts(lambda: self._copied(effect.target, entries))
        if statuses is None:
            return None
        stored = sum(status is AppendStatus.OK for status in statuses.values())
        self.copied_entries += stored
        return stored == len(entries)

    async def review(self, effect: ReviewLedger) -> LedgerReviewed:
        """Let the node act on the ledger's record."""
        state: CopyState | None = await _attempts(lambda: self._calls.review(effect.node, effect.ledger_id))
        return LedgerReviewed(effect.node, state)

    async def _read(self, effect: CopyEntries) -> list[Buffer]:
        """Sound entries of the first ids, until `bytes_max` is reached or one cannot be read."""
        found: list[Buffer] = []
        for first, count in _runs(effect.ids):
            source = _Source(self._calls, effect, first, EntryId(first + count - 1), found)
            async with aclosing(source.pages()) as pages:
                async for page in pages:
                    found += [data for _, data in page]
            if not source.reading.finished:
                break
        return found

    async def _copied(self, target: Incarnation, entries: Sequence[Buffer]) -> dict[EntryId, AppendStatus] | None:
        """None: the node is too busy."""
        statuses = await self._calls.copy(target, entries)
        busy = any(status is AppendStatus.TOO_MANY_REQUESTS for status in statuses.values())
        return None if busy or not statuses else statuses

    def _reads_of(self, node: Incarnation) -> RateLimit:
        found = self._reads.get(node)
        if found is None:
            found = self._reads[node] = RateLimit(self._bytes_per_s, now_s=self._now_s)
        return found


class _Source(NodeReader):
    """Reads from one copy, which is asked again when it does not answer."""

    def __init__(
        self, calls: NodeCalls, effect: CopyEntries, first: EntryId, last: EntryId, found: list[Buffer]
    ) -> None:
        """found: all entries that were read for the effect."""
        reading = EntryReading(
            effect.ledger_id, (effect.source,), first, last, checksum=crc32c, topic_id=effect.topic_id
        )
        super().__init__(calls, reading, silence_ms=DISK_TIMEOUT_MS)
        self._bytes_max = effect.bytes_max
        self._found = found
        self._backoff = Backoff()
        self._attempts = 1

    async def ask(self, member: Incarnation) -> Frames | None:
        self.call_bytes_max = self._bytes_max - sum(map(len, self._found))
        return await super().ask(member) if self.call_bytes_max > 0 else None

    async def exhausted(self) -> bool:
        if self.reading.refusals or self._attempts == ATTEMPTS_MAX:
            return False
        self._attempts += 1
        self.reading.silent.clear()
        await self._backoff.pause()
        return True


def sound(data: Buffer, effect: CopyEntries | RestoreEntries, entry_id: EntryId) -> bool:
    """Whether the bytes are this entry of the effect's ledger and topic."""
    try:
        decode_entry(data, ledger_id=effect.ledger_id, entry_id=entry_id, checksum=crc32c, topic_id=effect.topic_id)
    except InvariantViolated:
        raise
    except OncelogError:
        return False
    return True


def _runs(ids: Sequence[EntryId]) -> list[tuple[EntryId, int]]:
    """Ascending ids as (first, count)."""
    runs: list[tuple[EntryId, int]] = []
    for entry_id in ids:
        if runs and runs[-1][0] + runs[-1][1] == entry_id:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((entry_id, 1))
    return runs


async def _attempts(attempt: Callable[[], Awaitable[T | None]]) -> T | None:
    """The first answer that is not None; None if there was none in ATTEMPTS_MAX attempts."""
    backoff = Backoff()
    for number in range(ATTEMPTS_MAX):
        if number:
            await backoff.pause()
        try:
            answer = await attempt()
        except InvariantViolated:
            raise
        except OncelogError:
            continue
        if answer is not None:
            return answer
    return None
