"""key_shared: the messages of a key are worked on in order, by one consumer at a time (hazard key-moves-too-early)."""

from collections.abc import Sequence

import pytest

from oncelog.core.delivery import key_shared
from oncelog.core.delivery.key_ranges import SLOTS, KeyRanges
from tests.core.delivery.subscription_world import KEY_SHARED, Client, World


def world_of(*keys: str | None) -> World:
    """A log with one entry of these keys."""
    world = World()
    world.subscribe("first", KEY_SHARED)
    world.detach(next(iter(world.clients.values())), lost=False)
    world.store(len(keys), keys)
    return world


def keys_of(clients: Sequence[Client], keys: Sequence[str]) -> list[set[str]]:
    return [{keys[index] for index in client.indexes} for client in clients]


def test_each_key_goes_to_one_consumer_in_order() -> None:
    keys = [f"key{number % 20}" for number in range(200)]
    world = world_of(*keys)
    clients = [world.subscribe(name, KEY_SHARED) for name in ("a", "b", "c")]
    for client in clients:
        world.flow(client, 1000)
    got = keys_of(clients, keys)
    assert sum(map(len, got)) == 20
    assert sorted(index for client in clients for index in client.indexes) == list(range(200))
    for client in clients:
        assert client.indexes == sorted(client.indexes)


@pytest.mark.hazard("key-moves-too-early")
def test_message_waits_while_another_consumer_holds_an_earlier_one_of_its_key() -> None:
    """C1 holds 0(a); C2 gets a's range; 2(a) at C2 would be out of order. Other keys go on (pulsar#21199)."""
    world = world_of("a", "b")
    first = world.subscribe("c0", KEY_SHARED, window=100)
    assert first.take() == [0, 1]
    others = [world.subscribe(f"c{number}", KEY_SHARED, window=100) for number in range(1, 30)]
    world.store(2, ["a", "b"])
    assert [index for other in others for index in other.take()] == []
    world.ack(first, 1)
    taken = [index for other in others for index in other.take()]
    assert taken == [3]
    world.ack(first, 0)
    taken = [index for other in others for index in other.take()]
    assert taken == [2]


@pytest.mark.hazard("delivered-while-held")
def test_consumer_keeps_its_keys_over_a_takeover() -> None:
    world = world_of("a", "b", "a")
    first = world.subscribe("c", KEY_SHARED, window=2)
    assert first.take() == [0, 1]
    world.take_over()
    first = world.reconnect(first, held=[0, 1], window=100)
    assert [tuple(each) for each in first.subscribed.kept] == [(0, 1)]
    others = [world.subscribe(f"c{number}", KEY_SHARED, window=100) for number in range(30)]
    world.pass_time(1_000)
    assert [index for other in others for index in other.take()] == []
    world.ack(first, 0)
    assert [index for other in (*others, first) for index in other.take()] == [2]


@pytest.mark.hazard("key-moves-too-early")
def test_late_consumer_keeps_no_message_whose_key_is_not_known_behind_one_that_another_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """C holds 0(a), 1(b) and 2(a), and comes back after the wait: 0 is with D, and nobody has looked at 2."""
    monkeypatch.setattr(key_shared, "LOOK_AHEAD_MESSAGES", 1)
    world = world_of("a", "b")
    world.store(1, ["a"])
    first = world.subscribe("c", KEY_SHARED, window=100)
    assert first.take() == [0, 1, 2]
    world.take_over()
    second = world.subscribe("d", KEY_SHARED, window=1)
    world.pass_time(1_000)
    assert second.take() == [0]
    first = world.reconnect(first, held=[0, 1, 2], window=100)
    assert [tuple(each) for each in first.subscribed.kept] == [(1, 1)]
    world.ack(second, 0)
    assert [index for client in (first, second) for index in client.take()] == [2]


@pytest.mark.hazard("key-moves-too-early")
def test_blocked_key_stops_reading_at_the_look_ahead() -> None:
    """A consumer that holds the first message of a key and never acknowledges: the log is not read to its end."""
    world = world_of("a")
    holder = world.subscribe("c", KEY_SHARED, window=1)
    assert holder.take() == [0]
    count = key_shared.LOOK_AHEAD_MESSAGES // 1000 + 5
    for _ in range(count):
        world.store(1000, ["a"] * 1000)
    world.flow(holder, 0)
    others = [world.subscribe(f"c{number}", KEY_SHARED, window=100) for number in range(30)]
    assert [index for other in others for index in other.take()] == []
    queued = world.subscription.attachments.keys._queued  # type: ignore[union-attr]
    assert len(queued) <= key_shared.LOOK_AHEAD_MESSAGES + 1000


def test_consumer_that_comes_moves_only_keys_to_itself() -> None:
    world = World(messages=[1])
    clients = [world.subscribe(f"c{number}", KEY_SHARED) for number in range(4)]
    consumers = [world.subscription._consumers.by_number[client.number] for client in clients]
    before, after = KeyRanges(), KeyRanges()
    before.assign(consumers[:3])
    after.assign(consumers)
    moved = [slot for slot in range(SLOTS) if before.owner(slot) is not after.owner(slot)]
    assert {after.owner(slot) for slot in moved} == {consumers[3]}
    assert SLOTS // 8 < len(moved) < SLOTS // 2
