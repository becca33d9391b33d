"""The limits of a micro-batch: exact by rows, estimated by bytes, and every topic makes progress."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.ids import EntryId, LedgerId, TopicId
from oncelog_spark.source.batch_limits import ROW_BYTES, admit_bytes, admitted, weights_of
from oncelog_spark.source.offsets import ClosedLedger, Span, TopicState

ID = TopicId("1" * 32)


def span(topic: str, first: int, end: int) -> Span:
    return Span(topic, ID, first, end)


def state(topic: str, end: int, *row_bytes: int) -> TopicState:
    """Closed ledgers of ten messages each, then an open one."""
    closed = tuple(
        ClosedLedger(LedgerId(n), 10 * n, 10 * n + 10, EntryId(9), (), 10 * each) for n, each in enumerate(row_bytes)
    )
    return TopicState(topic, ID, 0, end, closed)


def test_row_size_comes_from_the_ledger() -> None:
    """In the open ledger, from a sample, or from the ledger before."""
    known = state("a", 40, 100, 300)
    assert weights_of(span("a", 5, 35), known, None) == [(5, 100.0), (10, 300.0), (15, 300.0)]
    assert weights_of(span("a", 25, 35), known, None) == [(10, 300.0)]
    assert weights_of(span("a", 25, 35), known, 50.0) == [(10, 50.0)]
    assert weights_of(span("a", 0, 4), state("a", 4), None) == [(4, ROW_BYTES)]


def test_a_byte_limit_is_shared_among_topics() -> None:
    """A topic of large rows gives fewer of them."""
    states = {"light": state("light", 10, 10), "heavy": state("heavy", 10, 1000)}
    waiting = [span("light", 0, 10), span("heavy", 0, 10)]
    assert admit_bytes(waiting, states, {}, 5050) == [span("heavy", 0, 5), span("light", 0, 5)]
    assert admit_bytes(waiting, states, {}, 10**6) == sorted(waiting)
    assert admit_bytes(waiting, states, {}, None) == sorted(waiting)


def test_row_that_is_larger_than_the_limit_is_read_alone() -> None:
    """So the query makes progress."""
    assert admit_bytes([span("a", 3, 9)], {"a": state("a", 10, 5000)}, {}, 100) == [span("a", 3, 4)]


def test_both_limits_hold() -> None:
    """The narrower one counts."""
    states = {"a": state("a", 10, 100)}
    for rows_max, bytes_max, rows in ((3, 10**6, 3), (100, 400, 4), (None, 250, 2), (7, None, 7)):
        found = admitted([span("a", 0, 10)], states, {}, rows_max=rows_max, bytes_max=bytes_max)
        assert sum(each.rows for each in found) == rows


@given(
    st.lists(st.tuples(st.integers(1, 60), st.lists(st.integers(0, 5000), max_size=5)), min_size=1, max_size=5),
    st.integers(1, 50_000),
)
def test_byte_limit_is_exceeded_only_by_one_row_of_each_topic(
    topics: list[tuple[int, list[int]]], bytes_max: int
) -> None:
    """Every topic gives at least one row, so none starves."""
    states = {f"t{n}": state(f"t{n}", end, *row_bytes) for n, (end, row_bytes) in enumerate(topics)}
    waiting = [span(name, 0, each.next) for name, each in states.items()]
    found = admit_bytes(waiting, states, {}, bytes_max)
    assert [each.topic for each in found] == [each.topic for each in sorted(waiting)]
    assert all(1 <= each.rows <= states[each.topic].next for each in found)
    heavier = [each for each in found if each.rows > 1]
    weights = [weights_of(each, states[each.topic], None) for each in heavier]
    assert sum(rows * each for pieces in weights for rows, each in pieces) <= bytes_max + 1e-6
