"""May this batch of this run follow the last record of the journal? Pure, for both modes.

A run has an id. Spark keeps the id of a query in its checkpoint, so a lost checkpoint looks like a new run under a name
that was used before. This is an error, unless the user allows it with `onNewCheckpoint=continue`. A run that another
run has followed never continues: it would publish again what the later run published.
"""

from enum import Enum
from typing import Protocol

from oncelog.core.errors import (
    Conflict,
    LogHole,
    OncelogError,
    ProducerClosed,
    ProducerExpired,
    ProducerFenced,
    Retriable,
)
from oncelog_spark.sink.journal_records import RangeBatch

#: After these errors another driver or attempt may have opened the name, or the outcome of a step is unknown.
INTERRUPTIONS = (Retriable, ProducerFenced, ProducerExpired, ProducerClosed)
CONTINUE = "onNewCheckpoint=continue"


class RunRecord(Protocol):
    """What the records of both modes have."""

    @property
    def batch(self) -> RangeBatch: ...

    @property
    def former(self) -> tuple[str, ...]: ...


class BatchOrder(Enum):
    """SAME: the last record is of this very batch. NEXT: this batch may follow it."""

    SAME = "same"
    NEXT = "next"


def order_after(last: RunRecord | None, mine: RangeBatch, *, last_id: int, continues: bool) -> BatchOrder:
    """last_id: the last sequence id in the target under this name, -1: none. continues: a new run is allowed to follow.

    Raises Conflict, LogHole where the batch may not follow.
    """
    if last is None:
        if last_id >= 0 and not continues:
            raise no_journal("the target", last_id, f"{mine.run_id} is to continue after them")
        return BatchOrder.NEXT
    if last.batch == mine:
        return BatchOrder.SAME
    if last.batch.run_id == mine.run_id:
        if mine.batch_id > last.batch.batch_id:
            return BatchOrder.NEXT
        raise _set_back(last.batch, mine)
    if mine.run_id in last.former:
        raise Conflict(
            f"{last.batch.run_id} has followed {mine.run_id} under this producerPrefix: stop one of the two; "
            "an older run cannot continue"
        )
    if continues:
        return BatchOrder.NEXT
    raise _unknown_run(last.batch, mine)


def former_after(last: RunRecord | None, mine: RangeBatch) -> tuple[str, ...]:
    """The runs before this one, once its record follows `last`."""
    if last is None or last.batch.run_id == mine.run_id:
        return () if last is None else last.former
    return (*last.former, last.batch.run_id)


def no_journal(topic: str, last_id: int, meant: str, name: str = "this name") -> OncelogError:
    """The error for a topic with messages of a producer that has no journal."""
    return LogHole(
        f"{topic} holds messages of {name} up to sequence id {last_id}, but there is no journal for them: use another "
        f"producerPrefix, or, if {meant}, set {CONTINUE}"
    )


def _set_back(last: RangeBatch, mine: RangeBatch) -> OncelogError:
    return Conflict(
        f"{mine} comes after batch {last.batch_id} of the same run. Either another driver of the query is ahead: stop "
        "this one; or the checkpoint was set back to an older state: put the newest one back"
    )


def _unknown_run(last: RangeBatch, mine: RangeBatch) -> OncelogError:
    return Conflict(
        f"this producerPrefix was last used by {last}, and now by {mine}. The checkpoint is new or lost, so rows that "
        "this run reads again would be published again. Put the old checkpoint back, or use another producerPrefix; "
        f"or, if the run starts behind what is published, set {CONTINUE}"
    )
