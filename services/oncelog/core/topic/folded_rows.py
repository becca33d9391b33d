"""Rows of a list of topics, folded: the partitions of a topic become one row, at each owner, and then over all owners.

Rules
- What is a sum is unknown (None) if it is unknown of any partition.
- Of reasons, those of the partition that has been in the state longest are shown.
- A row without `partitions` is of one partition.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

Row = Mapping[str, Any]

_SUMS = (
    "message_count", "first_index", "bytes", "rate_in", "rate_out", "backlog_messages", "backlog_change_10m",
    "refused",
)  # fmt: skip
_HIGHEST = ("subscriptions", "blocked_subscriptions", "dead_letters")
#: {since when: what is shown of the partition with the lowest}
_REASONS: Mapping[str, tuple[str, ...]] = {
    "waiting_since_ms": ("waiting_for", "waiting_message"),
    "held_since_ms": ("held_by",),
    "blocked_since_ms": (),
    "oldest_unacked_ms": (),
    "unconsumed_since_ms": ("unconsumed_subscription",),
}
#: the worst last
_PUBLISHING = (None, "open", "held", "refused")


def folded(rows: Iterable[Row]) -> Row:
    """One row of at least one, each of a partition, or folded before."""
    return reduce(_merged, map(_one, rows))


def _one(row: Row) -> Row:
    """largest_backlog: of one partition, to find the subscription to show."""
    return {"partitions": 1, "largest_backlog": row.get("backlog_messages") or 0, **row}


def _merged(one: Row, other: Row) -> Row:
    both = (one, other)
    found: dict[str, Any] = {
        "phase": next((row["phase"] for row in both if row["phase"] != "serving"), "serving"),
        "states": list(dict.fromkeys([*one["states"], *other["states"]])),
        "partitions": one["partitions"] + other["partitions"],
        "publishing": max((row.get("publishing") for row in both), key=_PUBLISHING.index),
        "growing_subscription": one.get("growing_subscription") or other.get("growing_subscription"),
        "largest_backlog": max(row["largest_backlog"] for row in both),
        "backlog_subscription": max(both, key=lambda row: row["largest_backlog"]).get("backlog_subscription"),
    }
    for name in _SUMS:
        values = [row.get(name) for row in both]
        found[name] = None if None in values else sum(values)
    for name in _HIGHEST:
        found[name] = max((row[name] for row in both if row.get(name) is not None), default=None)
    for since, shown in _REASONS.items():
        longest = min((row for row in both if row.get(since) is not None), key=lambda row: row[since], default={})
        found |= {name: longest.get(name) for name in (since, *shown)}
    return found
