"""Messages are stored in the order of their send calls, also if they waited for room."""

import asyncio

import pytest

import oncelog
from oncelog.client.network.epochs import OwnerEpochs
from oncelog.client.network.publish_stream import PublishStream
from oncelog.client.producing.fair_lock import FairLock
from oncelog.core.sdk.producer.events import ProducerEvent
from oncelog.core.sdk.producer.opening import ProducerGranted
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.owner_codec import OPENS_MAX, OpenRequest
from oncelog.runtime.tasks import BackgroundTasks
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
pytestmark = pytest.mark.asyncio


async def test_sends_that_wait_for_room_are_not_overtaken(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """Messages given in one turn of the loop after the other, large and small, while room comes and goes: one in twenty
    went ahead of an earlier one, and with ids of the application's own the earlier ones were refused as stale."""
    producer = await client.create_producer("flights", pending_bytes_max=2_000)
    given: list[asyncio.Task[oncelog.SendResult]] = []

    def give() -> bool:
        for _ in range(3):
            value = b"%06d" % len(given) + bytes((0, 50, 400, 1_500)[len(given) * 7 % 4])
            given.append(asyncio.create_task(producer.send(value, sequence_id=len(given))))
        return len(given) >= 3_000

    await until(give, 60, every_s=0)
    results = await asyncio.gather(*given)
    assert [result.sequence_id for result in results] == list(range(3_000))
    assert [int(value[:6]) for value in cluster.topic("flights").values()] == list(range(3_000))


async def test_fair_lock_stays_locked_until_all_waiters_had_it() -> None:
    """Between a lock's release and the first step of its next holder the lock looks free."""
    lock, waits = FairLock(), asyncio.Event()

    async def wait() -> None:
        waits.set()
        async with lock:
            pass

    async with lock:
        waiting = asyncio.create_task(wait())
        await waits.wait()
    assert lock.taken
    await waiting
    assert not lock.taken


async def test_cancelled_waiter_leaves_the_fair_lock() -> None:
    """Otherwise no later send could take the lock at once."""
    lock, waits = FairLock(), asyncio.Event()

    async def wait() -> None:
        waits.set()
        async with lock:
            pass

    async with lock:
        waiting = asyncio.create_task(wait())
        await waits.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
    assert not lock.taken


async def test_leaving_a_producer_waits_for_sends_without_room(cluster: FakeCluster) -> None:
    """Sends that wait for room count as sent: most of them failed with ProducerClosed although the application
    believed them flushed.
    """

    def publish() -> list[int]:
        with oncelog.Client(cluster.url, operation_timeout=30) as client:
            with client.create_producer("flights", pending_bytes_max=2_000) as producer:
                given = [producer.send_nowait(b"%03d" % i + bytes(300)) for i in range(100)]
            return [result.result(0).sequence_id for result in given]

    assert await asyncio.to_thread(publish) == list(range(100))
    assert [int(value[:3]) for value in cluster.topic("flights").values()] == list(range(100))


async def test_flush_waits_for_sends_that_wait_for_room(cluster: FakeCluster, client: oncelog.AsyncClient) -> None:
    """All messages sent before the flush are answered when it returns."""
    producer = await client.create_producer("flights", pending_bytes_max=2_000)
    cluster.knobs.gate.clear()
    given = [asyncio.create_task(producer.send(bytes(300))) for _ in range(100)]
    await until(lambda: producer.pending_bytes, 60)
    cluster.knobs.gate.set()
    await producer.flush()
    assert producer.pending_bytes == 0
    assert producer.last_sequence_id == 99
    await asyncio.gather(*given)


async def test_openings_of_many_producers_are_split_into_bounded_frames(
    cluster: FakeCluster, client: oncelog.AsyncClient
) -> None:
    """All in one, long names would make a frame that is larger than one may be: when an owner has died, all producers
    of a client open at its successor in the same moment."""
    await client.create_producer("flights")
    assert cluster.owner is not None
    background, count = BackgroundTasks(), OPENS_MAX + 100
    events: list[ProducerEvent] = []
    stream = PublishStream(Channel(cluster.owner.address), background, OwnerEpochs())
    for number in range(count):
        request = OpenRequest(0, "public/default/flights", cluster.topic("flights").topic_id, f"{number}")
        stream.open(request, events.append, number)
    await until(lambda: len(events) == count, 60)
    assert all(isinstance(event, ProducerGranted) for event in events)
    assert max(cluster.seen.opens) == OPENS_MAX
    stream.close()
    await background.close()
