"""A storage node takes a new era over a real socket: who may raise it, and what becomes of the callers of before."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.errors import (
    InvalidArgument,
    PermissionDenied,
    ServiceUnavailable,
    StaleEra,
    WrongCluster,
)
from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.restore_codec import RAISE_ERA
from oncelog.rpc.codecs.storage_codec import (
    APPEND,
    DESCRIBE,
    FENCE,
    ISSUE_READ_TICKET,
    READ,
    AppendAnswer,
    AppendFrame,
    ReadRequest,
)
from oncelog.rpc.options import ERA
from oncelog.runtime.security import OPEN
from oncelog.wire import recovery_pb2 as recovery
from oncelog.wire import storage_pb2 as pb
from tests.cluster.until import until
from tests.contract.node.directory.small_log import CLUSTER
from tests.contract.node.test_log_storage_service import LEDGER, TIMEOUT_MS, append, found_in, opened, read
from tests.contract.storage_client.ledger_world import DEADLINE_S, Node, adds_of, nodes, whole, writer_of

pytestmark = pytest.mark.asyncio

TWO, THREE = Era(2, "a" * 32), Era(3, "b" * 32)


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[tuple[Node, Channel]]:
    async with asyncio.timeout(60), nodes(tmp_path, 1) as (node,), Channel(node.address) as channel:
        yield node, channel


def channel_of(node: Node, era: str) -> Channel:
    return Channel(node.address, metadata=((ERA, era),))


def request(node: Node, era: Era, *, cluster_id: str = CLUSTER, target: str = "") -> recovery.RaiseEraRequest:
    return recovery.RaiseEraRequest(
        target=target or node.incarnation, cluster_id=cluster_id, era=era.number, restore_id=era.restore_id
    )


async def raise_to(node: Node, channel: Channel, era: Era) -> Era:
    """Returns what the node has stored then."""
    answer = await channel.call(RAISE_ERA, request(node, era), timeout_ms=TIMEOUT_MS)
    assert answer.status == pb.STORAGE_STATUS_OK
    return Era(answer.era, answer.restore_id)


async def fence(channel: Channel, node: Node) -> None:
    await channel.call(FENCE, pb.FenceRequest(target=node.incarnation, ledger_id=9), timeout_ms=TIMEOUT_MS)


async def append_is_stale(channel: Channel, node: Node) -> bool:
    """The reason may not arrive while the first message is being sent: then callers ask again."""
    try:
        await append(channel, node.incarnation, adds_of(writer_of(opened(node)), 1), recovery=True)
    except StaleEra:
        return True
    except ServiceUnavailable as error:
        if "the reason did not arrive" not in error.message:
            raise
    return False


async def test_an_era_is_durable_when_it_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as (node, channel):
        assert await raise_to(node, channel, TWO) == TWO
        assert await raise_to(node, channel, Era(2, "c" * 32)) == TWO
        await node.stop()
        await node.start()
        assert node.runner.era == TWO
        async with channel_of(node, str(FIRST_ERA)) as former:
            assert await raise_to(node, former, FIRST_ERA) == TWO, "it says so to anybody who asks with an older era"


@pytest.mark.hazard("era-of-a-liar")
async def test_another_cluster_and_a_jump_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as (node, channel):
        for wrong, error in [
            (request(node, TWO, cluster_id="b" * 32), WrongCluster),
            (request(node, Era(1002, "a" * 32)), InvalidArgument),
            (request(node, Era(2, "no id")), InvalidArgument),
            (request(node, Era(5000, "a" * 32)), InvalidArgument),
        ]:
            with pytest.raises(error):
                await channel.call(RAISE_ERA, wrong, timeout_ms=TIMEOUT_MS)
        answer = await channel.call(RAISE_ERA, request(node, TWO, target="b" * 32), timeout_ms=TIMEOUT_MS)
        assert answer.status == pb.STORAGE_STATUS_WRONG_INCARNATION
        assert node.runner.era == FIRST_ERA


@pytest.mark.hazard("era-at-one-node")
async def test_callers_of_a_former_era_are_stale_and_newer_ones_are_not_believed(tmp_path: Path) -> None:
    """Without a header the caller is of the first era, as programs of before are."""
    async with serving(tmp_path) as (node, channel):
        async with channel_of(node, str(TWO)) as newer:
            with pytest.raises(ServiceUnavailable, match="in era 1"):
                await fence(newer, node)
            await raise_to(node, channel, TWO)
            await fence(newer, node)
            async with channel_of(node, str(FIRST_ERA)) as former:
                for stale in (former, channel):
                    with pytest.raises(StaleEra) as caught:
                        await fence(stale, node)
                    assert caught.value.details["era"] == str(TWO)
                    fencing = ReadRequest(node.incarnation, LEDGER, EntryId(0), 1, fence=True)
                    with pytest.raises(StaleEra):
                        _ = [frame async for frame in stale.read(READ, fencing, timeout_ms=TIMEOUT_MS)]
                    await until(partial(append_is_stale, stale, node), DEADLINE_S)
                    await stale.call(DESCRIBE, pb.DescribeRequest(), timeout_ms=TIMEOUT_MS)
        async with channel_of(node, "99999.x") as wrong:
            with pytest.raises(InvalidArgument, match="era"):
                await fence(wrong, node)


@pytest.mark.hazard("era-at-one-node")
async def test_raising_ends_the_streams_of_former_eras(tmp_path: Path) -> None:
    """The owner's stream is open and has been idle for a while; its next add gets no answer of this node. What it has
    added before is kept."""
    async with serving(tmp_path) as (node, channel):
        adds = adds_of(writer_of(opened(node)), 2)
        stream = channel.stream(APPEND)
        await stream.write(AppendFrame(node.incarnation, False, [adds[0].parts]))
        assert await anext(stream) == [AppendAnswer(LEDGER, [EntryId(0)], AppendStatus.OK)]
        await raise_to(node, channel, TWO)
        with pytest.raises(StaleEra, match=r"has taken era 2\."):
            await anext(stream)
        assert found_in(await read(channel, node, 0, 2)) == whole(adds[:1])


async def test_read_tickets_of_a_former_era_are_dropped(tmp_path: Path) -> None:
    """A reader asks the owner for a new one, and that is an owner of the new era."""
    async with serving(tmp_path) as (node, channel):
        await append(channel, node.incarnation, adds_of(writer_of(opened(node)), 1))
        asked = pb.ReadTicketRequest(
            target=node.incarnation, ledger_id=LEDGER, last_entry=0, role="", lifetime_ms=60_000
        )
        ticket = (await channel.call(ISSUE_READ_TICKET, asked, timeout_ms=TIMEOUT_MS)).ticket
        with_ticket = ReadRequest(node.incarnation, LedgerId(LEDGER), EntryId(0), 1, ticket=ticket)
        assert [frame.entry_ids async for frame in channel.read(READ, with_ticket, timeout_ms=TIMEOUT_MS)] == [[0]]
        await raise_to(node, channel, TWO)
        with pytest.raises(PermissionDenied, match="has not issued the ticket"):
            _ = [frame async for frame in channel.read(READ, with_ticket, timeout_ms=TIMEOUT_MS)]


@pytest.mark.hazard("the-lost-ensemble-returns")
async def test_a_service_states_its_era_and_hears_that_it_is_a_former_one(tmp_path: Path) -> None:
    """In calls and in streams. It counts the addresses that say so (`HistoryWatch`)."""
    heard: list[tuple[str, str]] = []
    async with serving(tmp_path) as (node, operator):
        credentials = OPEN.in_era(TWO, lambda address, error: heard.append((address, str(error.details["era"])))).peers
        async with Channel(node.address, credentials=credentials) as channel:
            await raise_to(node, operator, TWO)
            await fence(channel, node)
            assert heard == []
            await raise_to(node, operator, THREE)
            with pytest.raises(StaleEra):
                await fence(channel, node)
            assert heard == [(node.address, str(THREE))]
            with pytest.raises(StaleEra):
                await append(channel, node.incarnation, adds_of(writer_of(opened(node)), 1))
            assert heard == [(node.address, str(THREE))] * 2
