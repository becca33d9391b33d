"""The command line's errors when TLS fails, over real sockets: the quoted texts come from libraries."""

import asyncio
import io
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rich.console import Console

from oncelog.cli.admin.rest import AdminApi
from oncelog.cli.failures import Exit, explain
from oncelog.core.errors import DeadlineExceeded, MessageTooLarge, OncelogError, PermissionDenied, ServiceUnavailable
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.storage_codec import FENCE
from oncelog.rpc.server import Server
from oncelog.runtime.credentials import Credentials
from oncelog.runtime.security import OPEN, Security
from tests.contract.process.security_world import with_tls
from tests.contract.rpc.rpc_serving import REQUEST, TIMEOUT_MS

Failure = Callable[[Security, Credentials], Awaitable[OncelogError]]


@asynccontextmanager
async def grpc_server(security: Security) -> AsyncIterator[str]:
    server = Server(security)
    port = await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(grace_ms=0)


@asynccontextmanager
async def http_server(security: Security) -> AsyncIterator[str]:
    """It answers nothing: nobody is to come as far as to ask."""
    context = None if security.certificate is None else security.certificate.ssl_context()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def grpc_failure(security: Security, credentials: Credentials) -> OncelogError:
    async with grpc_server(security) as address, Channel(address, credentials=credentials) as channel:
        with pytest.raises(OncelogError) as failed:
            await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
    return failed.value


async def http_failure(security: Security, credentials: Credentials) -> OncelogError:
    async with http_server(security) as url:
        api = AdminApi(url, timeout_s=TIMEOUT_MS / 1000, credentials=credentials)
        with pytest.raises(OncelogError) as failed:
            await asyncio.to_thread(api.get, "/")
    return failed.value


def explained(error: OncelogError) -> tuple[Exit, str]:
    shown = io.StringIO()
    return explain(error, Console(file=shown)), shown.getvalue()


@pytest.mark.asyncio
@pytest.mark.parametrize("failure", [grpc_failure, http_failure])
async def test_wrong_ca_is_reported_with_advice(failure: Failure, tmp_path: Path) -> None:
    """The error does not ask whether the cluster is running, and does not advise a retry."""
    (tmp_path / "other").mkdir()
    error = await failure(with_tls(tmp_path), with_tls(tmp_path / "other").peers)
    code, shown = explained(error)
    assert code is Exit.FAILED
    assert "certificate is not signed by this CA" in shown
    assert "that the cluster runs" not in shown


def test_cas_are_read_for_https_only(tmp_path: Path) -> None:
    """A command without TLS would spend more on the system's CAs than on its call. Without TLS nobody is trusted; with
    it, one's own CA alone, or those of the system."""
    own = with_tls(tmp_path).peers
    for credentials in (Credentials(), own):
        trusted = credentials.verification("http://h:1")
        assert isinstance(trusted, ssl.SSLContext)
        assert (trusted.verify_mode, trusted.get_ca_certs()) == (ssl.CERT_REQUIRED, [])
    trusted = own.verification("HTTPS://h:1")
    assert isinstance(trusted, ssl.SSLContext)
    assert len(trusted.get_ca_certs()) == 1
    assert Credentials().verification("https://h:1") is True


@pytest.mark.asyncio
@pytest.mark.parametrize("failure", [grpc_failure, http_failure])
async def test_server_without_tls_is_reported_with_advice(failure: Failure, tmp_path: Path) -> None:
    """The URL requires TLS, and the cluster has none."""
    code, shown = explained(await failure(OPEN, with_tls(tmp_path).peers))
    assert code is Exit.FAILED
    assert "does not use TLS on this port" in shown


def test_message_above_the_limit_of_the_client_is_explained_as_such() -> None:
    """Not as a line that is too long, which is the advice for what is sent."""
    _, shown = explained(MessageTooLarge("no", field="max_message_bytes", limit=1))
    assert "--max-message-bytes" in shown
    assert "a line" not in shown
    assert "a line" in explained(MessageTooLarge("no", field="value", limit=1))[1]


def test_route_of_superusers_is_not_explained_by_a_grant() -> None:
    """No grant allows it."""
    error = PermissionDenied("permission denied: role ann is not a superuser")
    _, shown = explained(error)
    assert "the token of a superuser" in shown
    assert "namespaces grant" not in shown
    assert "namespaces grant" in explained(PermissionDenied("permission denied: role ann has no right to produce"))[1]


@pytest.mark.parametrize("error", [ServiceUnavailable("no"), DeadlineExceeded("no")])
def test_unreachable_cluster_exits_with_the_retry_code(error: OncelogError) -> None:
    """The control."""
    code, shown = explained(error)
    assert code is Exit.UNAVAILABLE
    assert "that the cluster runs" in shown
