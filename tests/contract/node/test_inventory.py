"""The inventory of a storage node, over a real socket and a real disk: what a rebuild of ZooKeeper's records reads."""

import asyncio
import itertools
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.errors import DeadlineExceeded, InvalidArgument, ServiceUnavailable
from oncelog.core.formats.entry import EntryKind, peek_header
from oncelog.core.formats.head import LedgerHead, encode_head
from oncelog.core.ids import EntryId, Incarnation, LedgerId, OwnerEpoch, Position
from oncelog.core.ledger.member_status import AppendStatus, CopyState
from oncelog.core.ledger.metadata import EntryRange
from oncelog.core.ledger.writer import Add
from oncelog.core.rebuild.sources import Chain, HeldLedger, Inventory
from oncelog.log_storage.directory.segment_writer import DiskCalls
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.restore_codec import INVENTORY
from oncelog.rpc.codecs.storage_codec import FENCE
from oncelog.storage_client.inventory_calls import read_inventory
from oncelog.wire import recovery_pb2
from oncelog.wire import storage_pb2 as pb
from tests.cluster.until import until
from tests.contract.node.directory.held_journal import Disk
from tests.contract.node.directory.small_log import CLUSTER
from tests.contract.node.test_log_storage_copies import review, stored
from tests.contract.node.test_log_storage_service import LEDGER, TIMEOUT_MS, append, opened, serving, spoil
from tests.contract.storage_client.ledger_world import (
    DEADLINE_S,
    TOPIC,
    A,
    B,
    Node,
    adds_of,
    ledger,
    whole,
    writer_of,
)

pytestmark = pytest.mark.asyncio

HEAD = LedgerHead(
    "public/default/t", (A, B), 2, 1, Incarnation("0a" * 16), LedgerId(3), Position(LedgerId(1), EntryId(5))
)


def headed(node: Node, ledger_id: int, count: int) -> list[Add]:
    """The head of an ack log's ledger, and `count` entries behind it."""
    writer = writer_of(ledger(ledger_id, [node.incarnation]))
    head = writer.append(EntryKind.HEAD_ACKS, encode_head(HEAD), base_index=70, skip_first=0, count=0, now_ms=0)
    return [head, *adds_of(writer, count)]


def ranges(*pairs: tuple[int, int]) -> tuple[EntryRange, ...]:
    return tuple(EntryRange(EntryId(first), EntryId(last)) for first, last in pairs)


def held(ledger_id: int, adds: Sequence[Add], runs: tuple[EntryRange, ...]) -> HeldLedger:
    """Of a ledger of the log without a head, all of whose entries say that nothing was confirmed before them."""
    chain, length = Chain(TOPIC, LedgerPurpose.LOG), peek_header(whole(adds)[runs[-1].last]).length
    return HeldLedger(LedgerId(ledger_id), chain, CopyState.HELD, runs, last_length=length, owner_epoch=OwnerEpoch(1))


async def test_every_ledger_is_listed_with_its_chain_its_runs_and_its_head(tmp_path: Path) -> None:
    """In pages of any size. A fence alone is listed, too: it says that the ledger existed."""
    async with serving(tmp_path) as (node, channel):
        adds = adds_of(writer_of(opened(node)), 6)
        await append(channel, node.incarnation, [*adds[:2], adds[4]])
        heads = headed(node, 2, 2)
        assert set((await append(channel, node.incarnation, heads, recovery=True)).values()) == {AppendStatus.OK}
        await channel.call(FENCE, pb.FenceRequest(target=node.incarnation, ledger_id=9), timeout_ms=TIMEOUT_MS)
        log = held(1, adds, ranges((0, 1), (4, 4)))
        acks = replace(held(2, heads, ranges((0, 2))), chain=Chain(TOPIC, LedgerPurpose.ACKS), head=HEAD, base_index=70)
        fenced = HeldLedger(LedgerId(9), None, CopyState.ABSENT, fenced=True)
        whole_inventory = {LedgerId(1): log, LedgerId(2): acks, LedgerId(9): fenced}
        for page_ledgers in (1, 2, 3, 4096):
            found = await read_inventory(channel, node.incarnation, page_ledgers=page_ledgers)
            assert found == Inventory(node.incarnation, CLUSTER, found.era, whole_inventory)
        await node.stop()
        await node.start()
        async with Channel(node.address) as again:
            assert (await read_inventory(again, node.incarnation)).ledgers == whole_inventory


async def test_page_that_takes_too_long_is_asked_for_again_in_smaller_ones(tmp_path: Path) -> None:
    """Otherwise a node with many ledgers on a slow disk could never be asked. One that does not answer at all has
    failed."""
    reads, gate, stuck = itertools.count(), threading.Event(), 0

    def read(fd: int, size: int, offset: int) -> bytes:
        if next(reads) < stuck:
            gate.wait(DEADLINE_S)
        return os.pread(fd, size, offset)

    node = Node(tmp_path / "node")
    node.disk = DiskCalls(read=read)
    await node.start()
    try:
        async with Channel(node.address) as channel:
            await append(channel, node.incarnation, adds_of(writer_of(opened(node)), 1))
            reads, stuck = itertools.count(), 1
            assert list((await read_inventory(channel, node.incarnation, timeout_ms=5_000)).ledgers) == [LEDGER]
            reads, stuck = itertools.count(), 2
            with pytest.raises(DeadlineExceeded):
                await read_inventory(channel, node.incarnation, timeout_ms=100)
    finally:
        gate.set()
        await node.stop()


async def test_damaged_entry_is_in_no_run_and_gives_no_facts(tmp_path: Path) -> None:
    """The head, the index and the length of a ledger are never those of bytes that cannot be proved."""
    async with serving(tmp_path) as (node, channel):
        adds = headed(node, LEDGER, 4)
        await append(channel, node.incarnation, adds, recovery=True)
        for entry_id in (0, 3, 4):
            spoil(node.path, whole(adds)[EntryId(entry_id)])
        found = (await read_inventory(channel, node.incarnation)).ledgers[LEDGER]
        assert (found.state, found.runs, found.head) == (CopyState.DAMAGED, ranges((1, 2)), None)
        assert found.last_length == peek_header(whole(adds)[EntryId(2)]).length
        assert found.base_index == 0
        assert node.runner.core.ledgers.damaged == [LEDGER]


async def test_inventory_of_a_very_damaged_ledger_goes_on_at_the_next_call(tmp_path: Path) -> None:
    """One call is bounded; what it has found is noted."""
    async with serving(tmp_path) as (node, channel):
        adds = adds_of(writer_of(opened(node)), 12)
        await append(channel, node.incarnation, adds)
        for entry_id in range(1, 12):
            spoil(node.path, whole(adds)[EntryId(entry_id)])
        with pytest.raises(ServiceUnavailable, match="more damage"):
            await read_inventory(channel, node.incarnation)
        assert (await read_inventory(channel, node.incarnation)).ledgers[LEDGER].runs == ranges((0, 0))


async def test_entry_that_is_not_synced_is_not_listed(tmp_path: Path) -> None:
    """A rebuild would take it for stored, and a power cut may still take it away."""
    disk = Disk()
    node = Node(tmp_path / "node")
    node.disk = disk.calls()
    await node.start()
    async with asyncio.timeout(60), Channel(node.address) as channel:
        adds = adds_of(writer_of(opened(node)), 2)
        await append(channel, node.incarnation, adds[:1])
        disk.gate.clear()
        adding = asyncio.create_task(append(channel, node.incarnation, adds[1:]))
        await until(lambda: node.runner.index.contains(LEDGER, EntryId(1)), DEADLINE_S)
        assert (await read_inventory(channel, node.incarnation)).ledgers[LEDGER].runs == ranges((0, 0))
        disk.gate.set()
        await adding
        assert (await read_inventory(channel, node.incarnation)).ledgers[LEDGER].runs == ranges((0, 1))
    await node.stop()


async def test_limbo_covers_listed_and_unlisted_ledgers(tmp_path: Path) -> None:
    """After a hole the node neither holds nor lacks anything for certain."""
    async with serving(tmp_path) as (node, channel):
        adds = adds_of(writer_of(opened(node)), 3)
        await append(channel, node.incarnation, adds[:1])
        await append(channel, node.incarnation, adds[1:])
        await node.stop()
        spoil(node.path, whole(adds)[EntryId(0)])
        await node.start()
        async with Channel(node.address) as again:
            found = await read_inventory(again, node.incarnation)
        assert found.limbo_below == LEDGER + 1
        assert (found.ledgers[LEDGER].state, found.ledgers[LEDGER].runs) == (CopyState.LIMBO, ranges((1, 2)))


@pytest.mark.hazard("trimmed-or-lost")
async def test_erased_copy_is_no_holder_and_its_floor_is_told(tmp_path: Path) -> None:
    """The tombstone says whether the ledger was deleted, or this copy alone was not needed."""
    async with serving(tmp_path) as (node, channel):
        await append(channel, node.incarnation, adds_of(writer_of(opened(node)), 3))
        del node.records[LEDGER]
        node.deleted.add(LEDGER)
        node.trimmed_below = LedgerId(7)
        await review(channel, node)
        for _ in range(2):
            async with Channel(node.address) as again:
                found = await read_inventory(again, node.incarnation)
            copy = found.ledgers[LEDGER]
            assert (copy.state, copy.runs, copy.deleted) == (CopyState.ERASED, (), True)
            assert found.floors == {Chain(TOPIC, LedgerPurpose.LOG): 7}
            await node.stop()
            await node.start()


@pytest.mark.hazard("refilled-member")
async def test_copy_that_is_filled_again_tells_that_it_was_erased(tmp_path: Path) -> None:
    """Also after a restart: what it lacks was perhaps acknowledged."""
    async with serving(tmp_path) as (node, channel):
        closed, _ = await stored(node, channel, 3)
        assert not (await read_inventory(channel, node.incarnation)).ledgers[LEDGER].erased_before
        node.records[LEDGER] = replace(closed, members=(A,), verified=True)
        await review(channel, node)
        node.records[LEDGER] = replace(closed, members=(A,), joining=node.incarnation)
        again = adds_of(writer_of(closed), 3)[:1]
        assert set((await append(channel, node.incarnation, again, repair=True)).values()) == {AppendStatus.OK}
        for _ in range(2):
            async with Channel(node.address) as connected:
                copy = (await read_inventory(connected, node.incarnation)).ledgers[LEDGER]
            assert (copy.state, copy.runs, copy.erased_before) == (CopyState.HELD, ranges((0, 0)), True)
            await node.stop()
            await node.start()


async def test_request_for_another_node_or_too_many_ledgers_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as (node, channel):
        with pytest.raises(ServiceUnavailable, match="WRONG_INCARNATION"):
            await read_inventory(channel, A)
        for ledgers_max in (0, 4097):
            request = recovery_pb2.InventoryRequest(target=node.incarnation, ledgers_max=ledgers_max)
            with pytest.raises(InvalidArgument, match="ask for 1 to 4096"):
                await channel.call(INVENTORY, request, timeout_ms=TIMEOUT_MS)
