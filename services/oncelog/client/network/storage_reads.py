"""Reads entries of an owner's offer from storage nodes. The owner remains the one that decides: whatever a storage node
does not give, damaged or missing or in time, the reader asks the owner for, and gets its answer or its error.

    nodes = NodeConnections(channels)                       # one per client
    reading = OfferedEntries(nodes, offer)
    async for page in reading.pages(room): ...           # [(header, bytes)], consecutive and verified
    reading.following                                    # the first entry that no page had
    reading.end                                          # why there are no more pages

    ask a member, as many bytes as there is room for --entries--> the next call to the same member
        --it lacks, spoils or refuses the next entry, or is silent--> the next member
    no member is left, or the tickets are about to expire --> the end

A client that reaches no storage node at all, such as one outside of the cluster's network, loses `_CONNECT_S` for each
member, and then takes no offers for `UNREACHABLE_S`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from crc32c import crc32c

from oncelog.core.errors import CorruptEntry, InvariantViolated, OncelogError, ServiceUnavailable
from oncelog.core.formats.entry import EntryHeader, decode_entry
from oncelog.core.ids import EntryId
from oncelog.core.ledger.member_status import ReadStatus
from oncelog.rpc.channel import Channel
from oncelog.rpc.channels import Channels
from oncelog.rpc.reader_codec import OfferedMember, OfferEnd, StorageOffer
from oncelog.rpc.storage_codec import READ, ReadRequest, ReceivedRead

#: A client that reached none of an offer's members asks owners only for this long.
UNREACHABLE_S = 60.0
#: How long one member may take to connect; and for a frame.
_CONNECT_S = 0.5
_FRAME_S = 2.0
_CALL_TIMEOUT_MS = 30_000
#: Entries of one call.
_ENTRIES_MAX = 4096

logger = logging.getLogger(__name__)

Page = list[tuple[EntryHeader, memoryview]]
#: Waits for room in the reader's window, and returns it in bytes.
Room = Callable[[], Awaitable[int]]


class NodeConnections:
    """The client's connections to storage nodes, and whether it reaches any. For one event loop."""

    def __init__(self, channels: Channels, *, wanted: bool = True) -> None:
        """wanted: whether the application lets its readers read from storage nodes."""
        self._channels = channels
        self._wanted = wanted
        self._unreachable_until_s = 0.0
        #: offers of which no member was reached
        self.unreached_count = 0

    @property
    def usable(self) -> bool:
        return self._wanted and asyncio.get_running_loop().time() >= self._unreachable_until_s

    async def channel(self, address: str) -> Channel:
        """The open channel to a node. Raises ServiceUnavailable when it does not connect in time."""
        channel = self._channels.shared(address)
        try:
            async with asyncio.timeout(_CONNECT_S):
                await channel.connected()
        except TimeoutError as error:
            # Dropped, so that a client that cannot reach it does not go on trying.
            await self._channels.drop(channel)
            raise ServiceUnavailable(f"{address}: no connection within {_CONNECT_S:g} s", address=address) from error
        return channel

    def unreached(self) -> None:
        self.unreached_count += 1
        self._unreachable_until_s = asyncio.get_running_loop().time() + UNREACHABLE_S
        logger.info("no storage node is reached: all entries are read through topic owners")


class OfferedEntries:
    """One offer, read once."""

    def __init__(self, nodes: NodeConnections, offer: StorageOffer) -> None:
        self.following = offer.first
        self._nodes = nodes
        self._offer = offer
        self._expires_s = asyncio.get_running_loop().time() + offer.lifetime_ms / 2000
        #: whether a member was connected
        self._reached = False
        #: why `pages` has ended
        self.end = OfferEnd.UNKNOWN

    async def pages(self, room: Room) -> AsyncGenerator[Page, None]:
        """Ends early where the owner must be asked. Raises nothing."""
        for member in self._offer.members:
            try:
                async with aclosing(self._of_member(member, room)) as pages:
                    async for page in pages:
                        yield page
            except InvariantViolated:
                raise
            except OncelogError as error:
                logger.info("entry %d:%d: %s", self._offer.ledger_id, self.following, error.message)
            if self.following > self._offer.last:
                self.end = OfferEnd.COMPLETE
                return
            if self._is_expiring():
                self.end = OfferEnd.EXPIRED
                return
        self.end = OfferEnd.NOT_GIVEN
        if not self._reached:
            self.end = OfferEnd.UNREACHABLE
            self._nodes.unreached()

    def _is_expiring(self) -> bool:
        return asyncio.get_running_loop().time() >= self._expires_s

    async def _of_member(self, member: OfferedMember, room: Room) -> AsyncGenerator[Page, None]:
        """The pages of one member, until it does not give the next entry."""
        channel = await self._nodes.channel(member.address)
        self._reached = True
        last = self._offer.last
        while self.following <= last:
            bytes_max = await room()
            if self._is_expiring():
                return
            before = self.following
            count = min(_ENTRIES_MAX, last - before + 1)
            request = ReadRequest(
                member.incarnation, self._offer.ledger_id, before, count, bytes_max, ticket=member.ticket
            )
            async with aclosing(channel.read(READ, request, timeout_ms=_CALL_TIMEOUT_MS)) as frames:
                while (frame := await _next_frame(frames)) is not None:
                    page = self._take(frame)
                    if page:
                        yield page
            if self.following == before:
                raise ServiceUnavailable(f"storage node {member.incarnation} has no more entries")

    def _take(self, frame: ReceivedRead) -> Page:
        """The frame's entries from `following` on, up to the first gap. Raises CorruptEntry, ServiceUnavailable."""
        if frame.status is not ReadStatus.OK:
            raise ServiceUnavailable(f"the storage node answered {frame.status.name}")
        page: Page = []
        for entry_id, data in zip(frame.entry_ids, frame.entries, strict=True):
            if entry_id != self.following or entry_id > self._offer.last:
                break
            try:
                header = decode_entry(data, ledger_id=self._offer.ledger_id, entry_id=entry_id, checksum=crc32c)
            except CorruptEntry:
                if page:
                    break  # the next call begins with this entry
                raise
            page.append((header, data))
            self.following = EntryId(entry_id + 1)
        return page


async def _next_frame(frames: AsyncGenerator[ReceivedRead, None]) -> ReceivedRead | None:
    try:
        async with asyncio.timeout(_FRAME_S):
            return await anext(frames, None)
    except TimeoutError as error:
        raise ServiceUnavailable(f"the storage node is silent for {_FRAME_S:g} s") from error
