"""The routes that consume a topic: sessions, their messages, and acknowledgements.

Their paths are below the one that publishes, so that a reverse proxy can allow both without administration. Any replica
takes each request; the one that keeps the session answers it.
"""

import asyncio
import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response

from oncelog.core.access import Right
from oncelog.metadata.http_consume.bodies import (
    MESSAGES_MAX,
    WAIT_S_MAX,
    Acks,
    ConsumedMessages,
    Event,
    Nacks,
    NewSession,
    Outcomes,
    SessionView,
    body_of,
)
from oncelog.metadata.http_consume.event_stream import MEDIA_TYPE, EventStream, until_gone
from oncelog.metadata.http_consume.forwarding import STREAM, Forwarding
from oncelog.metadata.http_consume.http_consume_service import HttpConsumeService
from oncelog.metadata.http_consume.open_session import OpenSession, Place, Taking
from oncelog.metadata.rest.access import CallerOfRequest, requires
from oncelog.metadata.rest.problems import CONSUME_PART, PUBLISH_PREFIX
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.subscription_values import SubscriptionPath
from oncelog.metadata.rest.values import TopicPath

_PATH = f"{PUBLISH_PREFIX}persistent/{{tenant}}/{{namespace}}/{{topic}}{CONSUME_PART}{{subscription}}/session"
_ONE = f"{_PATH}/{{session}}"
_ALLOWED = [requires(Right.CONSUME)]
SessionPath = Annotated[str, Path(description="The id of the session.", max_length=64)]
_LAST = (
    "The `id` of the last message that the client has. What was given after it and is not acknowledged is delivered "
    "again first; if the id is not known, everything that is not acknowledged."
)
_STREAMED: dict[int | str, dict[str, Any]] = {200: {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}}


def routes(consumer: HttpConsumeService | None) -> APIRouter:
    """consumer None: requests are answered 503."""
    router = new_router(tags=["consume"])
    forwarding = Forwarding(consumer)
    _add_life(router, forwarding)
    _add_messages(router, forwarding)
    return router


def _add_life(router: APIRouter, forwarding: Forwarding) -> None:
    @router.post(_PATH, summary="Open a session", operation_id="open_session", dependencies=_ALLOWED)
    async def open_session(
        topic: TopicPath, subscription: SubscriptionPath, new: NewSession, request: Request, caller: CallerOfRequest
    ) -> SessionView:
        """Attach a consumer to the subscription, which is created if it does not exist. The topic must exist.

        A session ends when it has no request for `ack_timeout` seconds, when it is deleted, or with the metadata
        service that keeps it. Its requests are then answered 410 `session_gone`, and what was not acknowledged is
        delivered again. A subscription whose effects are in a store is refused with `store_mismatch`.
        """
        peer = "" if request.client is None else request.client.host
        return await forwarding.here.open(Place(topic, subscription, caller), new, peer)

    @router.delete(_ONE, summary="End a session", operation_id="end_session", status_code=204, dependencies=_ALLOWED)
    async def end_session(
        topic: TopicPath,
        subscription: SubscriptionPath,
        session: SessionPath,
        request: Request,
        caller: CallerOfRequest,
    ) -> Response:
        """What it has not acknowledged goes to other consumers at once."""
        here = forwarding.here.find(session, Place(topic, subscription, caller))
        if here is None:
            return await forwarding.forward(request, session)
        await forwarding.here.delete(here)
        return Response(status_code=204)


def _add_messages(router: APIRouter, forwarding: Forwarding) -> None:
    @router.get(
        f"{_ONE}/messages", summary="Take messages", operation_id="take_messages", dependencies=_ALLOWED,
        response_model=ConsumedMessages, responses=_STREAMED,
    )  # fmt: skip
    async def take_messages(
        topic: TopicPath,
        subscription: SubscriptionPath,
        session: SessionPath,
        request: Request,
        caller: CallerOfRequest,
        most: Annotated[int, Query(alias="max", ge=1, le=MESSAGES_MAX, description="Messages of the answer.")] = 100,
        wait: Annotated[int, Query(ge=0, le=WAIT_S_MAX, description="Seconds to wait for a first message.")] = 20,
        last_event_id: Annotated[str | None, Header(description=_LAST, max_length=128)] = None,
    ) -> Response:
        """Answered when there are messages, or without one after `wait` seconds. With `Accept: text/event-stream`: a
        stream of server-sent events, which begins with everything that was given after `Last-Event-ID`.

        At most 2 MiB, or one message. A newer request of the session ends an older one with 409.
        """
        place = Place(topic, subscription, caller)
        here = forwarding.here.find(session, place)
        if MEDIA_TYPE in request.headers.get("accept", ""):
            return await _stream(forwarding, here, session, request, last_event_id or "")
        if here is None:
            return await forwarding.forward_wait(request, session, wait)
        stream, _, first = request.headers.get(STREAM, "").partition(";")
        again = last_event_id is not None
        taking = Taking(most, wait, stream, not stream or bool(first), again, last_event_id or "")
        gone = until_gone(request.receive)
        try:
            events = await forwarding.here.take(here, taking, gone)
        finally:
            gone.cancel()
        return Response(body_of(events), media_type="application/json")

    @router.post(
        f"{_ONE}/acks", summary="Acknowledge messages", operation_id="acknowledge_messages", dependencies=_ALLOWED,
        response_model=Outcomes,
    )  # fmt: skip
    async def acknowledge_messages(
        topic: TopicPath,
        subscription: SubscriptionPath,
        session: SessionPath,
        acks: Acks,
        request: Request,
        caller: CallerOfRequest,
    ) -> Response | Outcomes:
        """Answered when each is durable, or has failed: look at each outcome. A message whose outcome is `true` never
        comes again, unless the subscription is sought; every other one may. Repeating the request is safe.
        """
        here = forwarding.here.find(session, Place(topic, subscription, caller))
        if here is None:
            return await forwarding.forward(request, session)
        return Outcomes(ids=await forwarding.here.ack(here, acks.ids))

    @router.post(
        f"{_ONE}/nacks", summary="Have messages delivered again", operation_id="return_messages",
        dependencies=_ALLOWED, response_model=Outcomes,
    )  # fmt: skip
    async def return_messages(
        topic: TopicPath,
        subscription: SubscriptionPath,
        session: SessionPath,
        nacks: Nacks,
        request: Request,
        caller: CallerOfRequest,
    ) -> Response | Outcomes:
        """To any consumer of the subscription, after the delay."""
        here = forwarding.here.find(session, Place(topic, subscription, caller))
        if here is None:
            return await forwarding.forward(request, session)
        return Outcomes(ids=await forwarding.here.nack(here, nacks.ids, nacks.delay))


async def _stream(
    forwarding: Forwarding, here: OpenSession | None, session: str, request: Request, last: str
) -> Response:
    """A stream of one request after the other, here or at the replica that keeps the session."""
    name = secrets.token_hex(8)

    async def take(wait_s: float, gone: "asyncio.Future[None]", *, first: bool = False) -> list[Event]:
        part = Taking(MESSAGES_MAX, wait_s, name, first, first, last)
        if here is not None:
            return await forwarding.here.take(here, part, gone)
        return await forwarding.take(request, session, part, gone)

    nobody: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    # Before the head of the response is sent, so that an error has a status of its own.
    return EventStream(await take(0, nobody, first=True), take)
