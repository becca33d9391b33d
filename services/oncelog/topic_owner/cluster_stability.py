"""Waits until the cluster is stable, as `core.placement.stability` decides."""

import asyncio
from collections.abc import Awaitable, Callable

from oncelog.core.address import split_address
from oncelog.core.placement.stability import STABLE_S, Stability, StabilityWait

_CHECK_INTERVAL_S = 0.25
_CONNECT_TIMEOUT_S = 1.0


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

    zookeeper_hosts: "host:port[,…][/path]".
    """
    servers = zookeeper_hosts.partition("/")[0].split(",")
    now = asyncio.get_running_loop().time
    wait = StabilityWait(stability, now_s=now(), stable_s=stable_s)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while True:
                accepted = await asyncio.gather(*map(accepts, servers))
                if (stable := wait.looked(accepted, now_s=now())) is not None:
                    return stable
                await asyncio.sleep(check_interval_s)
    except TimeoutError:
        return False
