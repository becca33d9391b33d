"""Reads the copies of a ledger: what each of its members holds.

A member that does not answer within SILENCE_MS is skipped and reported; this task does not wait for it again.
"""

import asyncio
import hashlib
from collections.abc import Iterable
from contextlib import aclosing

from crc32c import crc32c

from oncelog.core.errors import CorruptEntry, OncelogError
from oncelog.core.formats.entry import decode_entry
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import ReadStatus
from oncelog.ledgers.storage_links import StorageLinks
from oncelog.pipeline.audit.ledger_ranges import LedgerSlice
from oncelog.rpc.storage_codec import ReadRequest, ReceivedRead
from oncelog.verify.copies import MemberCopy

#: A member that does not answer for this long is skipped.
SILENCE_MS = 10_000
_READ_TIMEOUT_MS = 60_000
_ENTRIES_MAX = 4096
_BYTES_MAX = 64 * 1024 * 1024
_DIGEST_BYTES = 16
_NOT_REGISTERED = "not registered"


class CopyReading:
    """The members of some ledgers, for one task. registered: members with an address."""

    def __init__(
        self, storage: StorageLinks, registered: Iterable[Incarnation], *, silence_ms: int = SILENCE_MS
    ) -> None:
        self._storage = storage
        self._registered = frozenset(registered)
        self._silence_ms = silence_ms
        #: {member: the reason why it does not answer}
        self._silent: dict[Incarnation, str] = {}

    async def beginnings_of(self, piece: LedgerSlice) -> dict[Incarnation, MemberCopy]:
        """Whether each member holds anything of the ledger, if the slice is the ledger's first; otherwise empty
        copies."""
        copies = {member: MemberCopy() for member, _ in piece.members}
        if piece.first == 0 and piece.quorum:
            await asyncio.gather(*(self._begins(piece.ledger_id, member, copy) for member, copy in copies.items()))
        return copies

    async def copies_of(self, piece: LedgerSlice) -> dict[Incarnation, MemberCopy]:
        """The copies of every entry of the slice on every member."""
        copies = {member: MemberCopy() for member, _ in piece.members}
        await asyncio.gather(*(self._whole(piece, member, copy) for member, copy in copies.items()))
        return copies

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
        following: int = first
        while following <= last and not copy.silent:
            before = following
            count = min(last - following + 1, _ENTRIES_MAX)
            request = ReadRequest(member, ledger_id, EntryId(following), count, _BYTES_MAX)
            try:
                following = await self._frames(request, copy)
            except TimeoutError:
                copy.silent = f"no answer within {self._silence_ms} ms"
            except OncelogError as error:
                copy.silent = error.message
            if following == before:
                copy.silent = copy.silent or "no answer"
        if copy.silent:
            self._silent[member] = copy.silent

    async def _frames(self, request: ReadRequest, copy: MemberCopy) -> int:
        """Read the frames of one call. Returns the first entry without an answer."""
        following: int = request.first_entry
        async with aclosing(self._storage.read(request.target, request, timeout_ms=_READ_TIMEOUT_MS)) as frames:
            while True:
                async with asyncio.timeout(self._silence_ms / 1000):
                    frame = await anext(frames, None)
                if frame is None or frame.status is not ReadStatus.OK:
                    return following
                _take(request.ledger_id, frame, copy)
                while copy.has_answered(EntryId(following)):
                    following += 1


def _take(ledger_id: LedgerId, frame: ReceivedRead, copy: MemberCopy) -> None:
    copy.holds_some = copy.holds_some or frame.last_entry >= 0
    copy.missing.update(frame.missing_ids)
    copy.damaged |= dict.fromkeys(frame.unreadable_ids, "the node cannot read it")
    for entry_id, data in zip(frame.entry_ids, frame.entries, strict=True):
        try:
            decode_entry(data, ledger_id=ledger_id, entry_id=entry_id, checksum=crc32c)
        except CorruptEntry as error:
            copy.damaged[entry_id] = error.message
        else:
            copy.digests[entry_id] = hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
