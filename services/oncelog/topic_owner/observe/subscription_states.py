"""The statistics of a topic's subscriptions as JSON, for operators; names follow Pulsar's where it has the value."""

import json
from collections.abc import Mapping, Sequence
from itertools import islice

from oncelog.core.acks.ack_state import SubscriptionState
from oncelog.core.acks.digest import state_digest
from oncelog.core.delivery.consumers import ConnectedConsumer
from oncelog.core.delivery.subscription import Subscription
from oncelog.core.ids import SubscriptionNumber
from oncelog.core.names import DEAD_LETTER_SUFFIX, DEAD_LETTERS, REDRIVE_TOPIC
from oncelog.core.policies.retention_rules import LedgerSpan, backlog_bytes
from oncelog.core.topic.serving import Serving

Json = Mapping[str, object]
#: Of `SubscriptionEffects`, as they are.
_EFFECTS_FIELDS = (
    "number", "store_id", "effect", "seek_epoch", "redo_epoch", "redo_index", "generation", "mark_delete",
    "first_index", "next_index", "known_from", "forgotten_below", "complete",
)  # fmt: skip
#: Consumers listed for each subscription; `consumer_count` counts all.
CONSUMERS_SHOWN_MAX = 100
#: Subscriptions listed for a topic, and the bytes that they take: an answer has at most 16 MiB, and the properties and
#: consumers of one subscription take up to 100 KiB.
SUBSCRIPTIONS_SHOWN_MAX = 1_000
SHOWN_BYTES_MAX = 4 * 1024 * 1024
#: A topic of dead letters has hardly other producers.
_LOOKED_AT_PRODUCERS = 4


def subscriptions_of(
    serving: Serving, *, count_max: int = SUBSCRIPTIONS_SHOWN_MAX, bytes_max: int = SHOWN_BYTES_MAX
) -> dict[str, Json]:
    """{name: statistics} of the first ones by name, as many as an answer has room for. Only what is durable counts as
    acknowledged."""
    spans, shown, left = serving.space.ledgers.spans(), dict[str, Json](), bytes_max
    for each in sorted(serving.subscriptions, key=lambda each: each.state.name)[:count_max]:
        one = _subscription(each, serving, spans)
        left -= len(each.state.name) + len(json.dumps(one))
        if left < 0:
            break
        shown[each.state.name] = one
    return shown


def ack_state(serving: Serving) -> Json | None:
    """The durable state of all subscriptions as digests, and the position of the ack log that it corresponds to.
    None while the chain does not say yet what was given up of it: the state is ahead of the chain."""
    state = serving.acks.state
    if serving.acks.given_up:
        return None
    return {
        "position": str(state.position),
        "subscriptions": {each.name: state_digest(each) for each in state.subscriptions.values()},
    }


def subscription_of(subscription: Subscription, serving: Serving, *, consumed_from: int | None = None) -> Json:
    """The statistics of one. consumed_from: with all that its consumers would learn about its effects, and with the
    consumed messages from this index on."""
    shown = _subscription(subscription, serving, serving.space.ledgers.spans())
    if consumed_from is None:
        return shown
    known = subscription.effects.known(consumed_from)
    details = {name: getattr(known, name) for name in _EFFECTS_FIELDS}
    return {**shown, "effects": {**details, "consumed": [[first, last] for first, last in known.consumed]}}


def backlog_of(subscription: Subscription, serving: Serving) -> int:
    """Messages that are not acknowledged."""
    acks = subscription.state.acks
    return serving.log.table.state.next_index - acks.mark_delete - acks.acked_count


def largest_backlog(serving: Serving) -> Subscription | None:
    """The subscription with the most messages that are not acknowledged; None: no subscription has any."""
    found = max(serving.subscriptions, key=lambda each: backlog_of(each, serving), default=None)
    return found if found is not None and backlog_of(found, serving) > 0 else None


def oldest_unacked_ms(serving: Serving) -> int | None:
    """When the oldest message that a subscription has not acknowledged was appended
    (`LedgerSizes.stored_ms`). None: there is none, or that is not known yet."""
    lowest = min((each.state.acks.mark_delete for each in serving.subscriptions), default=None)
    return None if lowest is None else serving.space.ledgers.stored_ms(lowest)


def unconsumed(serving: Serving, *, before_ms: int) -> tuple[Subscription, int] | None:
    """Of the subscriptions with messages and without a consumer the one whose oldest message waits the longest, and
    when that was appended (`LedgerSizes.stored_ms`). before_ms: not later than this. None: there
    is none, or the time is not known."""
    idle = (each for each in serving.subscriptions if not each.has_consumers and backlog_of(each, serving) > 0)
    found = min(idle, key=lambda each: each.state.acks.mark_delete, default=None)
    since_ms = None if found is None else serving.space.ledgers.stored_ms(found.state.acks.mark_delete)
    return None if found is None or since_ms is None or since_ms > before_ms else (found, since_ms)


def is_redrive(subscription: Subscription) -> bool:
    """Whether it keeps which dead letters were redriven."""
    return any(name == REDRIVE_TOPIC for name, _ in subscription.state.properties)


def dead_letters_waiting(topic: str, serving: Serving) -> int | None:
    """How many messages of a dead-letter topic no redrive has published or passed over. None: it is no such topic: its
    name does not say so, no redrive has read it, and none of its first producers stores dead letters."""
    redrives = [each for each in serving.subscriptions if is_redrive(each)]
    if redrives:
        return max(backlog_of(each, serving) for each in redrives)
    names = islice(serving.log.table.state.producers.names, _LOOKED_AT_PRODUCERS)
    if topic.endswith(DEAD_LETTER_SUFFIX) or any(name.startswith(DEAD_LETTERS) for name in names):
        return serving.log.table.state.next_index - serving.subscriptions.log.first_index
    return None


def blocked_since_ms(serving: Serving) -> int | None:
    """Since when a subscription gets no new messages because of its ack state; None: each one gets them."""
    return min((blocked.since_ms for each in serving.subscriptions if (blocked := each.blocked())), default=None)


def name_of(serving: Serving, number: SubscriptionNumber | None) -> str | None:
    """None for one that was deleted."""
    return next((each.state.name for each in serving.subscriptions if each.state.number == number), None)


def _subscription(subscription: Subscription, serving: Serving, spans: Sequence[LedgerSpan]) -> Json:
    return {
        **summary_of(subscription, serving, spans),
        "effects": _effects(subscription.state),
        "committed": _committed(subscription.state),
        "role": subscription.state.role or None,
        "properties": dict(subscription.state.properties),
        "consumers": [_consumer(subscription, each) for each in list(subscription.consumers)[:CONSUMERS_SHOWN_MAX]],
    }


def summary_of(subscription: Subscription, serving: Serving, spans: Sequence[LedgerSpan]) -> Json:
    """What has a fixed size. spans: the ledgers of the topic's log."""
    state = subscription.state
    delivered, redelivered = subscription.delivered_counts
    known = state.acks.mark_delete >= serving.space.ledgers.unknown_below
    acks, blocked, held = state.acks, subscription.blocked(), serving.space.held
    consumers = list(subscription.consumers)
    return {
        "type": subscription.type.name.lower(),
        "msg_backlog": backlog_of(subscription, serving),
        "backlog_size": backlog_bytes(spans, acks.mark_delete) if known else None,
        "oldest_unacked_ms": serving.space.ledgers.stored_ms(acks.mark_delete),
        "unacked_messages": sum(len(each.out.bits) for each in consumers),
        "mark_delete": acks.mark_delete,
        "seek_epoch": state.seek_epoch,
        "msg_out_counter": delivered,
        "msg_redeliver_counter": redelivered,
        "redelivered_messages": len(state.redeliveries),
        "pending_dead_letters": len(state.dead_letters),
        "dead_letter_topic": subscription.dead_letters.topic or None,
        "dead_letters_wait_for": (subscription.dead_letters.waiting_for or None) if state.dead_letters else None,
        "ack_state_bytes": state.state_bytes,
        "ack_ranges": acks.range_count,
        "is_blocked_on_ack_state_persistent": blocked is not None,
        "blocked": None if blocked is None else blocked._asdict(),
        "holds_publishing_since_ms": held.since_ms if held is not None and held.number == state.number else None,
        "active_consumer": next((each.name for each in consumers if each.generation), None),
        "generation": state.generation,
        "committed_ms": None if state.committed is None else state.committed.time_ms,
        "consumer_count": len(consumers),
    }


def _effects(state: SubscriptionState) -> Json | None:
    """Where the effects of the messages go; None: nowhere that the log knows of."""
    binding = state.binding
    if binding is None:
        return None
    return {
        "store_id": binding.store_id,
        "effect": binding.effect,
        "consumed_count": binding.consumed.count,
        "redo_epoch": state.redo_epoch,
        "redo_index": state.redo_index,
    }


def _committed(state: SubscriptionState) -> Json | None:
    """What a group of a gateway's clients has committed last; None: none has."""
    return None if state.committed is None else state.committed._asdict()


def _consumer(subscription: Subscription, consumer: ConnectedConsumer) -> Json:
    held = consumer.out.bits
    return {
        "consumer_name": consumer.name,
        "priority": consumer.opening.priority,
        "active": bool(consumer.generation),
        "unacked_messages": len(consumer.out.bits),
        "msg_out_counter": consumer.credit.sent,
        "msg_redeliver_counter": consumer.redelivered,
        "available_permits": consumer.credit.left,
        "role": consumer.opening.role or None,
        "connected_from": consumer.opening.peer or None,
        "since_ms": consumer.since_ms,
        "lowest_held": held.min() if held else None,
        "held_since_ms": subscription.held_since_ms(consumer, held),
    }
