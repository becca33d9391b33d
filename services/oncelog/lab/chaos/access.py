"""How the workload reaches the cluster: the SDK's address, and REST, whose failures are answers here."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from oncelog.client.client import AsyncClient, connect
from oncelog.runtime.credentials import Credentials

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
    """url: of the SDK. admin_url: of REST. token_file, ca_file: None where the cluster asks for none."""

    url: str
    admin_url: str
    token_file: Path | None = None
    ca_file: Path | None = None

    async def connect(self) -> AsyncClient:
        """A client of its own connections."""
        return await connect(self.url, token=self.token_file, tls_ca_file=self.ca_file)

    def rest(self) -> "Rest":
        """Raises InvalidArgument: a file that cannot be read, a token that would go out in plain text."""
        tls = self.admin_url.startswith("https://")
        credentials = Credentials.of(tls=tls, token=self.token_file, tls_ca_file=self.ca_file if tls else None)
        return Rest(self.admin_url, credentials)


class Rest:
    """Calls of one metadata service or of the Service in front of them."""

    def __init__(self, admin_url: str, credentials: Credentials) -> None:
        self._url = admin_url.rstrip("/")
        if credentials.token is not None:
            place = urlsplit(self._url)
            credentials.check_address(f"{place.hostname}:{place.port}")
        self._credentials = credentials
        verify = credentials.ssl_context() or True
        self._http = httpx.AsyncClient(timeout=CALL_TIMEOUT_S, trust_env=False, verify=verify)

    async def call(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> RestAnswer:
        """One call. Raises nothing of the network's: not reached is an answer."""
        authorization, expected = self._credentials.authorization, self._credentials.expected_name
        shown = dict(headers or {}) | ({"Authorization": authorization} if authorization else {})
        names = {"sni_hostname": expected} if expected else None
        try:
            response = await self._http.request(method, self._url + path, json=body, headers=shown, extensions=names)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            return RestAnswer(NOT_REACHED, f"{self._url} is not reached: {error!r}")
        try:
            return RestAnswer(response.status_code, response.json() if response.content else None)
        except ValueError:
            return RestAnswer(response.status_code, response.text)

    async def close(self) -> None:
        await self._http.aclose()
