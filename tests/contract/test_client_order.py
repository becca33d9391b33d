"""Messages are stored in the order in which they were given, also when they had to wait for room."""

import asyncio

import pytest

import oncelog
from oncelog.client.turn import Turn
from tests.cluster.until import until
from tests.contract.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.client_fixtures"]
pytestmark = pytest.mark.asyncio


async def test_nobody_goes_ahead_of_those_who_wait(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """Messages given in one turn of the loop after the other, large and small, while room comes and goes: one in twenty
    went ahead of an earlier one, and with ids of the application's own the earlier ones were refused as stale."""
    producer = await client.create_producer("flights", pending_bytes_max=2_000)
    given: list[asyncio.Task[oncelog.SendResult]] = []

    def give() -> bool:
        for _ in range(3):
            value = b"%06d" % len(given) + bytes((0, 50, 400, 1_500)[len(given) * 7 % 4])
            given.append(asyncio.create_task(producer.send(value, sequence_id=len(given))))
        return len(given) >= 3_000

    await until(give, 20, every_s=0)
    results = await asyncio.gather(*given)
    assert [result.sequence_id for result in results] == list(range(3_000))
    assert [int(value[:6]) for value in cluster.topic("flights").values()] == list(range(3_000))


async def test_a_turn_is_taken_until_whoever_waits_has_had_it() -> None:
    """Between a lock's release and the first step of its next holder the lock looks free."""
    turn, waits = Turn(), asyncio.Event()

    async def wait() -> None:
        waits.set()
        async with turn:
            pass

    async with turn:
        waiting = asyncio.create_task(wait())
        await waits.wait()
    assert turn.taken
    await waiting
    assert not turn.taken


async def test_whoever_is_cancelled_in_line_gives_its_place_up() -> None:
    """Else nobody could send at once any more."""
    turn, waits = Turn(), asyncio.Event()

    async def wait() -> None:
        waits.set()
        async with turn:
            pass

    async with turn:
        waiting = asyncio.create_task(wait())
        await waits.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
    assert not turn.taken
