"""The registration of this node in ZooKeeper: an ephemeral live record, and the lasting cookie of its directory.

Rules
- The live record is a hint where to connect; safety does not depend on it. Free space is updated only after a large
  change, because every change wakes every owner.
- An operator's request to make the node read-only is in the cookie, which outlives every process. The live record
  repeats it, so that it wakes every owner. The node still accepts adds to its open ledgers: the owners roll to other
  nodes.
- A directory that registers for the first time under the address of another directory has replaced it: the disk was
  replaced. The other cookie is retired, so that no new ledger waits for it (hazard members-lost-in-turn). This does not
  hold for addresses that are assigned at random.
- It replaces the other directory only after that was unregistered for a while: perhaps its volume is only not mounted
  (hazard unmounted-volume). Until then it is registered as joining, has no cookie, and gets no data.
- It is joining, too, until other nodes hold a note of its new cookie, and it has notes of all records (`note_copying`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from oncelog.core.errors import StorageDirectoryRefused, StoreUnavailable
from oncelog.core.ids import Incarnation
from oncelog.core.node.starts import is_newer
from oncelog.core.records.records import ABSENT_VERSION
from oncelog.core.records.status import WriteStatus
from oncelog.log_storage.serve.node_runner import NodeRunner
from oncelog.metadata_store.records.ledger_store import LedgerLookup
from oncelog.metadata_store.records.registry import Decommission, LiveStorageNode, Registry, StorageCookie
from oncelog.runtime.observing.events import EventKind, EventRing

logger = logging.getLogger(__name__)

#: Free space is updated when it has changed by this fraction of the registered value.
FREE_CHANGE = 1 / 8
#: How often a joining node looks whether its predecessor is registered.
LOOK_INTERVAL_S = 0.5


class NodeRegistration:
    """The records of one node."""

    def __init__(
        self,
        registry: Registry,
        node: LiveStorageNode,
        *,
        address_is_chosen: bool,
        own_filesystem: bool = False,
        replace_delay_ms: int = 0,
        refuse_older: Callable[[], Awaitable[None]] | None = None,
        events: EventRing | None = None,
        get_noted: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """address_is_chosen: host and port were configured, so the process that had them before is gone.
        own_filesystem: that of the directory; see `volume_mount`. replace_delay_ms: see hazard unmounted-volume.
        refuse_older: raises if ZooKeeper is older than the data of this node (hazard ledger-id-given-twice); awaited in
        each session. get_noted: for a node that was never a member: returns when other nodes hold a note of its cookie,
        and it has all notes; None: it was a member.
        """
        self._events = events or EventRing("log_storage", node.incarnation)
        self._registry = registry
        self._node = node
        self._address_is_chosen = address_is_chosen
        self._own_filesystem = own_filesystem
        self._replace_delay_ms = replace_delay_ms
        #: whether it waits before it replaces another directory
        self.joining = False
        #: why it is read-only: a full disk, or an operator's request
        self._disk_full = node.read_only
        self._requested = False
        self._get_noted = get_noted
        #: why it joins; None: it does not, or waits for its predecessor
        self._waits_for: str | None = None
        self._registration = registry.register_storage_node(node)
        self._registration.before = refuse_older

    async def join(self) -> None:
        """Return once the live record exists, and the cookie unless the node is joining. Raises StoreUnavailable."""
        waits = self._replace_delay_ms > 0 and bool(await self._formers())
        self.joining = waits or self._get_noted is not None
        if not self.joining:
            await self._become_member()
        await self._update(self._node.free_bytes)
        await self._registration.establish()
        if self.joining and not waits:
            try:
                await self._end_joining()
            except StoreUnavailable as error:
                self._waits_for = error.message  # `replace_former` goes on

    async def replace_former(self, now_ms: Callable[[], int]) -> None:
        """Return once the node is not joining any more. now_ms: a monotonic clock."""
        absent_since_ms: int | None = None
        while self.joining:
            try:
                formers = await self._formers()
                live = await self._registry.storage_nodes.live()
                if any(former.incarnation in live for former in formers):
                    absent_since_ms = None
                elif absent_since_ms is None:
                    absent_since_ms = now_ms()
                absent = absent_since_ms is not None and now_ms() - absent_since_ms >= self._replace_delay_ms
                if absent or not formers or not self._replace_delay_ms:
                    await self._end_joining()
                    return
            except StoreUnavailable as error:
                self._waits_for = error.message
                logger.info("this node cannot become a member yet; will retry: %s", error.message)
            await asyncio.sleep(LOOK_INTERVAL_S)

    def reason(self) -> str | None:
        """Why the node is not ready; for /readyz."""
        if not self.joining:
            return None
        if self._waits_for is not None:
            return f"joining: {self._waits_for}"
        if self._get_noted is not None and not self._replace_delay_ms:
            return "joining: it copies the notes of all records"
        return f"waits until the node that had this address was unregistered for {self._replace_delay_ms} ms"

    async def keep(self) -> None:
        """Never return: create the live record again in each new session."""
        await self._registration.keep()

    async def update_space(self, *, free_bytes: int, read_only: bool) -> None:
        """Update the live record if the change is large enough."""
        self._disk_full = read_only
        changed = abs(free_bytes - self._node.free_bytes) > self._node.free_bytes * FREE_CHANGE
        await self._update(free_bytes if changed or self._outdated else self._node.free_bytes)

    async def follow_read_only_requests(self) -> None:
        """Never return: apply an operator's read-only request whenever the cookie changes."""
        async for cookie in self._registry.watch_cookie(self._node.incarnation):
            if cookie.read_only != self._requested:
                self._events.note(
                    EventKind.NODE, logger, "an operator changed the read-only request of this node", level="warning",
                    read_only=cookie.read_only,
                )  # fmt: skip
            self._requested = cookie.read_only
            await self._update(self._node.free_bytes)

    @property
    def _outdated(self) -> bool:
        """Whether the live record has an outdated read_only."""
        return self._node.read_only != (self._disk_full or self._requested)

    async def _update(self, free_bytes: int) -> None:
        read_only = self._disk_full or self._requested
        node = replace(self._node, free_bytes=free_bytes, read_only=read_only, joining=self.joining)
        if node == self._node:
            return
        self._node = node
        try:
            await self._registration.update(node)
        except StoreUnavailable as error:
            reason = {"reason": error.message}
            logger.warning("could not update this node's registration; will retry", extra={"fields": reason})

    async def leave(self) -> None:
        """Delete the live record. If ZooKeeper does not answer, it ends with the session."""
        await self._registration.leave()

    async def _become_member(self) -> None:
        while not await self._has_cookie():
            pass  # each attempt waits for the store

    async def _end_joining(self) -> None:
        await self._become_member()
        if self._get_noted is not None:
            await self._get_noted()
        self.joining = False
        await self._update(self._node.free_bytes)

    async def _formers(self) -> list[StorageCookie]:
        """The directories that this one would replace: none once it has a cookie."""
        node = self._node
        if not self._address_is_chosen or await self._registry.read_cookie(node.incarnation) is not None:
            return []
        cookies = (await self._registry.cookies()).values()
        return [each for each in cookies if not each.retired and (each.host, each.port) == (node.host, node.port)]

    async def _has_cookie(self) -> bool:
        """One attempt to find or write the cookie of this address."""
        node = self._node
        stored = await self._registry.read_cookie(node.incarnation)
        if stored is None:
            if self._address_is_chosen:
                await self._retire_former()
            cookie = StorageCookie(node.incarnation, node.host, node.port, own_filesystem=self._own_filesystem)
            await self._registry.write_cookie(cookie, version=ABSENT_VERSION)
            return False
        cookie = stored.value
        self._requested = cookie.read_only
        if cookie.retired:
            logger.warning(
                "this directory was replaced or removed: the node serves its ledgers, but gets no new ones",
                extra={"fields": {"incarnation": node.incarnation}},
            )
        moved = replace(cookie, host=node.host, port=node.port, own_filesystem=self._own_filesystem)
        if moved == cookie:
            return True
        await self._registry.write_cookie(moved, version=stored.version)
        return False

    async def _retire_former(self) -> None:
        """Retire other cookies of this address: this process has the address, so no other directory can be served
        there."""
        node = self._node
        for former in await self._formers():
            stored = await self._registry.read_cookie(former.incarnation)
            if stored is None or stored.value != former:
                continue
            replaced = replace(former, retired=True, replaced_by=node.incarnation, debt=None)
            written = await self._registry.write_cookie(replaced, version=stored.version)
            if written.status is WriteStatus.OK:
                self._events.note(
                    EventKind.NODE, logger, "this node replaces another node, whose directory is gone",
                    level="warning", node=former.incarnation, incarnation=node.incarnation,
                )  # fmt: skip


async def refuse_decommissioned(path: Path, incarnation: Incarnation, registry: Registry) -> None:
    """The content of a decommissioned directory was moved to other nodes, and may be deleted since (hazard
    removed-cookie).

    Raises StorageDirectoryRefused, StoreUnavailable.
    """
    stored = await registry.read_cookie(incarnation)
    if stored is not None and stored.value.decommission is Decommission.DONE:
        raise StorageDirectoryRefused(
            f"{path}: this storage node was decommissioned: its ledgers are on other nodes, and it must not serve them "
            "again; to add a storage node, start it with another directory, which is empty",
            incarnation=incarnation,
        )


async def refuse_older_zookeeper(path: Path, runner: NodeRunner, lookup: LedgerLookup) -> None:
    """A ledger that this node holds or has fenced has an id, so the counter of ledger ids was above it (hazard
    ledger-id-given-twice). The newest one with entries was listed before they were written: ids that an older ZooKeeper
    has given again since do not hide that it lacks the ledger (hazard ids-hide-an-older-zookeeper).

    lookup: of the era that the node would join. Raises StorageDirectoryRefused, StoreUnavailable, CorruptEntry of the
    counter.
    """
    held, following = runner.newest_ledger(), await lookup.ledger_counter()
    if is_newer(held, following):
        reason = f"it would give ledger id {following} next, and this directory has ledger {held} already"
    else:
        held = runner.newest_stored()
        origin = None if held is None or held < lookup.era.first_id else runner.core.ledgers.peek(held).origin
        if held is None or origin is None or await lookup.knows(held, origin):
            return
        reason = f"it does not know ledger {held} of topic {origin.topic_id}, of which this directory has entries"
    raise StorageDirectoryRefused(
        f"{path}: ZooKeeper is older than the data: {reason}. It was restored from an older backup, or is another one: "
        "a topic would get the ledgers of another one, or lack some of its own. Stop the topic owners, keep all "
        "directories as they are, and restore a ZooKeeper that is not older than they are, or its records by `oncelog "
        "admin backup restore`",
        ledger_id=held,
    )
