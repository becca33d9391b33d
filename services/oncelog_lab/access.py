"""Access to a cluster: the address for the SDK, and a REST client that returns failures as answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from oncelog.client.client import AsyncClient
from oncelog.client.connecting import connect
from oncelog.runtime.credentials import Credentials
from oncelog_lab.failures import LabFailed
from oncelog_lab.waiting import until

CALL_TIMEOUT_S = 5.0
#: The status of a call without a response.
NO_RESPONSE = 0
_ACCEPTED_DEADLINE_S = 90.0
_RETRY_EVERY_S = 0.5


class RestAnswer(NamedTuple):
    """status: of HTTP, or NO_RESPONSE. body: the decoded JSON, or the text."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def retriable(self) -> bool:
        return self.status in {NO_RESPONSE, 408, 429} or self.status >= 500

    @property
    def detail(self) -> str:
        """The detail of a problem, for people."""
        return str(self.body.get("detail", self.body)) if isinstance(self.body, dict) else str(self.body)[:200]


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """url: for the SDK. admin_url: of REST. token_file, ca_file: None where the cluster needs none."""

    url: str
    admin_url: str
    token_file: Path | None = None
    ca_file: Path | None = None

    async def connect(self) -> AsyncClient:
        """A client with connections of its own."""
        return await connect(self.url, token=self.token_file, tls_ca_file=self.ca_file)

    def rest(self) -> "RestClient":
        """Raises InvalidArgument if a file cannot be read, or if the token would be sent unencrypted."""
        tls = self.admin_url.startswith("https://")
        credentials = Credentials.of(tls=tls, token=self.token_file, tls_ca_file=self.ca_file if tls else None)
        return RestClient(self.admin_url, credentials)


class RestClient:
    """Calls the REST interface of one metadata service, or of the Kubernetes Service in front of several."""

    def __init__(self, admin_url: str, credentials: Credentials) -> None:
        self._url = admin_url.rstrip("/")
        if credentials.token is not None:
            parts = urlsplit(self._url)
            credentials.check_address(f"{parts.hostname}:{parts.port}")
        self._credentials = credentials
        verify = credentials.verification(admin_url)
        self._http = httpx.AsyncClient(timeout=CALL_TIMEOUT_S, trust_env=False, verify=verify)

    async def call(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> RestAnswer:
        """One call. A failure of the network is an answer with the status NO_RESPONSE."""
        authorization, expected = self._credentials.authorization, self._credentials.expected_name
        sent = dict(headers or {}) | ({"Authorization": authorization} if authorization else {})
        names = {"sni_hostname": expected} if expected else None
        try:
            response = await self._http.request(method, self._url + path, json=body, headers=sent, extensions=names)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            return RestAnswer(NO_RESPONSE, f"cannot reach {self._url}: {error!r}; check --admin-url")
        try:
            return RestAnswer(response.status_code, response.json() if response.content else None)
        except ValueError:
            return RestAnswer(response.status_code, response.text)

    async def put_in_place(
        self, method: str, path: str, body: object = None, *, deadline_s: float = _ACCEPTED_DEADLINE_S
    ) -> None:
        """Repeat a call until it succeeds; what exists already counts as success. Raises LabFailed."""
        last = ""

        async def accepted() -> bool:
            nonlocal last
            answer = await self.call(method, path, body)
            last = f"{method} {path} answers {answer.status}: {answer.detail}"
            if not (answer.ok or answer.status == httpx.codes.CONFLICT or answer.retriable):
                raise LabFailed(last)
            return not answer.retriable

        try:
            await until(accepted, deadline_s, path, every_s=_RETRY_EVERY_S)
        except LabFailed as error:
            raise LabFailed(last) from error

    async def close(self) -> None:
        await self._http.aclose()
