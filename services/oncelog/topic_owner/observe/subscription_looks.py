"""Looks at the subscriptions of one topic that cost the same however many there are, as JSON for operators: pages of
them, the ack state of one by ranges of messages, and what a seek would do. Nothing changes."""

import heapq
from collections.abc import Mapping

from pyroaring import BitMap64

from oncelog.core.acks.changes import IndexRange
from oncelog.core.acks.index_ranges import count_between
from oncelog.core.delivery.subscription import Subscription
from oncelog.core.errors import InvalidArgument
from oncelog.core.topic.listing import ListPosition
from oncelog.core.topic.serving import Serving
from oncelog.topic_owner.observe.subscription_states import backlog_of, summary_of

Json = Mapping[str, object]
#: Subscriptions of one page.
PAGE_MAX = 1_000
#: Parts of an ack state.
BUCKETS_MAX = 1_000
#: Unacknowledged ranges that are listed, the lowest ones.
HOLES_SHOWN_MAX = 50


def subscription_page(serving: Serving, *, by_backlog: bool, after: ListPosition | None, limit: int) -> Json:
    """by_backlog: the largest backlog first; otherwise by name. after: where the page before ended.

    Raises InvalidArgument.
    """
    _check("limit", limit, PAGE_MAX)
    placed = [
        (ListPosition(-backlog_of(each, serving) if by_backlog else 0, each.state.name), each)
        for each in serving.subscriptions
    ]
    behind = placed if after is None else [one for one in placed if one[0] > after]
    page = heapq.nsmallest(limit, behind, key=lambda one: one[0])
    spans = serving.space.ledgers.spans()
    return {
        "subscriptions": [{"name": each.state.name, **summary_of(each, serving, spans)} for _, each in page],
        "total": len(placed),
        "next_after": str(page[-1][0]) if len(behind) > len(page) else None,
    }


def ack_state_of(subscription: Subscription, serving: Serving, buckets_max: int) -> Json:
    """The messages from the first unacknowledged one to the end in at most `buckets_max` parts of the same size, and
    the lowest unacknowledged ranges. Only what is durable counts as acknowledged. Raises InvalidArgument."""
    _check("buckets", buckets_max, BUCKETS_MAX)
    acks, next_index = subscription.state.acks, serving.log.table.state.next_index
    first = min(acks.mark_delete, next_index)
    width = -(-(next_index - first) // buckets_max) or 1
    held = BitMap64.union(BitMap64(), *(each.out.bits for each in subscription.consumers))
    return {
        "first": first,
        "next": next_index,
        "topic_first": serving.subscriptions.log.first_index,
        "bucket_messages": width,
        "buckets": [
            {
                "acknowledged": acks.acked_between(begin, min(begin + width, next_index)),
                "in_flight": count_between(held, begin, min(begin + width, next_index)),
            }
            for begin in range(first, next_index, width)
        ],
        "hole_count": acks.range_count + (acks.end < next_index),
        "holes": _holes(subscription, acks.unacked_ranges(first, next_index, HOLES_SHOWN_MAX)),
        "dead_letter_topic": subscription.dead_letters.topic or None,
    }


def _holes(subscription: Subscription, ranges: list[IndexRange]) -> list[Json]:
    state, firsts = subscription.state, BitMap64([each.first for each in ranges])
    holders = {index: each for each in subscription.consumers for index in firsts & each.out.bits}
    shown: list[Json] = []
    for first, last in ranges:
        holder, again = holders.get(first), state.redeliveries.get(first)
        shown.append(
            {
                "first": first,
                "last": last,
                "holder": None if holder is None else holder.name,
                "held_since_ms": None if holder is None else subscription.held_since_ms(holder, BitMap64([first])),
                "delivery_count": 0 if again is None else again.deliveries,
                "delayed_until_ms": again.not_before_ms or None if again is not None and holder is None else None,
                "pending_dead_letter": first in state.dead_letters,
            }
        )
    return shown


def seek_preview(subscription: Subscription, serving: Serving, index: int) -> Json:
    """What a seek to this message would do now. Raises InvalidArgument for an index that the topic does not have."""
    log, acks = serving.subscriptions.log, subscription.state.acks
    if not log.first_index <= index <= log.next_index:
        raise subscription.seeking.out_of_range(index)
    unacknowledged = max(0, index - acks.mark_delete) - acks.acked_between(acks.mark_delete, index)
    return {
        "index": index,
        "delivered_again": acks.acked_between(index, log.next_index),
        "left_out": unacknowledged,
        "first_index": log.first_index,
        "next_index": log.next_index,
    }


def _check(field: str, value: int, limit: int) -> None:
    if not 1 <= value <= limit:
        raise InvalidArgument(f"{field}={value}: give 1 to {limit}", field=field, limit=limit)
