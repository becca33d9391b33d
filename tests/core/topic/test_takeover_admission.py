"""Many topics assigned to one owner at once: how many are taken over at a time, and which first."""

import random

import pytest

from oncelog.core.ids import TopicId
from oncelog.core.topic.takeover_admission import RECENT_MIN, SLOT_MS, SLOT_MS_MAX, TakeoverAdmission


def topics(count: int, first: int = 0) -> list[TopicId]:
    return [TopicId(f"t{number}") for number in range(first, first + count)]


def test_no_more_than_the_limit_run_and_all_get_their_turn() -> None:
    """With all at once, each takeover would take as long as all together."""
    admission = TakeoverAdmission(at_once=3, slot_ms=100)
    some = topics(10)
    begun = [one for topic in some for one in admission.assigned(topic, 0)]
    assert begun == some[:3]
    assert len(admission) == 7
    for number in range(7):
        assert admission.ended(begun[number], 1) == [some[number + 3]]
        begun.append(some[number + 3])
    assert [admission.ended(topic, 2) for topic in some[7:]] == [[], [], []]
    assert admission.assigned(some[0], 3) == [some[0]]  # it was lost, and is assigned again


def test_topics_that_clients_ask_for_go_first() -> None:
    """Those with traffic serve again before thousands that nobody uses."""
    admission = TakeoverAdmission(at_once=1, slot_ms=100)
    busy, idle, other = topics(1), topics(50, 1), topics(2, 51)
    assert admission.assigned(busy[0], 0) == busy
    for topic in (*idle, *other):
        assert admission.assigned(topic, 0) == []
    for topic in (other[1], other[0], other[1]):
        admission.wanted(topic)
    admission.wanted(busy[0])  # it runs already
    admission.wanted(TopicId("unknown"))
    order = busy
    for _ in range(4):
        order = [*order, *admission.ended(order[-1], 1)]
    assert order == [busy[0], other[1], other[0], idle[0], idle[1]]


def test_repeated_assignment_keeps_the_place() -> None:
    """Look-ups repeat assignments. A topic must not run twice, or lose its turn."""
    admission = TakeoverAdmission(at_once=1, slot_ms=100)
    one, two, three = topics(3)
    admission.assigned(one, 0)
    for topic in (two, three, two, two):
        assert admission.assigned(topic, 0) == []
    assert (admission.waits(one), admission.waits(two), len(admission)) == (False, True, 2)
    assert admission.ended(one, 1) == [two]
    assert admission.ended(two, 1) == [three]
    assert admission.ended(three, 1) == []


def test_takeover_that_waits_for_a_node_does_not_hold_up_the_others() -> None:
    """Its ledger's members are away for hours; its slot is free after two seconds."""
    admission = TakeoverAdmission(at_once=2, slot_ms=100)
    stuck, slow, third, fourth = topics(4)
    assert admission.assigned(stuck, 0) == [stuck]
    assert admission.assigned(slow, 50) == [slow]
    assert admission.assigned(third, 60) == admission.assigned(fourth, 60) == []
    assert admission.due(99) == []
    assert admission.due(100) == [third]
    assert admission.due(149) == []
    assert admission.ended(stuck, 149) == []  # it held no slot any more
    assert admission.due(150) == [fourth]


@pytest.mark.hazard("fixed-limit-on-a-slow-machine")
def test_slow_takeovers_keep_their_slots() -> None:
    """On a slow machine each one takes longer than the shortest slot: all would begin at once after all."""
    count = RECENT_MIN
    admission = TakeoverAdmission(at_once=count, slot_ms=100)
    first, second, third, fourth, fifth = (topics(count, count * number) for number in range(5))
    begun = [one for topic in first + second + third + fourth + fifth for one in admission.assigned(topic, 0)]
    assert begun == first
    assert admission.due(100) == second, "nothing says yet that they are slow"
    assert [one for topic in first[1:] for one in admission.ended(topic, 500)] == third
    # One waited for a storage node for hours: that is not usual.
    assert admission.ended(first[0], 10_000_000) == fourth
    assert admission.slot_ms == 1_000
    assert admission.due(10_000_999) == []
    assert admission.due(10_001_000) == fifth
    assert TakeoverAdmission().slot_ms == SLOT_MS < SLOT_MS_MAX


@pytest.mark.parametrize("seed", range(20))
def test_every_topic_begins_once_within_the_limit(seed: int) -> None:
    """Whatever the order of assignments, requests of clients and ends."""
    rng = random.Random(seed)
    admission = TakeoverAdmission(at_once=4, slot_ms=1_000)
    some = topics(60)
    left = list(some)
    running: list[TopicId] = []
    begun: list[TopicId] = []
    while left or running:
        choice = rng.random()
        begin: list[TopicId] = []
        if left and choice < 0.5:
            begin = admission.assigned(left.pop(rng.randrange(len(left))), 0)
        elif choice < 0.7:
            admission.wanted(rng.choice(some))
        elif running:
            begin = admission.ended(running.pop(rng.randrange(len(running))), 0)
        running += begin
        begun += begin
        assert len(running) <= 4
        assert len(running) == 4 or not len(admission)
    assert sorted(begun) == sorted(some)
