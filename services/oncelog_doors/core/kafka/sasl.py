"""The tokens in what clients send to authenticate themselves.

    PLAIN          [authorization id] 0 user name 0 token                    the user name may name a namespace
    OAUTHBEARER    n,,^A auth=Bearer TOKEN ^A^A    (^A: the byte 1)          RFC 7628

The tokens are those of the log. A user name `tenant/namespace` is the namespace of names without one; any other user
name means nothing, because the role is in the token.
"""

from typing import NamedTuple

from oncelog.core.errors import InvalidName, Unauthenticated
from oncelog.core.names import NamespaceName, parse_namespace

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MECHANISMS = (PLAIN, OAUTHBEARER)
_BEARER = "bearer "


class Credentials(NamedTuple):
    """namespace: None: that of the door."""

    token: str
    namespace: NamespaceName | None = None


def credentials_of(mechanism: str, data: bytes) -> Credentials:
    """Raises Unauthenticated for other bytes than a client of this mechanism sends, and InvalidName for a user name
    with a slash that is no namespace."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Unauthenticated(f"what was sent for {mechanism} is not UTF-8") from error
    return _plain(text) if mechanism == PLAIN else _bearer(text)


def _plain(text: str) -> Credentials:
    parts = text.split("\0")
    if len(parts) != 3:
        message = (
            f"SASL PLAIN has three parts, and {len(parts)} were sent: give any user name, and the token as password"
        )
        raise Unauthenticated(message)
    _authorization, user, token = parts
    if not token:
        raise Unauthenticated("the password is empty: give the token as password")
    try:
        namespace = parse_namespace(user) if "/" in user else None
    except InvalidName as error:
        raise InvalidName(f"user name: {error}", **error.details) from error
    return Credentials(token, namespace)


def _bearer(text: str) -> Credentials:
    for part in text.split("\1"):
        name, _, value = part.partition("=")
        if name.lower() == "auth" and value.lower().startswith(_BEARER):
            return Credentials(value[len(_BEARER) :].strip())
    raise Unauthenticated("SASL OAUTHBEARER has no `auth=Bearer` with a token")
