"""What a door keeps of SENDs, and for how long one topic may stop a connection."""

from collections import defaultdict
from random import Random

import pytest

from oncelog_doors.core.pulsar.send_budget import (
    PAUSE_MS,
    BudgetEffect,
    DropProducer,
    ProducerKey,
    ReadAgain,
    SendBudget,
    SendLimits,
    StopReading,
)

LIMITS = SendLimits(connection_bytes=640, process_bytes=2560, large_bytes=160)
A, B, C = ProducerKey(1, 1), ProducerKey(1, 2), ProducerKey(2, 1)


def test_connection_is_read_again_below_its_limit() -> None:
    """Other connections are read all the time."""
    budget = SendBudget(LIMITS)
    assert budget.taken(A, 639, 0) == []
    assert budget.taken(B, 1, 10) == [StopReading(1)]
    assert budget.taken(C, 100, 20) == []
    budget.handed(A, 639)
    assert budget.answered(A, 639, 30) == [ReadAgain(1)]
    assert budget.next_ms is None
    assert budget.total == 101


@pytest.mark.hazard("unread-for-one-topic")
def test_topic_that_takes_nothing_stops_a_connection_for_5_s_at_most() -> None:
    """Then its producer is closed, and its neighbour goes on."""
    budget = SendBudget(LIMITS)
    budget.taken(A, 600, 0)
    assert budget.taken(B, 40, 100) == [StopReading(1)]
    assert budget.next_ms == 5100
    assert budget.tick(5099) == []
    assert budget.tick(5100) == [DropProducer(A), ReadAgain(1)]
    assert budget.total == 40


def test_producer_whose_topic_takes_is_not_closed() -> None:
    """Although it keeps most: it goes on while the other one does not."""
    budget = SendBudget(LIMITS)
    budget.taken(A, 440, 0)
    budget.taken(B, 200, 0)
    budget.taken(A, 10, 1)
    budget.handed(A, 10)
    assert budget.answered(A, 10, 4000) == []
    assert budget.tick(PAUSE_MS) == [DropProducer(B), ReadAgain(1)]


def test_limit_of_a_connection_closes_none_of_another() -> None:
    """Although one there keeps as much and its topic takes nothing either."""
    budget = SendBudget(LIMITS)
    budget.taken(C, 600, 0)
    budget.taken(A, 640, 1)
    assert budget.tick(1 + PAUSE_MS) == [DropProducer(A), ReadAgain(1)]


def test_many_small_producers_do_not_stop_a_connection_either() -> None:
    """None keeps much: those that keep most are closed, until the limit is kept."""
    budget = SendBudget(LIMITS)
    for number in range(1, 9):
        budget.taken(ProducerKey(1, number), 79 + number % 2 * 2, 0)
    assert budget.total == 640
    assert budget.tick(PAUSE_MS) == [DropProducer(ProducerKey(1, 7)), ReadAgain(1)]


def test_what_was_handed_over_is_kept_until_the_log_decides() -> None:
    """The rest of a closed producer counts no more. It is not closed a second time."""
    budget = SendBudget(LIMITS)
    budget.taken(A, 400, 0)
    budget.handed(A, 400)
    budget.taken(A, 300, 0)
    assert budget.tick(PAUSE_MS) == [DropProducer(A), ReadAgain(1)]
    assert budget.total == 400
    assert budget.closed(A) == []
    assert budget.total == 400
    assert budget.taken(B, 300, 6000) == [StopReading(1)]
    assert budget.tick(6000 + PAUSE_MS) == [DropProducer(B), ReadAgain(1)]
    assert budget.answered(A, 400, 20_000) == []
    assert budget.total == 0


def test_limit_of_the_process_stops_who_sends() -> None:
    """And closes producers of any connection: the one that is stopped may keep little."""
    budget = SendBudget(LIMITS)
    keys = [ProducerKey(connection, 1) for connection in range(1, 6)]
    for key in keys[:4]:
        assert budget.taken(key, 600, 0) == []
    assert budget.taken(keys[4], 160, 0) == [StopReading(5)]
    effects = budget.tick(PAUSE_MS)
    assert {effect.producer for effect in effects if isinstance(effect, DropProducer)} == set(keys[:4])
    assert ReadAgain(5) in effects


def test_rejected_send_is_kept_no_more() -> None:
    budget = SendBudget(LIMITS)
    budget.taken(A, 640, 0)
    assert budget.rejected(A, 640, 1) == [ReadAgain(1)]
    assert budget.total == 0


def test_connection_that_ends_frees_what_was_not_handed_over() -> None:
    """And is not read again."""
    budget = SendBudget(LIMITS)
    budget.taken(A, 640, 0)
    budget.handed(A, 100)
    assert budget.disconnected(1) == []
    assert budget.closed(A) == []
    assert budget.next_ms is None
    assert budget.answered(A, 100, 9) == []
    assert budget.total == 0


@pytest.mark.hazard("unread-for-one-topic")
@pytest.mark.parametrize("seed", range(30))
def test_random_histories_keep_the_limits(seed: int) -> None:
    """Two of four topics take nothing. A connection that is not read sends nothing, and none waits for more than 5 s;
    above the limit of the process there is at most one SEND of each connection; the other topics go on."""
    random = Random(seed)
    budget = SendBudget(LIMITS)
    queued: dict[ProducerKey, list[int]] = defaultdict(list)
    handed: dict[ProducerKey, list[int]] = defaultdict(list)
    stopped: dict[int, int] = {}
    #: {(connection, topic): the opening of its producer}; a producer of a topic that takes nothing is opened once
    openings: dict[tuple[int, int], int] = {}
    dead = set[ProducerKey]()
    now, answered = 0, 0

    def perform(effects: list[BudgetEffect]) -> None:
        for effect in effects:
            match effect:
                case StopReading():
                    assert effect.connection not in stopped
                    stopped[effect.connection] = now
                case ReadAgain():
                    del stopped[effect.connection]
                case DropProducer():
                    assert effect.producer not in dead
                    dead.add(effect.producer)
                    queued.pop(effect.producer, None)

    for _ in range(6000):
        now += random.randrange(20)
        if budget.next_ms is not None and budget.next_ms <= now:
            perform(budget.tick(now))
        assert all(now - since < PAUSE_MS for since in stopped.values())
        place = random.randrange(6), random.randrange(4)
        stalls = place[1] < 2
        key = ProducerKey(place[0], openings.setdefault(place, place[1]))
        if key in dead and not stalls:
            openings[place] += 4
            continue
        match random.randrange(4):
            case 0 if key.connection not in stopped and key not in dead:
                queued[key].append(random.randrange(1, 100))
                perform(budget.taken(key, queued[key][-1], now))
            case 1 if queued.get(key) and len(handed[key]) < 2:
                handed[key].append(queued[key].pop(0))
                budget.handed(key, handed[key][-1])
            case 2 | 3 if handed.get(key) and not stalls:
                answered += 1
                perform(budget.answered(key, handed[key].pop(0), now))
        budget.check_invariants()
        assert budget.total == sum(map(sum, [*queued.values(), *handed.values()]))
        assert budget.total < LIMITS.process_bytes + 6 * 100
    assert answered > 100
    assert dead
