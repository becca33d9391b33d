"""Where ZooKeeper says that storage nodes are, in the records of all eras."""

import asyncio

from oncelog.core.address import join_address
from oncelog.core.errors import NotFound
from oncelog.core.ids import Incarnation
from oncelog.core.rebuild.restore_events import Knowledge
from oncelog.metadata_store.records.registry import Registry
from oncelog.metadata_store.session import paths
from oncelog.metadata_store.session.store_session import StoreSession


async def nodes_in_trees(session: StoreSession) -> tuple[dict[str, Incarnation], Knowledge]:
    """({address: node}, which nodes count). session: at the root of the cluster. Raises StoreUnavailable."""
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
        knowledge = knowledge.with_further(Knowledge({node: each.may_return for node, each in cookies.items()}))
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
