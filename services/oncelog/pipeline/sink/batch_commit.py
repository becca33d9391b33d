"""The driver's half of mode batch: from staged attempts to rows in the target, each once, over every crash.

    Begin ──> OPENING_JOURNAL ──> OPENING_TARGET ──┬── its record is stored, of these rows > COPYING ──> Finish
                                                   ├── it is next ──> APPENDING ──────────────^
                                                   ├── the one before is not whole ──> SETTLING ──> APPENDING
                                                   └── not this run's turn, or other rows ──> Refuse
    any step: Interrupted (fenced, or the outcome is unknown) ──> OPENING_JOURNAL, at most ROUNDS_MAX times

Rules
- The record of the winners is stored before the first row of the batch is copied, and the first record stored for a
  batch counts for ever. So it does not matter how a replay cuts the batch into partitions: its attempts are ignored.
- That the record is of this very batch is proved, by its source offsets or its rows (`batch_replay`). A batch that is
  not proved to be the same is refused: its rows would be lost, or published twice.
- Rows go to one destination or to several: topics, or parts of them. A row's sequence id is the destination's base +
  its place among the rows that go there, in the record's order. The contiguous producer of a destination takes each id
  once, so that a copy resumed anywhere, or by two drivers at once, gives the same log.
- A base is the destination's mark + 1, read when the batch before is whole: no id is left out, none is given twice.
- Fencing is for peace, not for safety: a driver that is fenced looks again, and finds what the other one has done.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from oncelog.core.errors import Conflict, InvariantViolated, LogHole, OncelogError
from oncelog.pipeline.sink.batch_replay import Replay, changed, difference, same_offsets, same_rows
from oncelog.pipeline.sink.journal_records import RunBatch, WinnersRecord, counts_of
from oncelog.pipeline.sink.run_order import Turn, former_after, turn_after

#: So often one commit begins again because another driver, or a fault, came between.
ROUNDS_MAX = 5


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Begin:
    """The first event."""


@dataclass(frozen=True, slots=True)
class JournalOpened:
    """The answer to OpenJournal: every older driver is fenced there. number: of the last record, -1: none."""

    number: int
    last: WinnersRecord | None


@dataclass(frozen=True, slots=True)
class TargetsOpened:
    """The answer to OpenTargets. marks: {destination: the last sequence id stored there, -1: none}."""

    marks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RecordAppended:
    """The answer to AppendRecord: it is stored."""


@dataclass(frozen=True, slots=True)
class RowsCopied:
    """The answer to CopyRows: its destinations hold every row of the record."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The other answer to any effect: another driver has fenced this one, or what became of the step is unknown."""

    reason: OncelogError


Event = Begin | JournalOpened | TargetsOpened | RecordAppended | RowsCopied | Interrupted


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenJournal:
    """JournalOpened or Interrupted."""


@dataclass(frozen=True, slots=True)
class OpenTargets:
    """TargetsOpened or Interrupted. topics: where rows of this batch and of the last record go."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AppendRecord:
    """RecordAppended or Interrupted."""

    number: int
    record: WinnersRecord


@dataclass(frozen=True, slots=True)
class CopyRows:
    """Copy the record's rows but for the first `done` of each destination: RowsCopied or Interrupted."""

    record: WinnersRecord
    done: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Finish:
    """The end: the batch is published. record None: it has no rows."""

    record: WinnersRecord | None


@dataclass(frozen=True, slots=True)
class Refuse:
    """The end: nothing of this batch was published by this commit."""

    error: OncelogError


Effect = OpenJournal | OpenTargets | AppendRecord | CopyRows | Finish | Refuse


class State(Enum):
    NEW = "new"
    OPENING_JOURNAL = "opening the journal"
    OPENING_TARGET = "opening the target"
    SETTLING = "copying the rest of the batch before"
    APPENDING = "storing the record of the winners"
    COPYING = "copying"
    OVER = "over"


class BatchCommit:
    """One commit of one batch. Each list of effects has at most one effect, which is answered by one event.

    replay: the tasks that count for this driver; None: only what is stored is finished. continues: a new run may follow
    another one. keeps_stored: other rows than those stored are told, and not refused.
    """

    def __init__(self, batch: RunBatch, replay: Replay | None, *, continues: bool, keeps_stored: bool = False) -> None:
        attempts = () if replay is None else replay.attempts
        partitions = [attempt.partition for attempt in attempts]
        if len(set(partitions)) != len(partitions):
            raise InvariantViolated(f"{batch} has two attempts of one partition: {partitions}")
        self.batch = batch
        self.state = State.NEW
        #: what is to be said when the batch is published, in spite of it; empty: nothing
        self.warning = ""
        self._replay = replay
        self._attempts = tuple(sorted(attempts, key=lambda attempt: attempt.partition))
        self._continues = continues
        self._keeps_stored = keeps_stored
        self._number = -1
        #: the last record that is stored, as far as this commit knows
        self._last: WinnersRecord | None = None
        #: {destination: the last sequence id there}
        self._marks: dict[str, int] = {}
        self._rounds = 0

    def handle(self, event: Event) -> list[Effect]:
        match event:
            case Begin():
                self._expect(State.NEW)
                return self._open()
            case JournalOpened():
                self._expect(State.OPENING_JOURNAL)
                self._number, self._last, self.state = event.number, event.last, State.OPENING_TARGET
                topics = set(counts_of(self._attempts)) | set(() if event.last is None else event.last.bases)
                return [OpenTargets(tuple(sorted(topics)))]
            case TargetsOpened():
                self._expect(State.OPENING_TARGET)
                self._marks = dict(event.marks)
                return self._judge()
            case RecordAppended():
                self._expect(State.APPENDING)
                return self._copy()
            case RowsCopied():
                return self._copied()
            case Interrupted():
                return self._interrupted(event.reason)
            case _:
                assert_never(event)

    def _open(self) -> list[Effect]:
        self.state = State.OPENING_JOURNAL
        return [OpenJournal()]

    def _judge(self) -> list[Effect]:
        mark = max(self._marks.values(), default=-1)
        turn = turn_after(self._last, self.batch, mark=mark, continues=self._continues)
        if isinstance(turn, OncelogError):
            return self._refuse(turn)
        last = self._last
        if last is None:
            return self._append()
        for topic, end in last.ends.items():
            if not last.bases[topic] - 1 <= self._marks[topic] < end:
                return self._refuse(_contradiction(last, topic, self._marks[topic]))
        if turn is Turn.SAME:
            return self._repeated(last)
        if self._whole(last):
            return self._append()
        self.state = State.SETTLING
        return [CopyRows(last, self._done(last))]

    def _done(self, record: WinnersRecord) -> dict[str, int]:
        """{destination: how many of the record's rows are there}."""
        return {topic: self._marks[topic] + 1 - base for topic, base in record.bases.items()}

    def _whole(self, record: WinnersRecord) -> bool:
        return self._done(record) == record.counts

    def _repeated(self, last: WinnersRecord) -> list[Effect]:
        """The record of this batch id is stored. It counts for the batch that it is proved to be of."""
        replay = self._replay
        if replay is not None and not same_rows(last, replay):
            if not (self._keeps_stored or same_offsets(last, replay)):
                return self._refuse(changed(self.batch, last, replay))
            self.warning = (
                f"{self.batch} has other rows than when it was published first, and those count: "
                f"{difference(last, replay)}"
            )
        return self._copy()

    def _append(self) -> list[Effect]:
        offsets = "" if self._replay is None else self._replay.offsets
        bases = {topic: self._marks[topic] + 1 for topic in counts_of(self._attempts)}
        record = WinnersRecord(self.batch, bases, self._attempts, former_after(self._last, self.batch), offsets)
        if not record.count:
            return self._finish(None)
        self.state, self._last, self._number = State.APPENDING, record, self._number + 1
        return [AppendRecord(self._number, record)]

    def _copy(self) -> list[Effect]:
        assert self._last is not None, "what is copied is recorded"
        self.state = State.COPYING
        if self._whole(self._last):
            return self._finish(self._last)
        return [CopyRows(self._last, self._done(self._last))]

    def _copied(self) -> list[Effect]:
        if self.state is State.SETTLING and self._last is not None:
            self._marks |= {topic: end - 1 for topic, end in self._last.ends.items()}
            return self._append()
        self._expect(State.COPYING)
        return self._finish(self._last)

    def _interrupted(self, reason: OncelogError) -> list[Effect]:
        self._rounds += 1
        if self._rounds >= ROUNDS_MAX:
            message = f"{self.batch} was interrupted {self._rounds} times, last by: {reason}"
            return self._refuse(Conflict(f"{message}. Is another driver of this query alive? Then stop it"))
        return self._open()

    def _finish(self, record: WinnersRecord | None) -> list[Effect]:
        self.state = State.OVER
        return [Finish(record)]

    def _refuse(self, error: OncelogError) -> list[Effect]:
        self.state = State.OVER
        return [Refuse(error)]

    def _expect(self, state: State) -> None:
        if self.state is not state:
            raise InvariantViolated(f"an answer for {state.value} came while {self.state.value}")


def _contradiction(last: WinnersRecord, topic: str, mark: int) -> OncelogError:
    if mark < last.bases[topic] - 1:
        return LogHole(
            f"{last.batch} begins at sequence id {last.bases[topic]} of {topic}, which ends at {mark}: was it deleted "
            "and made anew? Use another producerPrefix"
        )
    return LogHole(
        f"{last.batch} ends before sequence id {last.ends[topic]} of {topic}, which holds {mark}: somebody else "
        "publishes under this name, or the journal was deleted. Use another producerPrefix"
    )
