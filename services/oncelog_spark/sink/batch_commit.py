"""The driver's half of mode=batch: publish the staged rows of a batch, each once, whatever crashes. Pure.

    open the journal ──> open the destinations ──> the last record
        ├── is of this batch, and of the same rows ──> copy what is missing
        ├── is of an earlier batch ──> copy what that batch is missing ──> store the record ──> copy
        └── may not be followed by this batch, or has other rows ──> refuse
    Fenced by another driver, or the outcome of a step is unknown: begin again, at most ROUNDS_MAX times.

Rules
- The record with the attempts that count is stored before the first row of the batch is copied, and the first record
  stored for a batch counts for ever. So it does not matter how a replay cuts the batch into partitions: the attempts of
  the replay are ignored.
- The record must be proved to be of this very batch, by its source offsets or its rows (`batch_replay`). A batch
  without that proof is refused: its rows would be lost, or published twice.
- Rows go to one destination or to several: topics, or partitions of them. A row's sequence id is the destination's base
  + the row's place among the rows that go there, in the record's order. The contiguous producer of a destination takes
  each id once, so a copy that is resumed anywhere, or made by two drivers at once, gives the same log.
- A base is the destination's last sequence id + 1, read once the batch before is whole, so that no id is left out or
  used twice.
- Fencing avoids needless work; it is not needed for safety. A driver that was fenced begins again, and finds what the
  other driver has done.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from oncelog.core.errors import Conflict, InvariantViolated, LogHole, OncelogError
from oncelog_spark.sink.batch_replay import Replay, changed_replay, difference, same_offsets, same_rows
from oncelog_spark.sink.journal_records import BatchRecord, RangeBatch, counts_of
from oncelog_spark.sink.run_order import INTERRUPTIONS, BatchOrder, former_after, order_after

#: How often one commit begins, because another driver or a fault interrupts it.
ROUNDS_MAX = 5


class BatchLog(Protocol):
    """The journal and the destinations of one producer name. All methods raise OncelogError; after an error of
    `run_order.INTERRUPTIONS` the commit begins again."""

    def open_journal(self) -> tuple[int, BatchRecord | None]:
        """Fence older drivers at the journal. Returns the last record's number, and the record; (-1, None): none."""

    def open_destinations(self, topics: Sequence[str]) -> Mapping[str, int]:
        """Fence older drivers at these topics. Returns {topic: the last sequence id stored there, -1: none}."""

    def append_record(self, number: int, record: BatchRecord) -> None:
        """Store the record durably."""

    def copy_rows(self, record: BatchRecord, done: Mapping[str, int]) -> None:
        """Copy the record's rows, without the first `done` of each destination, and wait until they are stored."""


class CommittedBatch(NamedTuple):
    """record None: the batch has no rows. warning: to be logged although the batch is published; empty: nothing."""

    record: BatchRecord | None
    warning: str = ""


def commit(
    log: BatchLog, batch: RangeBatch, replay: Replay | None, *, continues: bool, keeps_stored: bool = False
) -> CommittedBatch:
    """Publish the batch, or finish publishing it.

    replay: the attempts that count for this driver; None: only finish what the journal has. continues: a new run may
    follow another one. keeps_stored: if the stored batch has other rows, warn instead of refusing.

    Raises Conflict, LogHole, and any error of `log` that is no interruption; then this call has published nothing.
    """
    attempts = () if replay is None else replay.attempts
    partitions = [attempt.partition for attempt in attempts]
    if len(set(partitions)) != len(partitions):
        raise InvariantViolated(f"{batch} has two attempts of one partition: {partitions}")
    interruption: OncelogError | None = None
    for _ in range(ROUNDS_MAX):
        try:
            return _commit_once(log, batch, replay, continues=continues, keeps_stored=keeps_stored)
        except INTERRUPTIONS as error:
            interruption = error
    message = f"{batch} was interrupted {ROUNDS_MAX} times, the last time by: {interruption}"
    raise Conflict(f"{message}. Stop the other driver of this query, if there is one") from interruption


def _commit_once(
    log: BatchLog, batch: RangeBatch, replay: Replay | None, *, continues: bool, keeps_stored: bool
) -> CommittedBatch:
    """From the journal to the last row. Raises one of INTERRUPTIONS where the commit must begin again."""
    attempts = () if replay is None else tuple(sorted(replay.attempts, key=lambda attempt: attempt.partition))
    counts = counts_of(attempts)
    number, last = log.open_journal()
    last_ids = dict(log.open_destinations(sorted(set(counts) | set(() if last is None else last.bases))))
    order = order_after(last, batch, last_id=max(last_ids.values(), default=-1), continues=continues)
    if last is not None:
        _check_last_ids(last, last_ids)
        if order is BatchOrder.SAME:
            warning = _check_same(last, batch, replay, keeps_stored=keeps_stored)
            _copy(log, last, last_ids)
            return CommittedBatch(last, warning)
        _copy(log, last, last_ids)
        last_ids |= {topic: end - 1 for topic, end in last.ends.items()}
    bases = {topic: last_ids[topic] + 1 for topic in counts}
    offsets = "" if replay is None else replay.offsets
    record = BatchRecord(batch, bases, attempts, former_after(last, batch), offsets)
    if not record.count:
        return CommittedBatch(None)
    log.append_record(number + 1, record)
    _copy(log, record, last_ids)
    return CommittedBatch(record)


def _check_same(last: BatchRecord, batch: RangeBatch, replay: Replay | None, *, keeps_stored: bool) -> str:
    """The record has this batch's id. Returns a warning; raises Conflict unless the rows are proved to be the same."""
    if replay is None or same_rows(last, replay):
        return ""
    if not (keeps_stored or same_offsets(last, replay)):
        raise changed_replay(batch, last, replay)
    return (
        f"{batch} has other rows than when it was first published. The rows published first count: "
        f"{difference(last, replay)}"
    )


def _copy(log: BatchLog, record: BatchRecord, last_ids: Mapping[str, int]) -> None:
    """Copy the rows of the record that its destinations lack."""
    done = {topic: last_ids[topic] + 1 - base for topic, base in record.bases.items()}
    if done != record.counts:
        log.copy_rows(record, done)


def _check_last_ids(last: BatchRecord, last_ids: Mapping[str, int]) -> None:
    """Raises LogHole for a destination whose last sequence id the journal's last record does not allow."""
    for topic, end in last.ends.items():
        base, last_id = last.bases[topic], last_ids[topic]
        if last_id < base - 1:
            raise LogHole(
                f"{last.batch} begins at sequence id {base} of {topic}, but the topic ends at {last_id}: it was "
                "probably deleted and created anew. Use another producerPrefix"
            )
        if last_id >= end:
            raise LogHole(
                f"{last.batch} ends before sequence id {end} of {topic}, but the topic holds {last_id}: another "
                "program publishes under this name, or the journal was deleted. Use another producerPrefix"
            )
