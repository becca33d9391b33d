"""Whether anybody listens where a command was told to connect.

So a wrong address is told soon, and not after the time-out of the first operation. A program of the SDK waits instead,
because its cluster may be restarting.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from oncelog.core.errors import ServiceUnavailable
from oncelog.rpc.connecting import why_not_connected

#: A cluster that is starting has so long.
LISTENS_WITHIN_S = 5.0
_AGAIN_AFTER_S = 0.2


async def require_listener(addresses: Sequence[str], timeout_s: float) -> None:
    """Return once one of the addresses (host:port) accepts a connection. Raises ServiceUnavailable, which says why none
    does."""
    within_s = min(LISTENS_WITHIN_S, timeout_s)
    why: dict[str, str] = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while True:
                for address in addresses:
                    problem = await _problem(address, within_s / len(addresses))
                    if problem is None:
                        return
                    why[address] = problem
                await asyncio.sleep(_AGAIN_AFTER_S)
    told = "; ".join(f"{address} (a metadata service): {why.get(address, 'no answer')}" for address in addresses)
    raise ServiceUnavailable(f"cannot reach {told}, for {within_s:g} s")


async def _problem(address: str, timeout_s: float) -> str | None:
    """Why it cannot be connected to; None: it can."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except TimeoutError:
        return "the connection timed out"
    except ConnectionRefusedError:
        return why_not_connected("Connection refused")
    except OSError as error:
        return why_not_connected(str(error)) or f"{error.strerror or error}"
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return None
