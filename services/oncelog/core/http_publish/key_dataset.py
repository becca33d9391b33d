"""Whether Redis still holds every key that it ever acknowledged: judged before anything is read from it or written.

The marker is a random id in Redis, beside a count of all writes. The cluster's own record, in ZooKeeper, says which
marker is the current one, which run of the server was last seen, and when keys were last lost.

    the marker is missing, or is another one    the data was lost: noted in the record, with the time
    fewer writes than this process has seen     the same: an older copy serves
    another run of the server                   restarted on its own files, where each write was synced before it was
                                                answered: nothing is lost. Unless it ever had a replica, for then it
                                                may be that one, promoted, without the last writes: as above
    otherwise                                   served, once the window after the last loss is over

Rules
- After a loss every publish with a key is refused for one window: afterwards no key that was lost is still promised.
- A marker is made where there is none, or in place of the very one that is doubted; the record then follows what is
  found. So two processes that look at once agree, and neither can hide a loss from the other.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """marker: of the data that counts. run: of the server last seen. replicated: it has had a replica.

    lost_at_ms: when keys were last lost, ms since 1970; 0: never.
    """

    marker: str
    run: str
    replicated: bool = False
    lost_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class FoundDataset:
    """What the server shows. marker None: there is none. writes: acknowledged under this marker and those before."""

    marker: str | None
    run: str
    writes: int
    replicas: int


@dataclass(frozen=True, slots=True)
class InstallMarker:
    """Make a new marker, in place of `replaces` alone; None: where there is none. Then look again."""

    replaces: str | None


@dataclass(frozen=True, slots=True)
class NoteDataset:
    """Write the cluster's record by compare-and-set, then look again. lost: say so loudly."""

    record: DatasetRecord
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ServeKeys:
    """The data is whole, as of this look."""


@dataclass(frozen=True, slots=True)
class RefuseKeys:
    """Keys were lost: none is served for so long."""

    for_ms: int


DatasetVerdict = InstallMarker | NoteDataset | ServeKeys | RefuseKeys


def judge_dataset(
    record: DatasetRecord | None, found: FoundDataset, *, writes_seen: int, now_ms: int, window_ms: int
) -> DatasetVerdict:
    """What to do next. writes_seen: the most that this process was ever told under the record's marker."""
    if found.marker is None:
        return InstallMarker(None)
    shown = DatasetRecord(found.marker, found.run, found.replicas > 0)
    if record is None:
        return NoteDataset(shown)
    if found.marker != record.marker:
        return NoteDataset(replace(shown, lost_at_ms=now_ms), lost=True)
    promoted = found.run != record.run and record.replicated
    if promoted or found.writes < writes_seen:
        return InstallMarker(record.marker)
    current = replace(record, run=found.run, replicated=record.replicated or found.replicas > 0)
    if current != record:
        return NoteDataset(current)
    left_ms = record.lost_at_ms + window_ms - now_ms if record.lost_at_ms else 0
    # A clock that stepped back must not refuse for longer than a window.
    return RefuseKeys(min(left_ms, window_ms)) if left_ms > 0 else ServeKeys()
