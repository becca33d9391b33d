"""Storage nodes as processes: killed, stopped, wiped and damaged, they keep their guarantees."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from oncelog.core.ids import EntryId, LedgerId
from oncelog.core.ledger.member_status import AppendStatus, ReadStatus
from oncelog.core.ledger.metadata import LedgerState
from oncelog.core.ledger.writer import Add
from oncelog.core.records.status import WriteStatus
from oncelog.rpc.channel import Channel
from oncelog.rpc.storage_codec import FENCE, READ, ReadRequest
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from oncelog.storage_client.reader import read_entries
from oncelog.wire import storage_pb2 as pb
from tests.cluster.storage.storage_nodes import (
    DEADLINE_S,
    SEGMENT_BYTES,
    StorageCluster,
    StorageNodeProcess,
    append_until_lost,
)
from tests.cluster.until import until
from tests.contract.storage_client.ledger_recovery import recover_ledger
from tests.contract.storage_client.ledger_world import adds_of, linked, sending, whole, writer_of

pytestmark = pytest.mark.asyncio

OK = AppendStatus.OK


@pytest_asyncio.fixture
async def one(tmp_path: Path, zookeeper_server: ZooKeeperServer) -> AsyncIterator[StorageCluster]:
    async with StorageCluster.running(tmp_path, zookeeper_server, 1) as cluster:
        yield cluster


@pytest_asyncio.fixture
async def three(tmp_path: Path, zookeeper_server: ZooKeeperServer) -> AsyncIterator[StorageCluster]:
    async with StorageCluster.running(tmp_path, zookeeper_server, 3) as cluster:
        yield cluster


async def held_by(node: StorageNodeProcess, ledger_id: LedgerId, count: int) -> dict[EntryId, bytes]:
    request = ReadRequest(node.incarnation, ledger_id, EntryId(0), count)
    found: dict[EntryId, bytes] = {}
    async with Channel(node.address) as channel:
        async for frame in channel.read(READ, request, timeout_ms=int(DEADLINE_S * 1000)):
            found |= zip(frame.entry_ids, map(bytes, frame.entries), strict=True)
    return found


async def fence(node: StorageNodeProcess, ledger_id: LedgerId) -> ReadStatus:
    async with Channel(node.address) as channel:
        request = pb.FenceRequest(target=node.incarnation, ledger_id=ledger_id)
        answer = await channel.call(FENCE, request, timeout_ms=10_000)
    return ReadStatus(answer.status)


def parts_of(adds: Sequence[Add], fates: dict[EntryId, AppendStatus]) -> dict[EntryId, bytes]:
    """The acknowledged entries."""
    return {entry_id: data for entry_id, data in whole(adds).items() if fates.get(entry_id) is OK}


async def test_killed_node_keeps_acknowledged_entries_and_fences(one: StorageCluster) -> None:
    """kill -9 during writes: every acknowledgement stands, also that of the fence, which needs no later sync."""
    (node,) = one.nodes
    metadata = await one.create_ledger(1, [node])
    adds = adds_of(writer_of(metadata), 400, size=60_000)
    fates: dict[EntryId, AppendStatus] = {}
    appending = asyncio.create_task(append_until_lost(node, node.incarnation, adds, fates=fates))
    await until(lambda: len(fates) > 150, DEADLINE_S, every_s=0.001)
    node.kill()
    acked = parts_of(adds, await appending)
    assert 150 < len(acked) < 400
    assert len(list((node.data / "segments").glob("*.seg"))) > 1

    before = node.incarnation
    await node.start()
    assert node.incarnation == before
    assert acked.items() <= (await held_by(node, metadata.ledger_id, 400)).items()
    assert await fence(node, metadata.ledger_id) is ReadStatus.OK
    await one.claim(77)
    assert await fence(node, LedgerId(77)) is ReadStatus.OK
    node.kill()

    await node.start()
    late = adds[-1:]
    assert await append_until_lost(node, node.incarnation, late) == {EntryId(399): AppendStatus.FENCED}
    assert await append_until_lost(node, node.incarnation, late, recovery=True) == {EntryId(399): OK}
    unknown = adds_of(writer_of(await one.create_ledger(77, [node])), 1)
    assert await append_until_lost(node, node.incarnation, unknown) == {EntryId(0): AppendStatus.FENCED}


async def test_terminated_node_exits_cleanly_and_starts_again(one: StorageCluster) -> None:
    """SIGTERM: it deregisters, syncs, and exits with code 0. It can be started and stopped again."""
    (node,) = one.nodes
    metadata = await one.create_ledger(1, [node])
    adds = adds_of(writer_of(metadata), 20)
    assert node.get("/readyz")[0] == 200
    assert node.get("/livez")[0] == 200
    assert set((await append_until_lost(node, node.incarnation, adds)).values()) == {OK}
    assert 'oncelog_storage_entries_answered_total{status="ok"} 20.0' in node.get("/metrics")[1].replace(
        'otel_scope_name="oncelog",', ""
    )
    assert node.incarnation in await one.registry.storage_nodes.live()
    node.send(signal.SIGTERM)
    assert await node.ended() == 0
    assert node.incarnation not in await one.registry.storage_nodes.live()
    assert node.incarnation in await one.registry.cookies()
    await node.start()
    assert await held_by(node, metadata.ledger_id, 20) == whole(adds)
    assert node.incarnation in await one.registry.storage_nodes.live()


@pytest.mark.hazard("former-incarnation")
async def test_wiped_directory_is_another_node(one: StorageCluster) -> None:
    """At the same address, but requests for the old node are neither accepted nor answered (hazard
    former-incarnation)."""
    (node,) = one.nodes
    before, port = node.incarnation, node.address.rpartition(":")[2]
    metadata = await one.create_ledger(1, [node])
    adds = adds_of(writer_of(metadata), 2)
    assert await fence(node, metadata.ledger_id) is ReadStatus.OK
    node.kill()
    node.wipe()
    again = StorageNodeProcess(node.data, one.zookeeper, port=int(port))
    one.nodes.append(again)
    await again.start()
    assert again.address == node.address
    assert again.incarnation != before
    assert await append_until_lost(again, before, adds) == dict.fromkeys(whole(adds), AppendStatus.WRONG_INCARNATION)
    assert await append_until_lost(again, again.incarnation, adds) == dict.fromkeys(
        whole(adds), AppendStatus.NOT_WRITABLE
    )
    assert await fence(node, metadata.ledger_id) is ReadStatus.WRONG_INCARNATION


@pytest.mark.hazard("unmounted-volume")
async def test_mount_point_of_an_absent_volume_is_not_formatted(one: StorageCluster) -> None:
    """The node before had a volume of its own, and the directory is empty on the disk of the machine."""
    (node,) = one.nodes
    node.kill()
    node.wipe()
    stored = await one.registry.read_cookie(node.incarnation)
    assert stored is not None
    on_volume = replace(stored.value, own_filesystem=True)
    assert (await one.registry.write_cookie(on_volume, version=stored.version)).status is WriteStatus.OK
    again = StorageNodeProcess(node.data, one.zookeeper, port=int(node.address.rpartition(":")[2]))
    one.nodes.append(again)
    again.launch()
    assert await again.ended() == 1
    assert "the volume is not mounted" in again.last_line()
    assert not node.data.exists()


@pytest.mark.hazard("former-incarnation")
async def test_first_add_waits_for_a_read_of_zookeeper(one: StorageCluster) -> None:
    """Absent or CLOSED: a writer that was paused for long writes nothing here."""
    (node,) = one.nodes
    metadata = await one.create_ledger(1, [node])
    missing = adds_of(writer_of(metadata), 1)
    closed = await one.create_ledger(2, [node])
    await one.ledgers.write(closed.closed(end=EntryId(-1), length=0), version=0)
    adds = adds_of(writer_of(closed), 1)
    assert await append_until_lost(node, node.incarnation, adds) == {EntryId(0): AppendStatus.NOT_WRITABLE}
    assert await append_until_lost(node, node.incarnation, missing) == {EntryId(0): OK}
    await one.ledgers.delete(metadata.ledger_id, version=0)
    other = adds_of(writer_of(metadata), 2)[1:]
    assert await append_until_lost(node, node.incarnation, other) == {EntryId(1): OK}


@pytest.mark.hazard("damaged-fence")
async def test_node_with_a_damaged_directory_starts_in_limbo(one: StorageCluster) -> None:
    """Acknowledged bytes are lost. The sound entries are served; no entry is called missing, and none is added."""
    (node,) = one.nodes
    metadata = await one.create_ledger(1, [node])
    adds = adds_of(writer_of(metadata), 50, size=5000)
    await append_until_lost(node, node.incarnation, adds)
    node.send(signal.SIGTERM)
    assert await node.ended() == 0
    (segment, *_) = sorted((node.data / "segments").glob("*.seg"))
    content = segment.read_bytes()
    at = content.index(whole(adds)[EntryId(25)])
    segment.write_bytes(content[: at + 50] + bytes(64) + content[at + 114 :])
    await node.start()
    found: dict[EntryId, bytes] = {}
    unreadable: set[EntryId] = set()
    async with Channel(node.address) as channel:
        request = ReadRequest(node.incarnation, LedgerId(1), EntryId(0), 60)
        async for frame in channel.read(READ, request, timeout_ms=int(DEADLINE_S * 1000)):
            found |= dict(zip(frame.entry_ids, map(bytes, frame.entries), strict=True))
            unreadable |= set(frame.unreadable_ids)
            assert list(frame.missing_ids) == []
    assert found == {entry_id: data for entry_id, data in whole(adds).items() if entry_id != 25}
    assert unreadable == {EntryId(25), *map(EntryId, range(50, 60))}
    late = adds_of(writer_of(metadata), 51)[50:]
    assert await append_until_lost(node, node.incarnation, late) == {EntryId(50): AppendStatus.READ_ONLY}


async def test_failed_write_ends_the_process_at_once_and_loses_nothing(one: StorageCluster) -> None:
    """It answers nothing after that: acknowledged entries are on the disk, and its last line names file and cause."""
    (node,) = one.nodes
    metadata = await one.create_ledger(1, [node])
    adds = adds_of(writer_of(metadata), 400, size=60_000)
    fates: dict[EntryId, AppendStatus] = {}
    appending = asyncio.create_task(append_until_lost(node, node.incarnation, adds, fates=fates))
    await until(lambda: len(fates) > 150, DEADLINE_S, every_s=0.001)
    node.limit_file_bytes(SEGMENT_BYTES // 2)
    assert await node.ended() == 1
    acked = parts_of(adds, await appending)
    assert 150 < len(acked) < 400
    words = json.loads(node.last_line())
    assert words["level"] == "critical"
    assert words["code"] == "journal_failed"
    assert str(node.data / "segments") in words["msg"]
    await node.start()
    assert acked.items() <= (await held_by(node, metadata.ledger_id, 400)).items()


async def test_second_process_on_a_directory_is_refused(one: StorageCluster) -> None:
    """Two processes would overwrite each other's data. The first one continues."""
    (node,) = one.nodes
    second = StorageNodeProcess(node.data, one.zookeeper)
    second.log = node.data.with_suffix(".second.log")
    second._output = node.data.with_suffix(".second.out")
    one.nodes.append(second)
    second.launch()
    assert await second.ended() == 1
    assert "in use by another process" in second.last_line()
    metadata = await one.create_ledger(1, [node])
    adds = adds_of(writer_of(metadata), 1)
    assert await append_until_lost(node, node.incarnation, adds) == {EntryId(0): OK}


async def test_directory_of_another_cluster_is_refused(
    one: StorageCluster, tmp_path: Path, zookeeper_server: ZooKeeperServer
) -> None:
    """A disk that was moved by mistake still holds acknowledged entries of its own cluster."""
    (node,) = one.nodes
    node.send(signal.SIGTERM)
    assert await node.ended() == 0
    async with StorageCluster.running(tmp_path / "other", zookeeper_server, 0) as other:
        stray = StorageNodeProcess(node.data, other.zookeeper)
        other.nodes.append(stray)
        stray.launch()
        assert await stray.ended() == 1
        assert json.loads(stray.last_line())["code"] == "storage_directory_refused"


async def test_stopped_node_delays_no_other_and_writing_continues(three: StorageCluster) -> None:
    """SIGSTOP keeps its connections open: the other two acknowledge everything, and the third is lost at its limit."""
    metadata = await three.create_ledger(1, three.nodes)
    stopped, *brisk = three.nodes
    async with linked(three.addresses, unanswered_bytes_max=4 << 20) as (links, heard):
        writer = writer_of(metadata)
        links.send(sending(writer, adds_of(writer, 1)))
        await until(lambda: len(heard.answers) == 3, DEADLINE_S)
        stopped.send(signal.SIGSTOP)
        try:
            adds = adds_of(writer, 100, size=100_000)
            for number, add in enumerate(adds, 2):
                links.send(sending(writer, [add]))
                await until(lambda: all(len(heard.of(node.incarnation)) == number for node in brisk), DEADLINE_S)  # noqa: B023
            assert set(heard.lost) == {(stopped.incarnation, metadata.ledger_id)}
            found: dict[EntryId, bytes] = {}
            async with asyncio.timeout(DEADLINE_S):
                async for page in read_entries(links, metadata, EntryId(1), EntryId(100)):
                    found |= ((entry_id, bytes(data)) for entry_id, data in page)
            assert found == whole(adds)
        finally:
            stopped.send(signal.SIGCONT)


async def test_ledger_is_recovered_with_one_member_dead(three: StorageCluster) -> None:
    """Fence, read, write back, close: over processes and ZooKeeper, for a ledger whose writer has ended."""
    metadata = await three.create_ledger(1, three.nodes)
    dead = three.nodes[0]
    async with linked(three.addresses) as (links, heard):
        writer = writer_of(metadata)
        adds = adds_of(writer, 200, size=3000)
        links.send(sending(writer, adds))
        await until(lambda: len(heard.answers) == 600, DEADLINE_S)
    dead.kill()
    async with linked(three.addresses) as (links, _):
        async with asyncio.timeout(DEADLINE_S):
            closed = await recover_ledger(metadata.ledger_id, three.ledgers, links)
        assert (closed.state, closed.end) == (LedgerState.CLOSED, EntryId(199))
        stored = await three.ledgers.read(metadata.ledger_id)
        assert stored is not None
        assert stored.value == closed
    for node in three.nodes[1:]:
        assert await held_by(node, metadata.ledger_id, 200) == whole(adds)
