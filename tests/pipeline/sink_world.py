"""A journal, a target and drivers that take one step at a time: the sink's commits under crashes and zombies.

The two logs keep the promises of a contiguous producer and no others: a newer opening fences the older ones, an id that
is stored is a duplicate, the next one is stored, and one above that would be a gap, which must never be asked for.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from oncelog.core.errors import OncelogError, ProducerFenced
from oncelog.pipeline.sink import batch_commit as commit
from oncelog.pipeline.sink.batch_replay import Replay
from oncelog.pipeline.sink.journal_records import (
    Attempt,
    RunBatch,
    WinnersRecord,
    decode_winners,
    encode_record,
)

Row = str


@dataclass
class Log:
    """One topic with one contiguous producer."""

    messages: list[bytes | Row] = field(default_factory=list)
    generation: int = 0

    def open(self) -> int:
        self.generation += 1
        return self.generation

    def append(self, generation: int, sequence_id: int, message: bytes | Row) -> None:
        if generation != self.generation:
            raise ProducerFenced("a newer instance opened the name")
        assert sequence_id <= len(self.messages), "a gap was asked for"
        if sequence_id == len(self.messages):
            self.messages.append(message)


@dataclass
class World:
    """What outlives drivers. staged: {name of the attempt: its rows}."""

    journal: Log = field(default_factory=Log)
    target: Log = field(default_factory=Log)
    staged: dict[str, list[Row]] = field(default_factory=dict)

    def stage(self, batch: RunBatch, parts: list[list[Row]]) -> tuple[Attempt, ...]:
        """Let tasks stage these rows, a list for each partition."""
        attempts = []
        for partition, rows in enumerate(parts):
            name = f"attempt {len(self.staged)}"
            self.staged[name] = rows
            digest = sum(zlib.crc32(row.encode()) for row in rows)
            counts = {"target": len(rows)} if rows else {}
            attempts.append(Attempt(partition, 0, "stage", name, "", len(rows), digest, {"target": 0}, counts))
        return tuple(attempts)

    def rows_of(self, record: WinnersRecord) -> list[Row]:
        return [row for attempt in record.attempts for row in self.staged[attempt.name]]

    @property
    def records(self) -> list[WinnersRecord]:
        return [decode_winners(data) for data in self.journal.messages if isinstance(data, bytes)]


class Driver:
    """One commit at one driver. `step` does one thing that a crash may follow; None: it is over."""

    def __init__(
        self,
        world: World,
        batch: RunBatch,
        attempts: tuple[Attempt, ...],
        *,
        continues: bool = False,
        keeps_stored: bool = False,
        offsets: str = "",
    ) -> None:
        self.world = world
        replay = Replay(attempts, offsets)
        self.core = commit.BatchCommit(batch, replay, continues=continues, keeps_stored=keeps_stored)
        self.outcome: commit.Finish | commit.Refuse | None = None
        self._steps = self._run()

    def step(self) -> bool:
        """Whether there was something to do."""
        return next(self._steps, None) is not None

    def run(self) -> commit.Finish | commit.Refuse:
        while self.step():
            pass
        assert self.outcome is not None
        return self.outcome

    def _run(self) -> Iterator[str]:
        event: commit.Event = commit.Begin()
        generations = (0, 0)
        while True:
            (effect,) = self.core.handle(event)
            try:
                match effect:
                    case commit.OpenJournal():
                        generations = (self.world.journal.open(), generations[1])
                        number = len(self.world.journal.messages) - 1
                        yield "journal opened"
                        event = self._read_journal(number)
                    case commit.OpenTargets(topics):
                        generations = (generations[0], self.world.target.open())
                        event = commit.TargetsOpened(dict.fromkeys(topics, len(self.world.target.messages) - 1))
                    case commit.AppendRecord(number, record):
                        self.world.journal.append(generations[0], number, encode_record(record))
                        event = commit.RecordAppended()
                    case commit.CopyRows(record, done):
                        rows = self.world.rows_of(record)
                        for index in range(done["target"], len(rows)):
                            self.world.target.append(generations[1], record.bases["target"] + index, rows[index])
                            yield "row copied"
                        event = commit.RowsCopied()
                    case commit.Finish() | commit.Refuse():
                        self.outcome = effect
                        return
            except ProducerFenced as error:
                event = commit.Interrupted(error)
            yield type(effect).__name__

    def _read_journal(self, number: int) -> commit.Event:
        """The record that was last when the journal was opened; a later one says that somebody else has it now."""
        records = self.world.records
        if len(records) - 1 != number:
            return commit.Interrupted(OncelogError("the journal has grown"))
        return commit.JournalOpened(number, records[-1] if records else None)
