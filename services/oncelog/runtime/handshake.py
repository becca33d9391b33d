"""Whether a certificate is one that the other parts of a cluster take: a TLS handshake in memory, without a network.

At the start of a service: with a certificate of another CA, without the cluster's name, or too old, it would listen and
be ready, and nobody could speak to it.
"""

import ssl

#: TLS needs two or three.
_ROUNDS_MAX = 10


def refusal(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str | None:
    """Why `client`, who expects a server of this name, does not take it; None: it does."""
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
    return "the two sides come to no end"


def _is_through(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
