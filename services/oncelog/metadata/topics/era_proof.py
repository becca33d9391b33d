"""A metadata service proves that its era has not ended before it gives an answer that ends a client: that a topic does
not exist, or that the caller has no right.

    await era.require()      # after the read that the answer rests on

The ZooKeeper that this replica reads may be the one that the cluster has lost, until the replica notices that
(`metadata_store.joining.history_watch`). There a topic is missing that was created since, or was deleted there alone
(hazard the-lost-ensemble-returns).
"""

import asyncio

from oncelog.core.address import join_address
from oncelog.core.errors import ServiceUnavailable
from oncelog.metadata_store.notes.note_holders import holders_needed
from oncelog.metadata_store.records.cluster_store import ClusterStore
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.session.shared_reads import SharedReads
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.storage_client.era_proof import require_era
from oncelog.storage_client.node_calls import NodeCalls


class EraProof:
    """Used inside one event loop. calls: their addresses are always those of the registered storage nodes."""

    def __init__(self, session: StoreSession, calls: NodeCalls) -> None:
        self._cluster = ClusterStore(session)
        self._registry = Registry(session)
        self._calls = calls
        #: callers without rights, and clients that poll, share the calls of one proof
        self._proofs = SharedReads(self._prove)

    async def require(self) -> None:
        """Return after a proof that began after this call. Raises ServiceUnavailable, StoreUnavailable."""
        await self._proofs.get(None)

    async def _prove(self, _: None) -> None:
        cluster, found, cookies = await asyncio.gather(
            self._cluster.read(), self._registry.storage_nodes.live(), self._registry.cookies()
        )
        if cluster is None:
            raise ServiceUnavailable("ZooKeeper has no record of this cluster: restore or rebuild it")
        counted = {one for one, cookie in cookies.items() if cookie.may_return}
        # An owner that has written did that on storage nodes: without one, the folders of the era are lost.
        needed = max(min(1, cluster.ack_quorum), holders_needed(cluster, counted))
        live = {node.incarnation: node for node in found.values()}
        self._calls.update_addresses({one: join_address(node.host, node.port) for one, node in live.items()})
        if needed:
            await require_era(self._calls, counted & live.keys(), ack_quorum=needed)
