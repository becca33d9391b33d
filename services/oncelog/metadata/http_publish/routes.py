"""The one route: publish messages to a topic, on the path on which Pulsar's brokers take them.

It lies beside `/admin/v2`, not below it: whoever may publish needs no way to administration, also where a proxy decides
by paths.
"""

from typing import Annotated

from fastapi import APIRouter, Header, Response

from oncelog.core.access import Right
from oncelog.core.errors import IdempotencyKeyRequired, InvalidArgument, ServiceUnavailable
from oncelog.core.names import check_producer_name
from oncelog.metadata.http_publish.http_publish_service import HttpPublishService
from oncelog.metadata.http_publish.named_producers import ProducerPlace
from oncelog.metadata.http_publish.publish_body import (
    PublishAnswer,
    PublishBody,
    read_key,
    read_messages,
    read_sequence_ids,
)
from oncelog.metadata.rest.access import CallerOfRequest, requires
from oncelog.metadata.rest.values import TopicPath

PREFIX = "/topics/"
REPLAYED = "Idempotency-Replayed"
_KEY = (
    "Instead of a producer name, for sources that cannot replay: a repeat with the same key and the same messages gets "
    "the first one's answer, and stores nothing."
)


def routes(publisher: HttpPublishService | None) -> APIRouter:
    """publisher None: a server that publishes nothing."""
    router = APIRouter(prefix=f"{PREFIX}persistent", tags=["publish"])

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
        """Answered when all messages are stored. Under a producer name with sequence ids, or with an Idempotency-Key.

        A problem's `stored` is false when it is proved that this publish stored nothing, null when that is not known;
        its `messages` tell of each message where some are stored and some are not.

        A newer instance of a producer name fences the older: send one name's messages to one address, in order. With a
        key: 409 while the first is under way, 422 for other messages under the same key, 503 while keys are not served.
        """
        if publisher is None:
            raise ServiceUnavailable("this server publishes nothing")
        messages = read_messages(body, publisher.limits)
        if idempotency_key is None and body.producer_name is None:
            message = "name a producer in the body, or send an Idempotency-Key: without, a repeat would be stored twice"
            raise IdempotencyKeyRequired(message, field="Idempotency-Key")
        if idempotency_key is None:
            place = ProducerPlace(topic, check_producer_name(body.producer_name or ""), body.sequence_mode, caller)
            return await publisher.publish_named(place, read_sequence_ids(body), messages)
        for name in ("producer_name", "sequence_id", "sequence_ids"):
            if getattr(body, name) is not None:
                raise InvalidArgument(f"an Idempotency-Key and {name}: give one of the two", field=name)
        answer, replayed = await publisher.publish_keyed(topic, read_key(idempotency_key), messages)
        if replayed:
            response.headers[REPLAYED] = "true"
        return answer

    return router
