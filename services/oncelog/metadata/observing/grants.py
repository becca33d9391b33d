"""What all namespaces grant to roles, some seconds old: to show a caller what it may do, never to decide about that.

A decision reads the grants of its namespace again (`PolicyStore.require`).
"""

import asyncio
from collections.abc import Mapping

from oncelog.core.access import Permissions
from oncelog.core.errors import NotFound
from oncelog.core.names import NamespaceName
from oncelog.metadata.owners.owners import Start
from oncelog.metadata_store.records.namespace_store import NamespaceStore
from oncelog.metadata_store.records.policy_store import PolicyStore
from oncelog.runtime.observing.last_view import LastView, Seen

#: How long the grants are shown without another read, which reads the record of every namespace.
FRESH_MS = 10_000
#: Reads of ZooKeeper at the same time.
_AT_ONCE = 64


class Grants:
    """Used by the REST interface."""

    def __init__(self, namespaces: NamespaceStore, policies: PolicyStore, start: Start) -> None:
        self._namespaces = namespaces
        self._policies = policies
        self._view = LastView(self._read, start, fresh_ms=FRESH_MS)

    async def seen(self) -> Seen[Mapping[str, Permissions]]:
        """{tenant/namespace: what it grants}, by name."""
        return await self._view.get()

    async def _read(self) -> Mapping[str, Permissions]:
        room, found = asyncio.Semaphore(_AT_ONCE), dict[str, Permissions]()

        async def read(name: NamespaceName) -> None:
            async with room:
                try:
                    found[str(name)] = (await self._policies.read(name)).value.permissions
                except NotFound:
                    return  # deleted since it was listed

        for tenant in await self._namespaces.tenants():
            try:
                names = await self._namespaces.namespaces(tenant)
            except NotFound:
                continue
            await asyncio.gather(*map(read, names))
        return dict(sorted(found.items()))
