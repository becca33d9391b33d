"""When an owner that drains has its topics moved: while nobody else is away. An upgrade restarts everything at once.

A topic that moves needs ZooKeeper and storage nodes many times over. One restart amid that costs its producers seconds,
and none at all while the topic stays where it is.
"""

import asyncio
from typing import Protocol

from oncelog.core.address import split_address

#: Longer than what an upgrade lets pass between two restarts of one part (a storage node's preStop and two probes).
_CALM_S = 8.0
_LOOK_AGAIN_S = 0.25
_CONNECT_TIMEOUT_S = 1.0


class Surroundings(Protocol):
    """What an owner sees of the storage nodes and of its session."""

    @property
    def whole_for_s(self) -> float:
        """How long none of them has been away; 0 when one is."""

    @property
    def alone(self) -> bool:
        """Whether no storage node can be reached at all."""


async def calm(seen: Surroundings, zookeeper_hosts: str, *, at_most_ms: int, calm_s: float = _CALM_S) -> bool:
    """Return once nobody has been away for calm_s, or after so long; returns whether it is calm.

    zookeeper_hosts: "host:port[,…][/path]"; each of these servers must accept a connection, for a session says nothing
    of those that it does not use. It is looked at for as long: who stops in the same moment as this process is still
    there at the first look. Where neither they nor any storage node can be reached the whole cluster ends, and nothing
    is waited for.
    """
    servers = zookeeper_hosts.partition("/")[0].split(",")
    now = asyncio.get_running_loop().time
    away_at = now()
    try:
        async with asyncio.timeout(at_most_ms / 1000):
            while True:
                accept = await asyncio.gather(*map(_accepts, servers))
                if not all(accept):
                    away_at = now()
                elif min(now() - away_at, seen.whole_for_s) >= calm_s:
                    return True
                if seen.alone and not any(accept):
                    return False
                await asyncio.sleep(_LOOK_AGAIN_S)
    except TimeoutError:
        return False


async def _accepts(server: str) -> bool:
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(*split_address(server.strip()))
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
