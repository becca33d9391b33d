"""Lists of lags over several owners: which subscriptions are in a state, and their order."""

import pytest

from oncelog.core.names import KAFKA_GROUPS
from oncelog.core.topic.lag_listing import Lag, LagQuery, LagSort, LagState, lag_position
from oncelog.core.topic.listing import ListedState, ListPosition, ListQuery

IDLE = Lag(backlog=7, oldest_ms=40, has_consumers=False, blocked=False, redrive=False)


@pytest.mark.parametrize(
    ("lag", "states"),
    [
        (IDLE, ["backlog", "no_consumer"]),
        (IDLE._replace(has_consumers=True), ["backlog"]),
        (IDLE._replace(has_consumers=True, blocked=True), ["backlog", "blocked"]),
        (IDLE._replace(backlog=0), []),
        (IDLE._replace(redrive=True), ["backlog"]),
    ],
)
def test_states_of_a_subscription(lag: Lag, states: list[str]) -> None:
    """Letters that wait for a redrive are an operator's, so nobody need consume them. All are in the list of all."""
    assert [state.value for state in LagState if lag.is_in(state)] == states
    assert lag.is_in(None)


def test_worst_lag_has_the_lowest_rank() -> None:
    """The largest backlog, or the oldest message; one without a message, or of an unknown time, comes last."""
    assert IDLE.rank(LagSort.BACKLOG) == -7
    assert IDLE.rank(LagSort.AGE) == 40
    assert IDLE._replace(oldest_ms=None).rank(LagSort.AGE) == IDLE._replace(backlog=0).rank(LagSort.AGE) > 1 << 50
    assert IDLE.rank(LagSort.NAME) == 0


def test_names_are_ordered_by_topic_then_by_subscription() -> None:
    """Whatever characters the names have; and a place survives a URL."""
    names = [("public/a/t", "z"), ("public/a/t-2", "a"), ("public/a/t2", "a b"), ("public/a/t2", "\u00fc")]
    places = [lag_position(0, *name) for name in names]
    assert places == sorted(places)
    assert [ListPosition.parse(str(place)) for place in places] == places


def test_query_matches_texts_in_any_case() -> None:
    """A topic whose name is not read yet is in no namespace."""
    query = LagQuery(namespace="public/shop", topic="ORD", subscription="Bill")
    assert query.matches_topic("public/shop/orders")
    assert not query.matches_topic("public/shops/orders")
    assert not query.matches_topic("")
    assert query.matches("billing")
    assert not query.matches("audit")
    assert LagQuery().matches_topic("")
    assert LagQuery().matches("x")


def test_lists_of_everything_leave_out_the_topics_of_the_doors() -> None:
    """Unless they are looked for. Lists of a state have them, so that no trouble is hidden."""
    topic = f"public/default/{KAFKA_GROUPS}"
    for matches in (LagQuery().matches_topic, LagQuery(topic="groups").matches_topic, ListQuery().matches):
        assert not matches(topic)
    assert LagQuery(topic=KAFKA_GROUPS).matches_topic(topic)
    assert ListQuery(name=KAFKA_GROUPS).matches(topic)
    assert LagQuery(LagState.BLOCKED).matches_topic(topic)
    assert ListQuery(ListedState.WAITING).matches(topic)
    assert ListQuery().matches("public/__oncelog_x/orders")
