"""Requests for sessions that another replica keeps."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request, Response

from oncelog.client.network.problems import error_of_problem
from oncelog.core.errors import ServiceUnavailable
from oncelog.core.http_consume.delivery_id import home_in
from oncelog.metadata.http_consume.bodies import Event
from oncelog.metadata.http_consume.event_stream import until_gone
from oncelog.metadata.http_consume.http_consume_service import HttpConsumeService, gone
from oncelog.metadata.http_consume.open_session import Taking
from oncelog.wire.metadata_pb2 import RestAnswer, RestRequest

T = TypeVar("T")
#: The name of the stream that a forwarded request is a part of, with ";first" if it is its first one.
STREAM = "oncelog-stream"
#: Forwarded once: the replica that gets it keeps the session, or nobody does.
_FORWARDED = "oncelog-forwarded"
_AUTHORIZATION = "authorization"
#: Headers of the request that the other replica needs.
_SENT = ("content-type", "last-event-id")
#: Headers of its answer that the client needs.
_ANSWERED = ("content-type", "retry-after")
#: For an acknowledgement, and what a long poll takes besides its wait.
_ANSWER_S = 30.0


class Forwarding:
    """consumer None: this server consumes nothing."""

    def __init__(self, consumer: HttpConsumeService | None) -> None:
        self._consumer = consumer

    @property
    def here(self) -> HttpConsumeService:
        """Raises ServiceUnavailable."""
        if self._consumer is None:
            raise ServiceUnavailable("this server does not consume messages")
        return self._consumer

    async def forward(self, request: Request, session: str) -> Response:
        """The answer of the replica that keeps the session. Raises SessionGone if none is registered."""
        answer = await self._ask(request, session, await _call_of(request), 0)
        return _response(answer)

    async def forward_wait(self, request: Request, session: str, wait_s: float) -> Response:
        """The same for a request that waits, which ends when its client is gone."""
        call = await _call_of(request)
        gone = until_gone(request.receive)
        try:
            answer = await _unless(gone, self._ask(request, session, call, wait_s))
        finally:
            gone.cancel()
        return Response() if answer is None else _response(answer)

    async def take(self, request: Request, session: str, part: Taking, gone: "asyncio.Future[None]") -> list[Event]:
        """As `OpenSession.take`, for a part of a stream."""
        call = RestRequest(method="GET", target=f"{request.url.path}?max={part.count}&wait={int(part.wait_s)}")
        call.headers.add(name=STREAM, value=f"{part.stream};first" if part.first else part.stream)
        if part.again:
            call.headers.add(name="last-event-id", value=part.last)
        answer = await _unless(gone, self._ask(request, session, call, part.wait_s))
        if answer is None:
            return []
        if answer.status != 200:
            error = error_of_problem(answer.status, answer.body, retry_after=None)
            raise error or ServiceUnavailable(f"another metadata service answered {answer.status} without a reason")
        return [Event(each["id"], json.dumps(each).encode()) for each in json.loads(answer.body)["messages"]]

    async def _ask(self, request: Request, session: str, call: RestRequest, wait_s: float) -> RestAnswer:
        replicas, home = self.here.replicas, home_in(session)
        if home is None or _FORWARDED in request.headers or not await replicas.is_registered(home):
            raise gone()
        call.headers.add(name=_FORWARDED, value="1")
        authorization = request.headers.get(_AUTHORIZATION)
        return await replicas.ask(home, call, authorization, timeout_s=wait_s + _ANSWER_S)


async def _call_of(request: Request) -> RestRequest:
    query = request.url.query
    target = request.url.path + (f"?{query}" if query else "")
    call = RestRequest(method=request.method, target=target, body=await request.body())
    for name in _SENT:
        if name in request.headers:
            call.headers.add(name=name, value=request.headers[name])
    return call


def _response(answer: RestAnswer) -> Response:
    headers = {each.name: each.value for each in answer.headers if each.name in _ANSWERED}
    return Response(answer.body, answer.status, headers)


async def _unless(gone: "asyncio.Future[None]", work: Coroutine[Any, Any, T]) -> T | None:
    """The result of the work; None if the client is gone before."""
    task = asyncio.ensure_future(work)
    reasons: list[asyncio.Future[Any]] = [task, gone]
    try:
        await asyncio.wait(reasons, return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()  # without effect if it is done
    await asyncio.wait([task])
    return None if task.cancelled() else task.result()
