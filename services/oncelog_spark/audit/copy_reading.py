"""Reads the copies of a ledger: what each of its members holds.

A member that does not answer within SILENCE_MS is skipped and reported; this task does not wait for it again. Repair
replaces members: when one is not registered, has erased its copy or lacks an entry, the present members are requested
from the metadata service, and read.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Container

from crc32c import crc32c

from oncelog.core.errors import CorruptEntry, OncelogError
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.entry_reading import HAS_ERASED, EntryReading, Page, ReceivedRead
from oncelog.storage_client.node_calls import NodeCalls
from oncelog.storage_client.reader import NodeReader
from oncelog.verify.copies import MemberCopy
from oncelog_spark.audit.ledger_ranges import LedgerSlice
from oncelog_spark.cluster import PresentLedgers

#: A member that does not answer for this long is skipped.
SILENCE_MS = 10_000
_DIGEST_BYTES = 16
_NOT_REGISTERED = "not registered"
#: Answers of a member that repair may have replaced.
_FORMER = (_NOT_REGISTERED, HAS_ERASED)

logger = logging.getLogger(__name__)


class CopyReading:
    """The members of some ledgers, for one task. registered: members with an address. present: None: the members of
    the slices are the present ones."""

    def __init__(
        self,
        storage: NodeCalls,
        registered: Container[Incarnation],
        present: PresentLedgers | None = None,
        *,
        silence_ms: int = SILENCE_MS,
    ) -> None:
        self._storage = storage
        self._registered = registered
        self._present = present
        self._silence_ms = silence_ms
        #: {member: the reason why it does not answer}
        self._silent: dict[Incarnation, str] = {}

    async def beginnings_of(self, piece: LedgerSlice) -> dict[Incarnation, MemberCopy]:
        """Whether each member holds anything of the ledger, if the slice is the ledger's first; otherwise empty
        copies."""
        if piece.first != 0 or not piece.quorum:
            return {member: MemberCopy() for member, _ in piece.members}

        async def read(member: Incarnation, copy: MemberCopy) -> None:
            await self._begins(piece.ledger_id, member, copy)

        return await self._of_members(piece, read)

    async def copies_of(self, piece: LedgerSlice) -> dict[Incarnation, MemberCopy]:
        """The copies of every entry of the slice on every member."""

        async def read(member: Incarnation, copy: MemberCopy) -> None:
            await self._whole(piece, member, copy)

        return await self._of_members(piece, read)

    async def _of_members(
        self, piece: LedgerSlice, read: Callable[[Incarnation, MemberCopy], Awaitable[None]]
    ) -> dict[Incarnation, MemberCopy]:
        """The copies of the members; of the present ones, if one is a former member."""
        copies = {member: MemberCopy() for member, _ in piece.members}
        await asyncio.gather(*(read(member, copy) for member, copy in copies.items()))
        suspects = (copy.silent in _FORMER or copy.missing or copy.begins is False for copy in copies.values())
        if self._present is None or not any(suspects):
            return copies
        try:
            ledger = await self._present.members(piece.ledger_id)
        except OncelogError as error:
            logger.warning("cannot read the members of ledger %d again: %s", piece.ledger_id, error.message)
            return copies
        if ledger is None:
            return copies
        members = [Incarnation(one.incarnation) for one in ledger.members]
        joined = {member: MemberCopy() for member in members if member not in copies}
        await asyncio.gather(*(read(member, copy) for member, copy in joined.items()))
        return {member: (copies | joined)[member] for member in members}

    async def _begins(self, ledger_id: LedgerId, member: Incarnation, copy: MemberCopy) -> None:
        found = MemberCopy()
        await self._read(ledger_id, member, EntryId(0), EntryId(0), found)
        copy.silent = found.silent
        copy.begins = None if found.silent else EntryId(0) not in found.missing or found.holds_some

    async def _whole(self, piece: LedgerSlice, member: Incarnation, copy: MemberCopy) -> None:
        await self._read(piece.ledger_id, member, piece.first, piece.last, copy)
        if not copy.silent and not copy.digests and not copy.damaged:
            await self._begins(piece.ledger_id, member, copy)
        else:
            copy.begins = None if copy.silent else True

    async def _read(
        self, ledger_id: LedgerId, member: Incarnation, first: EntryId, last: EntryId, copy: MemberCopy
    ) -> None:
        """Read into `copy`; `silent` is set when the member does not answer for all entries."""
        if member not in self._registered:
            copy.silent = _NOT_REGISTERED
        copy.silent = copy.silent or self._silent.get(member, "")
        if not copy.silent:
            reading = _CopyReading(ledger_id, (member,), first, last, copy)
            async for _ in NodeReader(self._storage, reading, silence_ms=self._silence_ms).pages():
                pass  # the answers are recorded in `copy`
            copy.silent = reading.silent.get(member, "")
        if copy.silent and copy.silent != HAS_ERASED:
            self._silent[member] = copy.silent


class _CopyReading(EntryReading):
    """Records the answers of one member about each entry, whatever is missing or damaged."""

    def __init__(
        self, ledger_id: LedgerId, members: tuple[Incarnation], first: EntryId, last: EntryId, copy: MemberCopy
    ) -> None:
        super().__init__(ledger_id, members, first, last, checksum=crc32c)
        self._copy = copy

    def take(self, _member: Incarnation, answer: ReceivedRead) -> Page:
        copy = self._copy
        copy.holds_some = copy.holds_some or answer.last_entry >= 0
        copy.missing.update(answer.missing_ids)
        copy.damaged |= dict.fromkeys(answer.unreadable_ids, "the node cannot read it")
        for entry_id, data in zip(answer.entry_ids, answer.entries, strict=True):
            try:
                self.verified(data, entry_id)
            except CorruptEntry as error:
                copy.damaged[entry_id] = error.message
            else:
                copy.digests[entry_id] = hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
        while copy.has_answered(self.following):
            self.following = EntryId(self.following + 1)
        return []
