"""What a storage node answers about its copies, over a real socket: verify, review, damage; and what it erases."""

from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.core.formats.entry import peek_header
from oncelog.core.ids import EntryId, Incarnation, LedgerId, TopicId
from oncelog.core.ledger.member_status import AppendStatus, CopyState, ReadStatus
from oncelog.core.ledger.metadata import LedgerMetadata
from oncelog.rpc.channel import Channel
from oncelog.rpc.storage_codec import (
    DAMAGE,
    FENCE,
    REVIEW_LEDGER,
    VERIFY,
    DamageAnswer,
    DamageRequest,
    FenceRequest,
    ReviewLedgerAnswer,
    ReviewLedgerRequest,
    VerifyAnswer,
    VerifyRequest,
)
from tests.contract.ledger_world import Node, adds_of, whole, writer_of
from tests.contract.small_log import segment_files
from tests.contract.test_log_storage_service import LEDGER, TIMEOUT_MS, append, opened, read, serving

pytestmark = pytest.mark.asyncio

OTHER = Incarnation("0f" * 16)


async def verify(channel: Channel, node: Node, first: int, count: int, *, bytes_max: int = 0) -> VerifyAnswer:
    request = VerifyRequest(node.incarnation, LEDGER, EntryId(first), count, bytes_max)
    return await channel.call(VERIFY, request, timeout_ms=TIMEOUT_MS)


async def review(channel: Channel, node: Node) -> ReviewLedgerAnswer:
    return await channel.call(REVIEW_LEDGER, ReviewLedgerRequest(node.incarnation, LEDGER), timeout_ms=TIMEOUT_MS)


async def damage(channel: Channel, node: Node, after: int = -1) -> DamageAnswer:
    return await channel.call(DAMAGE, DamageRequest(node.incarnation, LedgerId(after), 10), timeout_ms=TIMEOUT_MS)


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
        missing = [EntryId(3)]
        assert await verify(channel, node, 0, 4) == VerifyAnswer(
            ReadStatus.OK, [*checksums, 0], missing, [], EntryId(4), size
        )
        part = await verify(channel, node, 1, 3, bytes_max=1)
        assert (part.checksums, part.next_entry) == (checksums[1:2], 2)
        wrong = VerifyRequest(OTHER, LEDGER, EntryId(0), 1)
        assert (await channel.call(VERIFY, wrong, timeout_ms=TIMEOUT_MS)).status is ReadStatus.WRONG_INCARNATION


@pytest.mark.hazard(84)
async def test_entries_of_another_topic_are_no_copies(tmp_path: Path) -> None:
    """The ledger id was given twice. Their checksums would count as copies that differ, and freeze the ledger."""
    async with serving(tmp_path) as (node, channel):
        metadata, _ = await stored(node, channel, 3)
        own = VerifyRequest(node.incarnation, LEDGER, EntryId(0), 2, 0, metadata.topic_id)
        assert (await channel.call(VERIFY, own, timeout_ms=TIMEOUT_MS)).missing_ids == []
        answer = await channel.call(VERIFY, own._replace(topic_id=TopicId("f0" * 16)), timeout_ms=TIMEOUT_MS)
        assert answer == VerifyAnswer(ReadStatus.OK, [0, 0], [EntryId(0), EntryId(1)], [], EntryId(2), 0)


async def test_damaged_entry_is_listed_until_a_repair_stores_it_again(tmp_path: Path) -> None:
    """A read finds the damage; the entry is unreadable and never missing."""
    async with serving(tmp_path) as (node, channel):
        metadata, entries = await stored(node, channel, 3)
        damaged(node.path, entries[EntryId(1)])
        assert await damage(channel, node) == DamageAnswer(ReadStatus.OK, [], 0, 0)
        for _ in range(2):
            frames = await read(channel, node, 0, 3)
            assert [entry_id for frame in frames for entry_id in frame.unreadable_ids] == [1]
            assert await damage(channel, node) == DamageAnswer(ReadStatus.OK, [LEDGER], 0, 1)
        assert await damage(channel, node, after=LEDGER) == DamageAnswer(ReadStatus.OK, [], 0, 1)
        assert (await verify(channel, node, 0, 3)).unreadable_ids == [1]
        assert await review(channel, node) == ReviewLedgerAnswer(ReadStatus.OK, CopyState.DAMAGED)
        again = adds_of(writer_of(metadata), 3)[1:2]
        repaired = await append(channel, node.incarnation, again, repair=True)
        assert repaired == {EntryId(1): AppendStatus.OK}
        assert await damage(channel, node) == DamageAnswer(ReadStatus.OK, [], 0, 0)
        assert await review(channel, node) == ReviewLedgerAnswer(ReadStatus.OK, CopyState.HELD)
        assert (await verify(channel, node, 0, 3)).unreadable_ids == []


@pytest.mark.hazard(54)
@pytest.mark.hazard(61)
async def test_copy_that_the_record_does_not_name_is_erased_and_answers_erased(tmp_path: Path) -> None:
    """Erased proves nothing; the answer stays after a restart. A repair fills the copy again."""
    async with serving(tmp_path) as (node, channel):
        metadata, entries = await stored(node, channel, 2)
        node.records[LEDGER] = elsewhere = replace(metadata, members=(OTHER,), whole=True)
        assert await review(channel, node) == ReviewLedgerAnswer(ReadStatus.OK, CopyState.ERASED)
        for restarted in (False, True):
            if restarted:
                await node.stop()
                await node.start()
            async with Channel(node.address) as again:
                assert [frame.status for frame in await read(again, node, 0, 2)] == [ReadStatus.ERASED]
                assert (await verify(again, node, 0, 2)).status is ReadStatus.ERASED
                fence = await again.call(FENCE, FenceRequest(node.incarnation, LEDGER), timeout_ms=TIMEOUT_MS)
                assert fence.status is ReadStatus.ERASED
                adds = adds_of(writer_of(metadata), 2)
                assert set((await append(again, node.incarnation, adds)).values()) == {AppendStatus.ERASED}
        node.records[LEDGER] = replace(elsewhere, joining=node.incarnation)
        async with Channel(node.address) as again:
            adds = adds_of(writer_of(metadata), 2)
            repaired = await append(again, node.incarnation, adds, repair=True)
            assert set(repaired.values()) == {AppendStatus.OK}
            found = [entry_id for frame in await read(again, node, 0, 2) for entry_id in frame.entry_ids]
            assert found == list(entries)
            assert await review(again, node) == ReviewLedgerAnswer(ReadStatus.OK, CopyState.HELD)
