"""The metrics of all subscriptions of an owner's topics together; each one's own are in the topic's statistics.

Beside sums there are the worst values: a sum hides one subscription that is stuck. `topics list --state` names it.
"""

import time
from collections.abc import Callable, Iterable, Iterator

from oncelog.core.delivery.subscription import Subscription
from oncelog.core.policies.retention_rules import backlog_bytes
from oncelog.core.topic.serving import Serving
from oncelog.runtime.telemetry import Reading, Telemetry
from oncelog.topic_owner.observe.subscription_states import backlog_of, oldest_unacked_ms
from oncelog.topic_owner.shell.owner_metrics import OwnerCounts


def observe_subscriptions(telemetry: Telemetry, counts: OwnerCounts, servings: Callable[[], Iterable[Serving]]) -> None:
    """Register the instruments. servings: the topics that are served now."""

    def each() -> Iterator[Subscription]:
        return (subscription for serving in servings() for subscription in serving.subscriptions)

    def total(value: Callable[[Subscription], int]) -> Callable[[], int]:
        return lambda: sum(map(value, each()))

    telemetry.observe_count(
        "delivered_messages",
        "Messages sent to consumers, by delivery: first, or again",
        lambda: [Reading(value, {"delivery": name}) for name, value in counts.delivered.items()],
    )
    telemetry.observe_count(
        "evicted_messages",
        "Messages acknowledged without a consumer, by reason: ttl or backlog_quota",
        lambda: [Reading(value, {"reason": name}) for name, value in counts.evicted.items()],
    )
    telemetry.observe_level("subscriptions", "Subscriptions of the served topics", total(lambda _: 1))
    telemetry.observe_level("consumers", "Connected consumers", total(lambda one: len(list(one.consumers))))
    telemetry.observe_level(
        "subscription_backlog_messages",
        "Messages that are not acknowledged, all subscriptions",
        lambda: sum(backlog_of(one, serving) for serving in servings() for one in serving.subscriptions),
    )
    telemetry.observe_level(
        "subscription_backlog_bytes",
        "Bytes of the messages behind mark_delete, all subscriptions",
        lambda: sum(map(_backlog_bytes, servings())),
    )
    telemetry.observe_level(
        "subscription_unacked_messages",
        "Messages that are with consumers and not acknowledged",
        total(lambda one: sum(len(consumer.out.bits) for consumer in one.consumers)),
    )
    telemetry.observe_level(
        "ack_state_bytes", "Bytes of ack state in a snapshot, about", total(lambda one: one.state.state_bytes)
    )
    telemetry.observe_level(
        "ack_state_ranges", "Acknowledged ranges above mark_delete", total(lambda one: one.state.acks.range_count)
    )
    telemetry.observe_level(
        "subscriptions_blocked",
        "Subscriptions that get no new messages because of their ack state",
        total(lambda one: one.blocked() is not None),
    )
    telemetry.observe_level(
        "subscriptions_blocked_seconds",
        "Since when the longest of these has got none",
        lambda: max((_blocked_seconds(one) for one in each()), default=0.0),
    )
    _observe_worst(telemetry, servings)


def _observe_worst(telemetry: Telemetry, servings: Callable[[], Iterable[Serving]]) -> None:
    telemetry.observe_level(
        "topics_held",
        "Topics whose backlog quota does not let producers publish, by publishing: held or refused",
        lambda: _held(servings()),
    )
    telemetry.observe_level(
        "topics_held_seconds",
        "Since when the longest of these does not let them publish",
        lambda: _age_seconds(held.since_ms for one in servings() if (held := one.space.held)),
    )
    telemetry.observe_level(
        "subscription_backlog_messages_max",
        "The largest backlog of a subscription",
        lambda: max((backlog_of(one, s) for s in servings() for one in s.subscriptions), default=0),
    )
    telemetry.observe_level(
        "subscription_oldest_unacked_seconds",
        "Age of the oldest message that a subscription has not acknowledged",
        lambda: _age_seconds(at_ms for one in servings() if (at_ms := oldest_unacked_ms(one)) is not None),
    )


def _held(servings: Iterable[Serving]) -> list[Reading]:
    counts = {"held": 0, "refused": 0}
    for serving in servings:
        if serving.space.held is not None:
            counts[serving.space.held.action] += 1
    return [Reading(count, {"publishing": action}) for action, count in counts.items()]


def _age_seconds(times_ms: Iterable[int]) -> float:
    """Of the earliest; 0: there is none."""
    earliest = min(times_ms, default=None)
    return 0.0 if earliest is None else max(0.0, time.time() - earliest / 1000)


def _backlog_bytes(serving: Serving) -> int:
    spans = serving.space.ledgers.spans()
    return sum(backlog_bytes(spans, one.state.acks.mark_delete) for one in serving.subscriptions)


def _blocked_seconds(subscription: Subscription) -> float:
    blocked = subscription.blocked()
    return 0.0 if blocked is None else max(0.0, time.time() - blocked.since_ms / 1000)
