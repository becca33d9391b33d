"""Checks that a cluster's other processes would accept a certificate: a TLS handshake in memory, without a network.

A service runs it at its start. With an expired certificate, one of another CA or one without the cluster's name, the
service would listen and be ready, but no peer could connect.
"""

import ssl

#: TLS needs two or three.
_ROUNDS_MAX = 10


def refusal(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str | None:
    """Why `client`, which expects a server of this name, refuses `server`; None: it accepts it."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_ROUNDS_MAX):
        try:
            sides = [side for side in sides if not _is_through(side)]
        except ssl.SSLCertVerificationError as error:
            return error.verify_message.rstrip(".")
        except ssl.SSLError as error:
            return error.reason
        if not sides:
            return None
    return "the handshake does not end"


def _is_through(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
