"""Whether anything listens at an address: the second half of a suspicion. Silence proves nothing; a refusal does.

A pod that is deleted refuses for a few hundred milliseconds, until its address goes; then there is no route to it, or
silence, in turns, as the neighbour is asked for and given up.
"""

import asyncio
import errno
import socket
from enum import Enum

from oncelog.core.address import join_address, split_address


class Reachability(Enum):
    """ACCEPTED: somebody listens. REFUSED: the host answers that nobody does. UNREACHABLE: the network answers that
    there is no such host. SILENT: no answer in time, or a name that is not known."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    SILENT = "silent"


#: What a router or this host says of a host that is not there. Not: no route from here at all, a fault of this side.
_UNREACHABLE = frozenset({errno.EHOSTUNREACH, errno.EHOSTDOWN})
RESOLVE_TIMEOUT_S = 2.0


async def resolve(address: str) -> str:
    """The address with its host's name as a number, as long as the name is known: it goes with the host.

    A name that is not known in time stays as it is.
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
    except OSError as error:  # a timeout is one, too
        return Reachability.UNREACHABLE if error.errno in _UNREACHABLE else Reachability.SILENT
    writer.close()
    return Reachability.ACCEPTED
