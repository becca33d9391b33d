"""Where Redis is and who calls: user and password are looked up at each connection, so that new ones need no restart.

A file that changes is used from the next connection on; what is connected stays so, for Redis asks nobody twice. Host,
port and database are read once.
"""

from pathlib import Path
from typing import Any

from redis.asyncio.connection import parse_url
from redis.credentials import CredentialProvider

from oncelog.core.errors import InvalidArgument
from oncelog.runtime.settings import variable
from oncelog.runtime.watched_file import WatchedFile


class RedisAddress(CredentialProvider):
    """The address, as given or from a file, and the password, of the address or from a file, which goes first."""

    def __init__(self, url: str = "", *, url_file: str = "", password_file: str = "") -> None:
        """One of url and url_file. Raises InvalidArgument: a malformed address, a file that is missing or empty."""
        self._file = WatchedFile(Path(url_file), variable("redis_url_file"), _url) if url_file else None
        name = variable("redis_password_file")
        self._password = WatchedFile(Path(password_file), name, _text) if password_file else None
        self._given = _parsed(url, "redis_url") if self._file is None else {}

    @property
    def options(self) -> dict[str, Any]:
        """What a pool of connections is made with."""
        return {name: value for name, value in self._parsed.items() if name not in ("username", "password")}

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """As redis-py asks for them: the password, after the user where there is one; nothing where Redis asks none."""
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
    """A line, without its end."""
    try:
        text = data.decode().strip()
    except UnicodeDecodeError as error:
        raise InvalidArgument("this is no text in UTF-8") from error
    if not text:
        raise InvalidArgument("the file is empty")
    return text


def _url(data: bytes) -> dict[str, Any]:
    return _parsed(_text(data), "redis_url_file")
