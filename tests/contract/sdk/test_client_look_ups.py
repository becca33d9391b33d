"""The look-ups of one client: how many are under way at once, and what it does when a service is busy."""

import asyncio

import pytest

from oncelog.client.network.lookup import LOOK_UPS_MAX, OwnerLookup
from oncelog.core.access import Caller
from oncelog.core.errors import TooManyRequests
from oncelog.core.names import parse_topic
from oncelog.rpc.channels import Channels
from oncelog.rpc.codecs.metadata_codec import LOOKUP
from oncelog.rpc.server import Server
from oncelog.wire.metadata_pb2 import LookupAnswer, LookupRequest
from tests.cluster.until import until
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
