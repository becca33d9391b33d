"""A client of the REST interface: responses are plain values, errors are those of `core.errors`."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from oncelog.client.network.addresses import is_service_url, parse_http_url, without_password
from oncelog.client.network.problems import error_of_problem
from oncelog.core.errors import DeadlineExceeded, Fatal, OncelogError, ServiceUnavailable
from oncelog.runtime.credentials import PLAIN, Credentials

if TYPE_CHECKING:
    import httpx

#: Of a file that is downloaded.
PART_BYTES = 4 * 1024 * 1024
#: Of a file that is uploaded.
UPLOADED_BYTES = 64 * 1024
#: Calls that are under way at once.
AT_ONCE_MAX = 16
#: A JSON value.
Answer = dict[str, object] | list[object] | str | int | float | bool | None
#: Of a call; None: left out.
Query = Mapping[str, bool | int | str | None]


class AdminApi:
    """A metadata service at `url`: http[s]://host:port, or one of those of a service URL, oncelog…://host:port.

    timeout_s bounds each call.
    """

    def __init__(self, url: str, *, timeout_s: float, credentials: Credentials = PLAIN) -> None:
        """Raises InvalidArgument for a URL that cannot be used, and if a token would be sent unencrypted to a remote
        host."""
        import httpx  # slow to load, and most commands do not need it

        #: as messages show it
        self._url = without_password(url)
        self._timeout_s = timeout_s
        self._credentials = credentials
        #: its transport has one event loop
        self._in_turn = is_service_url(url)
        if is_service_url(url):
            from oncelog.cli.admin.proxy import ProxyTransport

            self._base = "http://oncelog"
            transport = ProxyTransport(url, credentials, timeout_s=timeout_s)
            self._client = httpx.Client(transport=transport, timeout=timeout_s, trust_env=False)
            return
        # `oncelog standalone` prints the address with the path that all calls have.
        self._base = parse_http_url(url.rstrip("/").removesuffix("/admin/v2"), "--admin-url")
        self._url = without_password(self._base)
        # Proxy settings of the environment are not used for the cluster.
        if credentials.token is not None:
            place = urlsplit(self._base)
            credentials.check_address(f"{place.hostname}:{place.port}")
        self._client = httpx.Client(timeout=timeout_s, trust_env=False, verify=credentials.verification(self._base))

    def get(self, path: str, **query: bool | int | str | None) -> Answer:
        """path: absolute path. query: query parameters; None: left out. Raises OncelogError."""
        return self._call("GET", path, query=_shown(query))

    def get_each(self, asked: Sequence[tuple[str, Query]]) -> list[Answer | OncelogError]:
        """The answers, or the errors, in the order of the calls. asked: path and query. Some run at once; through a
        service URL one after the other."""

        def one(call: tuple[str, Query]) -> Answer | OncelogError:
            try:
                return self.get(call[0], **call[1])
            except OncelogError as error:
                return error

        if self._in_turn or len(asked) < 2:
            return list(map(one, asked))
        with ThreadPoolExecutor(min(AT_ONCE_MAX, len(asked))) as pool:
            return list(pool.map(one, asked))

    def download(self, path: str, name: str) -> bytes:
        """A file, part by part: through a service URL an answer has at most 15 MiB. name: of the file, for errors."""
        parts: list[bytes] = []
        size, whole = 0, -1
        while size != whole:
            response = self._send("GET", path, query={"offset": str(size), "bytes_max": str(PART_BYTES)})
            parts.append(response.content)
            size += len(response.content)
            whole = int(response.headers.get("oncelog-bytes", "-1"))
            if not response.content or size > whole:
                raise ServiceUnavailable(f"the download of {name} ended at {size} of {whole} bytes: retry")
        return b"".join(parts)

    def upload(self, path: str, file: bytes, **query: list[str]) -> Answer:
        """Send a file, part by part: what bounds a call bounds each part."""
        parts = (file[start : start + UPLOADED_BYTES] for start in range(0, len(file), UPLOADED_BYTES))
        return _answer(self._send("PUT", path, query=query, file=(parts, len(file))), self._url, path)

    def put(self, path: str, body: Answer = None) -> None:
        self._call("PUT", path, body)

    def post(self, path: str, body: Answer = None, **query: int) -> Answer:
        """The body of the response, None for most requests."""
        return self._call("POST", path, body, _shown(query))

    def delete(self, path: str) -> Answer:
        """The body of the response, None for most requests."""
        return self._call("DELETE", path)

    def _call(self, method: str, path: str, body: Answer = None, query: dict[str, str] | None = None) -> Answer:
        return _answer(self._send(method, path, body, query), self._url, path)

    def _send(
        self,
        method: str,
        path: str,
        body: Answer = None,
        query: Mapping[str, str | list[str]] | None = None,
        *,
        file: tuple[Iterator[bytes], int] | None = None,
    ) -> "httpx.Response":
        """A response that is no error. file: instead of a body: its parts and its size."""
        import httpx

        authorization, expected = self._credentials.authorization, self._credentials.expected_name
        headers = {"Authorization": authorization} if authorization else {}
        if file is not None:
            headers |= {"Content-Length": str(file[1]), "Content-Type": "application/octet-stream"}
        try:
            response = self._client.request(
                method,
                self._base + path,
                json=body,
                content=None if file is None else file[0],
                params=query or None,
                headers=headers or None,
                extensions={"sni_hostname": expected} if expected else None,
            )
        except httpx.TimeoutException as error:
            raise DeadlineExceeded(f"no response from {self._url} within {self._timeout_s:g} s") from error
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise ServiceUnavailable(f"cannot reach {self._url} ({error}): check --admin-url") from error
        if response.status_code >= 400:
            raise _error(response)
        return response

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _answer(response: "httpx.Response", url: str, path: str) -> Answer:
    """The value in its body; None without one. Raises Fatal."""
    if response.status_code == 204 or not response.content:
        return None
    try:
        answer: Answer = response.json()
    except ValueError as error:
        raise Fatal(f"{url} is not an Oncelog REST interface: the response of {path} is not JSON") from error
    return answer


def objects(value: object) -> list[dict[str, object]]:
    """The objects of a list in a response; [] if it is none."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def number(value: object) -> int:
    """A whole number of a response; 0 if it is none."""
    return value if isinstance(value, int) else 0


def _shown(query: Mapping[str, bool | int | str | None]) -> dict[str, str]:
    given = {name: value for name, value in query.items() if value is not None}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def _error(response: "httpx.Response") -> OncelogError:
    """The error in a problem body."""
    error = error_of_problem(response.status_code, response.content)
    return error or Fatal(f"{response.url} answered {response.status_code} without a problem body: check --admin-url")
