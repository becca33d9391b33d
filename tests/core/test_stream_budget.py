"""The budget of all streams of an owner: who has room, who waits, and who is woken."""

import random
from collections.abc import Hashable

import pytest

from oncelog.core.errors import TooManyRequests
from oncelog.core.stream_budget import STREAM_BYTES_MAX, StreamBudget, StreamOutbox

MAX = 1_000


class Streams:
    """A budget, and streams that take an entry as often as they are woken and want more."""

    def __init__(self, bytes_max: int = MAX) -> None:
        self.wanted_wakes = 0
        self.budget = StreamBudget(bytes_max, caller_streams_max=100, room_returned=self._returned)
        #: (stream, waiter), as they are woken
        self.woken: list[tuple[str, Hashable]] = []
        self.wants: dict[str, int] = {}
        self.size = 100
        self.outboxes: dict[str, StreamOutbox] = {}

    def _returned(self) -> None:
        self.wanted_wakes += 1

    def open(self, name: str, caller: str = "role a", *, wants: int = 0) -> StreamOutbox:
        outbox = self.outboxes[name] = self.budget.open(caller, woken=lambda waiter: self._wake(name, waiter))
        self.wants[name] = wants
        self.fill(name)
        return outbox

    def _wake(self, name: str, waiter: Hashable) -> None:
        self.woken.append((name, waiter))
        self.fill(name, waiter)

    def fill(self, name: str, waiter: Hashable = 1) -> None:
        outbox = self.outboxes[name]
        while self.wants[name] and outbox.ask(waiter):
            self.wants[name] -= 1
            outbox.take(self.size)

    def read(self, name: str, size: int) -> None:
        self.outboxes[name].give_back(size)
        self.budget.check_invariants()
        self.settle()

    def settle(self) -> None:
        if self.wanted_wakes:
            self.wanted_wakes = 0
            self.budget.wake()
            self.budget.check_invariants()


def test_stream_that_holds_nothing_takes_an_entry_of_any_size() -> None:
    streams = Streams()
    streams.size = 5 * MAX
    a, b = streams.open("a", wants=2), streams.open("b", "role b", wants=1)
    assert (a.bytes, b.bytes) == (5 * MAX, 0)
    streams.read("a", 5 * MAX)
    assert (a.bytes, b.bytes) == (0, 5 * MAX), "the other stream was first in line"
    streams.read("b", 5 * MAX)
    assert (a.bytes, b.bytes) == (5 * MAX, 0)


def test_callers_that_read_nothing_leave_room_to_others() -> None:
    """Many streams of one caller take its part; the next callers find room."""
    streams = Streams()
    for number in range(50):
        streams.open(f"a{number}", wants=50)
    held = streams.budget.bytes
    assert MAX // 3 <= held <= MAX // 2 + 100
    assert streams.open("b", "role b", wants=50).bytes >= 100
    assert streams.open("c", "role c", wants=50).bytes >= 100
    assert streams.budget.bytes <= MAX + 100


def test_streams_that_read_nothing_leave_room_to_others_of_their_caller() -> None:
    streams = Streams(10_000)
    for number in range(4):
        streams.open(f"a{number}", wants=500)
    assert streams.open("b", wants=1).bytes == 100
    streams.read("b", 100)
    for _ in range(20):
        streams.wants["b"] = 1
        streams.fill("b")
        assert streams.outboxes["b"].bytes == 100
        streams.read("b", 100)


def test_one_stream_does_not_hold_the_whole_budget() -> None:
    streams = Streams(STREAM_BYTES_MAX * 100)
    streams.size = STREAM_BYTES_MAX // 4
    assert streams.open("a", wants=50).bytes == STREAM_BYTES_MAX


def test_callers_and_their_streams_take_turns() -> None:
    """A caller with many streams in line does not keep the others waiting."""
    streams = Streams()
    streams.size = 10 * MAX
    streams.open("holder", "role c", wants=1)
    for number in range(3):
        streams.open(f"a{number}", "role a", wants=1)
    streams.open("b", "role b", wants=1)
    order = []
    holder = "holder"
    for _ in range(4):
        streams.read(holder, 10 * MAX)
        [(holder, _waiter)] = streams.woken
        order.append(holder)
        streams.woken.clear()
    assert order == ["a0", "b", "a1", "a2"]


def test_consumers_of_one_stream_take_turns() -> None:
    streams = Streams(10_000)
    a = streams.open("a")
    a.take(10_000)
    assert [a.ask(1), a.ask(2), a.ask(1)] == [False, False, False]
    a.give_back(9_950)
    streams.size = 10_000
    streams.wants["a"] = 2
    streams.settle()
    assert streams.woken == [("a", 1)], "the first one took the room"
    assert a.ask(1) is False
    streams.read("a", 10_000)
    assert streams.woken == [("a", 1), ("a", 2)]


def test_stream_that_never_reads_its_answers_does_not_block_its_line() -> None:
    """Answers are taken without room. A stream that holds some waits for its own client, not in line."""
    streams = Streams()
    streams.size = 10 * MAX
    streams.open("holder", wants=1)
    deaf, b = streams.open("deaf", wants=1), streams.open("b", wants=1)
    deaf.take(MAX)
    streams.read("holder", 10 * MAX)
    assert (b.bytes, deaf.bytes) == (0, MAX), "the answers of the other stream are more than the part of their caller"
    deaf.give_back(MAX - 100)
    streams.settle()
    assert b.bytes == 10 * MAX


def test_end_of_a_stream_gives_its_part_back() -> None:
    """Also to the streams that wait, and what arrives later changes nothing."""
    streams = Streams()
    streams.size = 10 * MAX
    a, b = streams.open("a", wants=2), streams.open("b", wants=1)
    a.close()
    streams.settle()
    assert (streams.budget.bytes, b.bytes) == (10 * MAX, 10 * MAX)
    a.give_back(100)
    a.take(100)
    assert a.ask(1) is False
    a.close()
    assert (streams.budget.bytes, streams.budget.stream_count) == (10 * MAX, 1)
    b.close()
    assert (streams.budget.bytes, streams.budget.stream_count) == (0, 0)
    streams.budget.check_invariants()


def test_streams_of_a_caller_are_limited() -> None:
    budget = StreamBudget(MAX, caller_streams_max=2)
    first = budget.open("role a", woken=lambda _: None)
    budget.open("role a", woken=lambda _: None)
    with pytest.raises(TooManyRequests, match="role a has 2 streams") as error:
        budget.open("role a", woken=lambda _: None)
    assert error.value.details == {"field": "streams", "limit": 2}
    budget.open("role b", woken=lambda _: None)
    first.close()
    budget.open("role a", woken=lambda _: None)


@pytest.mark.parametrize("seed", range(20))
def test_streams_whose_clients_read_get_everything(seed: int) -> None:
    """In any order of reading, with streams that end and callers that read nothing: what is held stays within the
    budget and one entry, and no stream waits for ever."""
    rng = random.Random(seed)
    streams = Streams(rng.choice([1, 50, 1_000, 3_000]))
    deaf = [streams.open(f"deaf{number}", f"role {number % 2}", wants=5) for number in range(rng.choice([0, 0, 2]))]
    limit = streams.budget.bytes_max + streams.size
    if streams.budget.bytes_max < 1_000:
        for each in deaf:
            each.close()
    names = [f"s{number}" for number in range(12)]
    for number, name in enumerate(names):
        streams.open(name, f"role {number % 4}", wants=rng.randint(1, 20))
    for _ in range(2_000):
        assert streams.budget.bytes <= limit
        reading = [name for name in names if streams.outboxes[name].bytes]
        if not reading:
            break
        name = rng.choice(reading)
        if rng.random() < 0.01:
            names.remove(name)
            streams.outboxes[name].close()
            streams.settle()
        else:
            streams.read(name, streams.size)
    assert {name: streams.wants[name] for name in names if streams.wants[name]} == {}
