"""The last events of a process: what is kept, what is logged, and which a filter takes."""

import logging

import pytest

from oncelog.runtime.observing.events import REPEATED_MS, EventFilter, EventKind, EventRing

logger = logging.getLogger(__name__)


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def ring_of(events_max: int = 1_000) -> tuple[EventRing, Clock]:
    clock = Clock()
    return EventRing("metadata", "here:1", events_max, clock), clock


def numbers(ring: EventRing, limit: int = 1_000, **wanted: object) -> list[int]:
    return [event.number for event in ring.newest(EventFilter(**wanted), limit=limit)]  # type: ignore[arg-type]


def test_event_is_logged_and_kept_at_every_level(caplog: pytest.LogCaptureFixture) -> None:
    """A level filters lines of the log, and no events."""
    ring, clock = ring_of()
    with caplog.at_level(logging.WARNING):
        ring.note(EventKind.TAKEOVER, logger, "topic taken over", topic="a/b/c", owner_epoch=7)
        ring.note(EventKind.NODE, logger, "node is read-only", level="warning", node="n", reason=None)
    assert [(record.getMessage(), record.levelname) for record in caplog.records] == [("node is read-only", "WARNING")]
    assert vars(caplog.records[0])["fields"] == {"event": "node", "node": "n", "reason": None}
    newest, taken = ring.newest(EventFilter(), limit=10)
    assert (newest.fields, newest.node, newest.level) == ({}, "n", "warning")
    assert (taken.topic, taken.fields, taken.at_ms, taken.count) == ("a/b/c", {"owner_epoch": 7}, clock.ms, 1)


def test_full_ring_gives_up_the_oldest_event_of_the_most_frequent_kind() -> None:
    """Thousands of takeovers, when an owner dies, push no lost copy out."""
    ring, _ = ring_of(events_max=5)
    ring.note(EventKind.COPY_LOST, logger, "a copy is lost")
    for _ in range(20):
        ring.note(EventKind.TAKEOVER, logger, "topic taken over")
    assert numbers(ring) == [21, 20, 19, 18, 1]


def test_equal_events_of_one_minute_are_one_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    """Also when the first one has left the ring, and others are different."""
    ring, clock = ring_of(events_max=3)
    caplog.set_level(logging.INFO)
    for count in (4, 1):
        ring.note(EventKind.EVICTION, logger, "evicted", topic="t", repeats=True, count=count, subscription="s")
        clock.ms += 10
    ring.note(EventKind.EVICTION, logger, "evicted", topic="t", repeats=True, subscription="other")
    other, first = ring.newest(EventFilter(), limit=9)
    assert (first.count, first.at_ms, first.last_ms, other.count) == (5, 1_000_000, 1_000_010, 1)
    clock.ms = first.at_ms + REPEATED_MS
    ring.note(EventKind.EVICTION, logger, "evicted", topic="t", repeats=True, subscription="s")
    assert numbers(ring) == [3, 2, 1]
    ring.note(EventKind.EVICTION, logger, "evicted", topic="t", repeats=True, subscription="third")
    assert numbers(ring) == [4, 3, 2], "the first one has left, and the later equal one still counts"
    ring.note(EventKind.EVICTION, logger, "evicted", topic="t", repeats=True, subscription="s")
    assert [event.count for event in ring.newest(EventFilter(), limit=9)] == [1, 2, 1]
    assert len(caplog.records) == 4
    assert len(ring._repeated) == 3, "what has left the ring is forgotten"


def test_filter_takes_a_topic_with_its_partitions_or_a_namespace_and_no_other() -> None:
    """Whoever administers one namespace must not see those whose names begin like it."""
    ring, clock = ring_of()
    for topic in (
        "a/b/c",
        "a/b/c-partition-3",
        "a/b/cc",
        "a/b/c-partition-x",
        "a/bb/c",
        "a/b-partition-1/c",
        "a/b",
        "",
        "a/b-partition-1",
    ):
        ring.note(EventKind.QUOTA, logger, "held", topic=topic)
    assert numbers(ring, within="a/b/c") == [2, 1]
    assert numbers(ring, within="a/b") == [7, 4, 3, 2, 1]
    clock.ms += 1
    ring.note(EventKind.OWNER, logger, "gone", node="n")
    assert numbers(ring, node="n", kinds={"owner", "quota"}) == [10]
    assert numbers(ring, node="n", kinds={"quota"}) == []
    assert numbers(ring, node="here:1", kinds={"owner"}) == [10], "what this process noted itself"
    assert numbers(ring, limit=2) == [10, 9]
    assert numbers(ring, before=(clock.ms, ring.source, 10), limit=2) == [9, 8]
    assert numbers(ring, before=(clock.ms - 1, "", 0)) == []
    assert len(numbers(ring, before=(clock.ms - 1, "~", 0))) == 9


def test_long_texts_are_cut() -> None:
    """A reason may hold what a client sent."""
    ring, _ = ring_of()
    ring.note(EventKind.REFUSED, logger, "refused", reason="x" * 10_000)
    assert ring.newest(EventFilter(), limit=1)[0].fields == {"reason": "x" * 500}


def test_refusals_are_one_event_of_each_caller_and_a_tenth_of_all() -> None:
    """What is refused is the caller's choice: a role without rights could fill the list with topics that it invents."""
    ring, clock = ring_of(events_max=100)
    for number in range(500):
        ring.note(EventKind.REFUSED, None, "refused", topic=f"a/b/{number}", repeats=True, as_one="stranger")
    [refused] = ring.newest(EventFilter(), limit=1_000)
    assert (refused.topic, refused.count) == ("a/b/0", 500)
    for number in range(50):
        ring.note(EventKind.TAKEOVER, logger, "topic taken over", topic=f"a/b/{number}")
    clock.ms += REPEATED_MS
    for number in range(500):
        ring.note(EventKind.REFUSED, None, "refused", repeats=True, as_one=f"host {number}")
    kinds = [event.kind for event in ring.newest(EventFilter(), limit=1_000)]
    assert (kinds.count(EventKind.TAKEOVER), kinds.count(EventKind.REFUSED)) == (50, 10)
