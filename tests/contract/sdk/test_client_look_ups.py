"""The look-ups of one client: how many are under way at once, and what it does when a service is busy."""

import asyncio
from typing import Any

import pytest

import oncelog
from oncelog.client.network.lookup import LOOK_UPS_MAX, OwnerLookup
from oncelog.core.access import Caller
from oncelog.core.errors import InvalidArgument, TooManyRequests
from oncelog.core.names import parse_topic
from oncelog.rpc.channels import Channels
from oncelog.rpc.codecs.metadata_codec import LOOKUP
from oncelog.rpc.server import Server
from oncelog.wire.metadata_pb2 import LookupAnswer, LookupRequest
from tests.cluster.until import until
from tests.contract.sdk.fakes.fake_cluster import FakeCluster
from tests.contract.storage_client.ledger_world import DEADLINE_S, scripted

pytestmark = pytest.mark.asyncio


class Metadata:
    """Answers look-ups when it is told to."""

    def __init__(self) -> None:
        self.waiting = self.most = self.answered = 0
        self.go = asyncio.Event()

    def add_to(self, server: Server) -> None:
        server.client_unary(LOOKUP, self._look_up)

    async def _look_up(self, request: LookupRequest, _caller: Caller) -> LookupAnswer:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await self.go.wait()
        self.waiting -= 1
        self.answered += 1
        return LookupAnswer(cluster_id="c", topic_id=request.topic, owner_address="127.0.0.1:1")


async def test_a_client_asks_for_a_bounded_number_of_topics_at_once() -> None:
    """5,000 at once would all time out, and be repeated, by each of its producers."""
    metadata, count = Metadata(), LOOK_UPS_MAX * 3
    async with scripted(metadata.add_to) as address:
        channels = Channels()
        lookup = OwnerLookup((address,), channels)
        asked = [asyncio.ensure_future(lookup.find(parse_topic(f"t{number}"))) for number in range(count)]
        await until(lambda: metadata.waiting == LOOK_UPS_MAX, DEADLINE_S)
        metadata.go.set()
        routes = await asyncio.wait_for(asyncio.gather(*asked), DEADLINE_S)
        assert [route.topic_id for route in routes] == [f"public/default/t{number}" for number in range(count)]
        assert (metadata.most, metadata.answered) == (LOOK_UPS_MAX, count)
        await channels.close()


class Busy:
    """Refuses the look-ups until it is told that it is free."""

    def __init__(self) -> None:
        self.refused_s: list[float] = []
        self.answered_s: list[float] = []
        self.free = False

    def add_to(self, server: Server) -> None:
        server.client_unary(LOOKUP, self._look_up)

    async def _look_up(self, request: LookupRequest, _caller: Caller) -> LookupAnswer:
        now_s = asyncio.get_running_loop().time()
        if not self.free:
            self.refused_s.append(now_s)
            raise TooManyRequests("too many look-ups", retry_after_s=1)
        self.answered_s.append(now_s)
        return LookupAnswer(cluster_id="c", topic_id=request.topic, owner_address="127.0.0.1:1")


async def test_a_busy_service_is_not_asked_again_before_its_time() -> None:
    """The hint holds for all topics of the client, also for those that waited for their turn to ask."""
    busy, count = Busy(), LOOK_UPS_MAX * 3
    async with scripted(busy.add_to) as address:
        channels = Channels()
        lookup = OwnerLookup((address,), channels)
        with pytest.raises(TooManyRequests):
            await lookup.find(parse_topic("first"))
        busy.free = True
        asked = [lookup.find(parse_topic(f"t{number}")) for number in range(count)]
        await asyncio.wait_for(asyncio.gather(*asked), DEADLINE_S)
        assert (len(busy.refused_s), len(busy.answered_s)) == (1, count)
        assert min(busy.answered_s) - busy.refused_s[0] >= 1.0
        await channels.close()


async def test_another_service_is_asked_while_one_is_busy() -> None:
    busy, other = Busy(), Metadata()
    other.go.set()
    async with scripted(busy.add_to) as first, scripted(other.add_to) as second:
        channels = Channels()
        lookup = OwnerLookup((first, second), channels)
        for number in range(5):
            await lookup.find(parse_topic(f"t{number}"))
        assert (len(busy.refused_s), other.answered) == (1, 5)
        await channels.close()


@pytest.mark.parametrize("error", [KeyError("t"), OSError("no provider"), StopIteration(), asyncio.CancelledError()])
async def test_token_function_that_fails_is_an_outage_once_it_has_worked(error: BaseException) -> None:
    """Whatever it raises: its error ended the task that looks up the owner, and went to the loop's handler. The next
    look-up came when the one before was late."""
    failed, fails = 0, False
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))

    def token() -> str:
        nonlocal failed
        if fails:
            failed += 1
            raise error
        return "token"

    async with FakeCluster.running() as cluster, await oncelog.connect(cluster.url, token=token) as client:
        producer = await client.create_producer("flights")
        await producer.send(b"1")
        fails = True
        await cluster.kill_owner()
        sending = asyncio.ensure_future(producer.send(b"2"))
        await cluster.take_over()
        await until(lambda: failed >= 3, DEADLINE_S)
        fails = False
        await asyncio.wait_for(sending, DEADLINE_S)
        assert cluster.topic("flights").values() == [b"1", b"2"]
    assert unhandled == []


@pytest.mark.parametrize("returned", [None, b"token", KeyError("token")])
async def test_token_function_that_never_worked_is_refused_at_once(returned: object) -> None:
    """Also an async one: it returns no string."""

    def token() -> str:
        if isinstance(returned, Exception):
            raise returned
        return returned  # type: ignore[return-value]

    async def asynchronous() -> str:
        return "token"

    async with FakeCluster.running() as cluster:
        functions: list[Any] = [token, asynchronous]
        for function in functions:
            async with await oncelog.connect(cluster.url, token=function) as client:
                with pytest.raises(InvalidArgument, match="the function that returns the token"):
                    await client.create_producer("flights")
