"""Checks that a cluster's other processes would accept a certificate, and until when: a TLS handshake in memory,
without a network.

A service runs it at its start. With an expired certificate, one of another CA or one without the cluster's name, the
service would listen and be ready, but no peer could connect.
"""

import ssl
from typing import Any, NamedTuple

#: TLS needs two or three.
_ROUNDS_MAX = 10


class Expiry(NamedTuple):
    """The last second of a certificate, and of the CA that signed it, since 1970. Of several CAs with this name: the
    earliest."""

    certificate_s: float
    ca_s: float


def refusal(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str | None:
    """Why `client`, which expects a server of this name, refuses `server`; None: it accepts it."""
    outcome = _shaken(server, client, name)
    return outcome if isinstance(outcome, str) else None


def expiry(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> Expiry | None:
    """Until when `client` accepts `server`; None: it refuses it."""
    outcome = _shaken(server, client, name)
    if isinstance(outcome, str):
        return None
    certificate: dict[str, Any] = outcome.getpeercert() or {}
    signers = [ca for ca in client.get_ca_certs() if ca["subject"] == certificate["issuer"]]
    ends = [ssl.cert_time_to_seconds(str(each["notAfter"])) for each in (certificate, *signers)]
    return Expiry(ends[0], min(ends[1:], default=ends[0]))


def _shaken(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> ssl.SSLObject | str:
    """The client's side after the handshake, or why it failed."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    own = client.wrap_bio(to_client, to_server, server_hostname=name)
    sides = [own, server.wrap_bio(to_server, to_client, server_side=True)]
    for _ in range(_ROUNDS_MAX):
        try:
            sides = [side for side in sides if not _is_through(side)]
        except ssl.SSLCertVerificationError as error:
            return error.verify_message.rstrip(".")
        except ssl.SSLError as error:
            return error.reason
        if not sides:
            return own
    return "the handshake does not end"


def _is_through(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
