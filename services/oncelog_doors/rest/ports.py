"""What the REST port of a door needs of the cluster."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class RestAnswer(NamedTuple):
    """Of this cluster's REST. headers: lower-case names."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


class RestPort(Protocol):
    """REST of the cluster."""

    async def ask(
        self, method: str, target: str, body: bytes, *, headers: Mapping[str, str], authorization: str | None
    ) -> RestAnswer:
        """One request with the rights of this header, and no others. Raises OncelogError."""
