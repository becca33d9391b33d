"""Which live storage nodes this process cannot reach.

    reachability = NodeReachability(Channels(credentials))
    reachability.add_listener(tell)         # whenever reach.unreachable changes
    reachability.lost(member, address)      # its stream broke: unreachable until a connection stands again
    reachability.update_addresses(addresses)             # who is not registered there any more is another question

That a node is registered proves little: its record outlives the process by a session. A connection that broke and
cannot be had again says it at once.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from oncelog.core.ids import Incarnation
from oncelog.rpc.channels import Channels
from oncelog.runtime.tasks import start

logger = logging.getLogger(__name__)


class NodeReachability:
    """Made and used inside one event loop."""

    def __init__(self, channels: Channels) -> None:
        """channels: a connection that was found is left there, for whoever sends next."""
        self._channels = channels
        #: {unreachable member: (where it is registered, who tries to connect there)}
        self._sought: dict[Incarnation, tuple[str, asyncio.Task[None]]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def unreachable(self) -> frozenset[Incarnation]:
        return frozenset(self._sought)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Have `listener` called on the loop after each change of `unreachable`."""
        self._listeners.append(listener)

    def lost(self, member: Incarnation, address: str) -> None:
        """The stream to a live member broke. address: "host:port", where it is registered."""
        if member not in self._sought:
            logger.warning("storage node %s at %s cannot be reached", member, address)
            seeking = start(self._seek(member, address), what="the search for a storage node")
            self._sought[member] = (address, seeking)
            self._tell()

    def update_addresses(self, addresses: Mapping[Incarnation, str]) -> None:
        """Who is live, and where: nobody is sought anywhere else."""
        for member, (address, seeking) in list(self._sought.items()):
            if addresses.get(member) != address:
                seeking.cancel()
                self._closing.add(seeking)
                seeking.add_done_callback(self._closing.discard)
                self._found(member)

    async def close(self) -> None:
        """Seek nobody any more."""
        self.update_addresses({})
        if self._closing:
            await asyncio.wait(self._closing)

    async def _seek(self, member: Incarnation, address: str) -> None:
        async with self._channels.channel(address) as channel:
            await channel.connected()
        logger.info("storage node %s at %s is reached again", member, address)
        self._found(member)

    def _found(self, member: Incarnation) -> None:
        del self._sought[member]
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()
