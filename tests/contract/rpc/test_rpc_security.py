"""Servers and channels with TLS and tokens, over real sockets: without mutual verification no request is sent."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from oncelog.core.access import Caller
from oncelog.core.errors import InvalidArgument, OncelogError, PermissionDenied, ServiceUnavailable, Unauthenticated
from oncelog.core.ledger.member_status import ReadStatus
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.storage_codec import APPEND, FENCE, READ, ReadFrame, ReadRequest
from oncelog.rpc.server import Server
from oncelog.runtime.credentials import PLAIN, Credentials
from oncelog.runtime.security import OPEN, Security, ServerCertificate
from oncelog.runtime.settings import MetadataSettings, load
from oncelog.runtime.tls.certificates import new_ca, new_certificate
from oncelog.wire import storage_pb2 as pb
from tests.cluster.until import until
from tests.contract.process.security_world import ROOT, renew, secured, tls_environment, token, with_tls
from tests.contract.rpc.rpc_serving import LEDGER, NODE, REQUEST, TIMEOUT_MS, echo
from tests.contract.stores.cut_proxy import CutProxy

pytestmark = pytest.mark.asyncio

DEADLINE_S = 30.0


@asynccontextmanager
async def serving(security: Security, *, for_clients: bool = False) -> AsyncIterator[tuple[str, list[Caller]]]:
    """(address, who called) of a server with one method of each kind."""
    callers: list[Caller] = []
    server = Server(security)

    async def fence(_request: pb.FenceRequest, caller: Caller) -> pb.FenceAnswer:
        callers.append(caller)
        return pb.FenceAnswer(status=pb.STORAGE_STATUS_OK, last_entry=-1, last_add_confirmed=-1)

    async def read(_request: ReadRequest) -> AsyncIterator[ReadFrame]:
        yield ReadFrame(ReadStatus.OK)

    if for_clients:
        server.client_unary(FENCE, fence)
        server.client_stream(APPEND, echo)
    else:
        server.unary(FENCE, lambda request: fence(request, Caller("the cluster")))
        server.stream(APPEND, echo)
        server.read(READ, read)
    port = await server.start()
    try:
        yield f"127.0.0.1:{port}", callers
    finally:
        await server.stop(grace_ms=0)


async def fence(address: str, credentials: Credentials) -> None:
    async with Channel(address, credentials=credentials) as channel:
        await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)


async def stream_and_read(address: str, credentials: Credentials) -> list[type[OncelogError]]:
    """How a stream and a read end. Nothing is written to the stream: a refusal does not wait for the first message, and
    gRPC would lose the refusal's status when it meets a write."""
    found: list[type[OncelogError]] = []
    async with Channel(address, credentials=credentials) as channel:
        stream = channel.stream(APPEND)
        try:
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                await anext(aiter(stream))
        except OncelogError as error:
            found.append(type(error))
        try:
            async for _ in channel.read(READ, ReadRequest(NODE, LEDGER, 0, 1), timeout_ms=TIMEOUT_MS):  # type: ignore[arg-type]
                pass
        except OncelogError as error:
            found.append(type(error))
    return found


async def code_of(
    address: str, path: str, request: bytes, metadata: tuple[tuple[str, str], ...] = ()
) -> grpc.StatusCode:
    """How a call of any other program ends."""
    async with grpc.aio.insecure_channel(address) as channel:
        callee: Any = channel.unary_unary(path)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await callee(request, timeout=10, metadata=metadata)
    return caught.value.code()


def shown(role: str) -> Credentials:
    return Credentials.of(tls=False, token=token(role))


async def test_every_kind_of_call_needs_a_token(tmp_path: Path) -> None:
    """Refused before the handler, with the same error for each kind; gRPC's code is UNAUTHENTICATED."""
    async with serving(secured(tmp_path)) as (address, callers):
        with pytest.raises(Unauthenticated):
            await fence(address, PLAIN)
        assert await stream_and_read(address, PLAIN) == [Unauthenticated, Unauthenticated]
        assert callers == []
        assert await code_of(address, FENCE.path, FENCE.encode_request(REQUEST)) is grpc.StatusCode.UNAUTHENTICATED


async def test_internal_calls_require_a_superuser(tmp_path: Path) -> None:
    """A client's valid token must not allow it to fence a ledger."""
    async with serving(secured(tmp_path)) as (address, callers):
        with pytest.raises(PermissionDenied):
            await fence(address, shown("importer"))
        assert await stream_and_read(address, shown("importer")) == [PermissionDenied, PermissionDenied]
        await fence(address, secured(tmp_path).peers)
        assert len(callers) == 1


async def test_client_handler_gets_the_caller(tmp_path: Path) -> None:
    """The handler decides what the caller may do."""
    async with serving(secured(tmp_path), for_clients=True) as (address, callers):
        await fence(address, shown("importer"))
        await fence(address, shown(ROOT))
        assert callers == [Caller("importer"), Caller(ROOT, superuser=True)]
        with pytest.raises(Unauthenticated):
            await fence(address, PLAIN)


async def test_unknown_method_needs_authentication(tmp_path: Path) -> None:
    """Without a token no caller learns which methods exist; with one the code is UNIMPLEMENTED."""
    async with serving(secured(tmp_path)) as (address, _):
        assert await code_of(address, "/nobody/Knows", b"") is grpc.StatusCode.UNAUTHENTICATED
        metadata = (("authorization", f"Bearer {token('importer')}"),)
        assert await code_of(address, "/nobody/Knows", b"", metadata) is grpc.StatusCode.UNIMPLEMENTED


async def test_without_authentication_no_token_is_needed() -> None:
    """A token that is sent anyway is ignored."""
    async with serving(OPEN) as (address, callers):
        await fence(address, PLAIN)
        await fence(address, shown("importer"))
        assert len(callers) == 2


# --- TLS --------------------------------------------------------------------------------------------------------------


async def test_cluster_certificate_is_verified_by_its_name_and_ca(tmp_path: Path) -> None:
    """Independently of the address: a pod's address is not in its certificate."""
    security = with_tls(tmp_path)
    async with serving(security) as (address, callers):
        await fence(address, security.peers)
        assert len(callers) == 1


async def test_server_of_another_ca_is_refused(tmp_path: Path) -> None:
    """No request and no token is sent to it."""
    (tmp_path / "other").mkdir()
    stranger = with_tls(tmp_path / "other")
    async with serving(with_tls(tmp_path)) as (address, callers):
        with pytest.raises(ServiceUnavailable):
            await fence(address, stranger.peers)
        assert callers == []


async def test_certificate_without_the_cluster_name_is_refused(tmp_path: Path) -> None:
    """Without a configured CA the host name and the system's CAs count, and these did not sign this certificate."""
    async with serving(with_tls(tmp_path)) as (address, callers):
        with pytest.raises(ServiceUnavailable):
            await fence(address, Credentials.of(tls=True))
        assert callers == []


async def test_tls_and_plain_text_cannot_connect(tmp_path: Path) -> None:
    """In either direction: there is no fallback."""
    security = with_tls(tmp_path)
    async with serving(security) as (address, callers):
        with pytest.raises(ServiceUnavailable):
            await fence(address, PLAIN)
        assert callers == []
    async with serving(OPEN) as (address, callers):
        with pytest.raises(ServiceUnavailable):
            await fence(address, security.peers)
        assert callers == []


async def test_renewed_certificate_is_used_for_the_next_connection(tmp_path: Path) -> None:
    """Processes run for months and certificates expire after weeks."""
    security = with_tls(tmp_path)
    async with serving(security) as (address, callers):
        await fence(address, security.peers)
        other = new_ca()
        renew(tmp_path, other)
        (tmp_path / "other.crt").write_bytes(other.certificate)
        await fence(address, Credentials.of(tls=True, tls_ca_file=tmp_path / "other.crt"))
        assert len(callers) == 2


async def test_open_channel_follows_a_replaced_ca(tmp_path: Path) -> None:
    """The CA file has both CAs before the server uses the new one: the channel of a running process connects again."""
    security = with_tls(tmp_path)
    other = new_ca()
    async with (
        serving(security) as (address, _),
        CutProxy.running(int(address.rpartition(":")[2])) as relay,
        Channel(relay.address, credentials=security.peers) as channel,
    ):
        await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
        (tmp_path / "ca.crt").write_bytes((tmp_path / "ca.crt").read_bytes() + other.certificate)
        renew(tmp_path, other)
        await relay.cut()

        async def answers() -> bool:
            try:
                await channel.call(FENCE, REQUEST, timeout_ms=TIMEOUT_MS)
            except ServiceUnavailable:
                return False
            return True

        await until(answers, DEADLINE_S)


async def test_incomplete_renewal_is_not_used(tmp_path: Path) -> None:
    """Between the two writes certificate and key do not match; the current certificate stays in use."""
    security = with_tls(tmp_path)
    async with serving(security) as (address, callers):
        (tmp_path / "other").mkdir()
        with_tls(tmp_path / "other")
        (tmp_path / "tls.key").write_bytes((tmp_path / "other" / "tls.key").read_bytes())
        await fence(address, security.peers)
        assert len(callers) == 1


class _RenewedMeanwhile(ServerCertificate):
    """A certificate whose key reaches the disk between the read of the files and their check."""

    def __init__(self, directory: Path) -> None:
        self.meanwhile: Callable[[], object] = lambda: None
        super().__init__(directory / "tls.crt", directory / "tls.key")

    def _checked(self) -> ssl.SSLContext:
        self.meanwhile()
        return super()._checked()


async def test_checked_certificate_and_key_are_the_ones_used(tmp_path: Path) -> None:
    """Otherwise the new certificate would be served with the old key until the next renewal."""
    security = with_tls(tmp_path)
    certificate = _RenewedMeanwhile(tmp_path)
    async with serving(Security(certificate)) as (address, callers):
        other = new_ca()
        pair = new_certificate(other, (), days=1)
        (tmp_path / "other.crt").write_bytes(other.certificate)
        (tmp_path / "tls.crt").write_bytes(pair.certificate)
        certificate.meanwhile = lambda: (tmp_path / "tls.key").write_bytes(pair.key)
        before = certificate._pair
        await fence(address, security.peers)
        assert certificate._pair == before
        await fence(address, Credentials.of(tls=True, tls_ca_file=tmp_path / "other.crt"))
        assert len(callers) == 2


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("tls.crt", None, "ONCELOG_TLS_CERTIFICATE_FILE: cannot read"),
        ("tls.key", None, "ONCELOG_TLS_KEY_FILE: cannot read"),
        ("ca.crt", None, "ONCELOG_TLS_CA_FILE: cannot read"),
        ("ca.crt", b"x", "ONCELOG_TLS_CA_FILE: .* holds no PEM certificate"),
        ("tls.key", b"x", "ONCELOG_TLS_CERTIFICATE_FILE and ONCELOG_TLS_KEY_FILE: .* do not belong together"),
    ],
)
async def test_unusable_files_are_named(tmp_path: Path, file: str, content: bytes | None, complaint: str) -> None:
    """At the start: for a missing or mixed-up Secret."""
    environment = tls_environment(tmp_path)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(InvalidArgument, match=complaint):
        Security.of(load(MetadataSettings, environment))


# --- tokens and plain text --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["10.0.0.1:6650", "oncelog-metadata:6650", "[2001:db8::1]:6650", "127.0.0.1.x:1"])
async def test_token_is_sent_unencrypted_only_when_allowed(address: str) -> None:
    """An eavesdropper could use the token."""
    with pytest.raises(InvalidArgument, match="plain text"):
        Channel(address, credentials=shown("importer"))
    allowed = Credentials.of(tls=False, token="x", plaintext_token_allowed=True)
    await Channel(address, credentials=allowed).close()
    await Channel(address, credentials=PLAIN).close()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.9.9.9:1"])
async def test_token_may_be_sent_to_loopback(address: str) -> None:
    """No network is involved."""
    await Channel(address, credentials=shown("importer")).close()


async def test_token_is_not_sent_to_a_server_without_tls(tmp_path: Path) -> None:
    """A process that took over the address gets only a handshake."""
    with_tls(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        credentials = Credentials.of(tls=True, token=token("importer"), tls_ca_file=tmp_path / "ca.crt")
        listener.settimeout(DEADLINE_S)
        async with Channel(f"127.0.0.1:{port}", credentials=credentials) as channel:
            failing = asyncio.create_task(channel.call(FENCE, REQUEST, timeout_ms=int(DEADLINE_S * 1000)))
            connection, _ = await asyncio.to_thread(listener.accept)
            with connection:
                connection.settimeout(DEADLINE_S)
                received = await asyncio.to_thread(connection.recv, 1 << 16)
            with pytest.raises(OncelogError):
                await failing
            assert received, "the client has begun a handshake"
            assert token("importer").encode()[:20] not in received
