"""How the workload reaches the cluster: the SDK's address, and REST, whose failures are answers here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import httpx

from oncelog.client.client import AsyncClient, connect

CALL_TIMEOUT_S = 5.0
#: What an address that does not answer is answered with here.
NOT_REACHED = 0


class RestAnswer(NamedTuple):
    """status: of HTTP, NOT_REACHED when nobody answered. body: what JSON said, else the text."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def detail(self) -> str:
        """What a problem says, for people."""
        return str(self.body.get("detail", self.body)) if isinstance(self.body, dict) else str(self.body)[:200]


@dataclass(frozen=True, slots=True)
class Access:
    """url: of the SDK. admin_url: of REST."""

    url: str
    admin_url: str

    async def connect(self) -> AsyncClient:
        """A client of its own connections."""
        return await connect(self.url)

    def rest(self) -> "Rest":
        return Rest(self)


class Rest:
    """Calls of one metadata service or of the Service in front of them."""

    def __init__(self, access: Access) -> None:
        self._url = access.admin_url.rstrip("/")
        self._http = httpx.AsyncClient(timeout=CALL_TIMEOUT_S, trust_env=False)

    async def call(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> RestAnswer:
        """One call. Raises nothing of the network's: not reached is an answer."""
        try:
            response = await self._http.request(method, self._url + path, json=body, headers=dict(headers or {}))
        except (httpx.TransportError, httpx.InvalidURL) as error:
            return RestAnswer(NOT_REACHED, f"{self._url} is not reached: {error!r}")
        try:
            return RestAnswer(response.status_code, response.json() if response.content else None)
        except ValueError:
            return RestAnswer(response.status_code, response.text)

    async def close(self) -> None:
        await self._http.aclose()
