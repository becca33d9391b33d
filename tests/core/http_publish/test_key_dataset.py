"""The state of Redis is checked before keys are accepted: complete, restarted, or lost."""

from dataclasses import replace

import pytest

from oncelog.core.http_publish.key_dataset import (
    DatasetRecord,
    DatasetVerdict,
    FoundDataset,
    InstallMarker,
    RecordDataset,
    RefuseKeys,
    ServeKeys,
    check_dataset,
)

WINDOW_MS = 1_000
RECORD = DatasetRecord("marker", "run")
FOUND = FoundDataset("marker", "run", writes=5, replicas=0)


def judged(
    record: DatasetRecord | None, found: FoundDataset, *, writes_seen: int = 0, now_ms: int = 50_000
) -> DatasetVerdict:
    return check_dataset(record, found, writes_seen=writes_seen, now_ms=now_ms, window_ms=WINDOW_MS)


def test_first_start_writes_a_marker_and_accepts_keys() -> None:
    """Without a record, no keys can have been lost."""
    assert judged(None, replace(FOUND, marker=None)) == InstallMarker(None)
    assert judged(None, FOUND) == RecordDataset(RECORD)
    assert judged(RECORD, FOUND) == ServeKeys()


def test_missing_marker_is_a_loss_after_a_new_one_is_written() -> None:
    """The record shows that Redis held keys."""
    assert judged(RECORD, replace(FOUND, marker=None)) == InstallMarker(None)
    lost = RecordDataset(DatasetRecord("other", "run", lost_at_ms=50_000), lost=True)
    assert judged(RECORD, replace(FOUND, marker="other")) == lost


def test_after_a_loss_keys_are_refused_for_one_window() -> None:
    """And not longer, also if the clock is set back."""
    record = replace(RECORD, lost_at_ms=50_000)
    assert judged(record, FOUND, now_ms=50_400) == RefuseKeys(600)
    assert judged(record, FOUND, now_ms=51_000) == ServeKeys()
    assert judged(record, FOUND, now_ms=10_000) == RefuseKeys(WINDOW_MS)


def test_restart_on_its_own_files_loses_nothing() -> None:
    """Each write was synced before it was acknowledged."""
    assert judged(RECORD, replace(FOUND, run="next"), writes_seen=5) == RecordDataset(DatasetRecord("marker", "next"))


def test_fewer_writes_than_were_acknowledged_are_a_loss() -> None:
    """An older copy is serving. The marker in doubt is replaced, which every process notices."""
    assert judged(RECORD, FOUND, writes_seen=6) == InstallMarker("marker")


@pytest.mark.hazard("key-without-message")
def test_new_run_id_of_a_server_with_a_replica_is_a_loss() -> None:
    """The server may be a promoted replica without the last writes."""
    noted = judged(RECORD, replace(FOUND, replicas=1))
    assert noted == RecordDataset(replace(RECORD, replicated=True))
    replicated = replace(RECORD, replicated=True)
    assert judged(replicated, FOUND) == ServeKeys(), "the same run goes on, its replica gone"
    assert judged(replicated, replace(FOUND, run="next", writes=99), writes_seen=5) == InstallMarker("marker")
