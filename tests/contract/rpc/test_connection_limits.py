"""Connections without authentication must not block others; tested with real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from fastapi import FastAPI

from oncelog.core.access import Caller
from oncelog.core.ledger.member_status import ReadStatus
from oncelog.metadata.rest.port.connections import ConnectionLimits
from oncelog.metadata.rest.port.server import RestServer
from oncelog.rpc.codecs.storage_codec import FENCE, READ, ReadFrame, ReadRequest
from oncelog.rpc.options import CONNECTIONS_MAX
from oncelog.rpc.server import Server
from oncelog.runtime.health import Health
from oncelog.runtime.security import Security
from oncelog.wire import storage_pb2 as pb
from tests.cluster.until import until
from tests.contract.process.security_world import ROOT, bearer, secured, with_tls

pytestmark = pytest.mark.asyncio

DEADLINE_S = 30.0
Call = grpc.aio.StreamStreamCall[bytes, bytes]
LIMITS = ConnectionLimits(connections_max=40, per_peer_max=20)


class Rest:
    """A REST server; /held responds when `gate` is set."""

    def __init__(self, limits: ConnectionLimits, security: Security | None) -> None:
        self.gate = asyncio.Event()
        self.entered = 0
        app = FastAPI()

        @app.get("/")
        async def root() -> str:
            return "here"

        @app.get("/held")
        async def held() -> str:
            self.entered += 1
            await self.gate.wait()
            return "at last"

        certificate = None if security is None else security.certificate
        self.server = RestServer(app, stop_timeout_s=1, certificate=certificate, limits=limits)
        self.port = self.server.start(host="127.0.0.1", port=0)
        self.url = f"{'http' if certificate is None else 'https'}://127.0.0.1:{self.port}"

    async def get(self, path: str = "/") -> httpx.Response:
        async with httpx.AsyncClient(verify=False, timeout=DEADLINE_S, trust_env=False) as http:  # a new CA each time
            return await http.get(self.url + path)


@asynccontextmanager
async def rest(limits: ConnectionLimits = LIMITS, security: Security | None = None) -> AsyncIterator[Rest]:
    async with asyncio.timeout(60):
        served = Rest(limits, security)
        running = asyncio.ensure_future(served.server.run())
        try:
            yield served
        finally:
            served.gate.set()
            served.server.stop()
            await running


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)


@asynccontextmanager
async def silent(port: int, count: int, sent: bytes = b"") -> AsyncIterator[list[socket.socket]]:
    """Connections that send only `sent`."""
    sockets = [await asyncio.to_thread(connected, port) for _ in range(count)]
    try:
        for each in sockets:
            each.sendall(sent)
        yield sockets
    finally:
        for each in sockets:
            each.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HT"])
async def test_idle_connections_do_not_block_rest(sent: bytes) -> None:
    """1,100 idle connections once blocked REST. The oldest one is closed, also for a client at the same address."""
    async with rest() as served:
        async with silent(served.port, 3 * LIMITS.connections_max, sent):
            await until(lambda: len(served.server.connections) == LIMITS.per_peer_max, DEADLINE_S)
            for _ in range(3):
                assert (await served.get()).status_code == 200
        await until(lambda: not len(served.server.connections), DEADLINE_S)


async def test_unfinished_tls_handshakes_do_not_block_rest(tmp_path: Path) -> None:
    """Connections count before the TLS handshake."""
    async with rest(security=with_tls(tmp_path)) as served, silent(served.port, 3 * LIMITS.connections_max):
        await until(lambda: len(served.server.connections) == LIMITS.per_peer_max, DEADLINE_S)
        assert (await served.get()).status_code == 200


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_incomplete_request_head_closes_its_connection(sent: bytes) -> None:
    """Also below the limits: memory and file descriptors are needed for active clients."""
    async with rest(LIMITS._replace(head_timeout_s=3)) as served:
        async with silent(served.port, 5, sent) as sockets:
            answers = await asyncio.gather(*(asyncio.to_thread(each.recv, 100) for each in sockets))
            assert answers == [b""] * 5
        assert (await served.get()).status_code == 200


async def test_busy_connections_are_not_closed() -> None:
    """The excess connection is refused with the limit, and requests in progress are answered."""
    async with rest(ConnectionLimits(connections_max=10, per_peer_max=3)) as served:
        held = [asyncio.ensure_future(served.get("/held")) for _ in range(3)]
        await until(lambda: served.entered == 3, DEADLINE_S)
        refused = await served.get()
        assert (refused.status_code, refused.json()["code"]) == (503, "service_unavailable")
        assert "127.0.0.1 has 3 connections" in refused.json()["detail"]
        served.gate.set()
        assert [(await each).json() for each in held] == ["at last"] * 3
        await until(lambda: not len(served.server.connections), DEADLINE_S)
        assert (await served.get()).status_code == 200


async def test_idle_connections_do_not_block_health_probes() -> None:
    """A probe without an answer restarts the process."""
    health = Health(lambda: b"", None)
    port = await health.start(host="127.0.0.1", port=0)
    async with silent(port, 600), httpx.AsyncClient(timeout=DEADLINE_S, trust_env=False) as http:
        assert (await http.get(f"http://127.0.0.1:{port}/livez")).status_code == 200
    await health.stop()


# --- gRPC ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def grpc_server(
    security: Security, *, connections_max: int = CONNECTIONS_MAX
) -> AsyncIterator[tuple[str, list[Caller]]]:
    """(address, the clients that were served)."""
    server = Server(security, connections_max=connections_max)
    callers: list[Caller] = []

    async def fence(_request: pb.FenceRequest, caller: Caller) -> pb.FenceAnswer:
        callers.append(caller)
        return pb.FenceAnswer(status=pb.STORAGE_STATUS_OK, last_entry=-1, last_add_confirmed=-1)

    async def read(_request: ReadRequest) -> AsyncIterator[ReadFrame]:
        yield ReadFrame(ReadStatus.OK)

    server.client_unary(FENCE, fence)
    server.read(READ, read)
    port = await server.start()
    try:
        yield f"127.0.0.1:{port}", callers
    finally:
        await server.stop(grace_ms=0)


@pytest.mark.parametrize("path", [FENCE.path, READ.path, "/oncelog.wire.v1.LogStorage/Nothing"])
async def test_token_is_checked_before_a_request_is_received(tmp_path: Path, path: str) -> None:
    """40 incomplete calls without a token once held 640 MiB. They are refused by their headers."""
    async with (
        grpc_server(secured(tmp_path)) as (address, callers),
        grpc.aio.insecure_channel(address) as channel,
        asyncio.timeout(DEADLINE_S),
    ):
        for metadata in ((), (("authorization", "Bearer a.b.c"),)):
            call: Call = channel.stream_stream(path)(metadata=metadata)  # nothing is ever written
            assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
        assert callers == []


async def test_unary_call_without_a_request_is_refused(tmp_path: Path) -> None:
    """All methods are streams for gRPC, so it does not detect a missing request itself."""
    headers = (("authorization", bearer(ROOT)["Authorization"]),)
    async with (
        grpc_server(secured(tmp_path)) as (address, callers),
        grpc.aio.insecure_channel(address) as channel,
        asyncio.timeout(DEADLINE_S),
    ):
        call: Call = channel.stream_stream(FENCE.path)(metadata=headers)
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "without a request" in await call.details()
        unary: Any = channel.unary_unary(FENCE.path, response_deserializer=FENCE.decode_answer)
        assert await unary(FENCE.encode_request(pb.FenceRequest(target="ab" * 16, ledger_id=1)), metadata=headers)
        assert len(callers) == 1


async def test_grpc_server_limits_its_connections(tmp_path: Path) -> None:
    """Each connection needs a file descriptor, and a storage node needs some for its journal."""
    async with grpc_server(secured(tmp_path), connections_max=3) as (address, _):
        port = int(address.rpartition(":")[2])
        async with silent(port, 3), silent(port, 1) as [refused]:
            assert await asyncio.to_thread(refused.recv, 100) == b""
