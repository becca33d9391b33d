"""Checks whether Redis still holds every key that it acknowledged, before keys are read or written.

Redis holds a marker, which is a random id, and a counter of all writes. A record in ZooKeeper holds the current marker,
the run id of the Redis server as last seen, and the time when keys were last lost.

    marker missing or different              data was lost: recorded, with the time
    fewer writes than this process has seen  data was lost: an older copy is serving
    different run id of the server           Redis restarted on its own files. Each write was synced before it was
                                             acknowledged, so nothing is lost, unless Redis ever had a replica: then
                                             a promoted replica may serve, without the last writes: data was lost
    otherwise                                keys are available, once the window after the last loss is over

Rules
- After a loss, every publish with a key is refused for one idempotency window. After that, no lost key is within its
  window any more.
- A new marker is written only if there is none, or in place of the marker that is in doubt. The ZooKeeper record is
  then updated to match. So two processes that check at once agree, and neither can hide a loss from the other.
"""

from dataclasses import dataclass, field, replace

from oncelog.core.formats.record_fields import Further, no_fields


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """marker: of the current data. run: run id of the server as last seen. replicated: Redis has had a replica.

    lost_at_ms: when keys were last lost, ms since 1970; 0: never. further: see `core.formats.record_fields`.
    """

    marker: str
    run: str
    replicated: bool = False
    lost_at_ms: int = 0
    further: Further = field(default_factory=no_fields, hash=False)


@dataclass(frozen=True, slots=True)
class FoundDataset:
    """The state of the Redis server. marker None: there is none. writes: counted under this marker and earlier ones."""

    marker: str | None
    run: str
    writes: int
    replicas: int


@dataclass(frozen=True, slots=True)
class InstallMarker:
    """Write a new marker, if the current one equals `replaces`; None: if there is none. Then check again."""

    replaces: str | None


@dataclass(frozen=True, slots=True)
class RecordDataset:
    """Write the ZooKeeper record by compare-and-set, then check again. lost: log the loss as an error."""

    record: DatasetRecord
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ServeKeys:
    """The data is complete, as of this check."""


@dataclass(frozen=True, slots=True)
class RefuseKeys:
    """Keys were lost: refuse all keys for `for_ms`."""

    for_ms: int


DatasetVerdict = InstallMarker | RecordDataset | ServeKeys | RefuseKeys


def check_dataset(
    record: DatasetRecord | None, found: FoundDataset, *, writes_seen: int, now_ms: int, window_ms: int
) -> DatasetVerdict:
    """What to do next. writes_seen: the highest write count that this process has seen under the record's marker."""
    if found.marker is None:
        return InstallMarker(None)
    observed = DatasetRecord(found.marker, found.run, found.replicas > 0)
    if record is None:
        return RecordDataset(observed)
    if found.marker != record.marker:
        return RecordDataset(replace(observed, lost_at_ms=now_ms, further=record.further), lost=True)
    promoted = found.run != record.run and record.replicated
    if promoted or found.writes < writes_seen:
        return InstallMarker(record.marker)
    current = replace(record, run=found.run, replicated=record.replicated or found.replicas > 0)
    if current != record:
        return RecordDataset(current)
    left_ms = record.lost_at_ms + window_ms - now_ms if record.lost_at_ms else 0
    # If the clock was set back, keys must not be refused for longer than one window.
    return RefuseKeys(min(left_ms, window_ms)) if left_ms > 0 else ServeKeys()
