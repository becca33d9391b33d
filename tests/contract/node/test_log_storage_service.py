"""A storage node over a real socket and a real disk, in this process: which requests it accepts, and its answers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncelog.core.errors import CorruptEntry, OncelogError, StoreUnavailable
from oncelog.core.ids import EntryId, Incarnation, LedgerId
from oncelog.core.ledger.entry_reading import ReceivedRead
from oncelog.core.ledger.member_status import AppendStatus
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.core.ledger.writer import Add
from oncelog.log_storage.upkeep.free_space import FreeSpace
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.storage_codec import APPEND, DESCRIBE, FENCE, READ, AppendFrame, ReadRequest
from oncelog.runtime.observing.events import EventKind
from oncelog.wire import storage_pb2 as pb
from tests.cluster.until import until
from tests.contract.node.directory.held_journal import Disk
from tests.contract.node.directory.small_log import segment_files
from tests.contract.noted import noted
from tests.contract.storage_client.ledger_world import (
    DEADLINE_S,
    QUEUE_BYTES_MAX,
    TOPIC,
    Node,
    adds_of,
    ledger,
    nodes,
    whole,
    writer_of,
)

pytestmark = pytest.mark.asyncio

LEDGER = LedgerId(1)
TIMEOUT_MS = 30_000
Fates = dict[EntryId, AppendStatus]
#: Calls on the same connection, one after the other. A node that still read the stream would read more of it meanwhile.
CALLS_BESIDE = 300


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[tuple[Node, Channel]]:
    async with asyncio.timeout(60), nodes(tmp_path, 1) as (node,), Channel(node.address) as channel:
        yield node, channel


def opened(node: Node) -> LedgerMetadata:
    """A ledger that is writable on the node."""
    metadata = ledger(LEDGER, [node.incarnation])
    node.records[LEDGER] = metadata
    return metadata


async def append(
    channel: Channel, target: Incarnation, adds: Sequence[Add], *, recovery: bool = False, repair: bool = False
) -> Fates:
    """Send one frame on a stream of its own. Returns the status of each entry."""
    stream = channel.stream(APPEND)
    await stream.write(AppendFrame(target, recovery, [add.parts for add in adds], repair))
    await stream.finish()
    fates: Fates = {}
    async for answers in stream:
        for answer in answers:
            fates |= dict.fromkeys(answer.entry_ids, answer.status)
    return fates


async def read(channel: Channel, node: Node, first: int, count: int, *, bytes_max: int = 0) -> list[ReceivedRead]:
    request = ReadRequest(node.incarnation, LEDGER, EntryId(first), count, bytes_max)
    return [frame async for frame in channel.read(READ, request, timeout_ms=TIMEOUT_MS)]


def found_in(frames: Sequence[ReceivedRead]) -> dict[EntryId, bytes]:
    return {
        entry_id: bytes(data) for frame in frames for entry_id, data in zip(frame.entry_ids, frame.entries, strict=True)
    }


async def test_first_add_needs_the_record_to_name_this_node(tmp_path: Path) -> None:
    """A writer that was paused for long creates no ledger here: absent, closed, or of other members (hazard
    former-incarnation)."""
    async with serving(tmp_path) as (node, channel):
        metadata = ledger(LEDGER, [node.incarnation])
        adds = adds_of(writer_of(metadata), 1)
        refused: Fates = {EntryId(0): AppendStatus.NOT_WRITABLE}
        assert await append(channel, node.incarnation, adds) == refused
        for record in (
            ledger(LEDGER, [Incarnation("e" * 32)]),
            metadata.in_recovery(),
            metadata.closed(end=EntryId(-1), length=0),
        ):
            node.records[LEDGER] = record
            assert await append(channel, node.incarnation, adds) == refused
        node.records[LEDGER] = metadata
        assert await append(channel, node.incarnation, adds) == {EntryId(0): AppendStatus.OK}
        assert await append(channel, Incarnation("e" * 32), adds) == {EntryId(0): AppendStatus.WRONG_INCARNATION}


async def test_adds_wait_while_the_record_cannot_be_read(tmp_path: Path) -> None:
    """Without an answer of ZooKeeper the adds are kept in order, and stored when it is back."""
    async with serving(tmp_path) as (node, channel):
        metadata = ledger(LEDGER, [node.incarnation])
        node.records[LEDGER] = StoreUnavailable("no server")
        adding = asyncio.create_task(append(channel, node.incarnation, adds_of(writer_of(metadata), 5)))
        await until(lambda: node.runner.counts.checks == 1, DEADLINE_S)
        assert not adding.done()
        node.records[LEDGER] = metadata
        assert await adding == dict.fromkeys(map(EntryId, range(5)), AppendStatus.OK)


async def test_fence_stops_ordinary_adds_for_ever_but_not_recovery_adds(tmp_path: Path) -> None:
    """Also after a restart, and also for a ledger that the node does not know."""
    async with serving(tmp_path) as (node, channel):
        metadata = opened(node)
        adds = adds_of(writer_of(metadata), 4)
        await append(channel, node.incarnation, adds[:2])
        request = pb.FenceRequest(target=node.incarnation, ledger_id=LEDGER)
        answer = await channel.call(FENCE, request, timeout_ms=TIMEOUT_MS)
        assert answer == pb.FenceAnswer(
            status=pb.STORAGE_STATUS_OK, last_entry=1, last_add_confirmed=-1, topic_id=TOPIC
        )
        request = pb.FenceRequest(target=node.incarnation, ledger_id=9)
        unknown = await channel.call(FENCE, request, timeout_ms=TIMEOUT_MS)
        assert unknown == pb.FenceAnswer(status=pb.STORAGE_STATUS_OK, last_entry=-1, last_add_confirmed=-1)
        request = pb.FenceRequest(target="e" * 32, ledger_id=LEDGER)
        wrong = await channel.call(FENCE, request, timeout_ms=TIMEOUT_MS)
        assert wrong.status == pb.STORAGE_STATUS_WRONG_INCARNATION
        await node.stop()
        await node.start()
        async with Channel(node.address) as channel_after:
            fates = await append(channel_after, node.incarnation, adds[2:3])
            assert fates == {EntryId(2): AppendStatus.FENCED}
            fates = await append(channel_after, node.incarnation, adds[2:3], recovery=True)
            assert fates == {EntryId(2): AppendStatus.OK}
            assert found_in(await read(channel_after, node, 0, 3)) == whole(adds[:3])
            first = adds_of(writer_of(ledger(9, [node.incarnation])), 1)
            fates = await append(channel_after, node.incarnation, first)
            assert fates == {EntryId(0): AppendStatus.FENCED}


async def test_finished_stream_gets_all_its_answers(tmp_path: Path) -> None:
    """A recovery writes, finishes the stream, and waits for the answers."""
    async with serving(tmp_path) as (node, channel):
        adds = adds_of(writer_of(opened(node)), 300, size=5000)
        fates = await append(channel, node.incarnation, adds)
        assert fates == dict.fromkeys(whole(adds), AppendStatus.OK)
        assert await append(channel, node.incarnation, adds[:3], recovery=True) == dict.fromkeys(
            map(EntryId, range(3)), AppendStatus.OK
        )


async def test_frame_with_invalid_bytes_ends_its_stream(tmp_path: Path) -> None:
    """No entry in it has an id to answer with, so nothing of it is stored."""
    async with serving(tmp_path) as (node, channel):
        add = adds_of(writer_of(opened(node)), 1)[0]
        stream = channel.stream(APPEND)
        await stream.write(AppendFrame(node.incarnation, False, [add.parts, b"nonsense"]))
        with pytest.raises(CorruptEntry):
            await anext(stream)
        (frame,) = await read(channel, node, 0, 1)
        assert frame.missing_ids == [0]


async def test_read_names_every_id_as_present_missing_or_unreadable(tmp_path: Path) -> None:
    """Damage is never reported as missing: a recovery would end the ledger before an acknowledged entry."""
    async with serving(tmp_path) as (node, channel):
        adds = adds_of(writer_of(opened(node)), 40, size=3000)
        present = [*adds[:10], *adds[15:]]
        await append(channel, node.incarnation, present)
        spoil(node.path, whole(adds)[EntryId(20)])
        frames = await read(channel, node, 0, 50)
        found = found_in(frames)
        assert found == {entry_id: data for entry_id, data in whole(present).items() if entry_id != 20}
        assert list(found) == sorted(found)
        assert [entry_id for frame in frames for entry_id in frame.missing_ids] == [*range(10, 15), *range(40, 50)]
        assert [entry_id for frame in frames for entry_id in frame.unreadable_ids] == [20]
        assert {(frame.last_entry, frame.last_add_confirmed) for frame in frames} == {(39, -1)}


def spoil(path: Path, data: bytes) -> None:
    """Flip a bit of a stored entry."""
    for file in segment_files(path):
        content = bytearray(file.read_bytes())
        at = content.find(data)
        if at >= 0:
            with file.open("r+b") as segment:
                segment.seek(at + len(data) - 1)
                segment.write(bytes([data[-1] ^ 1]))
            return
    raise AssertionError("the entry is in no segment")


async def test_long_read_is_answered_in_parts(tmp_path: Path) -> None:
    """More ids than one look-up takes. A byte limit ends the read with the entry that reaches it."""
    async with serving(tmp_path) as (node, channel):
        adds = adds_of(writer_of(opened(node)), 2500, size=400)
        await append(channel, node.incarnation, adds)
        assert found_in(await read(channel, node, 0, 2600)) == whole(adds)
        (frame,) = await read(channel, node, 100, 2000, bytes_max=1)
        assert frame.entry_ids == [100]
        length = len(frame.entries[0])
        found = found_in(await read(channel, node, 100, 2000, bytes_max=20 * length + 1))
        assert list(found) == list(range(100, 121))
        nothing = await read(channel, node, 2500, 1500)
        assert [len(frame.missing_ids) for frame in nothing] == [1024, 476]


async def test_recovery_add_replaces_a_damaged_entry(tmp_path: Path) -> None:
    """Good bytes replace damaged ones; different bytes under the same id are refused."""
    async with serving(tmp_path) as (node, channel):
        adds = adds_of(writer_of(opened(node)), 3, size=1000)
        await append(channel, node.incarnation, adds)
        other = adds_of(writer_of(ledger(LEDGER, [node.incarnation])), 1, size=1001)
        assert await append(channel, node.incarnation, other) == {EntryId(0): AppendStatus.CONFLICTING}
        spoil(node.path, whole(adds)[EntryId(1)])
        assert (await read(channel, node, 1, 1))[0].unreadable_ids == [1]
        assert await append(channel, node.incarnation, adds[1:2], recovery=True) == {EntryId(1): AppendStatus.OK}
        assert found_in(await read(channel, node, 0, 3)) == whole(adds)


async def test_stream_is_not_read_while_too_much_waits_for_the_disk(tmp_path: Path) -> None:
    """A slow disk slows its writers down and does not exhaust the memory."""
    disk = Disk()
    node = Node(tmp_path / "node")
    node.disk = disk.calls()
    await node.start()
    async with asyncio.timeout(60), Channel(node.address) as channel:
        writer = writer_of(opened(node))
        assert len(await append(channel, node.incarnation, adds_of(writer, 1))) == 1
        disk.gate.clear()
        stream = channel.stream(APPEND)

        async def write_all() -> None:
            for _ in range(60):
                await stream.write(
                    AppendFrame(node.incarnation, False, [add.parts for add in adds_of(writer, 1, size=1 << 20)])
                )

        writing = asyncio.create_task(write_all())
        await until(lambda: node.runner.journal.pending_bytes > QUEUE_BYTES_MAX, DEADLINE_S)
        answers = asyncio.create_task(anext(stream))
        for _ in range(CALLS_BESIDE):
            await channel.call(DESCRIBE, pb.DescribeRequest(), timeout_ms=TIMEOUT_MS)
        assert not answers.done()
        assert node.runner.journal.pending_bytes < QUEUE_BYTES_MAX + (4 << 20)
        disk.gate.set()
        await writing
        assert {answer.status for answer in await answers} == {AppendStatus.OK}
        stream.cancel()
    await node.stop()


async def test_nothing_is_answered_after_a_failed_sync(tmp_path: Path) -> None:
    """The kernel may have dropped the pages and reports that once: the process must end, and answers nothing more."""
    disk = Disk()
    node = Node(tmp_path / "node")
    node.disk = disk.calls()
    await node.start()
    async with asyncio.timeout(60), Channel(node.address) as channel:
        writer = writer_of(opened(node))
        disk.sync_error = OSError(5, "Input/output error")
        stream = channel.stream(APPEND)
        await stream.write(AppendFrame(node.incarnation, False, [add.parts for add in adds_of(writer, 1)]))
        await until(lambda: node.failures, DEADLINE_S)
        assert "Input/output error" in node.failures[0].message
        await stream.write(AppendFrame(node.incarnation, False, [add.parts for add in adds_of(writer, 1)]))
        with pytest.raises(OncelogError, match="Input/output error"):
            await anext(stream)
        assert node.runner.counts.answered[AppendStatus.OK] == 0
    await node.stop()


async def test_full_disk_refuses_only_ordinary_adds(tmp_path: Path) -> None:
    """Recoveries still find space. The node is writable again only when clearly more space is free."""
    async with serving(tmp_path) as (node, channel):
        adds = adds_of(writer_of(opened(node)), 2)
        free = [999]
        space = FreeSpace(lambda: free[0], node.runner, free_bytes_min=1000, roll_bytes=lambda: 0)
        assert await append(channel, node.incarnation, adds) == dict.fromkeys(whole(adds), AppendStatus.READ_ONLY)
        recovered = await append(channel, node.incarnation, adds, recovery=True)
        assert recovered == dict.fromkeys(whole(adds), AppendStatus.OK)
        for free_bytes, read_only in ((1100, True), (1250, False), (1000, False), (999, True)):
            free[0] = free_bytes
            space.check()
            assert node.runner.read_only is read_only
        changes = [one.message for one in noted(node.runner.events, EventKind.NODE)]
        full, again = "node is read-only: disk nearly full", "node is writable again"
        assert changes == [full, again, full]


@pytest.mark.hazard("reserve-used-by-repair")
async def test_limit_of_free_space_counts_what_the_next_roll_takes(tmp_path: Path) -> None:
    """A roll takes a segment and missing spare space at once. The node is read-only before they would be taken from the
    space below the limit, and looks at each roll, not only every few seconds."""
    async with serving(tmp_path) as (node, channel):
        directory, limit = node.directory, 5 << 20

        def free_bytes() -> int:
            return (10 << 20) - sum(file.stat().st_size for file in (node.path / "segments").iterdir())

        assert directory.roll_bytes() == 2 * directory.segment_bytes
        FreeSpace(free_bytes, node.runner, free_bytes_min=limit, roll_bytes=directory.roll_bytes)
        writer = writer_of(opened(node))
        for _ in range(100):
            (status,) = (await append(channel, node.incarnation, adds_of(writer, 1, size=200_000))).values()
            if status is AppendStatus.READ_ONLY:
                break
        assert node.runner.read_only
        assert directory.roll_bytes() == directory.segment_bytes
        assert limit <= free_bytes() < limit + directory.segment_bytes


@pytest.mark.hazard("reserve-used-by-repair")
async def test_repair_adds_stop_before_the_node_becomes_read_only(tmp_path: Path) -> None:
    """The reserve is for recoveries, fences and acks (hazard reserve-used-by-repair)."""
    async with serving(tmp_path) as (node, channel):
        adds = adds_of(writer_of(opened(node)), 2)
        node.records[LEDGER] = opened(node).closed(end=EntryId(1), length=0)
        free = [1499]
        space = FreeSpace(lambda: free[0], node.runner, free_bytes_min=1000, roll_bytes=lambda: 0)
        nearly_full: list[bool] = []
        space.on_nearly_full = lambda: nearly_full.append(node.runner.read_only)
        space.check()
        assert nearly_full == [False], "what is not needed to serve goes before the node becomes read-only"
        assert not space.has_room(0)
        refused = dict.fromkeys(whole(adds), AppendStatus.READ_ONLY)
        assert await append(channel, node.incarnation, adds, repair=True) == refused
        assert not node.runner.read_only
        free[0] = 1500
        assert space.has_room(0)
        assert not space.has_room(1)
        space.check()
        assert nearly_full == [False]
        stored = dict.fromkeys(whole(adds), AppendStatus.OK)
        assert await append(channel, node.incarnation, adds, repair=True) == stored
