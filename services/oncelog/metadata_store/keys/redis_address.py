"""The address of Redis, its credentials and its CA. User, password and CA are read at each connection, so that they can
change.

A changed file takes effect with the next connection. Present connections stay, because Redis checks credentials only
once per connection. Host, port and database are read only at the start.
"""

from pathlib import Path
from typing import Any

from redis.asyncio.connection import SSLConnection, parse_url
from redis.credentials import CredentialProvider

from oncelog.core.address import join_address
from oncelog.core.errors import InvalidArgument
from oncelog.runtime.credentials import context_trusting, parse_certificates
from oncelog.runtime.settings import variable
from oncelog.runtime.watched_file import WatchedFile


class RedisAddress(CredentialProvider):
    """The address, given directly or in a file. A password file takes precedence over a password in the address."""

    def __init__(
        self, url: str = "", *, url_file: str = "", password_file: str = "", ca_file: str = "", server_name: str = ""
    ) -> None:
        """One of url and url_file. ca_file, server_name: of a rediss:// server, instead of the system's CAs and the
        name of its host. Raises InvalidArgument for a malformed address, or a missing or empty file."""
        self._file = WatchedFile(Path(url_file), variable("redis_url_file"), _url) if url_file else None
        name = variable("redis_password_file")
        self._password = WatchedFile(Path(password_file), name, _text) if password_file else None
        self._given = _parsed(url, "redis_url") if self._file is None else {}
        name = variable("redis_tls_ca_file")
        self._ca = WatchedFile(Path(ca_file), name, parse_certificates) if ca_file else None
        self._server_name = server_name
        if (ca_file or server_name) and not self.speaks_tls:
            field = "redis_tls_ca_file" if ca_file else "redis_tls_server_name"
            raise InvalidArgument(f"{variable(field)} needs an address that begins with rediss://", field=field)

    @property
    def speaks_tls(self) -> bool:
        return self._parsed.get("connection_class") is SSLConnection

    @property
    def place(self) -> str:
        """host:port"""
        return join_address(self._parsed.get("host", "localhost"), self._parsed.get("port", 6379))

    @property
    def options(self) -> dict[str, Any]:
        """The options of a connection pool."""
        options = {name: value for name, value in self._parsed.items() if name not in ("username", "password")}
        if self.speaks_tls:
            options |= {"connection_class": _VerifiedConnection, "address": self}
        return options

    def tls_arguments(self) -> dict[str, Any]:
        """What replaces redis-py's own context and name in a connection. Raises InvalidArgument."""
        arguments: dict[str, Any] = {}
        if self._ca is not None:
            arguments["ssl"] = context_trusting(self._ca)
        if self._server_name:
            arguments["server_hostname"] = self._server_name
        return arguments

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """As redis-py expects: the password, after the user if there is one; nothing if Redis needs none."""
        found = self._parsed
        password = found.get("password", "") if self._password is None else self._password.get()
        user = found.get("username", "")
        if user:
            return user, password
        return (password,) if password else ()  # type: ignore[return-value]

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return self.get_credentials()

    @property
    def _parsed(self) -> dict[str, Any]:
        return self._given if self._file is None else self._file.get()


class _VerifiedConnection(SSLConnection):
    """A TLS connection that expects the CA and the name of its address."""

    def __init__(self, *, address: RedisAddress, **options: Any) -> None:
        super().__init__(**options)
        self._address = address

    def _connection_arguments(self) -> dict[str, Any]:
        return {**super()._connection_arguments(), **self._address.tls_arguments()}


def _parsed(url: str, field: str) -> dict[str, Any]:
    try:
        return dict(parse_url(url))
    except ValueError as error:
        why = "" if "@" in url else f": {error}"  # it may repeat a part of the password
        message = f"{variable(field)} must be redis://host:port/number or rediss://…{why}"
        raise InvalidArgument(message, field=field) from error


def _text(data: bytes) -> str:
    """The text without whitespace at its ends."""
    try:
        text = data.decode().strip()
    except UnicodeDecodeError as error:
        raise InvalidArgument("the file is not UTF-8 text") from error
    if not text:
        raise InvalidArgument("the file is empty")
    return text


def _url(data: bytes) -> dict[str, Any]:
    return _parsed(_text(data), "redis_url_file")
