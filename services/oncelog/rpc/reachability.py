"""Whether anything listens at an address: the second half of a suspicion. Silence proves nothing; a refusal does."""

import asyncio
from enum import Enum


class Reachability(Enum):
    """ACCEPTED: somebody listens. REFUSED: the host answers that nobody does. SILENT: no answer in time, or no way."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    SILENT = "silent"


async def reach(address: str, *, timeout_ms: int) -> Reachability:
    """Open a connection to "host:port" and close it again."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return Reachability.REFUSED
    except (OSError, TimeoutError):
        return Reachability.SILENT
    writer.close()
    return Reachability.ACCEPTED
