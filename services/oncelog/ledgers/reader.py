"""Reads entries of one ledger from whichever of its members can give them.

    async for page in read_entries(links, metadata, first, last, headers_only=False):   # [(entry id, bytes)], ascending
    data = await read_entry(links, metadata, entry_id, headers_only=False)

Rules
- One member streams for as long as it gives what is asked; pages come as the node's frames do, no call an entry.
- A member that lacks an entry, cannot read it or gives other bytes has answered definitely for that entry, and another
  one is asked. Only when every member has done so the entry is unreadable (UnreadableEntry, loudly).
- A member that is away, silent, or replaced by another incarnation has not answered: it is asked again.
- Whole entries are verified here, whatever the node said. Of heads the node has verified the stored record, and here
  the ids are compared.
- The caller knows that the entries were acknowledged (up to the end of a CLOSED ledger, or its writer's
  last_add_confirmed): this module proves nothing by what it does not find.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

from crc32c import crc32c

from oncelog.core.errors import CorruptEntry, DeadlineExceeded, InvariantViolated, OncelogError, UnreadableEntry
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import decode_entry, peek_header
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import ReadStatus
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.rpc.storage_codec import ReadRequest, ReceivedRead
from oncelog.runtime.backoff import Backoff

#: One call reads so much at most; a caller that takes its time then costs a node a stream for a bounded time.
READ_ENTRIES_MAX = 4096
READ_BYTES_MAX = 64 * 1024 * 1024
READ_TIMEOUT_MS = 60_000
#: A member silent for so long is passed over; the bound doubles while all are silent, for they may just be slow.
SILENCE_MS_MIN = 1_000
SILENCE_MS_MAX = 8_000
#: Rounds in vain are told in the log this often, not each.
_TOLD_EVERY = 16

logger = logging.getLogger(__name__)

Page = list[tuple[EntryId, Buffer]]


class ReadsMembers(Protocol):
    """What of StorageLinks a reader needs."""

    def read(
        self, member: Incarnation, request: ReadRequest, *, timeout_ms: int
    ) -> AsyncGenerator[ReceivedRead, None]: ...


async def read_entries(
    links: ReadsMembers,
    metadata: LedgerMetadata,
    first: EntryId,
    last: EntryId,
    *,
    headers_only: bool = False,
    timeout_ms: int | None = None,
) -> AsyncIterator[Page]:
    """Entries first..last, both inclusive, in order, page by page; the bytes are slices of received frames.

    headers_only: entries of messages are cut behind their id deltas. timeout_ms: how long to wait for members that do
    not answer, counted from the last progress; None: for ever.
    Raises UnreadableEntry (details: ledger_id, entry_id), DeadlineExceeded.
    """
    reading = _EntryReading(links, metadata, first, last, headers_only)
    backoff = Backoff()
    loop = asyncio.get_running_loop()
    since = loop.time()
    rounds = 0
    while reading.following <= last:
        before = reading.following
        async with aclosing(reading.pages(reading.pick())) as pages:
            async for page in pages:
                yield page
                since = loop.time()
        if reading.following > before:
            backoff.reset()
        if reading.round_is_over():
            story = reading.story()
            reading.begin_round()
            if timeout_ms is not None and loop.time() - since > timeout_ms / 1000:
                raise DeadlineExceeded(f"no storage node answered in time: {story}")
            if rounds % _TOLD_EVERY == 0:
                logger.warning("an entry cannot be read yet, asking again: %s", story)
            rounds += 1
            await backoff.pause()


async def read_entry(
    links: ReadsMembers,
    metadata: LedgerMetadata,
    entry_id: EntryId,
    *,
    headers_only: bool = False,
    timeout_ms: int | None = None,
) -> Buffer:
    """One entry. Raises as `read_entries` does."""
    found: Page = []
    async for page in read_entries(
        links, metadata, entry_id, entry_id, headers_only=headers_only, timeout_ms=timeout_ms
    ):
        found += page
    return found[0][1]


@dataclass(slots=True)
class _EntryReading:
    """Where one read stands, and what each member said about the entry that it stands at."""

    links: ReadsMembers
    metadata: LedgerMetadata
    following: EntryId
    last: EntryId
    headers_only: bool
    silence_ms: int = SILENCE_MS_MIN
    #: {member: why it can never give the entry `following`}
    refusals: dict[Incarnation, str] = field(default_factory=dict)
    #: {member: why it gave no answer}, of this round
    silent: dict[Incarnation, str] = field(default_factory=dict)
    #: whom to ask first: the one that gave the last entries
    favourite: int = 0

    def __post_init__(self) -> None:
        self.favourite = self.metadata.ledger_id % len(self.metadata.members)

    @property
    def ledger_id(self) -> LedgerId:
        return self.metadata.ledger_id

    def pick(self) -> Incarnation:
        """The next member to ask. Raises UnreadableEntry when each has refused."""
        members = self.metadata.members
        if len(self.refusals) == len(members):
            error = UnreadableEntry(
                f"entry {self.story()}; every storage node of its ledger has answered",
                ledger_id=self.ledger_id,
                entry_id=self.following,
            )
            error.members = {str(member): said for member, said in self.refusals.items()}
            raise error
        for offset in range(len(members)):
            self.favourite = (self.favourite + bool(offset)) % len(members)
            member = members[self.favourite]
            if member not in self.refusals and member not in self.silent:
                return member
        raise InvariantViolated("a round of members was not ended")

    def round_is_over(self) -> bool:
        """Whether every member that has not refused was asked in vain."""
        return bool(self.silent) and len(self.silent | self.refusals) == len(self.metadata.members)

    def begin_round(self) -> None:
        """Ask those again that gave no answer, with more patience."""
        self.silent.clear()
        self.silence_ms = min(self.silence_ms * 2, SILENCE_MS_MAX)

    def story(self) -> str:
        said = [
            f"{member}: {self.refusals.get(member) or self.silent.get(member) or 'not asked'}"
            for member in self.metadata.members
        ]
        return f"{self.ledger_id}:{self.following} ({'; '.join(said)})"

    async def pages(self, member: Incarnation) -> AsyncGenerator[Page, None]:
        """What one member gives from `following` on, until it ends or has something to refuse."""
        count = min(self.last - self.following + 1, READ_ENTRIES_MAX)
        request = ReadRequest(
            member, self.ledger_id, self.following, count, READ_BYTES_MAX, headers_only=self.headers_only
        )
        before = self.following
        try:
            async with aclosing(self.links.read(member, request, timeout_ms=READ_TIMEOUT_MS)) as frames:
                while True:
                    async with asyncio.timeout(self.silence_ms / 1000):
                        frame = await anext(frames, None)
                    if frame is None or frame.status is not ReadStatus.OK:
                        break
                    page = self._take(member, frame)
                    if page:
                        yield page
                    if member in self.refusals:
                        return
        except TimeoutError:
            self.silent[member] = f"silent for {self.silence_ms} ms"
        except InvariantViolated:
            raise
        except OncelogError as error:
            self.silent[member] = error.message
        else:
            if self.following == before:
                # Perhaps another incarnation at its address, perhaps too busy: nothing about the entry.
                self.silent[member] = "gave no answer" if frame is None else frame.status.name

    def _take(self, member: Incarnation, frame: ReceivedRead) -> Page:
        """The entries of a frame from `following` on, up to the first that this member cannot give."""
        held = dict(zip(frame.entry_ids, frame.entries, strict=True))
        lacking = {*frame.missing_ids, *frame.unreadable_ids}
        page: Page = []
        while self.following <= self.last:
            entry_id = self.following
            data = held.get(entry_id)
            if data is None:
                if entry_id in lacking:
                    self.refusals[member] = "does not hold it" if entry_id in frame.missing_ids else "cannot read it"
                break
            try:
                self._verify(data, entry_id)
            except CorruptEntry as error:
                self.refusals[member] = error.message
                break
            page.append((entry_id, data))
            self.following = EntryId(entry_id + 1)
            if self.refusals or self.silent:
                self._progress()
        return page

    def _progress(self) -> None:
        self.refusals.clear()
        self.silent.clear()
        self.silence_ms = SILENCE_MS_MIN

    def _verify(self, data: Buffer, entry_id: EntryId) -> None:
        if not self.headers_only:
            decode_entry(data, ledger_id=self.ledger_id, entry_id=entry_id, checksum=crc32c)
            return
        header = peek_header(data)
        if (header.ledger_id, header.entry_id) != (self.ledger_id, entry_id):
            raise CorruptEntry(f"the bytes are entry {header.ledger_id}:{header.entry_id}")
