"""The bodies of all requests in progress are limited in total; tested with concurrent requests over sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import httpx
import pytest
from fastapi import FastAPI, Request

from oncelog.metadata.app import new_app
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest.port.body_limits import BODY_BYTES_MAX, BodyLimit
from oncelog.metadata.rest.port.server import RestServer
from oncelog.metadata.rest.problems import MEDIA_TYPE
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio

DEADLINE_S = 30.0
ONE_MAX, ALL_MAX = 100_000, 150_000
LARGE, SMALL = b"x" * 90_000, b"x" * 1_000


class Served:
    """An application on a port; `gate` delays the responses of /held."""

    def __init__(self, port: int, http: httpx.AsyncClient) -> None:
        self.port = port
        self.http = http
        self.gate = asyncio.Event()

    async def post(self, body: bytes, path: str = "/") -> httpx.Response:
        return await self.http.post(path, content=body)

    async def until_answered(self, status: int, body: bytes = LARGE, path: str = "/") -> httpx.Response:
        """Bodies of other requests come and go when the server gets to them."""

        async def answered() -> httpx.Response | None:
            answer = await self.post(body, path)
            return answer if answer.status_code == status else None

        answer = await until(answered, DEADLINE_S, waiting_for=f"{status}")
        assert answer is not None
        return answer

    async def begin(
        self, sent: bytes, announced: int, path: str = "/"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A request whose body is not all sent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {announced}\r\n\r\n"
        writer.write(head.encode() + sent)
        await writer.drain()
        return reader, writer


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[Served]:
    server = RestServer(app, stop_timeout_s=1)
    port = server.start(host="127.0.0.1", port=0)
    running = asyncio.ensure_future(server.run())
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S, verify=False) as http:
        yield Served(port, http)
    server.stop()
    await running


@asynccontextmanager
async def small(**bounds: float) -> AsyncIterator[Served]:
    """An application that returns the size of the body."""
    app = FastAPI()
    held = asyncio.Event()

    @app.post("/")
    async def size(request: Request) -> int:
        return len(await request.body())

    @app.post("/held")
    async def size_later(request: Request) -> int:
        await held.wait()
        return len(await request.body())

    app.add_middleware(BodyLimit, bytes_max=ONE_MAX, all_bytes_max=ALL_MAX, **bounds)  # type: ignore[arg-type]
    async with serving(app) as served:
        served.gate = held
        yield served
        held.set()


async def test_body_over_the_total_limit_is_refused_with_retry_after() -> None:
    """The received bytes of the first body count while its rest is awaited."""
    app = new_app(cast("Coordination", None), bodies_bytes_max=BODY_BYTES_MAX)
    path, body = "/admin/v2/namespaces/public/default/deduplication", b"x" * (BODY_BYTES_MAX // 4 * 3)
    async with serving(app) as served:
        assert (await served.post(body, path)).status_code == 422, "read, and no switch"
        reader, writer = await served.begin(body[:-1], len(body), path)
        answer = await served.until_answered(503, body, path)
        problem = answer.json()
        assert answer.headers["content-type"] == MEDIA_TYPE
        assert int(answer.headers["retry-after"]) >= 1
        assert (problem["code"], problem["limit"]) == ("service_unavailable", BODY_BYTES_MAX)
        assert (await served.post(b"x", path)).status_code == 422, "a small one fits all the same"
        writer.write(body[-1:])
        assert (await reader.read()).startswith(b"HTTP/1.1 422 ")
        writer.close()
        await served.until_answered(422, body, path)


async def test_body_counts_until_its_request_is_answered() -> None:
    """It is in memory until then."""
    async with small() as served:
        first = asyncio.ensure_future(served.post(LARGE, "/held"))
        await served.until_answered(503)
        assert (await served.post(SMALL)).json() == len(SMALL)
        served.gate.set()
        assert (await first).json() == len(LARGE)
        assert (await served.until_answered(200)).json() == len(LARGE)


async def test_concurrent_requests_are_served_or_refused_and_free_their_bytes() -> None:
    """Twenty concurrent bodies, of which one fits; afterwards all bytes are free again."""
    async with small() as served:
        answers = await asyncio.gather(*(served.post(LARGE) for _ in range(20)))
        assert {answer.status_code for answer in answers} <= {200, 503}
        assert any(answer.status_code == 200 for answer in answers)
        assert (await served.until_answered(200)).json() == len(LARGE)


async def test_announced_bytes_do_not_count() -> None:
    """A client that announces a large body and sends nothing must not block others."""
    async with small() as served:
        idle = [await served.begin(b"", ONE_MAX) for _ in range(5)]
        assert (await served.post(LARGE)).status_code == 200
        for _, writer in idle:
            writer.close()


async def test_every_end_of_a_request_frees_its_bytes() -> None:
    """Disconnected, too slow, too large and refused requests, more often than the total limit would allow."""
    async with small(timeout_s=0.2) as served:
        for _ in range(3):
            _, writer = await served.begin(LARGE, ONE_MAX)
            writer.close()
            reader, slow = await served.begin(LARGE, ONE_MAX)
            assert (await reader.read())[9:12] in {b"408", b"503"}
            slow.close()
            assert (await served.post(b"x" * (ONE_MAX + 1))).status_code in {413, 503}
            await served.until_answered(200)
