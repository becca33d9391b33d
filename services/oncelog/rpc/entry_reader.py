"""Reads consecutive entries of one ledger from its members. A subclass is the policy.

    async for page in reader.pages(): ...     # [(header, bytes)], ascending and without a gap
    reader.reading                            # how far it came, and why no member gives the next entry

The policy says how a member is asked (`ask`), how long it may be silent (`patience_s`), and what follows when no member
is left to ask (`exhausted`). There are four policies: wait for the members (`storage_client.reader`), every member once
and then the owner (`client.network.storage_reads`), one member only (the source of a repair), and each copy for itself
(the audit).

A page is one frame of the node; there is no call per entry.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator

from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.core.ids import EntryId, Incarnation
from oncelog.core.ledger.entry_reading import EntryReading, Page, ReceivedRead
from oncelog.rpc.codecs.storage_codec import ReadRequest
from oncelog.rpc.read_watch import ReadWatch

#: Limits of one call, so that a slow caller occupies a node's stream for a limited time.
READ_ENTRIES_MAX = 4096
READ_BYTES_MAX = 64 * 1024 * 1024
READ_TIMEOUT_MS = 60_000

Frames = AsyncGenerator[ReceivedRead, None]


class EntryReader(ABC):
    """One read. The defaults are those of a policy that asks each member in turn, and then gives up."""

    def __init__(self, reading: EntryReading, *, silence_ms: int, watch: ReadWatch | None = None) -> None:
        """silence_ms: a member that is silent for so long is passed over. watch: decides when a second member is asked
        beside a slow one, and learns of damaged copies; None: there are no second reads."""
        self.reading = reading
        self.silence_ms = silence_ms
        self.watch = watch

    def request(self, member: Incarnation, *, bytes_max: int, ticket: bytes = b"") -> ReadRequest:
        """For the entries from `reading.following` on. bytes_max: of the answer."""
        reading = self.reading
        count = min(reading.last - reading.following + 1, READ_ENTRIES_MAX)
        headers_only = reading.headers_only
        return ReadRequest(
            member, reading.ledger_id, reading.following, count, bytes_max, headers_only=headers_only, ticket=ticket
        )

    # --- the policy ---------------------------------------------------------------------------------------------------

    @abstractmethod
    async def ask(self, member: Incarnation) -> Frames | None:
        """Ask a member for the entries from `reading.following` on. None: the read is over.

        Raises OncelogError for a member that cannot be asked.
        """

    def patience_s(self, _member: Incarnation) -> float:
        """How long a frame of this member is waited for."""
        return self.silence_ms / 1000

    async def exhausted(self) -> bool:
        """No member is left to ask. Returns whether to go on: the policy has changed `reading`."""
        return False

    # --- the loop -----------------------------------------------------------------------------------------------------

    async def pages(self) -> AsyncGenerator[Page, None]:
        """Ends with the last entry, or where the policy ends the read. Raises the errors of the policy."""
        reading = self.reading
        while not reading.finished:
            members = reading.askable()
            if not members:
                if not await self.exhausted():
                    return
                continue
            calls: list[_MemberCall] = []
            if not await self._call(members[0], calls):
                return
            try:
                while calls:
                    call = await self._next_arrival(calls)
                    if call is None:
                        continue
                    page = self._page_of(call)
                    if page:
                        if self.watch is not None:
                            self.watch.answered(call.member, call.waited_s)
                        for other in [one for one in calls if one is not call]:
                            await _end(other, calls)
                        yield page
                    if call.over or reading.has_failed(call.member):
                        await _end(call, calls)
                    else:
                        call.expect()
            finally:
                while calls:
                    await _end(calls[0], calls)

    async def _call(self, member: Incarnation, calls: list["_MemberCall"]) -> bool:
        """Ask a member. Returns False if the read is over."""
        first = self.reading.following
        try:
            frames = await self.ask(member)
        except InvariantViolated:
            raise
        except OncelogError as error:
            self.reading.failed(member, error.message)
            return True
        if frames is not None:
            calls.append(_MemberCall(member, first, frames))
        return frames is not None

    async def _next_arrival(self, calls: list["_MemberCall"]) -> "_MemberCall | None":
        """A call whose next frame arrived, or that ended. None: none did, so a call was added or given up."""
        clock = asyncio.get_running_loop().time
        patience_s = {call.member: self.patience_s(call.member) for call in calls}
        silent_at = min(call.expected_s + patience_s[call.member] for call in calls)
        watch = self.watch if len(calls) == 1 else None
        others = [] if watch is None else [one for one in self.reading.askable() if one != calls[0].member]
        hedge_at = calls[0].expected_s + watch.hedge_after_s if watch is not None and others else silent_at
        wait_s = max(0.0, min(silent_at, hedge_at) - clock())
        done, _ = await asyncio.wait(
            [call.arrival for call in calls], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
        )
        if done:
            return next(call for call in calls if call.arrival in done)
        if watch is not None and others and clock() < silent_at:
            if watch.may_hedge():
                await self._call(others[0], calls)
                return None
            await asyncio.wait([calls[0].arrival], timeout=max(0.0, silent_at - clock()))
            return calls[0] if calls[0].arrival.done() else None
        for call in [one for one in calls if one.expected_s + patience_s[one.member] <= clock()]:
            self.reading.failed(call.member, f"silent for {round(patience_s[call.member] * 1000)} ms")
            await _end(call, calls)
        return None

    def _page_of(self, call: "_MemberCall") -> Page:
        """The entries of the arrived frame. A call without any says why in `reading`."""
        reading, member = self.reading, call.member
        try:
            frame = call.take()
        except InvariantViolated:
            raise
        except OncelogError as error:
            reading.failed(member, error.message)
            return []
        if frame is None:
            reading.ended(member, call.first)
            return []
        page = reading.answered(member, frame)
        refusal = reading.refusals.get(member)
        if refusal is not None and refusal.damage and self.watch is not None:
            self.watch.damaged(member, reading.ledger_id)
        return page


class _MemberCall:
    """One call to one member, with its next frame as a future, so that two members can be waited for at once.

    first: the first entry that was requested.
    """

    def __init__(self, member: Incarnation, first: EntryId, frames: Frames) -> None:
        self.member = member
        self.first = first
        #: whether the stream has ended
        self.over = False
        #: when the next frame was requested, by the loop's clock; how long the last one took
        self.expected_s = 0.0
        self.waited_s = 0.0
        self.frames = frames
        self.arrival: asyncio.Task[ReceivedRead | None]
        self.expect()

    def expect(self) -> None:
        """Request the next frame."""
        loop = asyncio.get_running_loop()
        self.expected_s = loop.time()
        self.arrival = loop.create_task(self._next())

    async def _next(self) -> ReceivedRead | None:
        return await anext(self.frames, None)

    def take(self) -> ReceivedRead | None:
        """The frame that arrived; None: the stream has ended. Raises the error of the stream."""
        self.waited_s = asyncio.get_running_loop().time() - self.expected_s
        self.over = True
        frame = self.arrival.result()
        self.over = frame is None
        return frame


async def _end(call: _MemberCall, calls: list[_MemberCall]) -> None:
    """End the call's stream."""
    calls.remove(call)
    call.arrival.cancel()
    await asyncio.wait([call.arrival])
    if not call.arrival.cancelled():
        call.arrival.exception()  # it is of no interest any more
    await call.frames.aclose()
