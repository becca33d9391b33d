"""How the workload reaches the cluster: the SDK's address, and REST, whose failures are answers here."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from oncelog.client.client import AsyncClient, connect
from oncelog.core.errors import InvalidArgument
from oncelog.runtime.credentials import CLUSTER_NAME

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
        """Raises InvalidArgument: a file that cannot be read."""
        return Rest(self)

    def headers(self) -> dict[str, str]:
        """Of each call to REST; the token is read anew, for it may have been replaced."""
        return {} if self.token_file is None else {"Authorization": f"Bearer {self.token_file.read_text().strip()}"}

    def verification(self) -> ssl.SSLContext | bool:
        """Whom REST's certificate must come from. Raises InvalidArgument."""
        if self.ca_file is None:
            return True
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:  # of ssl, too
            raise InvalidArgument(f"{self.ca_file} is no CA: {error}", field="tls_ca_file") from error


class Rest:
    """Calls of one metadata service or of the Service in front of them."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._url = access.admin_url.rstrip("/")
        self._http = httpx.AsyncClient(timeout=CALL_TIMEOUT_S, trust_env=False, verify=access.verification())
        # A cluster with a CA of its own is one identity, whatever the address.
        self._extensions = {} if access.ca_file is None else {"sni_hostname": CLUSTER_NAME}

    async def call(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> RestAnswer:
        """One call. Raises nothing of the network's: not reached is an answer."""
        shown = self._access.headers() | dict(headers or {})
        try:
            response = await self._http.request(
                method, self._url + path, json=body, headers=shown, extensions=self._extensions
            )
        except (httpx.TransportError, httpx.InvalidURL) as error:
            return RestAnswer(NOT_REACHED, f"{self._url} is not reached: {error!r}")
        try:
            return RestAnswer(response.status_code, response.json() if response.content else None)
        except ValueError:
            return RestAnswer(response.status_code, response.text)

    async def close(self) -> None:
        await self._http.aclose()
