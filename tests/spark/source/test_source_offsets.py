"""Offsets of a query: the messages of a batch, losses, and their form in a checkpoint."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.core.errors import InvalidArgument, NotFound
from oncelog.core.ids import EntryId, LedgerId, TopicId
from oncelog_spark.source.batch_limits import admit
from oncelog_spark.source.offsets import (
    ClosedLedger,
    Span,
    TopicOffset,
    TopicState,
    decode_offset,
    encode_offset,
    kept_of,
    ledgers_of,
    not_before,
    offsets_after,
    refuse_loss,
    spans_between,
    split,
)

ID, OTHER = TopicId("1" * 32), TopicId("2" * 32)


def span(topic: str, first: int, end: int, topic_id: TopicId = ID) -> Span:
    return Span(topic, topic_id, first, end)


def test_an_offset_survives_its_checkpoint() -> None:
    """As JSON of strings and integers, which is all that Spark keeps."""
    marks = {"b": TopicOffset(OTHER, 0), "a": TopicOffset(ID, 42)}
    offset = encode_offset(marks)
    assert offset == {
        "format": 1,
        "topics": {"a": {"topic_id": ID, "next": 42}, "b": {"topic_id": OTHER, "next": 0}},
    }
    assert decode_offset(offset) == marks


@pytest.mark.parametrize("offset", [{}, {"format": 2, "topics": {}}, {"0": 5}])
def test_a_foreign_checkpoint_is_refused(offset: dict[str, int]) -> None:
    """Of another source, or of a later version: reading it anyway would skip or repeat messages."""
    with pytest.raises(InvalidArgument, match="format 1"):
        decode_offset(offset)


def test_a_batch_has_the_messages_between_two_offsets() -> None:
    """A topic that came later begins at its first message, and so does another one of the same name."""
    start = {
        "old": TopicOffset(ID, 10),
        "anew": TopicOffset(ID, 10),
        "gone": TopicOffset(ID, 3),
        "idle": TopicOffset(ID, 7),
    }
    end = {
        "old": TopicOffset(ID, 15),
        "anew": TopicOffset(OTHER, 4),
        "new": TopicOffset(ID, 2),
        "idle": TopicOffset(ID, 7),
    }
    assert spans_between(start, end) == [span("anew", 0, 4, OTHER), span("new", 0, 2), span("old", 10, 15)]


def test_the_end_of_an_available_now_query_does_not_move_offsets_back() -> None:
    """It may be older than what was already read."""
    before = {"a": TopicOffset(ID, 10), "b": TopicOffset(ID, 10)}
    told = {"a": TopicOffset(ID, 8), "b": TopicOffset(OTHER, 8)}
    assert not_before(told, before) == {"a": TopicOffset(ID, 10), "b": TopicOffset(OTHER, 8)}


def test_a_row_limit_is_met_exactly_and_shared_among_topics() -> None:
    """By the number of messages that each topic has."""
    waiting = [span("a", 0, 100), span("b", 50, 350)]
    assert admit(waiting, 40) == [span("a", 0, 10), span("b", 50, 80)]
    assert admit(waiting, 400) == waiting
    assert admit(waiting, None) == waiting
    assert admit([], 5) == []


def test_no_topic_starves_behind_a_busy_one() -> None:
    """Its share would be rounded to zero in each batch."""
    assert admit([span("busy", 0, 10**9), span("calm", 3, 4)], 10) == [span("busy", 0, 9), span("calm", 3, 4)]


@given(st.lists(st.integers(0, 50), max_size=6), st.integers(1, 100))
def test_a_row_limit_is_never_exceeded_and_always_makes_progress(rows: list[int], rows_max: int) -> None:
    """The limit is kept, and met while there are enough messages."""
    waiting = [span(f"t{number}", 7, 7 + count) for number, count in enumerate(rows)]
    admitted = admit(waiting, rows_max)
    assert sum(one.rows for one in admitted) == min(rows_max, sum(rows))
    ends = {one.topic: one.end for one in waiting}
    assert all(one.first == 7 and one.rows > 0 and one.end <= ends[one.topic] for one in admitted)


def test_the_next_offset_is_behind_the_batch() -> None:
    """A topic without a share keeps its offset."""
    start = {"a": TopicOffset(ID, 5), "b": TopicOffset(ID, 6), "gone": TopicOffset(ID, 1)}
    latest = {"a": TopicOffset(ID, 50), "b": TopicOffset(ID, 60), "new": TopicOffset(OTHER, 9)}
    after = offsets_after(start, latest, [span("a", 5, 8)])
    assert after == {"a": TopicOffset(ID, 8), "b": TopicOffset(ID, 6), "new": TopicOffset(OTHER, 0)}


def state(topic: str, earliest: int, end: int, *closed: ClosedLedger) -> TopicState:
    return TopicState(topic, ID, earliest, end, closed)


def test_trimmed_messages_are_a_loss_and_the_rest_is_read() -> None:
    """Trimmed in part, completely, deleted with the topic, or not at all."""
    states = {one.topic: one for one in (state("partly", 5, 20), state("wholly", 30, 40), state("kept", 0, 9))}
    wanted = [span("partly", 2, 9), span("wholly", 2, 9), span("kept", 2, 9), span("deleted", 2, 9),
              span("kept", 0, 3, OTHER)]  # fmt: skip
    kept, losses = kept_of(wanted, states)
    assert kept == [span("partly", 5, 9), span("kept", 2, 9)]
    assert [(loss.topic, loss.first, loss.end, loss.kept) for loss in losses] == [
        ("partly", 2, 5, 5), ("wholly", 2, 9, 30), ("deleted", 2, 9, None), ("kept", 0, 3, None),
    ]  # fmt: skip


def test_a_loss_names_the_option_that_allows_it() -> None:
    """With the messages that are gone, and those that are kept."""
    _, losses = kept_of([span("flights", 2, 9)], {"flights": state("flights", 5, 20)})
    with pytest.raises(NotFound, match=r"messages 2 to 4 of flights .*first message kept is 5.*failOnDataLoss") as told:
        refuse_loss(losses)
    assert told.value.details["field"] == "failOnDataLoss"
    refuse_loss([])


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(1, 300))
def test_a_split_covers_the_span_in_order(first: int, rows: int, rows_max: int) -> None:
    """Without a gap; no piece is too large or empty."""
    pieces = split(span("a", first, first + rows), rows_max)
    assert [number for piece in pieces for number in range(piece.first, piece.end)] == list(range(first, first + rows))
    assert all(0 < piece.rows <= rows_max for piece in pieces)
    assert max(piece.rows for piece in pieces) - min(piece.rows for piece in pieces) <= 1


def test_without_a_limit_a_topic_is_one_task() -> None:
    """Two tasks of one topic finish in any order, and a sink that uses the topic's numbers needs them in order."""
    assert split(span("a", 0, 10**9), None) == [span("a", 0, 10**9)]


def test_a_range_has_only_the_ledgers_with_its_messages() -> None:
    """A topic may have thousands of ledgers."""
    ledgers = [ClosedLedger(LedgerId(n), 10 * n, 10 * n + 10, EntryId(1), ()) for n in range(4)]
    found = ledgers_of(span("a", 10, 21), state("a", 0, 100, *ledgers))
    assert [ledger.ledger_id for ledger in found] == [1, 2]
