"""Compaction gives space back and loses nothing, whatever moment the process ends (hazards
compaction-skips-damage-65)."""

import asyncio
import random
from pathlib import Path

import pytest

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.ids import Incarnation, TopicId
from oncelog.core.node.node_ledger import LedgerOrigin, RecordKind
from oncelog.log_storage.directory.segment_format import SegmentRecord
from oncelog.log_storage.directory.storage_directory import StorageDirectory
from oncelog.log_storage.serve.notes import NodeNotes
from oncelog.log_storage.upkeep.scrubber import Scrubber
from tests.cluster.until import until
from tests.contract.node.directory.compacting import SEGMENT_BYTES, WAIT_S, ImageDisk, compacted, erased, fence, found
from tests.contract.node.directory.small_log import CLUSTER, add, segment_files
from tests.contract.node.test_verify_entries import entry

pytestmark = pytest.mark.asyncio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node"


def flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)


def mixed(ledgers: range, entry_count: int = 3) -> list[SegmentRecord]:
    """Entries of many ledgers, in turn: every segment holds some of each."""
    return [add(ledger_id, entry_id, size=600) for entry_id in range(entry_count) for ledger_id in ledgers]


async def test_erased_ledgers_give_their_space_back(path: Path) -> None:
    """Three of four ledgers are erased: a quarter of the bytes stays, under the same ids."""
    async with compacted(path) as node:
        await node.write(*mixed(range(1, 5), 12))
        before = len(segment_files(path))
        await node.write(*(erased(ledger_id) for ledger_id in (1, 2, 3)))
        assert node.compactor.dead_bytes > 0
        assert await node.compact() >= before - 2
        assert node.entries() == {4: {at: add(4, at, size=600).body for at in range(12)}}
        assert len(segment_files(path)) < before / 2
        assert node.compactor.reclaimed_bytes >= 8192 * (before - 2)
        assert node.directory.identity.first_segment_id == node.directory.segment_ids[0] > 1
    assert found(path).entries == {4: {at: add(4, at, size=600).body for at in range(12)}}


async def test_space_stays_flat_when_ledgers_come_and_go(path: Path) -> None:
    """Write, erase, again and again: the number of files is bounded, and so is what the records without entry need."""
    counts = []
    for round_ in range(6):
        async with compacted(path) as node:
            ledgers = range(10 * round_ + 1, 10 * round_ + 6)
            await node.write(*mixed(ledgers))
            await node.write(*(fence(ledger_id) for ledger_id in ledgers))
            await node.write(*(erased(ledger_id) for ledger_id in ledgers))
            await node.compact()
            counts.append(len(segment_files(path)))
    assert max(counts) <= min(counts) + 2
    assert len(found(path).fenced) <= 15, "fences of deleted ledgers go with their files"


@pytest.mark.hazard("compaction-order")
async def test_nothing_is_left_of_a_deleted_ledger(path: Path) -> None:
    """Not even in memory. A fence that lies in another file than the tombstone used to stay for ever once the tombstone
    had gone; and so does the tombstone of a copy alone, whose ledger still exists."""
    forgotten: list[int] = []
    async with compacted(path, forgotten=forgotten.extend) as node:
        control = node.journal.control
        await node.write(*mixed(range(1, 4)), erased(3, deleted=False), *mixed(range(101, 104)))
        await node.write(*(fence(ledger_id) for ledger_id in (1, 2, 3)), *mixed(range(111, 114)))
        await node.write(erased(1), erased(2, deleted=False), *mixed(range(121, 124)))
        await node.write(erased(2))
        for round_ in range(4):
            filler = range(1000 + 10 * round_, 1005 + 10 * round_)
            await node.write(*mixed(filler), *(erased(ledger_id) for ledger_id in filler))
            await node.compact()
        assert {1, 2} <= set(forgotten)
        assert control.deleted.isdisjoint({1, 2})
        assert control.fences == {3}
        assert control.tombstones.keys() & {1, 2, 3} == {3}
        assert len(control.tombstones) <= 12
    state = found(path)
    assert (state.fenced, state.erased & {1, 2, 3}) == ({3}, {3})


@pytest.mark.hazard("trimmed-or-lost")
async def test_highest_floor_of_each_chain_survives_compaction(path: Path) -> None:
    """It outlives the tombstones of the ledgers that were erased by it; the lower ones go."""
    chains = [LedgerOrigin(TopicId("0f" * 16), purpose) for purpose in (LedgerPurpose.LOG, LedgerPurpose.ACKS)]
    floors = [(0, 4), (1, 3), (0, 9)]
    async with compacted(path) as node:
        records = [SegmentRecord(RecordKind.FLOOR, below, 0, chains[at].encode()) for at, below in floors]
        await node.write(*mixed(range(1, 4)), *records, *mixed(range(101, 104)))
        await node.write(*(erased(ledger_id) for ledger_id in (1, 2, 3, 101, 102, 103)), *mixed(range(121, 124)))
        for round_ in range(3):
            filler = range(1000 + 10 * round_, 1005 + 10 * round_)
            await node.write(*mixed(filler), *(erased(ledger_id) for ledger_id in filler))
            await node.compact()
        assert node.directory.identity.first_segment_id > 1
    directory = StorageDirectory.open(path, CLUSTER, segment_bytes=SEGMENT_BYTES)
    stored = {(record.ledger_id, bytes(record.body)) for record in directory.scan() if record.kind is RecordKind.FLOOR}
    directory.close()
    assert stored == {(9, chains[0].encode()), (3, chains[1].encode())}


@pytest.mark.hazard("removed-segment")
async def test_crash_at_every_step_loses_nothing(path: Path, tmp_path: Path) -> None:
    """Before and after each sync and at each step the directory is copied without unsynced writes, and started."""
    disk = ImageDisk(path, tmp_path / "images")
    async with compacted(path, disk=disk.calls()) as node:
        await node.write(*mixed(range(1, 4)), fence(2), fence(3), erased(1, deleted=False), erased(2))
        await node.write(add(1, 0, size=600), *mixed(range(5, 7), 2))
        expected = node.entries()
        disk.taking = True
        assert await node.compact() >= 2
        disk.taking = False
    assert {what for what, _ in disk.taken} >= {
        "before a sync",
        "after a sync",
        "copies synced",
        "removal synced",
        "unlinked",
        "unlink undone",
        "directory synced",
        "first segment raised",
    }
    last = found(path)
    assert last.entries == expected
    for what, image in disk.taken:
        state = found(image)
        assert state.entries == expected, what
        assert state.fenced >= {3}, what
        assert state.erased >= {1}, what
        async with compacted(image) as node:
            await node.compact()
            assert node.entries() == expected, what
        assert found(image).entries == expected, what


async def test_start_finishes_an_interrupted_removal(path: Path, tmp_path: Path) -> None:
    """The record is synced, the file is there: it goes at the start, and its id is no hole."""
    disk = ImageDisk(path, tmp_path / "images")
    async with compacted(path, disk=disk.calls()) as node:
        await node.write(*mixed(range(1, 4)), erased(1), erased(2), erased(3), *mixed(range(5, 7), 3))
        disk.taking = True
        assert await node.compact() >= 1
        disk.taking = False
    image = next(image for what, image in disk.taken if what == "removal synced")
    before = len(segment_files(image))
    async with compacted(image):
        assert len(segment_files(image)) == before - 1
    assert found(image).entries == found(path).entries


@pytest.mark.hazard("compaction-order")
async def test_random_histories_survive_compaction_and_restarts(path: Path) -> None:
    """Ledgers are erased and come back, their records and tombstones move between files: a plain dict knows better."""
    for seed in range(8):
        await _history(path / str(seed), random.Random(seed))


async def _history(path: Path, choice: random.Random) -> None:
    path.parent.mkdir(exist_ok=True)
    entries: dict[int, dict[int, bytes]] = {}
    fenced: set[int] = set()
    for _ in range(5):
        async with compacted(path) as node:
            for _ in range(12):
                ledger_id = choice.randrange(1, 5)
                match choice.choice(["add", "add", "add", "fence", "erase", "compact"]):
                    case "add":
                        record = add(ledger_id, choice.randrange(6), size=1200)
                        await node.write(record)
                        entries.setdefault(ledger_id, {})[record.entry_id] = bytes(record.body)
                    case "fence":
                        await node.write(fence(ledger_id))
                        fenced.add(ledger_id)
                    case "erase":
                        await node.write(erased(ledger_id, deleted=False))
                        entries.pop(ledger_id, None)
                    case _:
                        await node.compact()
            assert node.entries() == entries
        state = found(path)
        assert state.entries == entries
        assert state.fenced == fenced


async def test_ledger_erased_while_it_is_copied_stays_erased(path: Path) -> None:
    """The tombstone and the copies are in the queue together."""
    async with compacted(path) as node:
        await node.write(*mixed(range(1, 4), 6), erased(1), erased(2))
        await asyncio.gather(node.compact(), node.write(erased(3)))
        await node.compact()
        assert node.entries() == {}
    assert found(path).entries == {}


@pytest.mark.hazard("compaction-skips-damage")
async def test_segment_with_a_hole_stays_until_all_is_whole_again(path: Path) -> None:
    """What was lost in it is not known. Afterwards it may go, and the next start finds no new hole."""
    async with compacted(path) as node:
        await node.write(*mixed(range(1, 4)), *mixed(range(5, 7), 3))
    first = segment_files(path)[0]
    flip(first, 600)
    async with compacted(path) as node:
        assert {hole.segment_id for hole in node.directory.holes} == {1}
        await node.write(*(erased(ledger_id) for ledger_id in range(1, 7)))
        await node.compact()
        assert first.exists()
    assert found(path).limbo_below > 0
    async with compacted(path, holes_settled=lambda: True) as node:
        await node.compact()
        assert not first.exists()
    assert found(path).entries == {}


@pytest.mark.hazard("compaction-skips-damage")
async def test_unreadable_entry_is_noted_and_its_segment_stays(path: Path) -> None:
    """Damage since the start: nothing of the segment is lost, and repair learns of the entry."""
    async with compacted(path) as node:
        await node.write(*mixed(range(1, 4)), *mixed(range(5, 7), 3), erased(1), erased(2))
        location = node.journal.index.location(3, 0)
        assert location is not None
        file = node.directory.segment_path(location.segment_id)
        flip(file, location.offset + 50)
        await node.compact()
        assert file.exists()
        assert node.journal.damage.ledgers() == {3: [0]}
        assert node.compactor.damaged == {location.segment_id}
        others = {at: body for at, body in node.entries()[3].items() if at}
        assert others == {at: add(3, at, size=600).body for at in (1, 2)}
        await node.write(add(3, 0, size=600))
        assert node.journal.damage.ledgers() == {}


@pytest.mark.hazard("compaction-skips-damage")
async def test_segment_whose_damage_hides_a_fence_stays(path: Path) -> None:
    """No entry is missing, and yet the file must not go: the fence would go with it."""
    async with compacted(path) as node:
        await node.write(fence(4), *mixed(range(1, 4)), *mixed(range(5, 7), 3), erased(1), erased(2), erased(3))
        first = segment_files(path)[0]
        flip(first, 512 + 24 + 20)
        assert await node.compact() >= 2
        assert first.exists()
        assert node.compactor.damaged == {1}


@pytest.mark.hazard("removed-segment")
async def test_file_stays_until_its_last_reader_is_done(path: Path) -> None:
    """A read was planned before the compaction and is made afterwards: it finds the bytes."""
    async with compacted(path) as node:
        await node.write(*mixed(range(1, 4)), *mixed(range(5, 7), 3), erased(1), erased(2))
        plan = node.journal.plan_range(ledger_id=3, first=0, entries_max=3, bytes_max=1 << 20)
        compacting = asyncio.ensure_future(node.compact())
        first = segment_files(path)[0]
        await node.until_removal_is_synced()
        assert first.exists()
        assert not compacting.done()
        assert node.journal.reader.fetch(plan) == [(at, add(3, at, size=600).body) for at in range(3)]
        del plan
        await compacting
        assert not first.exists()


@pytest.mark.hazard("removed-segment")
async def test_scrubber_that_pauses_holds_no_file(path: Path) -> None:
    """With few bytes it pauses for hours after each read, and compaction waits for the readers of a file."""
    async with compacted(path) as node:
        await node.write(*(entry(at) for at in range(60)))
        scrubber = Scrubber(node.journal, NodeNotes(Incarnation("a" * 32), node.journal), interval_ms=1 << 40)
        scrubbing = asyncio.ensure_future(scrubber.scrub())
        await until(lambda: scrubber.read_bytes, WAIT_S, waiting_for="the scrubber to read")
        await node.write(erased(7))
        first = segment_files(path)[0]
        assert await node.compact() >= 1
        assert not first.exists()
        assert not scrubbing.done()
        scrubbing.cancel()


async def test_last_written_segment_is_not_compacted(path: Path) -> None:
    """The index may not know its last records yet."""
    async with compacted(path) as node:
        await node.write(*mixed(range(1, 4)), erased(1), erased(2), erased(3))
        await node.compact()
        assert segment_files(path)[-1].name == f"{node.journal.written_segment:016x}.seg"
        node.journal.written_segment = 0
        assert list(node.compactor._spaces()) == []


async def test_limbo_and_what_was_cleared_survive_compaction(path: Path) -> None:
    """Their records are copied as long as they are needed."""
    async with compacted(path) as node:
        await node.write(*mixed(range(1, 4)))
    flip(segment_files(path)[0], 600)
    async with compacted(path) as node:
        await node.write(SegmentRecord(RecordKind.LIMBO_CLEARED, 3, 0))
        await node.write(*mixed(range(5, 9), 6), *(erased(ledger_id) for ledger_id in range(5, 9)))
        await node.write(*mixed(range(9, 10), 6))
        assert await node.compact() >= 2
    state = found(path)
    assert (state.limbo_below, state.limbo_cleared) == (1000, {3})
    assert state.entries[9] == {at: add(9, at, size=600).body for at in range(6)}
