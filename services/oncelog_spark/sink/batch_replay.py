"""Is a replayed batch the same batch as the one whose record is stored? Pure, for mode batch.

A batch id alone proves nothing: a checkpoint that was set back, or copied, gives the same id to other rows. If they
were taken for the rows of the stored record, they would be lost. So one of two proofs is needed:

- the source offsets: Spark's file of this batch in the checkpoint has the same bytes as when the record was stored.
  Spark writes the file once for a batch, before the batch runs, and a replay reads it. This proof is available where
  the checkpoint is a directory that the driver can read.
- the rows: the same number, with the same digest (`row_digest`), in any partitions and order.

Anything else is refused. A query with other rows at each replay (`rand()`, `now()`) has only the first proof; where
that is not available, `onChangedReplay=keep` keeps the stored rows.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from oncelog.core.errors import Conflict, OncelogError
from oncelog_spark.sink.journal_records import BatchRecord, RangeBatch, StagedAttempt
from oncelog_spark.sink.row_digest import sum_of

_OFFSETS = "offsets"
_TOKEN_CHARACTERS = 32
_SHOWN_PARTITIONS = 5


@dataclass(frozen=True, slots=True)
class Replay:
    """The batch as the driver has it now. attempts: by partition. offsets: from `offsets_token`; empty: not known."""

    attempts: tuple[StagedAttempt, ...]
    offsets: str = ""

    @property
    def count(self) -> int:
        return sum(attempt.count for attempt in self.attempts)

    @property
    def digest(self) -> int:
        return sum_of(attempt.digest for attempt in self.attempts)


def offsets_token(checkpoint: str | None, batch_id: int) -> str:
    """A hash of Spark's file with the source offsets of a batch; empty where the driver cannot read it."""
    if checkpoint is None:
        return ""
    location = urlsplit(checkpoint)
    if location.scheme not in {"", "file"}:
        return ""
    path = Path(unquote(location.path) if location.scheme else checkpoint)
    try:
        data = (path / _OFFSETS / str(batch_id)).read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(data).hexdigest()[:_TOKEN_CHARACTERS]


def same_rows(stored: BatchRecord, replay: Replay) -> bool:
    """Whether both have the same rows, in any order and partitions."""
    return (stored.count, stored.digest) == (replay.count, replay.digest)


def same_offsets(stored: BatchRecord, replay: Replay) -> bool:
    """Whether both are known to have the same source offsets."""
    return bool(stored.offsets) and stored.offsets == replay.offsets


def difference(stored: BatchRecord, replay: Replay) -> str:
    """The differences, as a sentence."""
    before, now = (f"{each.count} rows with digest {each.digest:016x}" for each in (stored, replay))
    found = [f"{before} are stored, the replay has {now}"]
    if partitions := _partitions(stored, replay):
        found.append(f"rows differ in the partitions {partitions}")
    if not stored.offsets or not replay.offsets:
        found.append("the source offsets cannot be compared: the driver cannot read the checkpoint as a directory")
    else:
        found.append(f"the source offsets {'are the same' if same_offsets(stored, replay) else 'differ, too'}")
    return "; ".join(found)


def changed_replay(batch: RangeBatch, stored: BatchRecord, replay: Replay) -> OncelogError:
    """The error for a batch that is not the stored one."""
    what = f"{batch} was published before with other rows: {difference(stored, replay)}. Nothing was published now"
    if batch.run_id.startswith("job "):
        return Conflict(
            f"{what}. For other rows use another jobId. If the query has other rows at each run, and those of the "
            "first run should count, set the option onChangedReplay to keep"
        )
    return Conflict(
        f"{what}. The checkpoint was set back or copied: put the newest one back, or begin a new one with "
        "onNewCheckpoint=continue and a startingPosition behind what is published. If the query has other rows at each "
        "replay, as with rand(), and the published rows should count, set the option onChangedReplay to keep"
    )


def _partitions(stored: BatchRecord, replay: Replay) -> str:
    """The first partitions that differ; empty where both were cut in different ways, or the record lists no
    attempts."""
    before = {each.partition: (each.count, each.digest) for each in stored.attempts}
    now = {each.partition: (each.count, each.digest) for each in replay.attempts}
    if before.keys() != now.keys():
        return ""
    found = [number for number in sorted(now) if before[number] != now[number]]
    more = f" and {len(found) - _SHOWN_PARTITIONS} more" if len(found) > _SHOWN_PARTITIONS else ""
    return ", ".join(map(str, found[:_SHOWN_PARTITIONS])) + more
