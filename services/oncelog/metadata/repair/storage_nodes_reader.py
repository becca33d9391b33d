"""The storage nodes as the repairer and the reports see them: registrations, cookies, and what each node lacks."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from oncelog.core.address import join_address
from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.core.ids import Incarnation, LedgerId
from oncelog.core.ledger.storage_nodes import StorageNodes
from oncelog.metadata_store.records.registry import LiveStorageNode, Registry, StorageCookie, node_view
from oncelog.storage_client.node_calls import NodeCalls

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StorageSeen:
    """One look at the storage nodes. damaged: {node: ledgers of which it lacks entries}, of the nodes that answered."""

    live: Mapping[Incarnation, LiveStorageNode]
    cookies: Mapping[Incarnation, StorageCookie]
    damaged: Mapping[Incarnation, frozenset[LedgerId]] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> StorageNodes:
        """By incarnation. A node that did not say what it lacks is silent."""
        known = sorted(self.live.keys() | self.cookies.keys())
        return StorageNodes(
            node_view(one, self.live.get(one), self.cookies.get(one), silent=one not in self.damaged) for one in known
        )


class StorageNodesReader:
    """Reads the storage nodes. The addresses for the calls are those of the last look."""

    def __init__(self, registry: Registry, calls: NodeCalls) -> None:
        self._registry = registry
        self._calls = calls

    async def look(self) -> StorageSeen:
        """Registrations and cookies after a sync, and what each live node lacks. Raises StoreUnavailable."""
        records, cookies = await asyncio.gather(self._registry.storage_nodes.live(), self._registry.cookies())
        live = {node.incarnation: node for node in records.values()}
        self._calls.update_addresses({one: join_address(node.host, node.port) for one, node in live.items()})
        return StorageSeen(live, cookies, await self._damage(sorted(live)))

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
