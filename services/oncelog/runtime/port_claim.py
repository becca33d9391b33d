"""A port that stays ours while nobody listens there: between the death of a server and its next start.

Clients know the address of a server that is started again, so it must have the same port. Linux gives a port that
nobody uses to whoever asks for a free one, and it is then missing for as long as that one lives.
"""

import socket


def claim_port(host: str, port: int = 0) -> socket.socket:
    """Return a socket bound to `port`, or to a free one for 0; while it is open, nobody else is given the port.

    It never listens, so Linux lets a server that sets SO_REUSEADDR bind and listen beside it. Raises OSError when
    somebody listens there.
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
