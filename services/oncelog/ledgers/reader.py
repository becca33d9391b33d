"""Reads entries of one ledger from any of its members that has them.

    async for page in read_entries(links, metadata, first, last, headers_only=False):   # [(entry id, bytes)], ascending
    data = await read_entry(links, metadata, entry_id, headers_only=False)

Rules
- One member streams for as long as it has the entries. A page is one frame of the node; there is no call per entry.
- A member that lacks an entry, cannot read it or sends wrong bytes has refused that entry, and another member is asked.
  Only when every member has refused it, the entry is unreadable (UnreadableEntry).
- A member that is away, silent, or replaced by another incarnation has not refused: it is asked again.
- Whole entries are verified here, whatever the node verified. With headers_only the node verifies the stored record,
  and the ids are compared here.
- The caller knows that the entries were acknowledged (up to the end of a CLOSED ledger, or its writer's
  last_add_confirmed). An entry that is not found here proves nothing.
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

#: Limits of one call, so that a slow caller occupies a node's stream for a limited time.
READ_ENTRIES_MAX = 4096
READ_BYTES_MAX = 64 * 1024 * 1024
READ_TIMEOUT_MS = 60_000
#: A member that is silent for this long is passed over. The time doubles while all are silent: they may just be slow.
SILENCE_MS_MIN = 1_000
SILENCE_MS_MAX = 8_000
#: A failed round is logged once in this many, not each time.
_LOGGED_EVERY = 16

logger = logging.getLogger(__name__)

Page = list[tuple[EntryId, Buffer]]


class ReadsMembers(Protocol):
    """The part of StorageLinks that a reader needs."""

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
    """Entries first..last, both inclusive, in order, page by page. The bytes are slices of received frames.

    headers_only: entries of messages are cut after their id deltas. timeout_ms: how long to wait for members that do
    not answer, counted from the last progress; None: no limit.
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
            description = reading.description()
            reading.begin_round()
            if timeout_ms is not None and loop.time() - since > timeout_ms / 1000:
                raise DeadlineExceeded(f"no storage node answered in time: {description}")
            if rounds % _LOGGED_EVERY == 0:
                logger.warning("cannot read an entry yet; will retry: %s", description)
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
    """One entry. Raises the errors of `read_entries`."""
    found: Page = []
    async for page in read_entries(
        links, metadata, entry_id, entry_id, headers_only=headers_only, timeout_ms=timeout_ms
    ):
        found += page
    return found[0][1]


@dataclass(slots=True)
class _EntryReading:
    """The position of one read, and what each member answered about the entry at that position."""

    links: ReadsMembers
    metadata: LedgerMetadata
    following: EntryId
    last: EntryId
    headers_only: bool
    silence_ms: int = SILENCE_MS_MIN
    #: {member: why it has refused the entry `following`}
    refusals: dict[Incarnation, str] = field(default_factory=dict)
    #: {member: why it gave no answer}, in this round
    silent: dict[Incarnation, str] = field(default_factory=dict)
    #: index of the member to ask first: the one that sent the last entries
    preferred: int = 0

    def __post_init__(self) -> None:
        self.preferred = self.metadata.ledger_id % len(self.metadata.members)

    @property
    def ledger_id(self) -> LedgerId:
        return self.metadata.ledger_id

    def pick(self) -> Incarnation:
        """The next member to ask. Raises UnreadableEntry if each has refused."""
        members = self.metadata.members
        if len(self.refusals) == len(members):
            error = UnreadableEntry(
                f"entry {self.description()}: every storage node of its ledger has refused it",
                ledger_id=self.ledger_id,
                entry_id=self.following,
            )
            error.members = {str(member): answers for member, answers in self.refusals.items()}
            raise error
        for offset in range(len(members)):
            self.preferred = (self.preferred + bool(offset)) % len(members)
            member = members[self.preferred]
            if member not in self.refusals and member not in self.silent:
                return member
        raise InvariantViolated("every member was asked, but the round was not ended")

    def round_is_over(self) -> bool:
        """Whether every member that has not refused was asked without an answer."""
        return bool(self.silent) and len(self.silent | self.refusals) == len(self.metadata.members)

    def begin_round(self) -> None:
        """Ask the silent members again, and wait longer for them."""
        self.silent.clear()
        self.silence_ms = min(self.silence_ms * 2, SILENCE_MS_MAX)

    def description(self) -> str:
        answers = [
            f"{member}: {self.refusals.get(member) or self.silent.get(member) or 'not asked'}"
            for member in self.metadata.members
        ]
        return f"{self.ledger_id}:{self.following} ({'; '.join(answers)})"

    async def pages(self, member: Incarnation) -> AsyncGenerator[Page, None]:
        """The pages of one member from `following` on, until it ends or refuses an entry."""
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
                # Perhaps another incarnation at its address, perhaps too busy: this says nothing about the entry.
                self.silent[member] = "no answer" if frame is None else frame.status.name

    def _take(self, member: Incarnation, frame: ReceivedRead) -> Page:
        """The entries of a frame from `following` on, up to the first that this member refuses."""
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
