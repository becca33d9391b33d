"""Publishing one message with an idempotency key: a metadata service does it, as for a request over HTTP.

The request is the one of REST, carried over the gRPC port (`Rest`), so keys, rights, limits and results are those of
HTTP publish. With the same key it is safe to repeat, so it is repeated, at any metadata service, until it is answered
or the time is up.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import replace

from oncelog.client.network.backoff import persist
from oncelog.client.network.network import Network
from oncelog.client.network.rest import body_of, headers_of, path_of
from oncelog.client.producing.message_arguments import Key, checked_extras, plain_bytes
from oncelog.client.producing.send_buffer import Extras, Properties
from oncelog.client.values.results import PublishResult
from oncelog.core.errors import IdempotencyUnavailable, InvalidArgument, OncelogError
from oncelog.core.formats.message_id import MessageId
from oncelog.core.ids import TopicId
from oncelog.core.names import TopicName, check_idempotency_key, parse_topic
from oncelog.rpc.codecs.metadata_codec import REST
from oncelog.wire.metadata_pb2 import RestAnswer, RestRequest

#: Of one call; a publish that takes longer goes on at the service, and the next call with the key finds it.
_CALL_TIMEOUT_MS = 30_000


async def publish_keyed(
    network: Network,
    topic: TopicName,
    value: object,
    *,
    idempotency_key: str,
    key: Key | None,
    event_time_ms: int | None,
    properties: Properties | None,
    timeout_ms: int | None,
) -> PublishResult:
    """As `AsyncClient.publish`."""
    request = _request(
        topic,
        check_idempotency_key(idempotency_key, field="idempotency_key"),
        plain_bytes(value, field="value"),
        checked_extras(key, event_time_ms, properties),
    )

    async def ask(_: bool) -> PublishResult:
        limit_ms = _CALL_TIMEOUT_MS if timeout_ms is None else min(timeout_ms, _CALL_TIMEOUT_MS)
        return _result(await network.lookup.ask(REST, request, timeout_ms=limit_ms))

    def hopeless(error: OncelogError) -> bool:
        """Whether keys are refused for longer than the caller waits: no Redis is configured, or it has lost keys."""
        pause_s = error.details.get("retry_after_s")
        lasts = isinstance(pause_s, int) and timeout_ms is not None and pause_s * 1000 > timeout_ms
        return lasts and isinstance(error, IdempotencyUnavailable)

    return await persist(
        ask, timeout_ms=timeout_ms, what=f"the publish with idempotency key {idempotency_key!r}", hopeless=hopeless
    )


def _request(topic: TopicName, idempotency_key: str, value: bytes, extras: Extras) -> RestRequest:
    message: dict[str, object] = {"value_base64": base64.b64encode(value).decode()}
    if extras.key is not None:
        try:
            message["key"] = extras.key.decode()
        except UnicodeDecodeError as error:
            raise InvalidArgument("with an idempotency key, key must be text in UTF-8", field="key") from error
    if extras.event_time_ms is not None:
        message["event_time_ms"] = extras.event_time_ms
    if extras.properties:
        message["properties"] = dict(extras.properties)
    body = json.dumps({"messages": [message]}).encode()
    request = RestRequest(method="POST", target=f"/topics/persistent/{path_of(topic)}", body=body)
    # In quotes, so that quotes and spaces of the key itself stay.
    escaped = idempotency_key.replace("\\", "\\\\").replace('"', '\\"')
    request.headers.add(name="idempotency-key", value=f'"{escaped}"')
    request.headers.add(name="content-type", value="application/json")
    return request


def _result(answer: RestAnswer) -> PublishResult:
    body, headers = body_of(answer), headers_of(answer)
    (message,) = body["messages"]
    return PublishResult(
        _message_id(message, parse_topic(body["topic"]), headers),
        replayed=headers.get("idempotency-replayed") == "true",
    )


def _message_id(message: Mapping[str, object], topic: TopicName, headers: Mapping[str, str]) -> MessageId | None:
    if message["message_id"] is None:
        return None
    parsed = MessageId.parse(str(message["message_id"]))
    partition = parsed.partition if topic.partition is None else topic.partition
    return replace(parsed, topic_id=TopicId(headers.get("oncelog-topic-id", "")), partition=partition)
