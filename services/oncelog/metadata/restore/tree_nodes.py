"""What the tree in ZooKeeper shows to a restore: the cluster that it has, and where storage nodes are, in all eras."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from oncelog.core.address import join_address
from oncelog.core.era import Era
from oncelog.core.errors import NotFound
from oncelog.core.ids import Incarnation
from oncelog.core.rebuild.restore_events import ClusterSeen, Knowledge
from oncelog.metadata.owners.owners import probe
from oncelog.metadata_store.records.cluster_store import ClusterRecord, ClusterState
from oncelog.metadata_store.records.registry import LiveOwner, Registry
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession, Versioned
from oncelog.rpc.reachability import Reachability

LiveT = TypeVar("LiveT")


async def look_at_cluster(
    session: StoreSession, found: Versioned[ClusterRecord]
) -> tuple[ClusterSeen, tuple[str, ...]]:
    """(What takes part in this cluster, addresses of registered owners that answer). session: at the root of the
    cluster. found: its record. Raises StoreUnavailable."""
    record = found.value
    seen = ClusterSeen(record.cluster_id, record.era, False, found.version, record.ack_quorum)
    if record.state is ClusterState.RESTORING:
        return seen._replace(restoring=True), ()
    session = session.below(paths.era_root(record.era.number))
    folders = [await session.read(each) for each in (paths.OWNERS, paths.STORAGE, paths.STORAGE_COOKIES)]
    registry = Registry(session)
    owners, nodes = await _live(registry.owners.live()), await _live(registry.storage_nodes.live())
    seen = seen._replace(
        registered=tuple(map(Incarnation, sorted(nodes))),
        is_damaged=None in folders,
    )
    return seen, await _answering(list(owners.values()))


async def _answering(owners: list[LiveOwner]) -> tuple[str, ...]:
    """Addresses at which a process listens."""
    addresses = [join_address(one.host, one.ports["grpc"]) for one in owners]
    reached = await asyncio.gather(*map(probe, addresses))
    return tuple(owner for owner, each in zip(addresses, reached, strict=True) if each is Reachability.ACCEPTED)


async def _live(asked: Awaitable[dict[str, LiveT]]) -> dict[str, LiveT]:
    """None if their folder is gone: a part of ZooKeeper's data may be lost."""
    try:
        return await asked
    except NotFound:
        return {}


async def nodes_in_trees(session: StoreSession, serving: Era | None) -> tuple[dict[str, Incarnation], Knowledge]:
    """({address: node}, which nodes count). session: at the root of the cluster. serving: the era that the cluster's
    record says to serve. Raises StoreUnavailable.

    The records of another era above the first may be those of an attempt that was not committed: nodes that it has
    retired count, as if they were not (hazard copy-of-an-attempt).
    """
    try:
        names = await session.children("")
    except NotFound:
        return {}, Knowledge()  # an empty ZooKeeper
    eras = [1, *(number for name in names if (number := era_of(name)))]
    addresses: dict[str, Incarnation] = {}
    knowledge = Knowledge()
    for number in sorted(eras, reverse=True):
        registry = Registry(session.below(paths.era_root(number)))
        try:
            addresses |= await registered_nodes(registry)
            cookies = await registry.cookies()
        except NotFound:
            continue  # its records were never all written, or are removed
        sure = number == 1 or (serving is not None and number == serving.number)
        replaced = frozenset(node for node, each in cookies.items() if sure and each.is_replaced)
        counts = {node: each.may_return or node in replaced or not sure for node, each in cookies.items()}
        knowledge = knowledge.with_further(Knowledge(counts, replaced=replaced))
    return addresses, knowledge


async def registered_nodes(registry: Registry) -> dict[str, Incarnation]:
    """{address: node}, in one era."""
    live, cookies = await asyncio.gather(registry.storage_nodes.live(), registry.cookies())
    may_return = [one for one in cookies.values() if one.may_return and one.host]
    found = {join_address(one.host, one.port): one.incarnation for one in may_return}
    return found | {join_address(one.host, one.port): one.incarnation for one in live.values()}


def era_of(name: str) -> int:
    """Of a root of an era above the first, by its name; 0: it is none."""
    number = name.removeprefix("era-")
    return int(number) if number != name and number.isdecimal() else 0
