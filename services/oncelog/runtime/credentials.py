"""The client's half of TLS and tokens: how a channel authenticates itself, and how it verifies its peer.

Rules
- With its own CA a cluster has one identity: each of its certificates carries the name `oncelog`, which is expected
  whatever the address. Without one, the system's CAs and the host name are used.
- A token is never sent over an unencrypted connection, except to this host or when that is allowed explicitly.
- Files are read again when they change: the token for the next call, the CA for the next connection.
"""

import asyncio
import inspect
import ipaddress
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from oncelog.core.era import Era
from oncelog.core.errors import InvalidArgument, OncelogError, ServiceUnavailable, StaleEra
from oncelog.runtime.watched_file import WatchedFile

if TYPE_CHECKING:
    import grpc

#: The name in every certificate of a cluster.
CLUSTER_NAME = "oncelog"
TOKEN_CHARACTERS_MAX = 4_096

#: Returns the token for the next call.
TokenSource = Callable[[], str]
#: A token as users give it: the token, the path of its file, or a function that returns it.
Token = str | Path | TokenSource


@dataclass(frozen=True, slots=True)
class Credentials:
    """tls: use TLS. ca: PEM of the cluster's own CA; None: the system's CAs. token None: send no token.

    era: of a service, which each of its calls states; None: no service, or not in a cluster yet. on_stale_era(address):
    called with the error when a process there says that the era is a former one.
    """

    tls: bool = False
    ca: WatchedFile[bytes] | None = None
    token: TokenSource | None = None
    plaintext_token_allowed: bool = False
    era: Era | None = None
    on_stale_era: Callable[[str, StaleEra], object] = lambda _address, _error: None

    @classmethod
    def of(
        cls,
        *,
        tls: bool,
        token: Token | None = None,
        tls_ca_file: Path | str | None = None,
        plaintext_token_allowed: bool = False,
    ) -> "Credentials":
        """Raises InvalidArgument: a file that cannot be read, a CA file for a cluster without TLS."""
        if tls_ca_file is not None and not tls:
            message = (
                "tls_ca_file needs a URL with TLS: oncelog+tls:// or https:// (`oncelog admin` reads its URL from "
                "ONCELOG_ADMIN_URL)"
            )
            raise InvalidArgument(message, field="tls_ca_file")
        ca = None if tls_ca_file is None else WatchedFile(Path(tls_ca_file), "tls_ca_file", parse_certificates)
        return cls(tls, ca, None if token is None else source_of(token), plaintext_token_allowed)

    def check_address(self, address: str) -> None:
        """Raises InvalidArgument when a token would be sent unencrypted to `address` ("host:port")."""
        if self.token is None or self.tls or self.plaintext_token_allowed or is_loopback(address):
            return
        message = (
            f"the token would be sent to {address} in plain text: use oncelog+tls:// or https://, or allow plain text"
        )
        raise InvalidArgument(message, field="token")

    @property
    def authorization(self) -> str | None:
        """The header of the next call; None without a token. Raises InvalidArgument for an invalid token."""
        return None if self.token is None else f"Bearer {self.token()}"

    def channel_credentials(self) -> "grpc.ChannelCredentials | None":
        """gRPC's credentials; None: no TLS."""
        if not self.tls:
            return None
        import grpc  # a third of the start time of `oncelog admin`, whose commands mostly use HTTP

        return grpc.ssl_channel_credentials(None if self.ca is None else self.ca.get())

    def ssl_context(self) -> ssl.SSLContext | None:
        """For connections other than gRPC's; None: no TLS, or TLS with the system's CAs."""
        return None if self.ca is None else context_trusting(self.ca)

    def verification(self, url: str) -> ssl.SSLContext | bool:
        """`verify` of httpx for this URL. Without TLS it trusts no CA: httpx would read all of the system's, and that
        takes longer than most calls."""
        if urlsplit(url).scheme != "https":
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return self.ssl_context() or True

    @property
    def expected_name(self) -> str | None:
        """The name that the peer's certificate must carry; None: the host name of its address."""
        return CLUSTER_NAME if self.tls and self.ca is not None else None


#: No TLS, no token.
PLAIN = Credentials()


def context_trusting(ca: WatchedFile[bytes]) -> ssl.SSLContext:
    """For a client that trusts only the CAs in this file. Raises InvalidArgument if it holds none."""
    try:
        return ssl.create_default_context(cadata=ca.get().decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{ca.path} holds no readable certificate", field="tls_ca_file") from error


def source_of(token: Token, name: str = "token") -> TokenSource:
    """Raises InvalidArgument for an invalid token or an unreadable file. name: the option, for errors."""
    if isinstance(token, Path):
        return WatchedFile(token, name, _parse_token).get
    if isinstance(token, str):
        text = check_token(token)
        return lambda: text
    return _TokenFunction(token).get


class _TokenFunction:
    """The user's function that returns the token. It may raise anything, and its error must not end a task of the
    client: once it has returned a token, its failure is an outage, and it is asked again."""

    def __init__(self, function: TokenSource) -> None:
        self._function = function
        self._worked = False

    def get(self) -> str:
        """Raises InvalidArgument for what is no token, and if the first call fails; ServiceUnavailable if a later one
        fails; OncelogError of the function."""
        try:
            found: object = self._function()
        except OncelogError:
            raise
        # It is called on an event loop, but awaits nothing: a cancellation is of a future that it has waited for.
        except (Exception, asyncio.CancelledError) as error:
            message = f"the function that returns the token failed: {type(error).__name__}: {error}"
            kind = ServiceUnavailable if self._worked else InvalidArgument
            raise kind(message, field="token") from error
        if not isinstance(found, str):
            if inspect.iscoroutine(found):
                found.close()
            message = f"the function that returns the token must return a string, not {type(found).__name__}"
            raise InvalidArgument(message, field="token")
        text = check_token(found)
        self._worked = True
        return text


def check_token(text: str) -> str:
    """The token without surrounding blanks. Raises InvalidArgument when it cannot be sent as a header."""
    text = text.strip()
    if not text or len(text) > TOKEN_CHARACTERS_MAX or not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidArgument(
            f"a token must be one line of 1 to {TOKEN_CHARACTERS_MAX} ASCII characters without spaces",
            field="token",
        )
    return text


def _parse_token(data: bytes) -> str:
    try:
        return check_token(data.decode("ascii"))
    except UnicodeDecodeError as error:
        raise InvalidArgument("a token must be ASCII text", field="token") from error


def parse_certificates(data: bytes) -> bytes:
    """Raises InvalidArgument early; gRPC would only report a failed connection, much later."""
    if b"-----BEGIN CERTIFICATE-----" not in data:
        raise InvalidArgument("it holds no PEM certificate", field="tls_ca_file")
    return data


def is_loopback(address: str) -> bool:
    """Whether "host:port" is a loopback address by its name."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
