"""Slow connections are established in the end, and callers do not wait for a peer that never connects."""

import asyncio
import re
from contextlib import AbstractAsyncContextManager

import pytest

import oncelog
from oncelog.core.errors import DeadlineExceeded, ServiceUnavailable
from oncelog.rpc.channel import Channel
from oncelog.rpc.channels import Channels
from oncelog.rpc.codecs.storage_codec import APPEND, FENCE
from oncelog.rpc.connecting import CALL_WAIT_MS_MAX, CONNECT_MS_MAX, CONNECT_MS_MIN, Connecting
from tests.cluster.until import until
from tests.contract.rpc.rpc_serving import REQUEST, echo, forever, frame_of, serving
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.sdk.fakes.slow_proxy import SlowProxy

pytestmark = pytest.mark.asyncio

DEADLINE_S = 60.0
#: Longer than the first attempt may take; longer than the second.
SLOW_S = CONNECT_MS_MIN / 1000 + 0.2
SLOWER_S = 2 * CONNECT_MS_MIN / 1000 + 0.2


def slowly(address: str) -> AbstractAsyncContextManager[SlowProxy]:
    """A relay before the server at `address`."""
    return SlowProxy.running(int(address.rpartition(":")[2]))


async def first_answer(channels: Channels, address: str) -> int:
    """How many channels it takes until a stream gives an answer, each closed when its stream has failed."""
    for number in range(1, 100):
        async with channels.channel(address) as channel:
            stream = channel.stream(APPEND)
            try:
                await stream.write(frame_of(7))
                await anext(stream)
            except ServiceUnavailable:
                continue
            return number
    raise AssertionError("no stream was ever answered")


async def test_peer_with_a_slow_handshake_is_reached() -> None:
    """On an overloaded machine each attempt took longer than 0.8 s, so no connection was ever established."""
    async with asyncio.timeout(DEADLINE_S), serving(append=echo) as (_, served), slowly(served.address) as proxy:
        proxy.delay_s = SLOWER_S
        channels = Channels()
        try:
            assert await first_answer(channels, proxy.address) > 1, "nobody waits for so long at once"
        finally:
            await channels.close()


async def test_calls_on_a_long_lived_channel_reach_a_slow_peer() -> None:
    """Metadata services keep one channel to each owner, and clients one to each metadata service."""
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(fence=forever) as (_, served),
        slowly(served.address) as proxy,
        Channel(proxy.address) as channel,
    ):
        proxy.delay_s = SLOW_S

        async def through() -> bool:
            try:
                await channel.call(FENCE, REQUEST, timeout_ms=CONNECT_MS_MIN * 2)
            except ServiceUnavailable:
                return False
            except DeadlineExceeded:
                return True  # the server has the call, and never answers it
            raise AssertionError("the server never answers")

        await until(through, DEADLINE_S)


async def test_call_fails_before_its_connection_attempt_ends() -> None:
    """The topic of a frozen owner moves meanwhile: a caller that waits for the frozen owner would look up too late."""
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(append=echo) as (_, served),
        slowly(served.address) as proxy,
        Channel(proxy.address) as channel,
    ):
        proxy.delay_s = None
        for _ in range(6):
            stream = channel.stream(APPEND)
            with pytest.raises(ServiceUnavailable, match=r"cannot reach .*: no connection within 0\.8 s"):
                await anext(stream)
        connecting: Connecting = channel._connecting
        assert connecting.limit_ms > CONNECT_MS_MIN, "attempts are allowed more and more time, calls are not"


async def test_close_that_is_cancelled_ends_the_streams() -> None:
    """A client closes a reader and then itself, which cancels what is under way: the stream went on for ever."""
    async with asyncio.timeout(DEADLINE_S), serving(append=echo) as (_, served), slowly(served.address) as proxy:
        proxy.delay_s = CONNECT_MS_MIN / 2000  # the attempt succeeds if nothing ends it
        channel = Channel(proxy.address)
        writing = asyncio.ensure_future(channel.stream(APPEND).write(frame_of(7)))
        await until(lambda: proxy.taken, DEADLINE_S, every_s=0)
        closing = asyncio.ensure_future(channel.close())
        asyncio.get_running_loop().call_soon(closing.cancel)
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(ServiceUnavailable, match="closed"):
            await writing


@pytest.mark.hazard("fixed-limit-on-a-slow-machine")
async def test_peer_that_connected_slowly_is_reached_at_the_first_attempt_next_time() -> None:
    """Each attempt that is given up is a handshake in vain, on the machine that is slow already."""
    async with asyncio.timeout(DEADLINE_S), serving(append=echo) as (_, served), slowly(served.address) as proxy:
        proxy.delay_s = SLOW_S
        channels = Channels()
        try:
            assert await first_answer(channels, proxy.address) > 1
            given_up = proxy.given_up
            assert await first_answer(channels, proxy.address) == 1
            assert proxy.given_up == given_up
        finally:
            await channels.close()


async def test_established_connection_resets_the_attempt_timeout_to_what_it_took() -> None:
    """It is no multiple of failed attempts any more. Calls never wait for longer than clients may take to fail over."""
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(append=echo) as (_, served),
        slowly(served.address) as proxy,
        Channel(proxy.address) as channel,
    ):
        connecting: Connecting = channel._connecting
        proxy.delay_s = SLOWER_S
        await channel.connected()
        assert CONNECT_MS_MIN < connecting.limit_ms <= CONNECT_MS_MAX
        assert connecting.call_wait_ms == CALL_WAIT_MS_MAX
        assert proxy.given_up >= 1
        connecting._times._clock = lambda: asyncio.get_running_loop().time() + 1e6
        assert (connecting.limit_ms, connecting.call_wait_ms) == (CONNECT_MS_MIN, CONNECT_MS_MIN)


async def test_refused_attempts_do_not_change_the_attempt_timeout() -> None:
    """A refusal is not a slow handshake."""
    async with asyncio.timeout(DEADLINE_S), Channel("127.0.0.1:1") as channel:
        connecting: Connecting = channel._connecting
        for _ in range(3):
            with pytest.raises(ServiceUnavailable, match="connection refused: no process listens"):
                await channel.call(FENCE, REQUEST, timeout_ms=30_000)
        former = connecting.channel
        connecting.begin()
        await until(lambda: connecting.channel is not former, DEADLINE_S)
        assert connecting.limit_ms == CONNECT_MS_MIN < CONNECT_MS_MAX


async def test_errors_name_the_address_its_origin_and_the_reason() -> None:
    """ "Is the cluster running?" did not help a user whose network has no route to an owner."""
    async with asyncio.timeout(DEADLINE_S), Channel("127.0.0.1:1", origin="advertised by topic owner 7") as channel:
        with pytest.raises(ServiceUnavailable) as refused:
            await anext(channel.stream(APPEND))
        assert refused.value.message.startswith(
            "cannot reach 127.0.0.1:1 (advertised by topic owner 7): connection refused"
        )
    async with asyncio.timeout(DEADLINE_S), Channel("no-such-host.invalid:1") as channel:
        with pytest.raises(
            ServiceUnavailable, match=r"cannot reach no-such-host\.invalid:1: its name cannot be resolved"
        ):
            await channel.call(FENCE, REQUEST, timeout_ms=20_000)


async def test_producer_and_reader_reach_an_owner_with_a_slow_handshake() -> None:
    """The application only waits longer."""
    async with asyncio.timeout(DEADLINE_S), FakeCluster.running() as cluster:
        assert cluster.owner is not None
        async with slowly(cluster.owner.address) as proxy:
            proxy.delay_s = SLOW_S
            cluster.owner.address = proxy.address
            async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
                producer = await client.create_producer("orders", producer_name="shop")
                await producer.send(b"one")
                reader = await client.create_reader("orders")
                assert (await reader.read_next(timeout=DEADLINE_S)).value == b"one"


async def test_reader_timeout_names_the_unreachable_address() -> None:
    """The advertised address is wrong: the lookup succeeds, but no read does."""
    async with asyncio.timeout(DEADLINE_S), FakeCluster.running() as cluster:
        assert cluster.owner is not None
        async with await oncelog.connect(cluster.url, operation_timeout=DEADLINE_S) as client:
            producer = await client.create_producer("orders", producer_name="shop")
            await producer.send(b"one")
            cluster.owner.address = "127.0.0.1:1"
            reader = await client.create_reader("orders")

            async def names_it() -> bool:
                with pytest.raises(DeadlineExceeded) as raised:
                    await reader.read_next(timeout=0.5)
                return bool(re.search("advertised by topic owner.*refused", str(raised.value)))

            await until(names_it, DEADLINE_S, waiting_for="an error that names the address")
