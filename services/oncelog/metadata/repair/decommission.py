"""Decommission of storage nodes, the debt of retired ones, and when they are emptied: what the repairer writes into
cookies.

    ""  --begin-->  draining  --no ledger needs the node-->  done
    ""  <--cancel--

Rules
- A draining node is read-only: new ledgers do not use it, and open ones roll off it. Its copies are moved like those of
  a retired node, but it is a source meanwhile.
- The cookie stays for ever. `done` includes `retired`: the directory is refused at its next start (hazard
  removed-cookie).
- A drained node stays until enough others hold the notes of all records (hazard holders-fade): once it is removed, a
  restore does not ask it.
- What a removal waits for is reported as it is decided, ledgers with their topics, because an operator waits for it.
- That a retired node is emptied is noted like an operator's change. If the note is lost with ZooKeeper, a restore
  counts the node as missing (hazard replaced-disk-is-missing).
- Refused if fewer nodes than the write quorum would remain: no ledger could be opened then (hazard too-few-nodes).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from oncelog.core.errors import Conflict, CorruptEntry, NotFound
from oncelog.core.ids import Incarnation
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.storage_nodes import StorageNodes
from oncelog.core.records.status import WriteStatus
from oncelog.core.repair.node_removal import NAMED_MAX, decommission_refusal, drain_reason, keeps_draining
from oncelog.metadata.repair.cluster_watch import ClusterWatch
from oncelog.metadata.repair.storage_nodes_reader import StorageSeen
from oncelog.metadata_store.records.registry import Decommission, Registry, StorageCookie
from oncelog.metadata_store.session.store_session import Versioned
from oncelog.runtime.observing.events import EventKind, EventRing

logger = logging.getLogger(__name__)


class Decommissions:
    """Changes of cookies. Each is one compare-and-set on the version that was read; a conflict is read again.

    unnoted: for what the repairer writes by itself, which waits for no notes. unheld: why the others do not hold the
    notes of all records without this node, None if they do.
    """

    def __init__(
        self,
        registry: Registry,
        unnoted: Registry,
        events: EventRing,
        unheld: Callable[[Incarnation, StorageSeen], Awaitable[str | None]],
    ) -> None:
        self._events = events
        self._unheld = unheld
        self._registry = registry
        self._unnoted = unnoted

    async def begin(self, node: Incarnation, nodes: StorageNodes, *, write_quorum: int) -> None:
        """Begin to drain the node. Raises NotFound, Conflict."""

        def drained(cookie: StorageCookie) -> StorageCookie:
            if cookie.decommission is not Decommission.NO:
                return cookie
            if cookie.retired:
                raise Conflict(f"storage node {node} is retired: its copies are replaced already", incarnation=node)
            refusal = decommission_refusal(node, nodes, write_quorum=write_quorum)
            if refusal is not None:
                raise Conflict(
                    f"storage node {node} cannot be decommissioned: {refusal}", incarnation=node, limit=write_quorum
                )
            return replace(cookie, decommission=Decommission.DRAINING, read_only=True)

        await self._change(self._registry, node, drained)

    async def cancel(self, node: Incarnation) -> None:
        """Keep the node, and make it writable again. Raises NotFound, Conflict if it was removed already."""

        def kept(cookie: StorageCookie) -> StorageCookie:
            if cookie.decommission is Decommission.DONE:
                raise Conflict(
                    f"storage node {node} was removed: start a new node with another directory", incarnation=node
                )
            if cookie.decommission is Decommission.NO:
                return cookie
            return replace(cookie, decommission=Decommission.NO, read_only=False)

        await self._change(self._registry, node, kept)

    async def finish_drained(self, watch: ClusterWatch) -> None:
        """Remove the draining nodes that no ledger needs, as of the watch's last look. Raises StoreUnavailable."""
        seen = watch.seen
        draining = {i for i, cookie in seen.cookies.items() if cookie.decommission is Decommission.DRAINING}
        for node in sorted(draining):
            if self._keeping(node, watch):
                continue
            if (why := await self._unheld(node, seen)) is not None:
                logger.info(
                    "a drained storage node is not removed yet", extra={"fields": {"node": node, "reason": why}}
                )
                continue

            def removed(cookie: StorageCookie) -> StorageCookie:
                if cookie.decommission is not Decommission.DRAINING:
                    return cookie
                return replace(cookie, decommission=Decommission.DONE, retired=True, debt=0)

            # Noted, or a restore counts the node as missing, and a drill says that its cookie would be another one.
            if not await self._changed(self._registry, node, removed):
                continue
            self._events.note(
                EventKind.NODE,
                logger,
                "a storage node is decommissioned: no ledger needs it",
                level="warning",
                node=node,
            )

    async def waits_for(self, node: Incarnation, watch: ClusterWatch) -> list[str]:
        """What the removal of a draining node waits for, as of the watch's last look: ledgers with their topics, at
        most NAMED_MAX, then how many others there are; without one, the notes. Raises StoreUnavailable."""
        keeping = self._keeping(node, watch)
        found = [
            f"ledger {record.ledger_id} of {watch.name_of(record.topic_id) or 'topic ' + record.topic_id}: "
            + drain_reason(record, watch.queue.assessment(record.ledger_id))
            for record in keeping[:NAMED_MAX]
        ]
        if len(keeping) > len(found):
            found.append(f"{len(keeping) - len(found)} further ledgers name it, too")
        unheld = None if keeping else await self._unheld(node, watch.seen)
        return found if unheld is None else [unheld]

    @staticmethod
    def _keeping(node: Incarnation, watch: ClusterWatch) -> list[LedgerMetadata]:
        """The ledgers that keep a draining node, by id."""
        return [
            record
            for record in watch.records()
            if keeps_draining(record, node, listed=watch.queue.assessment(record.ledger_id) is not None)
        ]

    async def write_debts(self, seen: StorageSeen, debts: Mapping[Incarnation, int]) -> None:
        """Write the debt of each node that has changed. debts: of the retired and draining ones; others have None.

        A directory whose successor is not registered has None, too: a count without the successor as a target says less
        than it owes, and the successor would become ready by it (hazard update-waits-for-copies). Raises
        StoreUnavailable.
        """
        for node, cookie in sorted(seen.cookies.items()):
            successor = None if cookie.replaced_by is None else seen.live.get(cookie.replaced_by)
            counted = cookie.replaced_by is None or (successor is not None and not successor.joining)
            debt = debts.get(node) if counted else None
            if cookie.debt != debt:
                await self._changed(self._unnoted, node, lambda cookie, debt=debt: replace(cookie, debt=debt))  # type: ignore[misc]

    async def write_emptied(self, seen: StorageSeen, is_emptied: Callable[[Incarnation], Awaitable[bool]]) -> None:
        """Write which retired nodes no ledger needs any more. is_emptied: by all records, as of a look behind the
        node's retirement. Raises StoreUnavailable."""
        for node, cookie in sorted(seen.cookies.items()):
            if not cookie.is_replaced or not await is_emptied(node):
                continue
            if await self._changed(self._registry, node, lambda cookie: replace(cookie, emptied=True)):
                text = "a retired storage node is emptied: other nodes hold all that it had"
                self._events.note(EventKind.NODE, logger, text, node=node)

    async def _changed(
        self, registry: Registry, node: Incarnation, change: Callable[[StorageCookie], StorageCookie]
    ) -> bool:
        """False: the cookie cannot be read. Its node counts as retired; the decoder has logged it, and the others go
        on. Raises StoreUnavailable."""
        try:
            await self._change(registry, node, change)
        except CorruptEntry:
            return False
        return True

    async def _change(
        self, registry: Registry, node: Incarnation, change: Callable[[StorageCookie], StorageCookie]
    ) -> None:
        """What changes nothing is written for an operator: it may be written already, and not noted."""
        while True:
            stored: Versioned[StorageCookie] | None = await registry.read_cookie(node)
            if stored is None:
                raise NotFound(f"storage node {node} does not exist: list the storage nodes", incarnation=node)
            changed = change(stored.value)
            if changed == stored.value and registry is self._unnoted:
                return
            written = await registry.write_cookie(changed, version=stored.version)
            if written.status is WriteStatus.OK:
                return
