"""What a storage node answers about its copies, over a real socket: verify, review, damage; and what it erases."""

from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import EntryId, Incarnation
from oncelog.core.ledger.member_status import AppendStatus, ReadStatus
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.storage_codec import DAMAGE, FENCE, REVIEW_LEDGER, VERIFY
from oncelog.runtime.observing.events import EventKind
from oncelog.wire import storage_pb2 as pb
from tests.contract.node.directory.small_log import segment_files
from tests.contract.node.test_log_storage_service import LEDGER, TIMEOUT_MS, append, opened, read, serving
from tests.contract.noted import noted
from tests.contract.storage_client.ledger_world import Node, adds_of, whole, writer_of

pytestmark = pytest.mark.asyncio

OK = pb.STORAGE_STATUS_OK
OTHER = Incarnation("0f" * 16)


async def verify(channel: Channel, node: Node, first: int, count: int, *, bytes_max: int = 0) -> pb.VerifyAnswer:
    request = pb.VerifyRequest(
        target=node.incarnation, ledger_id=LEDGER, first_entry=first, entries_max=count, bytes_max=bytes_max
    )
    return await channel.call(VERIFY, request, timeout_ms=TIMEOUT_MS)


async def review(channel: Channel, node: Node) -> pb.ReviewLedgerAnswer:
    request = pb.ReviewLedgerRequest(target=node.incarnation, ledger_id=LEDGER)
    return await channel.call(REVIEW_LEDGER, request, timeout_ms=TIMEOUT_MS)


async def damage(channel: Channel, node: Node, after: int = -1) -> pb.DamageAnswer:
    request = pb.DamageRequest(target=node.incarnation, after_ledger=after, ledgers_max=10)
    return await channel.call(DAMAGE, request, timeout_ms=TIMEOUT_MS)


async def stored(node: Node, channel: Channel, count: int) -> tuple[LedgerMetadata, dict[EntryId, bytes]]:
    """Store entries of the ledger, and close it. Returns its record and the entries."""
    metadata = opened(node)
    adds = adds_of(writer_of(metadata), count)
    assert set((await append(channel, node.incarnation, adds)).values()) == {AppendStatus.OK}
    node.records[LEDGER] = closed = metadata.closed(end=EntryId(count - 1), length=0)
    return closed, whole(adds)


def damaged(path: Path, data: bytes) -> None:
    """Flip a bit in the stored copy of an entry."""
    for file in segment_files(path):
        content = bytearray(file.read_bytes())
        at = content.find(data)
        if at >= 0:
            content[at + len(data) - 1] ^= 1
            file.write_bytes(content)
            return
    raise AssertionError("the entry is in no segment")


async def test_verify_answers_the_checksums_of_what_is_on_the_disk(tmp_path: Path) -> None:
    """0 for an entry that is not sound. The answer ends at the limit of bytes, and says where to go on."""
    async with serving(tmp_path) as (node, channel):
        _, entries = await stored(node, channel, 3)
        checksums = [int.from_bytes(data[4:8], "little") for data in entries.values()]
        size = sum(map(len, entries.values()))
        assert peek_header(entries[EntryId(0)]).ledger_id == LEDGER
        assert await verify(channel, node, 0, 4) == pb.VerifyAnswer(
            status=OK, checksums=[*checksums, 0], missing_ids=[3], next_entry=4, bytes=size
        )
        part = await verify(channel, node, 1, 3, bytes_max=1)
        assert (list(part.checksums), part.next_entry) == (checksums[1:2], 2)
        wrong = pb.VerifyRequest(target=OTHER, ledger_id=LEDGER, entries_max=1)
        assert (await channel.call(VERIFY, wrong, timeout_ms=TIMEOUT_MS)).status == pb.STORAGE_STATUS_WRONG_INCARNATION


@pytest.mark.hazard("ledger-id-given-twice")
async def test_entries_of_another_topic_are_no_copies(tmp_path: Path) -> None:
    """The ledger id was given twice. Their checksums would count as copies that differ, and freeze the ledger."""
    async with serving(tmp_path) as (node, channel):
        metadata, _ = await stored(node, channel, 3)
        own = pb.VerifyRequest(target=node.incarnation, ledger_id=LEDGER, entries_max=2, topic_id=metadata.topic_id)
        assert (await channel.call(VERIFY, own, timeout_ms=TIMEOUT_MS)).missing_ids == []
        other = pb.VerifyRequest(target=node.incarnation, ledger_id=LEDGER, entries_max=2, topic_id="f0" * 16)
        answer = await channel.call(VERIFY, other, timeout_ms=TIMEOUT_MS)
        assert answer == pb.VerifyAnswer(status=OK, checksums=[0, 0], missing_ids=[0, 1], next_entry=2)


async def test_damaged_entry_is_listed_until_a_repair_stores_it_again(tmp_path: Path) -> None:
    """A read finds the damage; the entry is unreadable and never missing."""
    async with serving(tmp_path) as (node, channel):
        metadata, entries = await stored(node, channel, 3)
        damaged(node.path, entries[EntryId(1)])
        assert await damage(channel, node) == pb.DamageAnswer(status=OK)
        for _ in range(2):
            frames = await read(channel, node, 0, 3)
            assert [entry_id for frame in frames for entry_id in frame.unreadable_ids] == [1]
            assert await damage(channel, node) == pb.DamageAnswer(status=OK, ledger_ids=[LEDGER], damaged_count=1)
        assert await damage(channel, node, after=LEDGER) == pb.DamageAnswer(status=OK, damaged_count=1)
        (lost,) = noted(node.runner.events, EventKind.COPY_LOST)
        assert (lost.level, lost.count, lost.fields) == ("error", 1, {"ledger_id": LEDGER})
        assert (await verify(channel, node, 0, 3)).unreadable_ids == [1]
        assert await review(channel, node) == pb.ReviewLedgerAnswer(status=OK, state=pb.COPY_STATE_DAMAGED)
        again = adds_of(writer_of(metadata), 3)[1:2]
        repaired = await append(channel, node.incarnation, again, repair=True)
        assert repaired == {EntryId(1): AppendStatus.OK}
        assert await damage(channel, node) == pb.DamageAnswer(status=OK)
        assert await review(channel, node) == pb.ReviewLedgerAnswer(status=OK, state=pb.COPY_STATE_HELD)
        assert (await verify(channel, node, 0, 3)).unreadable_ids == []


@pytest.mark.hazard("copy-erased-before-joining")
@pytest.mark.hazard("answer-of-a-former-member")
async def test_copy_that_the_record_does_not_name_is_erased_and_answers_erased(tmp_path: Path) -> None:
    """Erased proves nothing; the answer stays after a restart. A repair fills the copy again."""
    async with serving(tmp_path) as (node, channel):
        metadata, entries = await stored(node, channel, 2)
        node.records[LEDGER] = elsewhere = replace(metadata, members=(OTHER,), verified=True)
        assert await review(channel, node) == pb.ReviewLedgerAnswer(status=OK, state=pb.COPY_STATE_ERASED)
        for restarted in (False, True):
            if restarted:
                await node.stop()
                await node.start()
            async with Channel(node.address) as again:
                assert [frame.status for frame in await read(again, node, 0, 2)] == [ReadStatus.ERASED]
                assert (await verify(again, node, 0, 2)).status == pb.STORAGE_STATUS_ERASED
                request = pb.FenceRequest(target=node.incarnation, ledger_id=LEDGER)
                fence = await again.call(FENCE, request, timeout_ms=TIMEOUT_MS)
                assert fence.status == pb.STORAGE_STATUS_ERASED
                adds = adds_of(writer_of(metadata), 2)
                assert set((await append(again, node.incarnation, adds)).values()) == {AppendStatus.ERASED}
        node.records[LEDGER] = replace(elsewhere, joining=node.incarnation)
        async with Channel(node.address) as again:
            adds = adds_of(writer_of(metadata), 2)
            repaired = await append(again, node.incarnation, adds, repair=True)
            assert set(repaired.values()) == {AppendStatus.OK}
            found = [entry_id for frame in await read(again, node, 0, 2) for entry_id in frame.entry_ids]
            assert found == list(entries)
            assert await review(again, node) == pb.ReviewLedgerAnswer(status=OK, state=pb.COPY_STATE_HELD)
