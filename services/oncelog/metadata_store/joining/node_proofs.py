"""Asks storage nodes whether ZooKeeper is older than their data (hazard older-zookeeper-is-served). The rules of the
proof are in `core.placement.store_history`.

    proofs = NodeProofs(credentials)
    reason = await proofs.fault(session, cluster, ask_all)
    # a start waits while there is a reason, a running process ends

Rules
- Storage nodes are found where ZooKeeper names them, and by a metadata service also where its settings do: a node may
  have moved since, or ZooKeeper may never have known it. Whoever answers there speaks for itself.
- All of them are asked by a start, and after each reconnection: then ZooKeeper may be another one. They are asked once
  and at the same time. Those that do not answer delay a start by one call's timeout, and do not stop it.
- A node that is registered meanwhile has compared ZooKeeper with its data. So at other times only those are asked that
  ZooKeeper names and that are not registered, and all is compared again if one says something new.
- What was said before is said again before it counts: a record that was deleted and rebuilt begins with a low version.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from oncelog.core.address import join_address
from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.core.ids import Incarnation
from oncelog.core.placement.first_cluster import RESTORE, Answers, DirectorySeen, other_cluster
from oncelog.core.placement.store_history import NodeSaid, NodesHistory
from oncelog.metadata_store.records.cluster_store import ClusterRecord
from oncelog.metadata_store.records.registry import Registry, StorageCookie
from oncelog.metadata_store.session.store_session import StoreSession
from oncelog.rpc.channels import Channels
from oncelog.rpc.codecs.storage_codec import DESCRIBE
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.storage_client.node_calls import CALL_TIMEOUT_MS
from oncelog.wire import storage_pb2 as pb

logger = logging.getLogger(__name__)

#: How long a proof counts without another question, for a start that waits.
PROVED_S = 5.0


async def _nobody() -> Answers:
    return {}


class NodeProofs:
    """Of one process; used inside one event loop."""

    def __init__(self, peers: Credentials = PLAIN, named: Callable[[], Awaitable[Answers]] = _nobody) -> None:
        """named: what the storage nodes that settings name say of their directories."""
        self._channels = Channels(peers)
        self._named = named
        self._history = NodesHistory()
        #: when nodes were asked last that proved it, or were silent
        self._proved_s = float("-inf")
        #: something new was said, and was not compared to the end: ZooKeeper may not have answered
        self._uncompared = False

    async def fault(self, session: StoreSession, cluster: ClusterRecord, ask_all: bool) -> str | None:
        """Why ZooKeeper is older than the data, and what to do; None: no storage node that answers proves it.

        session: below the root of the era. ask_all: also those that are registered. Raises StoreUnavailable.
        """
        registry = Registry(session)
        all_compared = not (ask_all or self._uncompared or self._proved_s > float("-inf"))
        if all_compared and not await self._is_news(registry, cluster.cluster_id):
            return None
        self._uncompared = True
        cookies = await registry.cookies()
        nodes = _addresses(cookies)
        fault = await self._compare(registry, cluster, nodes, cookies)
        now_s = asyncio.get_running_loop().time()
        if fault is None or now_s - self._proved_s >= PROVED_S:
            named, _ = await self._hear(set(nodes.values()), cluster.cluster_id)
            if not cookies and (other := other_cluster(named, cluster.cluster_id)) is not None:
                return other
            fault = await self._compare(registry, cluster, nodes, cookies)
            self._proved_s = float("-inf") if fault is None else now_s
        self._uncompared = False
        if fault is None:
            return None
        return (
            f"{fault}. It was restored from an older backup, or is another one: deleted topics and revoked rights "
            f"would be back; {RESTORE}"
        )

    async def _is_news(self, registry: Registry, cluster_id: str) -> bool:
        """Whether a node that is not registered says something new, or ZooKeeper names no node."""
        absent = await registry.absent()
        if absent is None:
            return True
        nodes = _addresses(absent)
        return bool(nodes) and (await self._hear(set(nodes.values()), cluster_id))[1]

    async def _compare(
        self,
        registry: Registry,
        cluster: ClusterRecord,
        nodes: Collection[Incarnation],
        named: Collection[Incarnation],
    ) -> str | None:
        era = cluster.era.number
        compared = self._history.to_compare(era)
        versions = zip(compared, await asyncio.gather(*map(registry.end_version, compared)), strict=True)
        return self._history.fault(era, {node: each for node, each in versions if each is not None}, nodes, named)

    async def _hear(self, addresses: set[str], cluster_id: str) -> tuple[Answers, bool]:
        """Ask there, and where settings name nodes. (What these said of their directories, whether a node says
        something new.)"""
        named, news = await asyncio.gather(self._named(), self._ask(addresses, cluster_id))
        seen = [each for each in named.values() if isinstance(each, DirectorySeen) and each.address]
        further = {each.address for each in seen} - addresses
        news = await self._ask(further, cluster_id) or news
        self._channels.retain(addresses | further)
        return named, news

    async def _ask(self, addresses: Collection[str], cluster_id: str) -> bool:
        """Hear what storage nodes of this cluster say there. Whether one says something new."""

        async def ask(address: str) -> bool:
            try:
                channel = self._channels.shared(address)
                said = await channel.call(DESCRIBE, pb.DescribeRequest(), timeout_ms=CALL_TIMEOUT_MS)
            except InvariantViolated:
                raise
            except OncelogError as error:
                logger.debug("storage node %s does not say what it has seen: %s", address, error.message)
                return False
            if said.cluster_id != cluster_id:
                return False
            noted = NodeSaid(address, said.era, said.written_era, said.written_version)
            return self._history.hear(Incarnation(said.incarnation), noted)

        return any(await asyncio.gather(*map(ask, addresses)))

    async def close(self) -> None:
        await self._channels.close()


def _addresses(cookies: Mapping[Incarnation, StorageCookie]) -> dict[Incarnation, str]:
    """Of those that may return."""
    return {node: join_address(one.host, one.port) for node, one in cookies.items() if one.may_return and one.host}
