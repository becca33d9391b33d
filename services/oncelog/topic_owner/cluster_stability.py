"""The stability wait: a draining owner keeps its topics until no other process of the cluster is restarting.

An upgrade restarts everything at once. Moving a topic needs ZooKeeper and the storage nodes many times. If one of them
restarts meanwhile, the topic's producers wait for seconds; while the topic stays where it is, they do not wait at all.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from oncelog.core.address import split_address
from oncelog.core.ids import Incarnation
from oncelog.core.ledger.member_selection import StorageNodesUpdated

#: Longer than an upgrade waits between two restarts of one component (a storage node's preStop hook and two probes).
STABLE_S = 8.0
#: A storage node that is absent for longer is not restarting. The owner does not wait for it.
RESTART_S = 60.0
_CHECK_INTERVAL_S = 0.25
_CONNECT_TIMEOUT_S = 1.0


class ClusterStability:
    """For how long this owner's ZooKeeper session and all known storage nodes have been present."""

    def __init__(self, *, restart_s: float = RESTART_S) -> None:
        #: whether no storage node can be reached at all
        self.isolated = True
        #: {absent storage node: since when}
        self._absent: dict[str, float] = {}
        self._restart_s = restart_s
        self._store_reachable = False
        #: when the session or a storage node came back last
        self._back_at = time.monotonic()

    def update(self, nodes: StorageNodesUpdated, unreachable: Collection[Incarnation] = ()) -> None:
        """unreachable: registered nodes, read-only ones included, that refuse connections."""
        now = time.monotonic()
        if not (self._store_reachable and nodes.store_reachable) or self._absent.keys() - set(nodes.absent):
            self._back_at = now
        self._store_reachable = nodes.store_reachable
        self._absent = {node: self._absent.get(node, now) for node in nodes.absent}
        self.isolated = not nodes.live and not set(nodes.read_only).difference(unreachable)

    @property
    def stable_for_s(self) -> float:
        """For how long ZooKeeper has answered and no known storage node was absent; 0 if that is not so now."""
        if not self._store_reachable:
            return 0.0
        given_up_at = (since + self._restart_s for since in self._absent.values())
        return max(0.0, time.monotonic() - max(self._back_at, *given_up_at, 0.0))


class Stability(Protocol):
    """What `until_stable` reads of `ClusterStability`."""

    @property
    def stable_for_s(self) -> float: ...
    @property
    def isolated(self) -> bool: ...


async def accepts_connections(server: str) -> bool:
    """Whether the server at "host:port" accepts a connection."""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(*split_address(server.strip()))
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def until_stable(
    stability: Stability,
    zookeeper_hosts: str,
    *,
    timeout_ms: int,
    stable_s: float = STABLE_S,
    check_interval_s: float = _CHECK_INTERVAL_S,
    accepts: Callable[[str], Awaitable[bool]] = accepts_connections,
) -> bool:
    """Wait until the cluster has been stable for `stable_s`, at most `timeout_ms`; return whether it is stable.

    zookeeper_hosts: "host:port[,…][/path]". Each of these servers must accept a connection, because the session uses
    only one of them. They are checked for the whole of `stable_s`: a process that stops at the same moment as this one
    is still present at the first check. If neither they nor any storage node can be reached, the whole cluster ends,
    and the function returns False at once.
    """
    servers = zookeeper_hosts.partition("/")[0].split(",")
    now = asyncio.get_running_loop().time
    servers_back_at = now()
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while True:
                accepted = await asyncio.gather(*map(accepts, servers))
                if not all(accepted):
                    servers_back_at = now()
                elif min(now() - servers_back_at, stability.stable_for_s) >= stable_s:
                    return True
                if stability.isolated and not any(accepted):
                    return False
                await asyncio.sleep(check_interval_s)
    except TimeoutError:
        return False
