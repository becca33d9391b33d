"""Clients that can reach only a metadata service publish and read through it; the gateway forwards nothing else."""

import asyncio
import contextlib

import pytest

import oncelog
from oncelog.core.errors import (
    DeadlineExceeded,
    Fatal,
    InvalidArgument,
    OncelogError,
    ServiceUnavailable,
    TooManyRequests,
)
from oncelog.core.formats.message_id import LATEST
from oncelog.metadata.gateway.owner_gateway import GatewayLimits
from oncelog.rpc.channel import Channel, Stream
from oncelog.rpc.codecs.metadata_codec import GATEWAY_OWNER
from oncelog.rpc.codecs.owner_codec import LAST_MESSAGE, PUBLISH, TOPIC_STATES
from oncelog.rpc.methods import StreamMethod
from oncelog.rpc.server import Server, ServerStream
from oncelog.wire.owner_pb2 import LastMessageRequest, TopicStatesRequest
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.fake_gateway import FakeGateway

pytestmark = pytest.mark.asyncio

DEADLINE_S = 60.0
RAW: StreamMethod[bytes, bytes, bytes, bytes] = StreamMethod(PUBLISH.path, bytes, bytes, bytes, bytes)


def named(cluster: FakeCluster) -> tuple[tuple[str, str], ...]:
    """The call metadata that names the owner."""
    assert cluster.owner is not None
    return ((GATEWAY_OWNER, cluster.owner.incarnation),)


async def ending(stream: Stream[bytes, bytes]) -> OncelogError:
    """The error with which a stream ends."""
    try:
        async for _ in stream:
            pass
    except OncelogError as error:
        return error
    raise AssertionError("it ended in good order")


async def test_producers_and_readers_work_through_one_address() -> None:
    """Publish, read from both ends, get the last message id: the owner's own address is never used."""
    async with asyncio.timeout(DEADLINE_S), FakeCluster.running() as cluster, FakeGateway.running(cluster) as replica:
        async with await oncelog.connect(replica.url, operation_timeout=DEADLINE_S) as client:
            producer = await client.create_producer("orders", producer_name="shop")
            first = await producer.send(b"one")
            again = await (await client.create_producer("bills", producer_name="shop")).send(b"two")
            assert await client.last_message_id("orders") == first.message_id != again.message_id
            reader = await client.create_reader("orders")
            assert (await reader.read_next(timeout=DEADLINE_S)).value == b"one"
            tail = await client.create_reader("orders", start=LATEST)
            await producer.send(b"three")
            assert (await tail.read_next(timeout=DEADLINE_S)).value == b"three"
            assert len(client._network._publish_streams) == 1, (
                "all producers of one owner share a stream, through a gateway, too"
            )
        await until(lambda: replica.gateway.stream_count == 0, DEADLINE_S)
        assert replica.gateway.held_bytes == 0 < replica.gateway.passed_bytes


async def test_producer_behind_the_gateway_survives_its_owner() -> None:
    """A killed owner ends the streams through the gateway like direct ones."""
    async with (
        asyncio.timeout(DEADLINE_S),
        FakeCluster.running() as cluster,
        FakeGateway.running(cluster) as replica,
        await oncelog.connect(replica.url, operation_timeout=DEADLINE_S) as client,
    ):
        producer = await client.create_producer("orders", producer_name="shop")
        reader = await client.create_reader("orders")
        for number in range(3):
            sent = [await producer.send(f"{number} {each}".encode()) for each in range(10)]
            assert not any(result.duplicate for result in sent)
            await cluster.take_over()
        values = [(await reader.read_next(timeout=DEADLINE_S)).value for _ in range(30)]
        assert values == [f"{number} {each}".encode() for number in range(3) for each in range(10)]


async def test_client_switches_to_another_gateway_when_its_own_dies() -> None:
    """Gateways keep no state of a client."""
    async with (
        asyncio.timeout(DEADLINE_S),
        FakeCluster.running() as cluster,
        FakeGateway.running(cluster) as first,
        FakeGateway.running(cluster) as second,
    ):
        url = f"{first.url},{second.address}"
        async with await oncelog.connect(url, operation_timeout=DEADLINE_S) as client:
            producer = await client.create_producer("orders", producer_name="shop")
            reader = await client.create_reader("orders")
            await producer.send(b"one")
            assert (await reader.read_next(timeout=DEADLINE_S)).value == b"one"
            await first.kill()
            await producer.send(b"two")
            assert (await reader.read_next(timeout=DEADLINE_S)).value == b"two"
            assert second.gateway.stream_count > 0


async def test_only_registered_owners_are_reachable() -> None:
    """The given name is looked up among the registered owners, and is never used as an address."""
    async with asyncio.timeout(DEADLINE_S), FakeCluster.running() as cluster, FakeGateway.running(cluster) as replica:
        assert cluster.owner is not None
        async with Channel(replica.address) as channel:
            for text in ("f" * 32, cluster.owner.address, "127.0.0.1:22", "../owners", "x" * 4_000):
                error = await ending(channel.stream(RAW, metadata=((GATEWAY_OWNER, text),)))
                assert isinstance(error, ServiceUnavailable)
                assert "is not available: look the topic up again" in error.message
            assert isinstance(await ending(channel.stream(RAW)), InvalidArgument)
            request = LastMessageRequest(topic="public/default/orders")
            with pytest.raises(InvalidArgument, match=r"oncelog\+proxy://"):
                await channel.call(LAST_MESSAGE, request, timeout_ms=30_000)


async def test_only_client_methods_are_forwarded() -> None:
    """Services call owners directly. The gateway must not give clients access to service methods."""
    async with (
        asyncio.timeout(DEADLINE_S),
        FakeCluster.running() as cluster,
        FakeGateway.running(cluster) as replica,
        Channel(replica.address, metadata=named(cluster)) as channel,
    ):
        with pytest.raises(Fatal, match="unknown method: this process is of another version; upgrade"):
            await channel.call(TOPIC_STATES, TopicStatesRequest(), timeout_ms=30_000)


async def test_errors_of_the_owner_arrive_unchanged() -> None:
    """Also through a unary call and its trailing metadata: a missing topic must not look like a lost connection."""
    async with asyncio.timeout(DEADLINE_S), FakeCluster.running() as cluster, FakeGateway.running(cluster) as replica:
        async with Channel(replica.address, metadata=named(cluster)) as channel:
            request = LastMessageRequest(topic="public/default/absent", topic_id="absent")
            with pytest.raises(OncelogError) as through:
                await channel.call(LAST_MESSAGE, request, timeout_ms=30_000)
        assert cluster.owner is not None
        async with Channel(cluster.owner.address) as channel:
            with pytest.raises(OncelogError) as direct:
                await channel.call(LAST_MESSAGE, request, timeout_ms=30_000)
        assert (type(through.value), through.value.message) == (type(direct.value), direct.value.message)


async def test_streams_are_limited_in_total_and_by_caller() -> None:
    """One client may open thousands of streams; others can still connect when some are closed."""
    limits = GatewayLimits(streams_max=20)
    async with (
        asyncio.timeout(DEADLINE_S),
        FakeCluster.running() as cluster,
        FakeGateway.running(cluster, limits=limits) as replica,
        Channel(replica.address, metadata=named(cluster)) as channel,
    ):
        await channel.connected()
        streams = [channel.stream(RAW) for _ in range(2_000)]
        refused = await asyncio.gather(*(ending(stream) for stream in streams[limits.caller_streams_max :]))
        # A refusal may be overtaken by the end of its stream, which is as good to try again.
        assert TooManyRequests in {type(error) for error in refused} <= {TooManyRequests, ServiceUnavailable}
        assert replica.gateway.stream_count == limits.caller_streams_max
        for stream in streams:
            stream.cancel()
        await until(lambda: replica.gateway.stream_count == 0, DEADLINE_S)
        async with await oncelog.connect(replica.url, operation_timeout=DEADLINE_S) as client:
            await (await client.create_producer("orders")).send(b"one")


async def test_stream_without_messages_is_ended() -> None:
    """A half-open stream: its client never sends a message."""
    limits = GatewayLimits(first_message_s=0.2)
    async with (
        asyncio.timeout(DEADLINE_S),
        FakeCluster.running() as cluster,
        FakeGateway.running(cluster, limits=limits) as replica,
        Channel(replica.address, metadata=named(cluster)) as channel,
    ):
        error = await ending(channel.stream(RAW))
        assert isinstance(error, DeadlineExceeded)
        assert "no message within" in error.message
        await until(lambda: replica.gateway.stream_count == 0, DEADLINE_S)


class Owner:
    """An owner that reads only when allowed, and counts the bytes read."""

    def __init__(self) -> None:
        self.let = asyncio.Event()
        self.read_bytes = 0
        self.server = Server()
        self.server.client_stream(RAW, self._serve)

    async def _serve(self, stream: ServerStream[bytes, bytes]) -> None:
        await self.let.wait()
        async for data in stream:
            self.read_bytes += len(data)
        await stream.write(b"all")


async def test_flow_control_of_a_slow_owner_reaches_its_client() -> None:
    """Only one message waits in the gateway, plus the contents of gRPC's windows."""
    owner, piece, count = Owner(), b"x" * (1 << 20), 60
    async with asyncio.timeout(DEADLINE_S), FakeCluster.running() as cluster, FakeGateway.running(cluster) as replica:
        assert cluster.owner is not None
        cluster.owner.address = f"127.0.0.1:{await owner.server.start()}"
        written = 0

        async def write(stream: Stream[bytes, bytes]) -> None:
            nonlocal written
            for _ in range(count):
                await stream.write(piece)
                written += 1
            await stream.finish()

        async with Channel(replica.address, metadata=named(cluster)) as channel, asyncio.TaskGroup() as tasks:
            stream = channel.stream(RAW)
            writing = tasks.create_task(write(stream))
            await until(lambda: replica.gateway.held_bytes > 0, DEADLINE_S)
            assert replica.gateway.held_bytes <= len(piece)
            assert not writing.done()
            owner.let.set()
            assert [data async for data in stream] == [b"all"]
        assert written == count
        assert owner.read_bytes == count * len(piece)
        await owner.server.stop(grace_ms=0)


async def test_bytes_in_the_gateway_are_limited() -> None:
    """Otherwise many clients of an owner that does not read would fill the gateway's memory. One caller gets half of
    it, so that the streams of others are not ended."""
    owner, piece = Owner(), b"x" * (1 << 20)
    limits = GatewayLimits(bytes_max=4 * len(piece))
    async with (
        asyncio.timeout(DEADLINE_S),
        FakeCluster.running() as cluster,
        FakeGateway.running(cluster, limits=limits) as replica,
    ):
        assert cluster.owner is not None
        cluster.owner.address = f"127.0.0.1:{await owner.server.start()}"

        async def write_on(stream: Stream[bytes, bytes]) -> None:
            with contextlib.suppress(OncelogError):
                for _ in range(100):
                    await stream.write(piece)

        async with Channel(replica.address, metadata=named(cluster)) as channel:
            streams = [channel.stream(RAW) for _ in range(20)]
            writing = [asyncio.create_task(write_on(stream)) for stream in streams]
            reading = [asyncio.create_task(ending(stream)) for stream in streams]
            await until(lambda: sum(task.done() for task in reading) >= len(streams) - 4, DEADLINE_S)
            assert replica.gateway.held_bytes <= limits.bytes_max // 2
            # gRPC loses the reason of a stream that ends during a write.
            ends = [task.result() for task in reading if task.done()]
            assert all(isinstance(error, TooManyRequests | ServiceUnavailable) for error in ends), ends
            for stream in streams:
                stream.cancel()
            await asyncio.wait([*reading, *writing])
        await until(lambda: replica.gateway.stream_count == 0, DEADLINE_S)
        assert replica.gateway.held_bytes == 0
        await owner.server.stop(grace_ms=0)
