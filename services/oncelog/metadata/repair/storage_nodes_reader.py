"""The storage nodes as the repairer and the reports see them: registrations, cookies, and what each node lacks."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from oncelog.core.address import join_address
from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.process_version import PROCESS_VERSION
from oncelog.core.repair.events import RepairNodes
from oncelog.metadata_store.records.registry import Decommission, LiveStorageNode, Registry, StorageCookie
from oncelog.storage_client.node_calls import NodeCalls

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StorageSeen:
    """One look at the storage nodes. damaged: {node: ledgers of which it lacks entries}, of the nodes that answered.

    lowest_version: of all registered processes (hazard older-owner-drops-fields).
    """

    live: Mapping[Incarnation, LiveStorageNode]
    cookies: Mapping[Incarnation, StorageCookie]
    damaged: Mapping[Incarnation, frozenset[LedgerId]] = field(default_factory=dict)
    lowest_version: int = PROCESS_VERSION

    @property
    def registered(self) -> tuple[Incarnation, ...]:
        return tuple(sorted(self.live))

    @property
    def retired(self) -> tuple[Incarnation, ...]:
        return tuple(sorted(one for one, cookie in self.cookies.items() if cookie.retired))

    @property
    def leaving(self) -> tuple[Incarnation, ...]:
        """Nodes that are being decommissioned, or were."""
        return tuple(sorted(i for i, cookie in self.cookies.items() if cookie.decommission is not Decommission.NO))

    @property
    def nodes(self) -> RepairNodes:
        return RepairNodes(self.registered, self.retired, self.leaving)

    @property
    def targets(self) -> tuple[Incarnation, ...]:
        """The nodes that may get copies: not retired, leaving, read-only, or still waiting to join (hazard
        unmounted-volume)."""
        excluded = {*self.retired, *self.leaving}
        return tuple(
            sorted(
                one for one, node in self.live.items()
                if one not in excluded and not node.joining and not node.read_only
            )
        )  # fmt: skip


class StorageNodesReader:
    """Reads the storage nodes. The addresses for the calls are those of the last look."""

    def __init__(self, registry: Registry, calls: NodeCalls) -> None:
        self._registry = registry
        self._calls = calls

    async def look(self, *, damage: bool = True) -> StorageSeen:
        """Registrations and cookies after a sync. damage: also ask each live node. Raises StoreUnavailable."""
        records, cookies, version = await asyncio.gather(
            self._registry.storage_nodes.live(), self._registry.cookies(), self._registry.lowest_version()
        )
        live = {node.incarnation: node for node in records.values()}
        self._calls.update_addresses({one: join_address(node.host, node.port) for one, node in live.items()})
        damaged = await self._damage(sorted(live)) if damage else {}
        return StorageSeen(live, cookies, damaged, version)

    async def _damage(self, nodes: list[Incarnation]) -> dict[Incarnation, frozenset[LedgerId]]:
        async def of(node: Incarnation) -> tuple[Incarnation, frozenset[LedgerId] | None]:
            try:
                return node, frozenset(await self._calls.damage(node))
            except InvariantViolated:
                raise
            except OncelogError as error:
                logger.debug("storage node %s did not say which ledgers it lacks: %s", node, error.message)
                return node, None

        answers = await asyncio.gather(*map(of, nodes))
        return {node: ledgers for node, ledgers in answers if ledgers is not None}
