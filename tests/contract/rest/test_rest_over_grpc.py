"""REST over the gRPC port: the same application, the caller's own token, and only valid HTTP requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response

from oncelog.cli.admin.commands import admin_place
from oncelog.cli.admin.rest import AdminApi
from oncelog.core.errors import (
    InvalidArgument,
    NotFound,
    OncelogError,
    ServiceUnavailable,
    TooManyRequests,
    Unauthenticated,
)
from oncelog.metadata.gateway.rest_over_grpc import HEADERS_MAX, RestOverGrpc
from oncelog.metadata.rest import problems
from oncelog.metadata.rest.access import Authentication, caller_of
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.metadata_codec import REST
from oncelog.rpc.server import Server
from oncelog.runtime.credentials import Credentials
from oncelog.runtime.security import OPEN, Security
from oncelog.wire.metadata_pb2 import RestAnswer, RestHeader, RestRequest
from tests.contract.process.security_world import secured, token

pytestmark = pytest.mark.asyncio

DEADLINE_S = 60.0


def echo(security: Security, gate: asyncio.Event) -> FastAPI:
    """Returns the request and its caller."""
    app = FastAPI()

    @app.api_route("/echo/{name}", methods=["GET", "PUT", "POST", "DELETE"])
    async def tell(name: str, request: Request) -> dict[str, Any]:
        return {
            "name": name,
            "method": request.method,
            "query": dict(request.query_params),
            "body": (await request.body()).decode(),
            "header": request.headers.get("x-note"),
            "role": caller_of(request).role,
        }

    @app.put("/nothing")
    async def nothing() -> Response:
        return Response(status_code=204)

    @app.get("/absent")
    async def absent() -> None:
        raise NotFound("there is no such thing: list them")

    @app.get("/wait")
    async def wait() -> str:
        await gate.wait()
        return "waited"

    @app.get("/bug")
    async def bug() -> None:
        raise RuntimeError("a bug")

    problems.install(app)
    app.add_middleware(Authentication, security=security)
    return app


@asynccontextmanager
async def serving(security: Security = OPEN, **options: Any) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """The address of a server with the application above, and an event that releases its waiting calls."""
    gate, server = asyncio.Event(), Server(security)
    RestOverGrpc(echo(security, gate), **options).serve(server)
    port = await server.start()
    try:
        yield f"127.0.0.1:{port}", gate
    finally:
        gate.set()
        await server.stop(grace_ms=0)


async def ask(address: str, request: RestRequest, credentials: Credentials | None = None) -> RestAnswer:
    async with Channel(address, credentials=credentials or Credentials()) as channel:
        return await channel.call(REST, request, timeout_ms=20_000)


async def test_request_arrives_unchanged() -> None:
    """Method, path, query, headers and body."""
    request = RestRequest(
        method="POST",
        target="/echo/a%20b?applied=true&of=1",
        headers=[RestHeader(name="x-note", value="n"), RestHeader(name="content-type", value="text/plain")],
        body=b"the body",
    )
    async with asyncio.timeout(DEADLINE_S), serving() as (address, _):
        answer = await ask(address, request)
    assert answer.status == 200
    assert {each.name: each.value for each in answer.headers}["content-type"] == "application/json"
    assert (
        b'"name":"a b","method":"POST","query":{"applied":"true","of":"1"},"body":"the body","header":"n"'
        in answer.body
    )


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (RestRequest(method="TRACE", target="/"), "method must be one of"),
        (RestRequest(method="GET", target="admin"), "target must be a path"),
        (RestRequest(method="GET", target="http://10.0.0.1/"), "target must be a path"),
        (RestRequest(method="GET", target="/a b"), "target must be a path"),
        (RestRequest(method="GET", target="/" + "a" * 9_000), "target must be a path"),
        (RestRequest(method="GET", target="/a\r\nx: y"), "target must be a path"),
        (RestRequest(method="GET", target="/", headers=[RestHeader(name="a\nb", value="c")]), "is not valid in HTTP"),
        (RestRequest(method="GET", target="/", headers=[RestHeader(name="a", value="b\r\nc")]), "is not valid in HTTP"),
        (
            RestRequest(method="GET", target="/", headers=[RestHeader(name="a", value="b")] * (HEADERS_MAX + 1)),
            "at most",
        ),
    ],
)
async def test_invalid_http_request_is_refused(request_: RestRequest, words: str) -> None:
    """The application must get only requests that an HTTP server would pass on."""
    async with asyncio.timeout(DEADLINE_S), serving() as (address, _):
        with pytest.raises(InvalidArgument, match=words):
            await ask(address, request_)


async def test_token_of_the_call_is_used_and_headers_are_not(tmp_path: Path) -> None:
    """A header must not replace the authenticated caller of the gRPC call."""
    forged = RestHeader(name="authorization", value=f"Bearer {token('root')}")
    request = RestRequest(method="GET", target="/echo/x", headers=[forged])
    async with asyncio.timeout(DEADLINE_S), serving(secured(tmp_path)) as (address, _):
        answer = await ask(address, request, Credentials.of(tls=False, token=token("importer")))
        assert b'"role":"importer"' in answer.body
        with pytest.raises(Unauthenticated):
            await ask(address, request)


async def test_concurrent_requests_are_limited() -> None:
    """Like the connections of the REST port."""
    request = RestRequest(method="GET", target="/wait")
    async with asyncio.timeout(DEADLINE_S), serving(at_once_max=3) as (address, gate), Channel(address) as channel:
        async with asyncio.TaskGroup() as tasks:

            async def one() -> int | type[OncelogError]:
                try:
                    return (await channel.call(REST, request, timeout_ms=20_000)).status
                except OncelogError as error:
                    if isinstance(error, TooManyRequests):
                        gate.set()
                    return type(error)

            asked = [tasks.create_task(one()) for _ in range(4)]
        assert sorted(str(each.result()) for each in asked) == ["200", "200", "200", str(TooManyRequests)]


async def test_call_without_a_request_message_is_ended() -> None:
    """A half-open stream must not hold resources."""
    async with asyncio.timeout(DEADLINE_S), serving(request_s=0.2) as (address, _), Channel(address) as channel:
        from oncelog.rpc.codecs.metadata_codec import REST_SERVED

        stream = channel.stream(REST_SERVED)
        with pytest.raises(InvalidArgument, match=r"no request message within 0\.2 s"):
            await anext(stream)


async def test_bug_of_the_application_returns_status_500() -> None:
    """As over HTTP."""
    async with asyncio.timeout(DEADLINE_S), serving() as (address, _):
        assert (await ask(address, RestRequest(method="GET", target="/bug"))).status == 500


async def test_command_line_uses_rest_through_the_gateway() -> None:
    """The same client class as over HTTP: responses, responses without a body, and errors."""

    def use(address: str) -> None:
        with AdminApi(f"oncelog://127.0.0.1:1,{address}", timeout_s=20) as api:
            assert api.get("/echo/x", applied=True) == {
                "name": "x", "method": "GET", "query": {"applied": "true"}, "body": "", "header": None, "role": ""
            }  # fmt: skip
            assert api.put("/nothing") is None  # type: ignore[func-returns-value]
            with pytest.raises(NotFound, match="there is no such thing"):
                api.get("/absent")
        with (
            AdminApi("oncelog+proxy://127.0.0.1:1", timeout_s=5) as api,
            pytest.raises(ServiceUnavailable, match=r"127\.0\.0\.1:1 \(a metadata service\).*refused"),
        ):
            api.get("/echo/x")

    async with asyncio.timeout(DEADLINE_S), serving() as (address, _):
        await asyncio.to_thread(use, address)


async def test_service_url_is_used_for_rest_too() -> None:
    """Of every scheme; an --admin-url takes precedence."""
    for url in ("oncelog+proxy://a:1", "oncelog://a:1", "oncelog+tls://a:1"):
        assert admin_place(None, url) == url
    assert admin_place("https://rest:1", "oncelog+proxy+tls://a:1") == "https://rest:1"
    assert admin_place(None, None) == "http://127.0.0.1:8080"
    with pytest.raises(InvalidArgument, match="url must be oncelog://"):
        admin_place(None, "http://a:1")


@pytest.mark.parametrize("path", ["", "/", "/admin/v2", "/admin/v2/"])
async def test_address_is_also_taken_as_standalone_prints_it(path: str) -> None:
    """It was answered with `no such path: /admin/v2/admin/v2/...`."""
    assert AdminApi(f"http://127.0.0.1:1{path}", timeout_s=DEADLINE_S)._base == "http://127.0.0.1:1"
