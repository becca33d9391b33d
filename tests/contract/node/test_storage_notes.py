"""Notes at a storage node over a real socket and a real disk: durable, the newest of a path, readable after a restart
and a compaction."""

import asyncio
import errno
from pathlib import Path

import pytest

from oncelog.core.errors import InvalidArgument, ServiceUnavailable, StoreUnavailable
from oncelog.core.formats.note import Note, NoteOrder, NotesDigests, digest_of
from oncelog.core.ids import Incarnation
from oncelog.core.node.node_ledger import RecordKind
from oncelog.log_storage.directory.segment_format import SegmentRecord
from oncelog.log_storage.directory.segment_writer import DiskCalls
from oncelog.log_storage.serve.notes import NodeNotes
from oncelog.log_storage.upkeep.scrubber import Scrubber
from oncelog.rpc.channel import Channel
from oncelog.rpc.codecs.restore_codec import NOTES_MAX, PUT_NOTES
from oncelog.storage_client.note_calls import notes_digests, put_notes, read_notes
from oncelog.wire import recovery_pb2 as pb
from tests.contract.node.directory.compacting import compacted
from tests.contract.node.directory.small_log import add, segment_files
from tests.contract.node.test_log_storage_service import serving
from tests.contract.storage_client.ledger_world import Node
from tests.core.node.test_notes import HISTORY, note

pytestmark = pytest.mark.asyncio


async def read_all(channel: Channel, node: Node) -> list[Note]:
    return [each async for each in read_notes(channel, node.incarnation)]


@pytest.mark.hazard("late-note")
async def test_answered_notes_survive_a_restart_and_the_newest_stays(tmp_path: Path) -> None:
    """Sent from new to old, at the same time and again: the node keeps the newest, also in its next run."""
    async with serving(tmp_path) as (node, channel):
        me = node.incarnation
        others = [note(1, 0, path=f"/names/t/n/{at:03d}") for at in range(3)]
        await asyncio.gather(*(put_notes(channel, me, [each]) for each in reversed(HISTORY)))
        await put_notes(channel, me, [*others, HISTORY[0]])
        expected = [*others, HISTORY[-1]]
        assert await read_all(channel, node) == expected
        digest = await notes_digests(channel, me)
        assert digest.records == digest_of(expected)
        await node.stop()
        await node.start()
        async with Channel(node.address) as again:
            assert await read_all(again, node) == expected
            assert await notes_digests(again, me) == digest


async def test_many_and_large_notes_are_read_page_by_page(tmp_path: Path) -> None:
    async with serving(tmp_path) as (node, channel):
        large = [Note(f"/policies/topics/{at:02d}", NoteOrder(1, at, False, 0), b"x" * 60_000) for at in range(40)]
        await put_notes(channel, node.incarnation, large)
        assert await read_all(channel, node) == large


async def test_notes_for_another_node_and_beyond_the_limits_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as (node, channel):
        other = Incarnation("0" * 32)
        with pytest.raises(ServiceUnavailable, match="WRONG_INCARNATION"):
            await put_notes(channel, other, [note(1, 0)])
        with pytest.raises(ServiceUnavailable, match="WRONG_INCARNATION"):
            await notes_digests(channel, other)
        many = pb.PutNotesRequest(target=node.incarnation, notes=[pb.RecordNote(path="/a")] * (NOTES_MAX + 1))
        with pytest.raises(InvalidArgument, match="at most 4096"):
            await channel.call(PUT_NOTES, many, timeout_ms=30_000)
        bad = pb.PutNotesRequest(
            target=node.incarnation, notes=[pb.RecordNote(path="/a"), pb.RecordNote(path="relative")]
        )
        with pytest.raises(InvalidArgument, match="begins with /"):
            await channel.call(PUT_NOTES, bad, timeout_ms=30_000)
        assert await notes_digests(channel, node.incarnation) == NotesDigests(), "nothing of a refused call is stored"


def noted(each: Note) -> SegmentRecord:
    return SegmentRecord(RecordKind.NOTE, 0, 0, each.encode())


@pytest.mark.hazard("late-note")
async def test_compaction_keeps_the_newest_note_of_each_path(tmp_path: Path) -> None:
    """Segments of superseded notes go. What compaction has copied is found by the next start, and counted once."""
    path = tmp_path / "node"
    kept = [note(1, at, path=f"/names/t/n/{at}") for at in range(4)]
    async with compacted(path) as node:
        await node.journal.append_own([noted(each) for each in kept])
        large = [Note("/cluster", NoteOrder(1, 1, False, version), b"x" * 1000) for version in range(40)]
        for each in large:
            await node.journal.append_own([noted(each)])
        await node.write(add(1, 0, size=600))
        index, before = node.journal.index, len(segment_files(path))
        assert await node.compact() >= 3
        assert len(segment_files(path)) < before
        digest = index.notes.digest
        assert digest == digest_of([*kept, large[-1]])
        size = sum(held.place.length + 36 for _, held in index.notes.behind("", 10))
        assert sum(index.live_bytes.values()) == size + 36 + 600
    async with compacted(path) as node:
        index = node.journal.index
        assert index.notes.digest == digest
        assert sum(index.live_bytes.values()) == size + 36 + 600


async def test_note_that_cannot_be_read_is_forgotten(tmp_path: Path) -> None:
    """So that the digest says that it is missing, and it can be stored again. No ledger is reported as damaged."""
    async with serving(tmp_path) as (node, channel):
        me, first, second = node.incarnation, note(1, 0, path="/names/a"), note(1, 0, path="/names/b")
        await put_notes(channel, me, [first, second])
        held = node.runner.journal.index.notes.get(first.path)
        assert held is not None
        with segment_files(node.path)[-1].open("r+b") as file:
            file.seek(held.place.offset + 60)
            file.write(b"\xff\xff\xff")
        assert await read_all(channel, node) == [second]
        assert node.runner.journal.damage.ledgers() == {}
        assert (await notes_digests(channel, me)).records == digest_of([second])
        await put_notes(channel, me, [first])
        assert await read_all(channel, node) == [first, second]


@pytest.mark.hazard("revoked-right-returns")
async def test_note_that_cannot_be_read_now_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without free descriptors says so. A restore would take an older state from another node, and the scrubber
    would forget all notes."""
    async with serving(tmp_path) as (node, channel):
        sent = [note(1, 0, path="/names/a"), note(1, 0, path="/names/b")]
        await put_notes(channel, node.incarnation, sent)
        digest = await notes_digests(channel, node.incarnation)

        def failing(_fd: int, _size: int, _offset: int) -> bytes:
            raise OSError(errno.EMFILE, "too many open files")

        reader = node.runner.journal.reader
        with monkeypatch.context() as patched:
            patched.setattr(reader, "_disk", DiskCalls(read=failing))
            with pytest.raises(StoreUnavailable, match="cannot be read now"):
                await read_all(channel, node)
            scrubber = Scrubber(node.runner.journal, NodeNotes(node.incarnation, node.runner.journal), interval_ms=0)
            await scrubber.scrub()
        assert await notes_digests(channel, node.incarnation) == digest
        assert await read_all(channel, node) == sent
