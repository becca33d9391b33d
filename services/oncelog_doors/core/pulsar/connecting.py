"""The first commands of a connection: CONNECT, and where topics are.

    CONNECT   who connects, in which version; the credentials are checked by the shell, then CONNECTED follows
    LOOKUP    always the same answer (hazard lookup-that-fails)

Addresses: a look-up names one logical broker for every topic. The client then connects to the address that it was given
itself, and says in CONNECT which logical address it means. So clients use host names, ports and certificates that they
know, and a door forwards to no other address.
"""

from dataclasses import dataclass

from oncelog_doors.core.pulsar.server_errors import Refusal, ServerError

LOGICAL_ADDRESS = "oncelog:6650"
LOGICAL_ADDRESS_TLS = "oncelog:6651"
#: 21 would let a client ask for schemas that it detects by itself.
PROTOCOL_VERSION_MAX = 20
#: From 6 on each message has a checksum.
PROTOCOL_VERSION_MIN = 6
#: The lowest limit that clients get. A client keeps the limit of its first connection for the whole process, and fails
#: pending messages above it without sending them (hazard limit-below-a-waiting-message).
BATCH_BYTES_MIN = 5 * 1024 * 1024
#: What a batch has besides the client's bytes: our header, and ids with holes.
BATCH_OVERHEAD_BYTES = 4 * 1024
TOKEN, BASIC, NO_METHOD = "token", "basic", "none"


@dataclass(frozen=True, slots=True)
class Connect:
    """What decides in CONNECT. method: of authentication; empty for none."""

    protocol_version: int
    method: str = ""
    credentials: bytes = b""
    proxy_to: str = ""
    original_principal: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The connection may go on if the token, unless it is None, is valid."""

    protocol_version: int
    token: str | None


@dataclass(frozen=True, slots=True)
class Place:
    """The answer to every look-up. A client with TLS reads `url_tls` alone, so both are always set."""

    url: str = f"pulsar://{LOGICAL_ADDRESS}"
    url_tls: str = f"pulsar+ssl://{LOGICAL_ADDRESS_TLS}"
    through_service_url: bool = True
    authoritative: bool = True


#: It depends on nothing, so that a look-up cannot fail.
PLACE = Place()


def admission(connect: Connect, *, authentication: bool) -> Admitted | Refusal:
    """Decide about CONNECT. authentication: the cluster wants tokens. The connection ends after a refusal."""
    if connect.protocol_version < PROTOCOL_VERSION_MIN:
        return Refusal(
            ServerError.UNSUPPORTED_VERSION_ERROR,
            f"protocol version {connect.protocol_version} is too old: use a client with version "
            f"{PROTOCOL_VERSION_MIN} or later, whose messages have checksums",
        )
    if connect.proxy_to not in {"", LOGICAL_ADDRESS, LOGICAL_ADDRESS_TLS}:
        return Refusal(
            ServerError.NOT_ALLOWED_ERROR,
            f"proxy_to_broker_url must be {LOGICAL_ADDRESS} or {LOGICAL_ADDRESS_TLS}: this is no proxy",
        )
    if connect.original_principal:
        return Refusal(
            ServerError.AUTHENTICATION_ERROR,
            "original_principal is not accepted: connect without a proxy that speaks for its clients",
        )
    token = token_of(connect.method, connect.credentials) if authentication else None
    if isinstance(token, Refusal):
        return token
    return Admitted(min(connect.protocol_version, PROTOCOL_VERSION_MAX), token)


def token_of(method: str, credentials: bytes) -> str | Refusal:
    """The token in what a client sends, in CONNECT or as the answer to a challenge."""
    if method not in {TOKEN, BASIC}:
        shown = ascii(method[:_METHOD_CHARACTERS_SHOWN]) if method else "none"
        return _unauthenticated(
            f"authentication method {shown} is not accepted: use {TOKEN}, or {BASIC} with the token"
        )
    try:
        text = credentials.decode("ascii")
    except UnicodeDecodeError:
        return _unauthenticated("the token has bytes outside ASCII")
    if method == BASIC:
        _user, separator, text = text.partition(":")
        if not separator:
            return _unauthenticated("basic authentication needs user:token")
    if not text.strip():
        return _unauthenticated("the token is empty")
    return text.strip()


_METHOD_CHARACTERS_SHOWN = 20


def _unauthenticated(sentence: str) -> Refusal:
    return Refusal(ServerError.AUTHENTICATION_ERROR, sentence)


def message_bytes_max(batch_bytes_max: int) -> int:
    """The limit of a message that CONNECTED states. batch_bytes_max: the limit of the log. If that is below 5 MiB,
    messages above it are refused one by one."""
    return max(batch_bytes_max, BATCH_BYTES_MIN) - BATCH_OVERHEAD_BYTES
