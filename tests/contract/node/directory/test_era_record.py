"""The era of a storage directory: compaction, restarts and damage elsewhere do not lose it."""

from pathlib import Path

import pytest

from oncelog.core.chain.next_ledger import LedgerPurpose
from oncelog.core.era import FIRST_ERA, Era
from oncelog.core.ids import TopicId
from oncelog.core.node.era import EraState, StoredEra
from oncelog.core.node.node_ledger import DELETED, LedgerOrigin, RecordKind
from oncelog.log_storage.directory.control_records import ControlRecords
from oncelog.log_storage.directory.holes import encode_holes
from oncelog.log_storage.directory.replay import Replayed, replay
from oncelog.log_storage.directory.segment_format import FIRST_GROUP, SegmentRecord
from oncelog.log_storage.directory.storage_directory import StorageDirectory
from tests.contract.node.directory.compacting import compacted, erased, found
from tests.contract.node.directory.small_log import CLUSTER, add, restart, segment_files, write_groups
from tests.contract.node.directory.test_limbo_at_start import flip

TWO, THREE = Era(2, "a" * 32), Era(3, "b" * 32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node"


def record(era: Era, state: EraState) -> SegmentRecord:
    return SegmentRecord(RecordKind.ERA, era.number, state, era.restore_id.encode())


def replayed(path: Path) -> Replayed:
    directory = StorageDirectory.open(path, CLUSTER, segment_bytes=8192)
    try:
        return replay(directory)
    finally:
        directory.close()


def stored(path: Path) -> StoredEra:
    return replayed(path).era


def committed_eras(path: Path) -> set[Era]:
    return replayed(path).control.committed_eras


def test_the_newest_record_counts(path: Path) -> None:
    assert stored(path) == StoredEra()
    write_groups(path, [[record(TWO, EraState.CLAIMED)]])
    assert stored(path) == StoredEra(TWO, EraState.CLAIMED)
    write_groups(path, [[record(TWO, EraState.COMMITTED)], [record(THREE, EraState.CLAIMED)]])
    assert stored(path) == StoredEra(THREE, EraState.CLAIMED)
    assert committed_eras(path) == {FIRST_ERA, TWO}, "the restore of era 3 may have ended before its COMMIT"


@pytest.mark.hazard("deletion-in-a-former-era")
def test_deletions_from_before_a_node_learned_of_its_era_prove_nothing() -> None:
    """Those that it was asked for in time were known to the restore."""
    control, chain = ControlRecords(), LedgerOrigin(TopicId("0f" * 16), LedgerPurpose.LOG)
    control.note(RecordKind.LEDGER_ERASED, 7, DELETED, 5)
    control.note(RecordKind.FLOOR, 8, 0, 6, body=chain.encode())
    control.note(RecordKind.ERA, 2, EraState.CLAIMED, 7, body=TWO.restore_id.encode())
    assert (control.was_deleted(7), control.proves(control.floors[chain][1])) == (True, True)
    control.note(RecordKind.ERA, 3, EraState.JOINED_LATE, 8, body=THREE.restore_id.encode())
    assert (control.was_deleted(7), control.proves(control.floors[chain][1])) == (False, False)
    control.note(RecordKind.LEDGER_ERASED, 9, DELETED, 10)
    assert control.was_deleted(9)


@pytest.mark.asyncio
async def test_compaction_keeps_the_era_and_the_limbo_of_a_node_that_came_late(path: Path) -> None:
    """All else of the first segments goes: they are copied, and their files are removed. A ledger whose limbo has ended
    since stays out of limbo."""
    async with compacted(path) as node:
        await node.write(record(TWO, EraState.JOINED_LATE), record(THREE, EraState.CLAIMED))
        await node.write(add(7, 0), SegmentRecord(RecordKind.LIMBO_CLEARED, 7, 0))
        await node.write(*(add(1, entry_id, size=1500) for entry_id in range(12)), erased(1))
        await node.write(*(add(2, entry_id, size=1500) for entry_id in range(12)))
        assert await node.compact()
        assert node.directory.identity.first_segment_id > 1
    assert stored(path) == StoredEra(THREE, EraState.CLAIMED)
    state = found(path)
    assert (state.limbo_below, state.limbo_cleared, committed_eras(path)) == (TWO.first_id, {7}, {FIRST_ERA, TWO})


def test_limbo_of_a_node_that_came_late_is_over_when_a_record_says_so(path: Path) -> None:
    """And begins again with the next era that it learns late."""
    write_groups(path, [[record(TWO, EraState.JOINED_LATE)], [SegmentRecord(RecordKind.LIMBO, 0, 0, encode_holes(()))]])
    assert (stored(path), found(path).limbo_below) == (StoredEra(TWO, EraState.JOINED_LATE), 0)
    write_groups(path, [[record(THREE, EraState.JOINED_LATE)]])
    assert found(path).limbo_below == THREE.first_id


def test_damage_elsewhere_does_not_lose_the_era(path: Path) -> None:
    """The hole puts all ledgers into limbo; what the node was raised to stays, and what was cleared counts no more."""
    write_groups(
        path, [[add(7, 0)], [record(TWO, EraState.JOINED_LATE)], [SegmentRecord(RecordKind.LIMBO_CLEARED, 7, 0)]]
    )
    flip(segment_files(path)[0], FIRST_GROUP + 24 + 40)
    restart(path, ledger_counter=TWO.first_id + 5)
    assert stored(path) == StoredEra(TWO, EraState.JOINED_LATE)
    assert (found(path).limbo_below, found(path).limbo_cleared) == (TWO.first_id + 5, set())


def test_damage_of_the_era_itself_is_a_hole(path: Path) -> None:
    """The node is in limbo then, which counts as missing for a restore, and learns the era from the cluster's record
    before it serves owners."""
    write_groups(path, [[record(TWO, EraState.CLAIMED)], [add(7, 0)]])
    flip(segment_files(path)[0], FIRST_GROUP + 24 + 40)
    restart(path, ledger_counter=77)
    assert stored(path) == StoredEra()
    assert found(path).limbo_below == 77
