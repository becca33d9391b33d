"""This node in ZooKeeper: its live record, renewed in each session, and the cookie that its directory once joined.

Rules
- The live record says whom to ask, and nothing safe rests on it. How much is free is told when it has changed much, for
  each change wakes every owner.
- That an operator wants it read-only is said by its cookie, which outlives everything; the live record repeats it, so
  that every owner wakes. The node goes on taking what is added to its ledgers: it is the owners that roll away.
- A directory that joins for the first time, at an address that another one had, has replaced it: the disk was wiped.
  The other's cookie is retired, so that no new ledger waits for it (hazard 8). An address given by chance proves
  nothing.
"""

import logging
from dataclasses import replace

from oncelog.core.coordination.id_claim import ABSENT_VERSION
from oncelog.core.errors import StoreUnavailable
from oncelog.core.store_status import WriteStatus
from oncelog.stores.registry import LiveStorageNode, Registry, StorageCookie

logger = logging.getLogger(__name__)

#: Free space is told anew when it has changed by this part of what was told.
FREE_CHANGE = 1 / 8


class NodeRegistration:
    """One node's records."""

    def __init__(self, registry: Registry, node: LiveStorageNode, *, address_is_chosen: bool) -> None:
        """address_is_chosen: host and port were given, so that whoever had them before is gone."""
        self._registry = registry
        self._node = node
        self._address_is_chosen = address_is_chosen
        #: why it is read-only: no room, an operator's wish
        self._no_room = node.read_only
        self._ordered = False
        self._registration = registry.register_storage_node(node)

    async def join(self) -> None:
        """Return once the cookie and the live record are there. Raises StoreUnavailable."""
        while not await self._has_cookie():
            pass  # each turn asks the store, and waits for it
        await self._update(self._node.free_bytes)
        await self._registration.establish()

    async def keep(self) -> None:
        """Never return: the live record is made again in each new session."""
        await self._registration.keep()

    async def tell(self, *, free_bytes: int, read_only: bool) -> None:
        """Tell what has changed, if it is worth telling."""
        self._no_room = read_only
        changed = abs(free_bytes - self._node.free_bytes) > self._node.free_bytes * FREE_CHANGE
        await self._update(free_bytes if changed or self._told_otherwise else self._node.free_bytes)

    async def follow_order(self) -> None:
        """Never return: pass on whether an operator wants this node read-only, whenever that changes."""
        async for cookie in self._registry.watch_cookie(self._node.incarnation):
            if cookie.read_only != self._ordered:
                fields = {"incarnation": self._node.incarnation, "read_only": cookie.read_only}
                logger.warning("an operator has changed where new ledgers go", extra={"fields": fields})
            self._ordered = cookie.read_only
            await self._update(self._node.free_bytes)

    @property
    def _told_otherwise(self) -> bool:
        """Whether the live record says another thing about being read-only."""
        return self._node.read_only != (self._no_room or self._ordered)

    async def _update(self, free_bytes: int) -> None:
        node = replace(self._node, free_bytes=free_bytes, read_only=self._no_room or self._ordered)
        if node == self._node:
            return
        self._node = node
        try:
            await self._registration.update(node)
        except StoreUnavailable as error:
            logger.warning("the node's state is told later", extra={"fields": {"reason": error.message}})

    async def leave(self) -> None:
        """Take the live record away; without an answer it goes with the session."""
        await self._registration.leave()

    async def _has_cookie(self) -> bool:
        """One turn towards the cookie at this address."""
        node = self._node
        stored = await self._registry.read_cookie(node.incarnation)
        if stored is None:
            if self._address_is_chosen:
                await self._retire_former()
            cookie = StorageCookie(node.incarnation, node.host, node.port)
            await self._registry.write_cookie(cookie, version=ABSENT_VERSION)
            return False
        cookie = stored.value
        self._ordered = cookie.read_only
        if cookie.retired:
            logger.warning(
                "this directory was replaced or removed: it serves what it holds, and gets no new ledger",
                extra={"fields": {"incarnation": node.incarnation}},
            )
        if (cookie.host, cookie.port) == (node.host, node.port):
            return True
        moved = replace(cookie, host=node.host, port=node.port)
        await self._registry.write_cookie(moved, version=stored.version)
        return False

    async def _retire_former(self) -> None:
        """This process holds the address, so no other directory can be served there any more."""
        node = self._node
        cookies = await self._registry.cookies()
        for former in cookies.values():
            if former.retired or (former.host, former.port) != (node.host, node.port):
                continue
            stored = await self._registry.read_cookie(former.incarnation)
            if stored is None or stored.value != former:
                continue
            written = await self._registry.write_cookie(replace(former, retired=True), version=stored.version)
            if written.status is WriteStatus.OK:
                fields = {"former": former.incarnation, "incarnation": node.incarnation}
                logger.warning("this node replaces another one, whose directory is gone", extra={"fields": fields})
