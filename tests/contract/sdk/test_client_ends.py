"""Clients whose thread is gone, and lost connections: no call hangs and no memory stays in use."""

import pytest

import oncelog
from oncelog.client.network.epochs import OwnerEpochs
from oncelog.client.network.publish_stream import PublishStream
from oncelog.core.errors import ClientClosed, DeadlineExceeded, ProducerClosed
from oncelog.core.ids import SessionNumber
from oncelog.rpc.channel import Channel
from oncelog.runtime.tasks import BackgroundTasks
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster

pytest_plugins = ["tests.contract.sdk.fakes.client_fixtures"]
NOBODY = "oncelog://127.0.0.1:1"


def test_closed_client_raises_client_closed() -> None:
    """Every method raises it, instead of an error about a closed event loop and a coroutine that was never awaited."""
    client = oncelog.Client(NOBODY)
    client.close()
    with pytest.raises(ClientClosed):
        client.create_producer("flights")


@pytest.mark.asyncio
async def test_lost_connection_drops_its_unwritten_batches(cluster: FakeCluster) -> None:
    """The connection of an owner that never comes back is remembered by its address, but not megabytes of batches that
    others answered long ago."""
    assert cluster.owner is not None
    background = BackgroundTasks()
    stream = PublishStream(Channel(cluster.owner.address), background, OwnerEpochs())
    stream.send(SessionNumber(1), tuple((request, bytes(1 << 20)) for request in range(64)))
    full = not stream.has_room
    assert full
    stream.close()
    await until(lambda: stream.has_room and not stream.alive, 60)
    await background.close()


@pytest.mark.asyncio
async def test_leaving_a_client_waits_for_pending_messages(cluster: FakeCluster) -> None:
    """Messages sent with send_nowait are stored although the producers were not flushed."""
    async with await oncelog.connect(cluster.url, operation_timeout=30) as client:
        one, other = [await client.create_producer("flights", producer_name=name) for name in ("a", "b")]
        futures = [producer.send_nowait(b"%d" % i) for i in range(50) for producer in (one, other)]
    assert all(future.done() and not future.result().duplicate for future in futures)
    assert len(cluster.topic("flights").values()) == 100


@pytest.mark.asyncio
async def test_close_without_flush_reports_unknown_outcomes(cluster: FakeCluster) -> None:
    """After flush=False or an exception, sent messages may be stored, and their error states it."""
    for leave_by_exception in (False, True):
        client = await oncelog.connect(cluster.url, operation_timeout=30)
        producer = await client.create_producer("flights")
        cluster.knobs.gate.clear()
        seen = len(cluster.seen.frames)
        future = producer.send_nowait(b"a")
        await until(lambda: len(cluster.seen.frames) > seen, 60)  # noqa: B023  # asked at once
        if leave_by_exception:
            await client.__aexit__(KeyError, KeyError(), None)
        else:
            await client.close(flush=False)
        with pytest.raises(ProducerClosed, match="unknown") as caught:
            await future
        assert caught.value.stored is None
        cluster.knobs.gate.set()


@pytest.mark.asyncio
async def test_close_without_answers_raises_deadline_exceeded(cluster: FakeCluster) -> None:
    """An owner that does not respond must not block close, and unanswered messages must be reported."""
    client = await oncelog.connect(cluster.url, operation_timeout=60)
    producer = await client.create_producer("flights", producer_name="importer")
    client._timeout_ms = 300  # of close only: a busy machine may need longer to open a producer
    cluster.knobs.gate.clear()
    future = producer.send_nowait(b"a")
    with pytest.raises(DeadlineExceeded, match="'importer'"):
        await client.close()
    with pytest.raises(ProducerClosed):
        await future
    with pytest.raises(ClientClosed):
        await client.create_producer("flights")
    cluster.knobs.gate.set()
