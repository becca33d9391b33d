"""Invalid requests to the REST interface get an error with a stable code, and change nothing."""

import asyncio
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI

from oncelog.core import errors
from oncelog.core.errors import BY_CODE, InvalidArgument, InvariantViolated
from oncelog.metadata.replica import Coordination
from oncelog.metadata.rest import problems
from oncelog.metadata.rest.port.body_limits import BODY_BYTES_MAX, BodyLimit
from oncelog.metadata.rest.port.server import KEEP_ALIVE_S, RestServer
from tests.contract.rest.admin.admin_world import FLIGHTS, serving
from tests.contract.rest.lent_apps import lent_app

pytestmark = pytest.mark.asyncio

BAD_ELEMENTS = ["%20", "a%20b", "a%00b", "a%0Ab", "caf%C3%A9", "x" * 256, "x" * 5000, "a%25b", "a*b"]
PATHS = {
    "tenant": ["/admin/v2/tenants/{}", "/admin/v2/namespaces/{}", "/admin/v2/namespaces/{}/default"],
    "namespace": ["/admin/v2/namespaces/public/{}", "/admin/v2/persistent/public/{}/flights"],
    "topic": [
        "/admin/v2/persistent/public/default/{}",
        "/admin/v2/persistent/public/default/{}/stats",
        "/lookup/v2/topic/persistent/public/default/{}",
    ],
}


async def test_invalid_name_in_a_path_is_reported_with_its_field() -> None:
    """412 with the field, and with the limit if it is exceeded."""
    async with serving() as admin:
        for field, path in ((field, path) for field, paths in PATHS.items() for path in paths):
            for element in BAD_ELEMENTS:
                method = "PUT" if "tenants" in path else "GET"
                problem = await admin.refused(method, path.format(element), 412, "invalid_name")
                assert problem["field"] == field
                assert ("limit" in problem) is (len(element) > 255)
                assert len(problem["detail"]) < 500


async def test_name_that_is_too_long_for_its_partitions_is_refused() -> None:
    """A partition with such a name could never be used. Nothing is created, and the topic does not grow."""
    partitions = f"/admin/v2/persistent/public/default/{'x' * 243}/partitions"
    async with serving() as admin:
        for count, limit in ((11, 242), (1_000, 241)):
            problem = await admin.refused("PUT", partitions, 412, "invalid_name", json=count)
            assert (problem["field"], problem["limit"]) == ("topic", limit)
            assert f"with {count} partitions" in problem["detail"]
        await admin.refused("GET", partitions, 404, "topic_not_found")
        (await admin.http.put(partitions, json=10)).raise_for_status()
        problem = await admin.refused("POST", partitions, 412, "invalid_name", json=11)
        assert (problem["field"], problem["limit"]) == ("topic", 242)
        assert (await admin.get(partitions))["partitions"] == 10


async def test_unknown_path_is_a_problem() -> None:
    """Also a path with an additional slash."""
    async with serving() as admin:
        for path in ("/index.html", "/admin", "/admin/v2/", "/admin/v3/tenants", "/docs/", f"{FLIGHTS}/", "/%2F"):
            await admin.refused("GET", path, 404, "not_found")


async def test_unknown_method_is_a_problem() -> None:
    """The Allow header has the methods of all routes at this path."""
    topic = "persistent/a/b/c"
    calls = (
        ("DELETE", "tenants", "GET"),
        ("POST", "brokers", "GET"),
        ("PATCH", topic, "DELETE, GET, PUT"),
        ("GET", f"{topic}/unload", "PUT"),
    )
    async with serving() as admin:
        for method, path, allowed in calls:
            await admin.refused(method, f"/admin/v2/{path}", 405, "method_not_allowed")
            assert (await admin.http.request(method, f"/admin/v2/{path}")).headers["allow"] == allowed


async def test_unknown_method_needs_no_description(monkeypatch: pytest.MonkeyPatch) -> None:
    """To describe all requests takes a second, in which the service would answer nobody."""
    with lent_app(cast("Coordination", None)) as app:
        monkeypatch.setattr(app, "openapi", None)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http:
            answer = await http.post("/admin/v2/tenants")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


async def test_malformed_json_is_reported() -> None:
    """The field is the whole body."""
    headers, path = {"content-type": "application/json"}, "/admin/v2/namespaces/public/orders"
    async with serving() as admin:
        for body in (b"{", b"{'a': 1}", b"\x00\x01", b'{"deduplication": tru', b"[" * 100_000, b"\xff\xfe"):
            problem = await admin.refused("PUT", path, 422, "invalid_argument", content=body, headers=headers)
            assert problem["field"] == "body"
        await admin.refused("GET", path, 404, "namespace_not_found")


async def test_body_of_another_content_type_is_refused() -> None:
    """curl sends a form by default."""
    async with serving() as admin:
        path = "/admin/v2/namespaces/public/default/deduplication"
        for headers in ({"content-type": "application/x-www-form-urlencoded"}, {"content-type": "text/plain"}, {}):
            problem = await admin.refused("POST", path, 422, "invalid_argument", content=b"true", headers=headers)
            assert "application/json" in problem["detail"]
        assert await admin.get(path) is None


async def test_body_over_the_limit_is_refused_on_every_route() -> None:
    """Announced or streamed; a body of exactly the limit is accepted."""
    async with serving() as admin:

        async def streamed() -> Any:
            for _ in range(BODY_BYTES_MAX // 65_536 + 1):
                yield b" " * 65_536

        path = "/admin/v2/namespaces/public/default/deduplication"
        headers = {"content-type": "application/json"}
        for content in (b" " * (BODY_BYTES_MAX + 1), streamed()):
            problem = await admin.refused("POST", path, 413, "message_too_large", content=content, headers=headers)
            assert problem["limit"] == BODY_BYTES_MAX
        await admin.refused("GET", "/admin/v2/tenants", 413, "message_too_large", content=b" " * (BODY_BYTES_MAX + 1))
        await admin.change("POST", path, content=b"true".rjust(BODY_BYTES_MAX), headers=headers)


async def _answering(app: FastAPI, request: bytes) -> bytes:
    """The response of `app` to raw bytes, until the connection closes."""
    server = RestServer(app, stop_timeout_s=1)
    port = server.start(host="127.0.0.1", port=0)
    running = asyncio.ensure_future(server.run())
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        server.stop()
        await running
    return answer


async def test_body_that_does_not_arrive_times_out() -> None:
    """A client that sends one byte per minute must not hold resources."""
    app = FastAPI()
    app.add_middleware(BodyLimit, timeout_s=0.05)
    answer = await _answering(app, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"request_timeout"' in answer


async def test_garbage_instead_of_http_is_answered_and_the_connection_closed() -> None:
    """Other connections are not affected."""
    answer = await _answering(FastAPI(), b"\x16\x03\x01\x02\x00 not HTTP \r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_server_bug_is_reported_with_a_request_id_only() -> None:
    """The details are in the log; the response has the id to search for."""
    app = FastAPI()
    problems.install(app)

    @app.get("/bug")
    async def bug() -> None:
        raise ZeroDivisionError("secret")

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        response = await http.get("/bug")
    body = response.json()
    assert (response.status_code, body["code"]) == (500, "invariant_violated")
    assert body["request_id"] in body["detail"]
    assert "secret" not in response.text


@pytest.mark.parametrize("code", sorted(BY_CODE))
async def test_every_error_has_a_status_and_its_own_code(code: str) -> None:
    """Only retriable errors have Retry-After, with the time that they name; conflicts with the state of the server are
    409."""
    error = BY_CODE[code]("what to do", field="name", limit=5, retry_after_s=60)
    response = problems.problem(error)
    assert 400 <= response.status_code < 600
    assert (response.status_code in {429, 503, 504}) is (error.retriable and response.status_code != 409)
    assert response.headers.get("retry-after") == ("60" if error.retriable else None)
    assert f'"code":"{code}"'.encode() in bytes(response.body)


async def test_every_error_class_has_its_own_status() -> None:
    """One that falls through to the root would be "the request failed": each says what it is, and has its status."""
    tree = [error for error in BY_CODE.values() if error.__module__ == errors.__name__]
    roots = {errors.Fatal, errors.OncelogError}
    unnamed = [error.__name__ for error in tree if error not in roots and problems.status_class(error) in roots]
    assert len(tree) > 40
    assert unnamed == []


async def test_address_in_use_is_reported() -> None:
    """The start fails with the address."""
    async with serving() as admin:
        with pytest.raises(InvalidArgument, match="in use"):
            RestServer(FastAPI(), stop_timeout_s=1).start(host="127.0.0.1", port=admin.port)
    assert InvariantViolated.code in BY_CODE


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_request_with_two_lengths_is_refused_and_the_connection_closed(version: str) -> None:
    """A proxy that believes the other length would take the rest of this request for the next one, of somebody else."""
    app = FastAPI()
    lengths = "" if version == "1.0" else "Content-Length: 5\r\n"
    head = f"POST / HTTP/{version}\r\nHost: localhost\r\n{lengths}Transfer-Encoding: chunked\r\n\r\n"
    answer = await _answering(app, head.encode() + b"0\r\n\r\nGET /next HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert b'"code":"invalid_request"' in answer
    assert b"connection: close" in answer.lower()


async def test_connection_that_stays_open_says_for_how_long() -> None:
    """So that a client does not send a request into a connection that closes. One that closes says nothing of it."""
    async with serving() as admin:
        kept = await admin.http.get(FLIGHTS)
        assert kept.headers["keep-alive"] == f"timeout={KEEP_ALIVE_S}"
        closed = await admin.http.get(FLIGHTS, headers={"Connection": "close"})
        assert "keep-alive" not in closed.headers


@pytest.mark.parametrize("encoding", ["gzip", "br, gzip", "x-unknown"])
async def test_compressed_body_is_refused_by_name(encoding: str) -> None:
    """It would be taken for JSON that is broken, or be stored as the copy of records that it is not."""
    headers = {"Content-Encoding": encoding}
    async with serving() as admin:
        for method, path in (("POST", FLIGHTS), ("PUT", f"/admin/v2/backups/{'0' * 64}"), ("POST", "/topics/a/b/c")):
            response = await admin.http.request(method, path, headers=headers, content=b"\x1f\x8b")
            assert (response.status_code, response.json()["code"]) == (415, "unsupported_encoding"), response.text
            assert encoding in response.json()["detail"]
            assert response.headers["accept-encoding"] == "identity"
        assert (await admin.http.get(FLIGHTS, headers={"Content-Encoding": "identity"})).status_code == 404
