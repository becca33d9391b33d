"""Reads entries of an owner's offer from storage nodes. The owner remains the one that decides: whatever a storage node
does not give, damaged or missing or in time, the reader asks the owner for, and gets its answer or its error.

    nodes = NodeConnections(channels)                       # one per client
    offered = OfferedEntries(nodes, offer, room)
    async for page in offered.pages(): ...               # [(header, bytes)], consecutive and verified
    offered.end()                                        # why there are no more pages

A client that reaches no storage node at all, such as one outside of the cluster's network, loses `_CONNECT_S` for each
member, and then takes no offers for `UNREACHABLE_S`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from crc32c import crc32c

from oncelog.core.errors import ServiceUnavailable
from oncelog.core.ids import Incarnation
from oncelog.core.ledger.entry_reading import EntryReading
from oncelog.rpc.channel import Channel
from oncelog.rpc.channels import Channels
from oncelog.rpc.codecs.reader_codec import OfferEnd, StorageOffer
from oncelog.rpc.codecs.storage_codec import READ
from oncelog.rpc.entry_reader import EntryReader, Frames

#: A client that reached none of an offer's members asks owners only for this long.
UNREACHABLE_S = 60.0
#: How long one member may take to connect; and be silent.
_CONNECT_S = 0.5
_SILENCE_MS = 2_000
_CALL_TIMEOUT_MS = 30_000

logger = logging.getLogger(__name__)

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


class OfferedEntries(EntryReader):
    """One offer, read once. Each member is asked until it does not give the next entry."""

    def __init__(self, nodes: NodeConnections, offer: StorageOffer, room: Room) -> None:
        self._members = {member.incarnation: member for member in offer.members}
        reading = EntryReading(
            offer.ledger_id, tuple(self._members), offer.first, offer.last, checksum=crc32c, again=False
        )
        super().__init__(reading, silence_ms=_SILENCE_MS)
        self._nodes = nodes
        self._room = room
        self._expires_s = asyncio.get_running_loop().time() + offer.lifetime_ms / 2000
        #: whether a member was connected
        self._reached = False

    def end(self) -> OfferEnd:
        """Why there are no more pages."""
        if self.reading.finished:
            return OfferEnd.COMPLETE
        logger.info("not read from storage nodes: entry %s", self.reading.description())
        if self._is_expiring():
            return OfferEnd.EXPIRED
        if self._reached:
            return OfferEnd.NOT_GIVEN
        self._nodes.unreached()
        return OfferEnd.UNREACHABLE

    def _is_expiring(self) -> bool:
        return asyncio.get_running_loop().time() >= self._expires_s

    async def ask(self, member: Incarnation) -> Frames | None:
        """As many bytes as there is room for. None: the tickets are about to expire."""
        offered = self._members[member]
        channel = await self._nodes.channel(offered.address)
        self._reached = True
        bytes_max = await self._room()
        if self._is_expiring():
            return None
        request = self.request(member, bytes_max=bytes_max, ticket=offered.ticket)
        return channel.read(READ, request, timeout_ms=_CALL_TIMEOUT_MS)
