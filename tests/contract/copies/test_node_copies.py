"""Copies at a storage node, over a real socket and disk."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from oncelog.core.errors import Conflict, InvalidArgument, NotFound, ServiceUnavailable, TooManyRequests
from oncelog.core.ids import Incarnation
from oncelog.log_storage.directory.metadata_copies import (
    COPIES_MAX,
    COPY_BYTES_MAX,
    FOLDER,
    PART_AGE_S,
    PARTS_MAX,
    MetadataCopies,
)
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.restore_codec import COPY_PART_BYTES_MAX, PUT_COPY, READ_COPY
from oncelog.storage_client.copy_calls import StoredCopy, list_copies, put_copy, read_copy_bytes
from oncelog.wire import recovery_pb2 as pb
from tests.contract.storage_client.ledger_world import Node, nodes

pytestmark = pytest.mark.asyncio

OTHER = Incarnation("e" * 32)


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with nodes(tmp_path, 1) as (node,):
        yield node


async def test_a_copy_is_put_listed_and_read_also_after_a_restart(node: Node) -> None:
    """In parts; pinned or not; an empty folder at first."""
    copy = os.urandom(2 * COPY_PART_BYTES_MAX + 17)
    async with Channel(node.address) as channel:
        assert await list_copies(channel, node.incarnation) == []
        await put_copy(channel, node.incarnation, "2026-11-27t06.first", copy, pinned=False)
        await put_copy(channel, node.incarnation, "2026-11-27t07.second", b"x", pinned=True)
    await node.stop()
    await node.start()
    async with Channel(node.address) as channel:
        assert await list_copies(channel, node.incarnation) == [
            StoredCopy("2026-11-27t06.first", len(copy), False),
            StoredCopy("2026-11-27t07.second", 1, True),
        ]
        assert await read_copy_bytes(channel, node.incarnation, "2026-11-27t06.first") == copy
        await put_copy(channel, node.incarnation, "2026-11-27t07.second", b"y", pinned=False)
        assert (await list_copies(channel, node.incarnation))[1].pinned, "what is pinned stays pinned"
        with pytest.raises(NotFound, match="list the copies"):
            await read_copy_bytes(channel, node.incarnation, "third")


@pytest.mark.hazard("half-a-copy")
async def test_an_upload_that_broke_is_not_listed_and_can_be_repeated(node: Node) -> None:
    """Nor can two uploads be mixed: each part names its place."""
    async with Channel(node.address) as channel:

        async def put(offset: int, data: bytes, *, last: bool = False) -> None:
            request = pb.PutCopyRequest(target=node.incarnation, name="a", offset=offset, data=data, last=last)
            await channel.call(PUT_COPY, request, timeout_ms=30_000)

        await put(0, b"12")
        assert await list_copies(channel, node.incarnation) == []
        with pytest.raises(Conflict, match="at byte 2, not 3"):
            await put(3, b"4", last=True)
        await put(0, b"ab")
        await put(2, b"c", last=True)
        assert await read_copy_bytes(channel, node.incarnation, "a") == b"abc"
        with pytest.raises(Conflict, match="begin again"):
            await put(3, b"d", last=True)


async def test_a_bad_request_is_refused_and_touches_no_other_file(node: Node) -> None:
    async with Channel(node.address) as channel:
        for name in ("", "../../identity.json", ".hidden", "A", "a/b", "a" * 129, "-a"):
            with pytest.raises(InvalidArgument, match="of a copy must have"):
                await put_copy(channel, node.incarnation, name, b"x", pinned=False)
            with pytest.raises(InvalidArgument, match="of a copy must have"):
                await read_copy_bytes(channel, node.incarnation, name)
        assert not (node.path / FOLDER).exists()
        for place, size, field in ((COPY_BYTES_MAX, 1, "data"), (0, COPY_PART_BYTES_MAX + 1, "data")):
            request = pb.PutCopyRequest(target=node.incarnation, name="a", offset=place, data=bytes(size))
            with pytest.raises(InvalidArgument) as refused:
                await channel.call(PUT_COPY, request, timeout_ms=30_000)
            assert refused.value.details["field"] == field
        too_much = pb.ReadCopyRequest(target=node.incarnation, name="a", bytes_max=2**31)
        with pytest.raises(InvalidArgument, match="at most"):
            await channel.call(READ_COPY, too_much, timeout_ms=30_000)
        for call in (
            put_copy(channel, OTHER, "a", b"x", pinned=False),
            list_copies(channel, OTHER),
            read_copy_bytes(channel, OTHER, "a"),
        ):
            with pytest.raises(ServiceUnavailable, match="WRONG_INCARNATION"):
                await call


async def test_a_disk_that_is_nearly_full_takes_no_copy(node: Node) -> None:
    node.copies_room = 0
    async with Channel(node.address) as channel:
        with pytest.raises(ServiceUnavailable, match="nearly full"):
            await put_copy(channel, node.incarnation, "a", b"x", pinned=False)
        assert await list_copies(channel, node.incarnation) == []


async def test_the_newest_copies_stay_and_those_that_are_pinned(tmp_path: Path) -> None:
    """By the time at this node; what was just written stays even if the clock was set back."""
    copies = MetadataCopies(tmp_path)
    copies.put("pinned", 0, b"", last=True, pinned=True)
    for number in range(COPIES_MAX + 3):
        name = f"copy-{number:02}"
        copies.put(name, 0, b"", last=True, pinned=False)
        os.utime(tmp_path / FOLDER / f"{name}.copy", (1_000 + number, 1_000 + number))
    names = [one.name for one in copies.list()]
    assert names == [*(f"copy-{number:02}" for number in range(3, COPIES_MAX + 3)), "pinned"]
    for number in range(COPIES_MAX):
        os.utime(tmp_path / FOLDER / f"copy-{number + 3:02}.copy", (2**33, 2**33))
    copies.put("set-back", 0, b"", last=True, pinned=False)
    assert "set-back" in [one.name for one in copies.list()]
    assert len(copies.list()) == COPIES_MAX + 1


async def test_an_operator_gives_a_node_a_copy_from_outside_as_a_file(tmp_path: Path) -> None:
    """So a restore reads it like the others (docs/lost-zookeeper.md)."""
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "2026-11-27t06-00-00z-era1-0f3c9a2b.pinned").write_bytes(b"abc")
    copies = MetadataCopies(tmp_path)
    (held,) = copies.list()
    assert held == ("2026-11-27t06-00-00z-era1-0f3c9a2b", 3, True)
    assert copies.read(held.name, 1, 10) == (b"bc", 3)


async def test_a_full_disk_loses_the_copies_that_are_not_pinned(tmp_path: Path) -> None:
    copies = MetadataCopies(tmp_path)
    assert copies.drop_unpinned() == 0
    copies.put("one", 0, b"", last=True, pinned=False)
    copies.put("half", 0, b"", last=False, pinned=False)
    copies.put("pinned", 0, b"", last=True, pinned=True)
    assert copies.drop_unpinned() == 2
    assert [one.name for one in copies.list()] == ["pinned"]


async def test_uploads_that_were_abandoned_do_not_fill_the_disk(tmp_path: Path) -> None:
    copies = MetadataCopies(tmp_path)
    for number in range(PARTS_MAX):
        copies.put(f"half-{number}", 0, b"", last=False, pinned=False)
    with pytest.raises(TooManyRequests, match="retry later"):
        copies.put("next", 0, b"", last=False, pinned=False)
    before = (tmp_path / FOLDER / "half-0.part").stat().st_mtime - PART_AGE_S - 1
    os.utime(tmp_path / FOLDER / "half-0.part", (before, before))
    copies.put("next", 0, b"x", last=True, pinned=False)
    assert [one.name for one in copies.list()] == ["next"]
