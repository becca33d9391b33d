"""Reads entries of one ledger from any of its members that has them.

    async for page in read_entries(links, metadata, first, last, record=record):   # [(entry id, bytes)], ascending
    data = await read_entry(links, metadata, entry_id, record=record)

    ask a member --entries--> the next page, from the same member
                 --it lacks, cannot read or spoils the next entry--> it has refused that entry: ask another member
                 --silent, away, replaced, ERASED--> it has not refused: ask another member, and it again later
    every member has refused, or was asked in vain --> read the record again, after a sync
        --other members--> ask them
        --the entry is listed as lost, or an operator has given up the members that may have it--> EntriesLost
        --every member has refused--> UnreadableEntry
        --a member is still waited for--> another round; after `timeout_ms` without progress LedgerUnavailable

Rules
- One member streams for as long as it has the entries. A page is one frame of the node; there is no call per entry.
- A refusal is believed only if the record, read after it, still names the same members: repair replaces members of a
  CLOSED ledger, and a former member has erased its copy (hazard 61). ERASED is never a refusal.
- When a member is slower than usual, a second one is asked for the same entries, and the first answer counts.
  `read_watch` limits these second reads. How long a silent member is waited for follows its own recent answers.
- Whole entries are verified here, whatever the node verified. With headers_only the node verifies the stored record,
  and the ids are compared here.
- The caller knows that the entries were acknowledged (up to the end of a CLOSED ledger, or its writer's
  last_add_confirmed). An entry that is not found here proves nothing.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

from crc32c import crc32c

from oncelog.core.errors import (
    CorruptEntry,
    EntriesLost,
    InvariantViolated,
    LedgerUnavailable,
    LogHole,
    OncelogError,
    UnreadableEntry,
)
from oncelog.core.formats.batch import Buffer
from oncelog.core.formats.entry import decode_entry, peek_header, require_topic
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.member_status import ReadStatus
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.rpc.storage_codec import ReadRequest, ReceivedRead
from oncelog.runtime.backoff import Backoff
from oncelog.storage_client.member_call import MemberCall
from oncelog.storage_client.read_watch import SILENCE_MS_MAX, SILENCE_MS_MIN, ReadWatch

#: Limits of one call, so that a slow caller occupies a node's stream for a limited time.
READ_ENTRIES_MAX = 4096
READ_BYTES_MAX = 64 * 1024 * 1024
READ_TIMEOUT_MS = 60_000
#: Entries that no member gives for this long are unavailable. Below a ZooKeeper session plus 5 s, and long enough for
#: the restart of a process.
UNAVAILABLE_AFTER_MS = 8_000
#: A failed round is logged once in this many, not each time.
_LOGGED_EVERY = 16

logger = logging.getLogger(__name__)

Page = list[tuple[EntryId, Buffer]]
#: Reads a ledger's record after a sync; None: there is none. Raises OncelogError while that is unknown.
ReadRecord = Callable[[LedgerId], Awaitable[LedgerMetadata | None]]


class ReadsMembers(Protocol):
    """The part of NodeCalls that a reader needs."""

    @property
    def watch(self) -> ReadWatch: ...

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
    timeout_ms: int = UNAVAILABLE_AFTER_MS,
    record: ReadRecord | None = None,
    call_bytes_max: int = READ_BYTES_MAX,
) -> AsyncIterator[Page]:
    """Entries first..last, both inclusive, in order, page by page. The bytes are slices of received frames.

    headers_only: entries of messages are cut after their id deltas. timeout_ms: how long to wait for members that do
    not answer, counted from the last progress. record: None: `metadata` is the newest record that the caller can get.
    call_bytes_max: limit of one call to a member. A caller that stops before `last` states how much it takes, because
    members read ahead. Raises UnreadableEntry (details: ledger_id, entry_id), LedgerUnavailable, EntriesLost, and
    LogHole if the record is gone.
    """
    reading = _EntryReading(links, metadata, first, last, headers_only, timeout_ms / 1000, record, call_bytes_max)
    backoff = Backoff()
    rounds = 0
    while reading.following <= last:
        before = reading.following
        if reading.askable():
            async with aclosing(reading.pages()) as pages:
                async for page in pages:
                    yield page
                    reading.progressed()
        if reading.following > before:
            backoff.reset()
        if reading.following <= last and not reading.askable() and not await reading.look_again():
            reading.require_available()
            if rounds % _LOGGED_EVERY == 0:
                logger.warning("cannot read an entry yet; will retry: %s", reading.description())
            reading.begin_round()
            rounds += 1
            await backoff.pause()


async def read_entry(
    links: ReadsMembers,
    metadata: LedgerMetadata,
    entry_id: EntryId,
    *,
    headers_only: bool = False,
    timeout_ms: int = UNAVAILABLE_AFTER_MS,
    record: ReadRecord | None = None,
) -> Buffer:
    """One entry. Raises the errors of `read_entries`."""
    found: Page = []
    pages = read_entries(
        links, metadata, entry_id, entry_id, headers_only=headers_only, timeout_ms=timeout_ms, record=record
    )
    async for page in pages:
        found += page
    return found[0][1]


def missing_entries(error: LedgerUnavailable) -> tuple[EntryId, EntryId, tuple[str, ...]]:
    """(first, last, the storage nodes that are waited for) of an error of `read_entries`."""
    details = error.details
    first, last = int(details.get("first") or 0), int(details.get("last") or 0)
    return EntryId(first), EntryId(last), tuple(str(details.get("waiting_for") or "").split(","))


@dataclass(slots=True)
class _EntryReading:
    """The position of one read, and what each member answered about the entry at that position."""

    links: ReadsMembers
    metadata: LedgerMetadata
    following: EntryId
    last: EntryId
    headers_only: bool
    timeout_s: float
    record: ReadRecord | None
    call_bytes_max: int
    #: members that are silent for so long are passed over; doubled while all are: they may just be slow
    silence_ms: int = SILENCE_MS_MIN
    #: {member: why it has refused the entry `following`}
    refusals: dict[Incarnation, str] = field(default_factory=dict)
    #: {member: why it gave no answer}, in this round
    silent: dict[Incarnation, str] = field(default_factory=dict)
    #: the member to ask first: the one that sent the last entries
    preferred: Incarnation = Incarnation("")
    #: when the entries count as unavailable, by the loop's clock
    deadline_s: float = 0.0

    def __post_init__(self) -> None:
        members = self.metadata.members
        self.preferred = members[self.ledger_id % len(members)]
        self.progressed()

    @property
    def ledger_id(self) -> LedgerId:
        return self.metadata.ledger_id

    def progressed(self) -> None:
        """The caller took a page, or just began: members have the whole time again."""
        self.deadline_s = asyncio.get_running_loop().time() + self.timeout_s

    # --- whom to ask --------------------------------------------------------------------------------------------------

    def askable(self, *, but: Incarnation | None = None) -> list[Incarnation]:
        """The members that neither refused the entry nor were asked in vain in this round, the preferred one first."""
        members = self.metadata.members
        at = members.index(self.preferred) if self.preferred in members else 0
        return [
            member
            for member in (*members[at:], *members[:at])
            if member != but and member not in self.refusals and member not in self.silent
        ]

    def begin_round(self) -> None:
        """Ask the silent members again, and wait longer for them."""
        self.silent.clear()
        self.silence_ms = min(self.silence_ms * 2, SILENCE_MS_MAX)

    async def look_again(self) -> bool:
        """No member gives the entry: read the record again. Returns whether it names other members by now.

        Raises EntriesLost, UnreadableEntry, LogHole.
        """
        before, known = self.metadata, self.record is None
        if self.record is not None:
            try:
                found = await self.record(self.ledger_id)
            except InvariantViolated:
                raise
            except OncelogError as error:
                logger.warning("cannot read the record of ledger %d again: %s", self.ledger_id, error.message)
            else:
                if found is None:
                    raise LogHole(f"ledger {self.ledger_id} has no record any more", ledger_id=self.ledger_id)
                known, self.metadata = True, found
        members = self.metadata.members
        if members != before.members:
            self.refusals = {member: why for member, why in self.refusals.items() if member in members}
            self.silent = {member: why for member, why in self.silent.items() if member in members}
            return True
        if known:
            self._require_hope()
        return False

    def _require_hope(self) -> None:
        """Raise the error of an entry that no member will give."""
        for first, last in self.metadata.lost:
            if first <= self.following <= last:
                raise EntriesLost(
                    f"entries {self.ledger_id}:{self.following} to {self.ledger_id}:{last} are lost: no storage node "
                    "that ever held a copy has one now",
                    ledger_id=self.ledger_id,
                    first=self.following,
                    last=min(last, self.last),
                )
        if set(self.metadata.members) - self.refusals.keys() <= set(self.metadata.gone):
            self._given_up()
        if len(self.refusals) == len(self.metadata.members):
            error = UnreadableEntry(
                f"entry {self.description()}: every storage node of its ledger has refused it",
                ledger_id=self.ledger_id,
                entry_id=self.following,
            )
            error.members = {str(member): answers for member, answers in self.refusals.items()}
            raise error

    def _given_up(self) -> None:
        """Only members that an operator has given up may have the entry. Raises EntriesLost, unless they all answer."""
        if not self.metadata.survivors:
            last = self.last
        elif len(self.refusals) < len(self.metadata.members):
            last = self.following
        else:
            return
        raise EntriesLost(
            f"entries {self.ledger_id}:{self.following} to {self.ledger_id}:{last} are lost: the storage nodes that "
            f"may have a copy were given up by {self.metadata.given_up_by}",
            ledger_id=self.ledger_id,
            first=self.following,
            last=last,
        )

    def require_available(self) -> None:
        """Raises LedgerUnavailable after too long a time without progress."""
        if asyncio.get_running_loop().time() < self.deadline_s:
            return
        waiting_for = [member for member in self.metadata.members if member not in self.refusals]
        error = LedgerUnavailable(
            f"entries {self.ledger_id}:{self.following} to {self.ledger_id}:{self.last} are unavailable: no storage "
            f"node gives {self.description()}; start these storage nodes, or wait for them",
            ledger_id=self.ledger_id,
            first=self.following,
            last=self.last,
            waiting_for=",".join(waiting_for or self.metadata.members),
        )
        raise error

    def description(self) -> str:
        answers = [
            f"{member}: {self.refusals.get(member) or self.silent.get(member) or 'not asked'}"
            for member in self.metadata.members
        ]
        return f"{self.ledger_id}:{self.following} ({'; '.join(answers)})"

    # --- reading ------------------------------------------------------------------------------------------------------

    async def pages(self) -> AsyncGenerator[Page, None]:
        """The pages of one member from `following` on, until it ends, refuses an entry or is silent for too long."""
        calls = [self._call(self.askable()[0])]
        try:
            while calls:
                call = await self._next_arrival(calls)
                if call is None:
                    continue
                page = self._page_of(call)
                if page:
                    self.links.watch.answered(call.member, call.waited_s)
                    self.preferred = call.member
                    for other in [one for one in calls if one is not call]:
                        await self._end(other, calls)
                    yield page
                if call.over or call.member in self.refusals or call.member in self.silent:
                    await self._end(call, calls)
                else:
                    call.expect()
        finally:
            while calls:
                await self._end(calls[0], calls)

    async def _next_arrival(self, calls: list[MemberCall]) -> MemberCall | None:
        """A call whose next frame arrived, or that ended. None: none did, so a call was added or given up."""
        clock = asyncio.get_running_loop().time
        seconds = {call.member: self._patience_s(call.member) for call in calls}
        silent_at = min(call.expected_s + seconds[call.member] for call in calls)
        others = self.askable(but=calls[0].member) if len(calls) == 1 else []
        hedge_at = calls[0].expected_s + self.links.watch.hedge_after_s if others else silent_at
        wait_s = max(0.0, min(silent_at, hedge_at) - clock())
        done, _ = await asyncio.wait(
            [call.arrival for call in calls], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
        )
        if done:
            return next(call for call in calls if call.arrival in done)
        if others and clock() < silent_at:
            if self.links.watch.may_hedge():
                calls.append(self._call(others[0]))
                return None
            await asyncio.wait([calls[0].arrival], timeout=max(0.0, silent_at - clock()))
            return calls[0] if calls[0].arrival.done() else None
        for call in [one for one in calls if one.expected_s + seconds[one.member] <= clock()]:
            self.silent[call.member] = f"silent for {round(seconds[call.member] * 1000)} ms"
            await self._end(call, calls)
        return None

    def _patience_s(self, member: Incarnation) -> float:
        """How long a frame of this member is waited for."""
        longest_s = max(self.silence_ms, self.links.watch.silence_ms(member)) / 1000
        return max(min(longest_s, self.deadline_s - asyncio.get_running_loop().time()), SILENCE_MS_MIN / 1000)

    def _call(self, member: Incarnation) -> MemberCall:
        count = min(self.last - self.following + 1, READ_ENTRIES_MAX)
        request = ReadRequest(
            member, self.ledger_id, self.following, count, self.call_bytes_max, headers_only=self.headers_only
        )
        return MemberCall(member, self.following, lambda: self.links.read(member, request, timeout_ms=READ_TIMEOUT_MS))

    async def _end(self, call: MemberCall, calls: list[MemberCall]) -> None:
        calls.remove(call)
        await call.close()

    def _page_of(self, call: MemberCall) -> Page:
        """The entries of the arrived frame. A call without any says why in `refusals` or `silent`."""
        member = call.member
        try:
            frame = call.take()
        except InvariantViolated:
            raise
        except OncelogError as error:
            self.silent[member] = error.message
            return []
        if frame is not None and frame.status is ReadStatus.OK:
            return self._take(member, frame)
        if frame is not None and frame.status is ReadStatus.ERASED:
            self.silent[member] = "has erased its copy"
        elif self.following == call.first or frame is not None:
            # Perhaps another incarnation at its address, perhaps too busy: this says nothing about the entry.
            self.silent[member] = "no answer" if frame is None else frame.status.name
        return []

    def _take(self, member: Incarnation, frame: ReceivedRead) -> Page:
        """The entries of a frame from `following` on, up to the first that this member refuses."""
        held = dict(zip(frame.entry_ids, frame.entries, strict=True))
        missing, unreadable = set(frame.missing_ids), set(frame.unreadable_ids)
        page: Page = []
        while self.following <= self.last:
            entry_id = self.following
            data = held.get(entry_id)
            if data is None:
                if entry_id in missing and self.metadata.whole:
                    self._damaged(member, "does not hold it, and had read it back before")  # hazard 83
                elif entry_id in missing:
                    self.refusals[member] = "does not hold it"
                elif entry_id in unreadable:
                    self._damaged(member, "cannot read it")
                break
            try:
                self._verify(data, entry_id)
            except CorruptEntry as error:
                self._damaged(member, error.message)
                break
            page.append((entry_id, data))
            self.following = EntryId(entry_id + 1)
            if self.refusals or self.silent:
                self.refusals.clear()
                self.silent.clear()
                self.silence_ms = SILENCE_MS_MIN
        return page

    def _damaged(self, member: Incarnation, why: str) -> None:
        self.refusals[member] = why
        self.links.watch.damaged(member, self.ledger_id)

    def _verify(self, data: Buffer, entry_id: EntryId) -> None:
        if not self.headers_only:
            topic_id = self.metadata.topic_id
            decode_entry(data, ledger_id=self.ledger_id, entry_id=entry_id, checksum=crc32c, topic_id=topic_id)
            return
        header = peek_header(data)
        require_topic(header, self.metadata.topic_id)
        if (header.ledger_id, header.entry_id) != (self.ledger_id, entry_id):
            raise CorruptEntry(f"the bytes are entry {header.ledger_id}:{header.entry_id}")
