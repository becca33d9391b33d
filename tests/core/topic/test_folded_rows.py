"""Rows of partitions become one row of their topic, in any order and in any groups."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.topic.folded_rows import Row, folded

SERVED: dict[str, Any] = {
    "phase": "serving", "states": ["backlog"], "message_count": 5, "first_index": 1, "bytes": 100, "rate_in": 1.5,
    "rate_out": 0.0, "refused": 2, "backlog_messages": 4, "backlog_change_10m": -1, "backlog_subscription": "billing",
    "growing_subscription": None, "publishing": "open", "subscriptions": 2, "blocked_subscriptions": 0,
    "oldest_unacked_ms": 70, "held_since_ms": None, "held_by": None, "blocked_since_ms": None,
}  # fmt: skip
WAITS: dict[str, Any] = {
    "phase": "waiting", "states": ["waiting"], "waiting_for": "store_unavailable", "waiting_since_ms": 50,
    "waiting_message": "no answer",
}  # fmt: skip


def test_figures_of_partitions_are_added() -> None:
    """What is not a sum is that of the partition with most, or the earliest."""
    other = SERVED | {
        "backlog_messages": 9,
        "backlog_subscription": "audit",
        "oldest_unacked_ms": 60,
        "subscriptions": 3,
    }
    row = folded([SERVED, other])
    assert (row["partitions"], row["message_count"], row["first_index"], row["bytes"]) == (2, 10, 2, 200)
    assert (row["rate_in"], row["rate_out"], row["backlog_messages"], row["backlog_change_10m"]) == (3.0, 0.0, 13, -2)
    assert (row["backlog_subscription"], row["oldest_unacked_ms"], row["subscriptions"]) == ("audit", 60, 3)
    assert row["refused"] == 4
    assert (row["phase"], row["states"], row["publishing"]) == ("serving", ["backlog"], "open")


def test_partition_that_is_not_served_makes_sums_unknown_and_is_named() -> None:
    """A sum without it would look like that of the whole topic."""
    row = folded([SERVED, WAITS, WAITS | {"waiting_since_ms": 40, "waiting_for": "ledger_unavailable"}])
    assert (row["phase"], row["states"], row["partitions"]) == ("waiting", ["backlog", "waiting"], 3)
    assert (row["waiting_for"], row["waiting_since_ms"]) == ("ledger_unavailable", 40)
    assert row["message_count"] is row["bytes"] is row["rate_in"] is row["backlog_messages"] is None
    assert (row["publishing"], row["subscriptions"]) == ("open", 2)


def test_held_partition_holds_the_topic() -> None:
    """Refused is worse than held, which is worse than open."""
    held = SERVED | {"publishing": "held", "held_since_ms": 30, "held_by": "audit", "states": ["held", "backlog"]}
    refused = SERVED | {"publishing": "refused", "held_since_ms": 35, "held_by": "billing"}
    row = folded([SERVED, refused, held])
    assert (row["publishing"], row["held_since_ms"], row["held_by"]) == ("refused", 30, "audit")


ROWS = st.lists(st.sampled_from([SERVED, WAITS, SERVED | {"bytes": None}, SERVED | {"rate_in": 2.0}]), min_size=2)


@given(ROWS, st.data())
def test_owners_fold_their_own_partitions_first(rows: list[Row], data: st.DataObject) -> None:
    """The result is that of folding all of them at once."""
    cut = data.draw(st.integers(1, len(rows) - 1))
    whole, parts = folded(rows), folded([folded(rows[:cut]), folded(rows[cut:])])
    assert {name: whole[name] for name in whole if name != "states"} == {
        name: parts[name] for name in parts if name != "states"
    }
    assert set(whole["states"]) == set(parts["states"])
