"""Random histories of one group, and every step of some ordinary ones interrupted by each kind of loss. `client_model`
says what is checked of every answer; at the end the group is stable, with all living clients."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from oncelog.core.groups.events import CallAbandoned
from tests.core.groups.client_model import HEARTBEAT_MS, SESSION_MS, ModelWorld

SEEDS = range(60)
STEPS = 250
CLIENTS_MAX = 6


def random_step(world: ModelWorld) -> None:
    random = world.random
    live = world.live
    chance = random.random()
    if chance < 0.62 and live:
        world.step(random.choice(live))
    elif chance < 0.80:
        world.elapse(random.choice((10, 200, 1_000, 1_000, HEARTBEAT_MS, SESSION_MS, 2 * SESSION_MS)))
    elif chance < 0.90:
        if world.writes and random.random() < 0.9:
            world.write()
        elif world.writes:
            world.fail_write(durable=random.random() < 0.5)
    elif chance < 0.94:
        if len(live) < CLIENTS_MAX:
            world.start(random.choice((None, None, "i1", "i2")))
    else:
        fault(world, random.randrange(7))
    world.read_answers()


def fault(world: ModelWorld, kind: int) -> None:
    world.outsider_commits()
    victim = world.random.choice(world.live) if world.live else None
    if kind == 0:
        world.lose_coordinator()
    elif kind == 1:
        world.now_ms += 40_000  # the process of the coordinator stands still
    elif victim is None:
        return
    elif kind == 2:
        world.leave_now(victim)
    elif kind == 3:
        world.kill(victim, noticed=world.random.random() < 0.5)
    elif kind == 4:
        world.lose_call(victim)
    else:
        world.change(victim)


@pytest.mark.hazard("coordinator-is-lost")
@pytest.mark.parametrize("seed", SEEDS)
def test_random_history_keeps_every_promise(seed: int) -> None:
    world = ModelWorld(seed)
    for _ in range(STEPS):
        random_step(world)
    world.calm_down()
    if not world.live:
        world.start()
        world.calm_down()


def test_histories_reach_what_can_happen() -> None:
    """Otherwise the model proves nothing."""
    seen: Counter[str] = Counter()
    for seed in SEEDS[:15]:
        world = ModelWorld(seed)
        for _ in range(STEPS):
            random_step(world)
        seen.update(world.seen)
    assert {
        "synced", "outside", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "FENCED_INSTANCE_ID",
        "COORDINATOR_NOT_AVAILABLE",
    } <= set(seen)  # fmt: skip


# --- each step of ordinary histories ----------------------------------------------------------------------------------


def ordinary(world: ModelWorld) -> Iterator[None]:
    """Three clients form a group, one changes, a fourth comes, a static one restarts, one leaves. Each yield is a place
    to be interrupted."""
    clients = [world.start(), world.start("i1"), world.start()]

    def each(*some: int) -> Iterator[None]:
        for index in some:
            world.step(clients[index])
            world.read_answers()
            yield

    def pause(ms: int) -> Iterator[None]:
        world.elapse(ms)
        world.read_answers()
        yield
        if world.writes:
            world.write()
            world.read_answers()
            yield

    yield from each(0, 1, 2, 0, 2)
    yield from pause(1_000)
    yield from each(2, 1, 0, 0, 1, 2)
    world.change(clients[2])
    yield from each(2, 0, 1, 0, 1)
    yield from pause(10)
    yield from each(0, 1, 2)
    clients.append(world.start())
    yield from each(3, 3, 2, 1, 0, 2, 1, 0)
    yield from pause(10)
    yield from each(3, 2, 1, 0, 3)
    world.kill(clients[1], noticed=False)
    clients[1] = world.start("i1")
    yield from each(1, 1, 0, 2)
    world.leave_now(clients[0])
    yield from each(1, 2, 3, 1, 2, 3)
    yield from pause(SESSION_MS - 1)
    yield from each(1, 2, 3)


def failed_write(world: ModelWorld) -> None:
    if world.writes:
        world.fail_write(durable=True)


def silence(world: ModelWorld) -> None:
    world.elapse(3 * SESSION_MS)


def broken_connections(world: ModelWorld) -> None:
    for client in world.live:
        world.lose_call(client)


def standstill(world: ModelWorld) -> None:
    world.now_ms += 60_000


def answered_twice(world: ModelWorld) -> None:
    """Late news of calls that are over."""
    for call in world.answers:
        world.handle(CallAbandoned(call))


def deaths(world: ModelWorld) -> None:
    for client in world.live[:2]:
        world.kill(client, noticed=False)


INTERRUPTIONS: list[Callable[[ModelWorld], None]] = [
    ModelWorld.lose_coordinator, failed_write, silence, broken_connections, standstill, answered_twice, deaths,
]  # fmt: skip


@pytest.mark.parametrize("interrupt", INTERRUPTIONS, ids=lambda each: each.__name__)
def test_history_goes_on_after_an_interruption_at_each_step(interrupt: Callable[[ModelWorld], None]) -> None:
    steps = sum(1 for _ in ordinary(calm(0)))
    assert steps > 40
    for length in range(steps):
        for go_on in (False, True):
            world = calm(length)
            history = ordinary(world)
            for _ in range(length):
                next(history)
            interrupt(world)
            world.read_answers()
            if go_on:
                list(history)
            world.calm_down()


def calm(seed: int) -> ModelWorld:
    """Where nothing goes wrong by itself."""
    world = ModelWorld(seed)
    world.is_calm = True
    return world


def test_ordinary_history_has_few_generations() -> None:
    world = calm(0)
    list(ordinary(world))
    world.calm_down()
    assert world.newest == 4
