"""The address of Redis and its credentials. User and password are read at each connection, so that they can change.

A changed file takes effect with the next connection. Present connections stay, because Redis checks credentials only
once per connection. Host, port and database are read only at the start.
"""

from pathlib import Path
from typing import Any

from redis.asyncio.connection import parse_url
from redis.credentials import CredentialProvider

from oncelog.core.errors import InvalidArgument
from oncelog.runtime.settings import variable
from oncelog.runtime.watched_file import WatchedFile


class RedisAddress(CredentialProvider):
    """The address, given directly or in a file. A password file takes precedence over a password in the address."""

    def __init__(self, url: str = "", *, url_file: str = "", password_file: str = "") -> None:
        """One of url and url_file. Raises InvalidArgument for a malformed address, or a missing or empty file."""
        self._file = WatchedFile(Path(url_file), variable("redis_url_file"), _url) if url_file else None
        name = variable("redis_password_file")
        self._password = WatchedFile(Path(password_file), name, _text) if password_file else None
        self._given = _parsed(url, "redis_url") if self._file is None else {}

    @property
    def options(self) -> dict[str, Any]:
        """The options of a connection pool."""
        return {name: value for name, value in self._parsed.items() if name not in ("username", "password")}

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


def _parsed(url: str, field: str) -> dict[str, Any]:
    try:
        return dict(parse_url(url))
    except ValueError as error:
        message = f"{variable(field)} must be redis://host:port/number or rediss://…: {error}"
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
