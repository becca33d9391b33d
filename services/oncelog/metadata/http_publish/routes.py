"""The route that publishes messages to a topic. Its path is the one of Pulsar's brokers.

The path is outside of `/admin/v2`, so that a reverse proxy can allow publishing without administration.
"""

from typing import Annotated

from fastapi import APIRouter, Header, Response

from oncelog.core.access import Right
from oncelog.core.errors import IdempotencyKeyRequired, InvalidArgument, ServiceUnavailable
from oncelog.core.names import check_producer_name
from oncelog.metadata.http_publish.http_publish_service import HttpPublishService
from oncelog.metadata.http_publish.named_producers import NamedProducerKey
from oncelog.metadata.http_publish.publish_body import (
    PublishAnswer,
    PublishBody,
    read_key,
    read_messages,
    read_rules,
    read_sequence_ids,
)
from oncelog.metadata.rest.access import CallerOfRequest, requires
from oncelog.metadata.rest.routers import new_router
from oncelog.metadata.rest.values import TopicPath

PREFIX = "/topics/"
REPLAYED = "Idempotency-Replayed"
#: With it, an SDK makes a whole message id of the text in the response.
TOPIC_ID = "Oncelog-Topic-Id"
_KEY = (
    "Instead of a producer name, for senders without sequence ids. A repeated request with the same key and the same "
    "messages gets the answer of the first one, and stores nothing."
)


def routes(publisher: HttpPublishService | None) -> APIRouter:
    """publisher None: requests are answered 503."""
    router = new_router(prefix=f"{PREFIX}persistent", tags=["publish"])

    @router.post(
        "/{tenant}/{namespace}/{topic}",
        summary="Publish messages",
        operation_id="publish_messages",
        response_model_exclude_unset=True,
        dependencies=[requires(Right.PRODUCE)],
    )
    async def publish_messages(
        topic: TopicPath,
        body: PublishBody,
        response: Response,
        caller: CallerOfRequest,
        idempotency_key: Annotated[str | None, Header(description=_KEY)] = None,
    ) -> PublishAnswer:
        """Answered when all messages are stored. Send a producer name with sequence ids, or an Idempotency-Key.

        In an error, `stored` is false if this request stored nothing and never will, null if that is unknown. If
        some messages are stored and others are not, `messages` has the result of each.

        A newer instance of a producer name fences the older one: send the messages of one name to one address, in
        order. With a key: 409 while the first request is in progress, 422 for other messages with the same key, 503
        while keys are unavailable.
        """
        if publisher is None:
            raise ServiceUnavailable("this server does not publish messages")
        messages = read_messages(body, publisher.limits)
        if idempotency_key is None and body.producer_name is None:
            message = "send producer_name with sequence ids, or an Idempotency-Key: otherwise a retry is stored twice"
            raise IdempotencyKeyRequired(message, field="Idempotency-Key")
        if idempotency_key is None:
            key = NamedProducerKey(topic, check_producer_name(body.producer_name or ""), body.sequence_mode, caller)
            return await publisher.publish_named(key, read_sequence_ids(body), messages, read_rules(body))
        for name in ("producer_name", "sequence_id", "sequence_ids"):
            if getattr(body, name) is not None:
                raise InvalidArgument(
                    f"an Idempotency-Key cannot be combined with {name}: send one of them", field=name
                )
        answer, keyed = await publisher.publish_keyed(topic, read_key(idempotency_key), messages, caller.role)
        response.headers[TOPIC_ID] = keyed.topic_id
        if keyed.replayed:
            response.headers[REPLAYED] = "true"
        return answer

    return router
