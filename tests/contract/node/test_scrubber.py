"""The scrubber finds damage in entries that nobody reads, and remembers when each ledger was last sound."""

from pathlib import Path

import pytest

from oncelog.core.formats.note import Note, NoteOrder
from oncelog.core.ids import Incarnation
from oncelog.log_storage.serve.notes import NodeNotes
from oncelog.log_storage.upkeep.scrubber import BATCH_ENTRIES, Scrubber
from tests.contract.node.directory.held_journal import started
from tests.contract.node.directory.small_log import segment_files
from tests.contract.node.test_verify_entries import entry

pytestmark = pytest.mark.asyncio

NODE = Incarnation("a" * 32)


class Clock:
    """Advances by one at each look."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


async def test_sound_ledger_is_verified_and_a_damaged_one_is_noted(tmp_path: Path) -> None:
    """Its pages were in the page cache; the damage is on the disk. After the entry is stored again all is sound."""
    records = [entry(at) for at in range(3)]
    async with started(tmp_path / "node") as node:
        await node.until_synced(node.journal.append_many(records))
        scrubber = Scrubber(node.journal, NodeNotes(NODE, node.journal), interval_ms=0, now_ms=Clock())
        assert scrubber.finished_ms_ago == -1
        await scrubber.scrub()
        first = scrubber.verified_ms[7]
        assert scrubber.read_bytes == sum(len(record.body) for record in records)
        assert scrubber.finished_ms_ago >= 0
        location = node.index.location(7, 1)
        assert location is not None
        with segment_files(tmp_path / "node")[0].open("r+b") as file:
            file.seek(location.offset + 60)
            file.write(b"?")
        await scrubber.scrub()
        assert node.journal.damage.ledgers() == {7: [1]}
        assert scrubber.verified_ms == {7: first}, "it was sound then, and is not now"
        assert scrubber.verified_ms_ago(7) > 0
        assert scrubber.verified_ms_ago(8) == -1
        await node.until_synced(node.journal.append_many([records[1]]))
        await scrubber.scrub()
        assert node.journal.damage.ledgers() == {}
        assert scrubber.verified_ms[7] > first


async def test_every_entry_of_a_long_ledger_is_read(tmp_path: Path) -> None:
    """More than one batch, with a gap between entries."""
    records = [entry(at) for at in range(BATCH_ENTRIES + 20) if at != 5]
    async with started(tmp_path / "node") as node:
        await node.until_synced(node.journal.append_many(records))
        scrubber = Scrubber(node.journal, NodeNotes(NODE, node.journal), interval_ms=0)
        await scrubber.scrub()
        assert scrubber.read_bytes == sum(len(record.body) for record in records)
        assert 7 in scrubber.verified_ms


async def test_erased_ledger_is_forgotten(tmp_path: Path) -> None:
    """Otherwise the list would grow with every ledger that ever was."""
    async with started(tmp_path / "node") as node:
        await node.until_synced(node.journal.append_many([entry(0)]))
        scrubber = Scrubber(node.journal, NodeNotes(NODE, node.journal), interval_ms=0)
        await scrubber.scrub()
        node.index.drop(7)
        await scrubber.scrub()
        assert scrubber.verified_ms == {}


@pytest.mark.hazard("holders-fade")
async def test_note_that_has_rotted_is_forgotten_and_sent_again(tmp_path: Path) -> None:
    """Its digest said that this node holds it, and nobody reads notes before ZooKeeper is lost."""
    async with started(tmp_path / "node") as node:
        notes = NodeNotes(NODE, node.journal)
        sent = [Note(f"/policies/topics/{number}", NoteOrder(1, 5, False, 0), b"{}") for number in range(70)]
        await notes.store(sent)
        scrubber = Scrubber(node.journal, notes, interval_ms=0)
        await scrubber.scrub()
        before = node.index.notes.digest
        held = node.index.notes.get(sent[3].path)
        assert held is not None
        with segment_files(tmp_path / "node")[0].open("r+b") as file:
            file.seek(held.place.offset + 60)
            file.write(b"?")
        assert node.index.notes.digest == before
        await scrubber.scrub()
        assert node.index.notes.get(sent[3].path) is None
        assert node.index.notes.digest.notes == before.notes - 1 == 69
        await notes.store(sent)
        await scrubber.scrub()
        assert node.index.notes.digest == before
