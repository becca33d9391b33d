"""Whose turn it is: may this batch of this run follow what the journal's last record says? Pure, for both modes.

A run is known by its id. Spark keeps a query's id in its checkpoint, so a lost checkpoint is a run that nobody knows,
under a name that was written under: that is told, and goes on only when the user says so. A run that another one has
followed never goes on: it would publish again what the later one did.
"""

from enum import Enum
from typing import Protocol

from oncelog.core.errors import Conflict, LogHole, OncelogError
from oncelog.pipeline.sink.journal_records import RunBatch

CONTINUE = "onNewCheckpoint=continue"


class Record(Protocol):
    """What records of both modes have."""

    @property
    def batch(self) -> RunBatch: ...

    @property
    def former(self) -> tuple[str, ...]: ...


class Turn(Enum):
    """SAME: the last record is of this very batch. NEXT: this batch may follow it."""

    SAME = "same"
    NEXT = "next"


def turn_after(last: Record | None, mine: RunBatch, *, mark: int, continues: bool) -> Turn | OncelogError:
    """mark: the last sequence id in the target under this name, -1: none. continues: a new run was announced."""
    if last is None:
        if mark >= 0 and not continues:
            return LogHole(
                f"the target holds messages under this name up to sequence id {mark}, but no journal tells of them: "
                f"use another producerPrefix, or, if {mine.run_id} is meant to go on behind them, {CONTINUE}"
            )
        return Turn.NEXT
    if last.batch == mine:
        return Turn.SAME
    if last.batch.run_id == mine.run_id:
        return Turn.NEXT if mine.batch_id > last.batch.batch_id else _set_back(last.batch, mine)
    if mine.run_id in last.former:
        return Conflict(
            f"{last.batch.run_id} has followed {mine.run_id} under this producerPrefix: stop one of the two; "
            "an older run cannot go on"
        )
    return Turn.NEXT if continues else _unknown_run(last.batch, mine)


def former_after(last: Record | None, mine: RunBatch) -> tuple[str, ...]:
    """The runs before this one, once its record follows `last`."""
    if last is None or last.batch.run_id == mine.run_id:
        return () if last is None else last.former
    return (*last.former, last.batch.run_id)


def _set_back(last: RunBatch, mine: RunBatch) -> OncelogError:
    return Conflict(
        f"{mine} comes after batch {last.batch_id} of the same run: another driver of the query is ahead (then stop "
        "this one), or the checkpoint was set back to an older state (then put the newest one back)"
    )


def _unknown_run(last: RunBatch, mine: RunBatch) -> OncelogError:
    return Conflict(
        f"this producerPrefix was last used by {last}, and now by {mine}: the checkpoint is new or lost, so what this "
        "run reads again would be published again. Put the old checkpoint back, or use another producerPrefix; or, if "
        f"its start was chosen to follow what is published, say {CONTINUE}"
    )
