"""A stream of server-sent events: messages of a session, until its client or the session is gone.

    event: id = the delivery's id, data = the message as in a long poll
    ":"    a comment after HEARTBEAT_S without a message, so that both sides notice a dead connection
    event "end": the problem that ended the stream; a client that comes back gets the same as a response

Rules
- Messages are taken when those before them are written, so a client that reads slowly is given no more than the
  connection holds. One that reads nothing for WRITE_S is cut off; what it was given is outstanding until its time-out.
- A stream ends after STREAM_S, and its client comes back with Last-Event-ID: so a token that has expired, or a right
  that was revoked, ends it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from oncelog.core.errors import OncelogError
from oncelog.metadata.http_consume.bodies import Event
from oncelog.metadata.rest.problems import problem

MEDIA_TYPE = "text/event-stream"
HEARTBEAT_S = 10.0
WRITE_S = 30.0
STREAM_S = 600.0
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
#: (seconds to wait, resolved when the client is gone) -> messages
Take = Callable[[float, "asyncio.Future[None]"], Awaitable[list[Event]]]


class EventStream(Response):
    """Begin with `first`, and go on with what `take` returns."""

    media_type = MEDIA_TYPE

    def __init__(self, first: list[Event], take: Take, *, write_s: float = WRITE_S) -> None:
        super().__init__(headers=_HEADERS, media_type=MEDIA_TYPE)
        del self.headers["content-length"]
        self._first = first
        self._take = take
        self._write_s = write_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        gone = until_gone(receive)
        try:
            await self._write(send, gone)
        finally:
            gone.cancel()

    async def _write(self, send: Send, gone: "asyncio.Future[None]") -> None:
        async def write(data: bytes, *, more: bool = True) -> None:
            async with asyncio.timeout(self._write_s):
                await send({"type": "http.response.body", "body": data, "more_body": more})

        loop = asyncio.get_running_loop()
        until_s = loop.time() + STREAM_S
        events = self._first
        try:
            while not gone.done() and loop.time() < until_s:
                await write(b"".join(map(_event, events)) or b": \n\n")
                try:
                    events = await self._take(HEARTBEAT_S, gone)
                except OncelogError as error:
                    await write(_end(error))
                    break
            if not gone.done():
                await write(b"", more=False)
        except TimeoutError:
            return  # the server closes the connection of a response that is not complete


def until_gone(receive: Receive) -> "asyncio.Future[None]":
    """Resolved when the client has disconnected; cancel it when the response is written."""

    async def wait() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return asyncio.ensure_future(wait())


def _event(event: Event) -> bytes:
    return b"id: " + event.id.encode() + b"\ndata: " + event.data + b"\n\n"


def _end(error: OncelogError) -> bytes:
    body = json.loads(bytes(problem(error).body))
    return b"event: end\ndata: " + json.dumps(body).encode() + b"\n\n"
