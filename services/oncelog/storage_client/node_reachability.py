"""Which live storage nodes this process cannot reach.

    reachability = NodeReachability(Channels(credentials))
    reachability.add_listener(notify)              # called after each change of reachability.unreachable
    reachability.lost(member, address)             # its stream broke: unreachable until a connection succeeds
    reachability.update_addresses(addresses)       # the registered nodes; others are not reconnected to

A registration proves little, because the record outlives its process by the session timeout. A connection that broke
and cannot be opened again shows a failure at once.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from oncelog.core.ids import Incarnation
from oncelog.rpc.channels import Channels
from oncelog.runtime.tasks import start

logger = logging.getLogger(__name__)


class NodeReachability:
    """Created and used inside one event loop."""

    def __init__(self, channels: Channels) -> None:
        """channels: an opened connection stays there, for the next request."""
        self._channels = channels
        #: {unreachable member: (its registered address, the task that reconnects)}
        self._reconnecting: dict[Incarnation, tuple[str, asyncio.Task[None]]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def unreachable(self) -> frozenset[Incarnation]:
        return frozenset(self._reconnecting)

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the event loop after each change of `unreachable`."""
        self._listeners.append(listener)

    def lost(self, member: Incarnation, address: str) -> None:
        """The stream to a live member broke. address: its registered "host:port"."""
        if member not in self._reconnecting:
            logger.warning("storage node %s at %s is unreachable", member, address)
            task = start(self._reconnect(member, address), what="reconnecting to a storage node")
            self._reconnecting[member] = (address, task)
            self._notify()

    def update_addresses(self, addresses: Mapping[Incarnation, str]) -> None:
        """Take the addresses of the live members. Stop reconnecting to any other address."""
        for member, (address, task) in list(self._reconnecting.items()):
            if addresses.get(member) != address:
                task.cancel()
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
                self._reached(member)

    async def close(self) -> None:
        """Stop reconnecting."""
        self.update_addresses({})
        if self._closing:
            await asyncio.wait(self._closing)

    async def _reconnect(self, member: Incarnation, address: str) -> None:
        async with self._channels.channel(address) as channel:
            await channel.connected()
        logger.info("storage node %s at %s is reachable again", member, address)
        self._reached(member)

    def _reached(self, member: Incarnation) -> None:
        del self._reconnecting[member]
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
