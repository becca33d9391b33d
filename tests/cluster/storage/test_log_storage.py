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
from oncelog.core.ledger.writer import Add
from oncelog.core.records.status import WriteStatus
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.storage_codec import FENCE, READ, ReadRequest
from oncelog.runtime.zookeeper_server import ZooKeeperServer
from oncelog.wire import storage_pb2 as pb
from tests.cluster.kills import idle
from tests.cluster.storage.storage_nodes import (
    DEADLINE_S,
    SEGMENT_BYTES,
    StorageCluster,
    StorageNodeProcess,
    append_until_lost,
)
from tests.cluster.until import until
from tests.contract.storage_client.ledger_world import adds_of, whole, writer_of

pytestmark = pytest.mark.asyncio

OK = AppendStatus.OK


@pytest_asyncio.fixture
async def one(tmp_path: Path, zookeeper_server: ZooKeeperServer) -> AsyncIterator[StorageCluster]:
    async with StorageCluster.running(tmp_path, zookeeper_server, 1) as cluster:
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
    await node.kill(once=lambda: len(fates) > 150)
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
    await node.kill(once=idle)

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


@pytest.mark.hazard("unmounted-volume")
async def test_mount_point_of_an_absent_volume_is_not_formatted(one: StorageCluster) -> None:
    """The node before had a volume of its own, and the directory is empty on the disk of the machine."""
    (node,) = one.nodes
    await node.kill(once=idle)
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
