"""The arguments of `subscribe`: checked, and made into what the consumer's core and the topic owner need."""

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from oncelog.client.network.backoff import persist
from oncelog.client.network.network import Network
from oncelog.client.network.partition_watch import for_each_partition
from oncelog.client.network.start_position import Place, check_of_all_partitions, check_place, find_index
from oncelog.client.values.arguments import check_type, choice, integer, milliseconds
from oncelog.core.acks.changes import SubscriptionType
from oncelog.core.errors import InvalidArgument, TopicNotFound
from oncelog.core.names import TopicName, check_part, parse_topic
from oncelog.core.sdk.consumer.events import RECEIVE_WINDOW, RECEIVE_WINDOW_ALONE, ConsumerSettings
from oncelog.rpc.codecs.consumer_codec import PROPERTIES_BYTES_MAX, PROPERTIES_MAX

SubscriptionTypeName = Literal["exclusive", "failover", "shared", "key_shared"]
RECEIVE_WINDOW_MAX = 1_000_000
MAX_DELIVERIES_MAX = 1_000_000
ACK_TIMEOUT_S_MAX = 86_400
_PRIORITY_MAX = 2**31 - 1
#: Partitions that are asked at once.
_CALLS_MAX = 16

_TYPES: dict[str, SubscriptionType] = {
    "exclusive": SubscriptionType.EXCLUSIVE,
    "failover": SubscriptionType.FAILOVER,
    "shared": SubscriptionType.SHARED,
    "key_shared": SubscriptionType.KEY_SHARED,
}


def consumer_settings(
    subscription: str,
    kind: str,
    consumer_name: str | None,
    max_deliveries: int | None,
    dead_letter_topic: str | None,
    ack_timeout: float | None,
    receive_window: int | None,
    priority: int,
    properties: Mapping[str, str] | None,
) -> ConsumerSettings:
    """Raises InvalidName or InvalidArgument, whose field names the argument."""
    deliveries = integer("max_deliveries", max_deliveries or 0, 0, MAX_DELIVERIES_MAX)
    dead_letters = "" if dead_letter_topic is None else str(parse_topic(dead_letter_topic))
    if dead_letters and not deliveries:
        raise InvalidArgument("dead_letter_topic needs max_deliveries: 1 or more", field="dead_letter_topic")
    type_ = choice("type", _TYPES, kind)
    ack_timeout_ms = milliseconds("ack_timeout", ack_timeout, ACK_TIMEOUT_S_MAX)
    return ConsumerSettings(
        _checked_name("subscription", subscription),
        type_,
        _checked_name("consumer_name", f"consumer-{secrets.token_hex(5)}" if consumer_name is None else consumer_name),
        priority=integer("priority", priority, -_PRIORITY_MAX, _PRIORITY_MAX),
        max_deliveries=deliveries,
        dead_letter_topic=dead_letters,
        ack_timeout_ms=ack_timeout_ms,
        properties=_checked_properties(properties),
        receive_window=_window(receive_window, type_, ack_timeout_ms),
    )


def _window(receive_window: int | None, type_: SubscriptionType, ack_timeout_ms: int) -> int:
    if receive_window is not None:
        return integer("receive_window", receive_window, 1, RECEIVE_WINDOW_MAX)
    alone = type_ in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
    return RECEIVE_WINDOW_ALONE if alone and not ack_timeout_ms else RECEIVE_WINDOW


def _checked_name(field: str, name: str) -> str:
    """The rule of topic names: dead-letter topics are named after subscriptions."""
    check_type(field, name, str, "a string")
    return check_part(name, field=field)


def _checked_properties(properties: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    if properties is None:
        return ()
    check_type("properties", properties, Mapping, "a mapping of text to text")
    if len(properties) > PROPERTIES_MAX:
        message = f"a subscription has at most {PROPERTIES_MAX} properties, not {len(properties)}"
        raise InvalidArgument(message, field="properties", limit=PROPERTIES_MAX)
    size = 0
    for text in (*properties.keys(), *properties.values()):
        check_type("properties", text, str, "a mapping of text to text")
        try:
            size += len(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"{text!r} is not text: {error.reason}", field="properties") from error
    if size > PROPERTIES_BYTES_MAX:
        message = f"the properties have {size} bytes, at most {PROPERTIES_BYTES_MAX}"
        raise InvalidArgument(message, field="properties", limit=PROPERTIES_BYTES_MAX)
    return tuple(properties.items())


async def first_indexes(
    network: Network, topic: TopicName, start: Place, *, inclusive: bool, timeout_ms: int | None
) -> list[tuple[TopicName, int]]:
    """The topic, or each of its partitions, with the index at which a subscription that begins at `start` begins there.
    Creates a missing topic. Raises as `find_index`."""
    check_place(start, inclusive)

    async def count(again: bool) -> int:
        try:
            return await network.lookup.partitions(topic)
        except TopicNotFound:
            return 0  # the next look-up creates it, as a topic without partitions

    partitions = await persist(count, timeout_ms=timeout_ms, what=f"the topic {topic}")
    if not partitions:
        return [await _first_index(network, topic, start, inclusive, timeout_ms)]
    if partitions > 1:
        check_of_all_partitions(start, str(topic), partitions)
    topics = [replace(topic, partition=number) for number in range(partitions)]
    return await for_each_partition(
        lambda each: _first_index(network, each, start, inclusive, timeout_ms), topics, at_once_max=_CALLS_MAX
    )


async def _first_index(
    network: Network, topic: TopicName, start: Place, inclusive: bool, timeout_ms: int | None
) -> tuple[TopicName, int]:
    found = await find_index(network, topic, start, inclusive=inclusive, timeout_ms=timeout_ms)
    return topic, found.begins_at
