"""A storage node that is slow, and not gone, gets no repeated work: limits follow what its answers take."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from oncelog.core.ids import Incarnation, LedgerId
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.recovery_codec import RECOVER, RecoverAnswer, RecoverRequest
from oncelog.rpc.server import Server
from oncelog.storage_client.recovery_requests import RecoveryRequests
from oncelog.wire import storage_pb2 as pb
from tests.contract.sdk.fakes.slow_proxy import SlowProxy
from tests.contract.storage_client.ledger_world import A, B, C, linked, scripted
from tests.contract.storage_client.test_ledgers_reader import ENTRIES, Member, read_all

pytestmark = pytest.mark.asyncio
DEADLINE_S = 60.0
#: Above the shortest limit of a fence in these tests, and of a frame of a read.
SLOW_FENCE_S, FENCE_MS_MIN = 0.6, 200
SLOW_READ_S = 1.3


class Fencing:
    """A member that fences ledgers, and counts the calls and the fences in them."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def add_to(self, server: Server) -> None:
        server.unary(RECOVER, self._recover)

    async def _recover(self, request: RecoverRequest) -> RecoverAnswer:
        self.calls.append(len(request.fences))
        return RecoverAnswer(
            [pb.FenceAnswer(status=pb.STORAGE_STATUS_OK, last_entry=1, last_add_confirmed=0) for _ in request.fences],
            [],
        )


async def fence(requests: RecoveryRequests, ledgers: range) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(requests.fence(LedgerId(number)) for number in ledgers))


@pytest.mark.hazard("fixed-limit-on-a-slow-machine")
async def test_fences_of_many_takeovers_reach_a_slow_node_and_then_once() -> None:
    """With a fixed timeout below what the node takes, they were repeated for as long as it was slow."""
    node = Fencing()
    async with (
        scripted(node.add_to) as address,
        SlowProxy.running(int(address.rpartition(":")[2])) as proxy,
        Channel(proxy.address) as channel,
    ):
        requests = RecoveryRequests(lambda: channel, A, fence_ms_min=FENCE_MS_MIN)
        await fence(requests, range(1))
        proxy.answer_delay_s = SLOW_FENCE_S
        node.calls.clear()
        await fence(requests, range(100, 140))
        assert sum(node.calls) > 40, "the first attempt is given up, because nothing says yet that the node is slow"
        node.calls.clear()
        await fence(requests, range(200, 240))
        assert node.calls == [40]
        await requests.close()


@pytest.mark.hazard("fixed-limit-on-a-slow-machine")
async def test_slow_members_are_not_passed_over_again_and_again() -> None:
    """Each read used to begin with a second for each member, and to ask all of them in vain."""
    members = {A: Member(), B: Member(), C: Member()}
    async with AsyncExitStack() as stack:
        proxies: dict[Incarnation, SlowProxy] = {}
        for name, member in members.items():
            address = await stack.enter_async_context(scripted(member.add_to))
            port = int(address.rpartition(":")[2])
            proxies[name] = await stack.enter_async_context(SlowProxy.running(port))
        addresses = {name: proxy.address for name, proxy in proxies.items()}
        links, _ = await stack.enter_async_context(linked(addresses))

        async def asked() -> int:
            """How many members a read asks, apart from second reads, which are limited otherwise."""
            before = sum(len(member.requests) for member in members.values()) - links.watch.hedged_count
            assert await read_all(links) == ENTRIES
            return sum(len(member.requests) for member in members.values()) - links.watch.hedged_count - before

        for name in members:
            await links.channel(name).connected()
        assert await asked() == 1
        for proxy in proxies.values():
            proxy.answer_delay_s = SLOW_READ_S
        assert await asked() > 1, "nothing says yet that they are slow"
        assert [await asked() for _ in range(2)] == [1, 1]
