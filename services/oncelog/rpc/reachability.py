"""Whether a process listens at an address, to confirm a suspicion. Silence proves nothing; a refusal does.

A deleted pod's address refuses connections for a few hundred milliseconds, until it is removed. Then the answer
alternates between "no route to host" and silence, as the kernel looks for the neighbour and gives up.
"""

import asyncio
import errno
import socket
from enum import Enum

from oncelog.core.address import join_address, split_address


class Reachability(Enum):
    """ACCEPTED: a process listens. REFUSED: the host answers that none does. UNREACHABLE: the network answers that the
    host does not exist. SILENT: no answer in time, or an unknown name."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    SILENT = "silent"


#: Errors for a host that does not exist. ENETUNREACH is left out: it is a fault of this host's network.
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.EHOSTDOWN})
RESOLVE_TIMEOUT_S = 2.0


async def resolve(address: str) -> str:
    """The address with its host name resolved to an IP address; the name may disappear with the host.

    A name that cannot be resolved in time is returned unchanged.
    """
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError):
        return address
    return join_address(str(found[0][4][0]), port)


async def reach(address: str, *, timeout_ms: int) -> Reachability:
    """Open a connection to "host:port" and close it again."""
    host, port = split_address(address)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return Reachability.REFUSED
    except OSError as error:  # TimeoutError is one, too
        return Reachability.UNREACHABLE if error.errno in _UNREACHABLE else Reachability.SILENT
    writer.close()
    return Reachability.ACCEPTED
