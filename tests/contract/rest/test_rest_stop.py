"""The stop of the REST server while requests are in progress."""

import asyncio

import httpx
import pytest
from fastapi import FastAPI

from oncelog.metadata.rest.port.server import RestServer
from oncelog.metadata.rest.problems import MEDIA_TYPE
from tests.cluster.until import until

pytestmark = pytest.mark.asyncio
DEADLINE_S = 30.0
PUBLISH = "/topics/persistent/public/default/orders"


async def test_request_that_the_stop_cuts_off_is_answered_with_a_problem() -> None:
    """The outcome of a change is unknown then, and 503 would say that nothing was changed. uvicorn answers 500 in plain
    text, which ends clients that could go on."""
    app, begun = FastAPI(), list[str]()

    @app.api_route("/{path:path}", methods=["GET", "PUT", "POST"])
    async def never_ends(path: str) -> None:
        begun.append(path)
        await asyncio.Event().wait()

    server = RestServer(app, stop_timeout_s=1)
    port = server.start(host="127.0.0.1", port=0)
    running = asyncio.ensure_future(server.run())
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S, verify=False) as http:
        requests = (("GET", "/admin/v2/tenants"), ("PUT", "/admin/v2/tenants/a"), ("POST", PUBLISH))
        asked = [asyncio.ensure_future(http.request(method, path)) for method, path in requests]
        await until(lambda: len(begun) == 3, DEADLINE_S)
        server.stop()
        shown, changed, published = await asyncio.gather(*asked)
        await running
    for answer, status, code in (
        (shown, 503, "service_unavailable"), (changed, 504, "deadline_exceeded"), (published, 504, "deadline_exceeded"),
    ):  # fmt: skip
        assert (answer.status_code, answer.headers["content-type"]) == (status, MEDIA_TYPE)
        assert (answer.json()["code"], int(answer.headers["retry-after"])) == (code, 1)
        assert "is stopping" in answer.json()["detail"]
    assert published.json()["stored"] is None
