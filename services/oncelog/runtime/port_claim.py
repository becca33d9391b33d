"""Reserves a port while no process listens on it, between the end of a server and its restart.

Clients know the address of a server that restarts, so it must keep its port. Otherwise Linux may give the unused port
to another process that asks for a free one.
"""

import socket


def claim_port(host: str, port: int = 0) -> socket.socket:
    """Return a socket bound to `port`, or to a free one for 0. While it is open, no other process gets the port.

    The socket never listens, so Linux lets a server with SO_REUSEADDR bind to the same port and listen. Raises OSError
    when a process listens there.
    """
    claim = socket.socket()
    claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        claim.bind((host, port))
    except OSError:
        claim.close()
        raise
    return claim


def port_of(claim: socket.socket) -> int:
    return int(claim.getsockname()[1])
