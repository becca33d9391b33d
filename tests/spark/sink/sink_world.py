"""A journal, a target and drivers that take one step at a time: the sink's commits under crashes and zombies.

The two logs give only the guarantees of a contiguous producer: a newer instance fences the older ones, an id that is
stored is a duplicate, the next id is stored, and a higher one would be a gap, which must never be requested.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oncelog.core.errors import ProducerFenced, Retriable
from oncelog_spark.sink.batch_commit import CommittedBatch, commit
from oncelog_spark.sink.batch_replay import Replay
from oncelog_spark.sink.journal_records import (
    BatchRecord,
    RangeBatch,
    StagedAttempt,
    decode_batch_record,
    encode_record,
)
from tests.spark.steps import Stepped

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
    """The state that outlives drivers. staged: {name of the attempt: its rows}."""

    journal: Log = field(default_factory=Log)
    target: Log = field(default_factory=Log)
    staged: dict[str, list[Row]] = field(default_factory=dict)

    def stage(self, batch: RangeBatch, parts: list[list[Row]]) -> tuple[StagedAttempt, ...]:
        """Let tasks stage these rows, a list for each partition."""
        attempts = []
        for partition, rows in enumerate(parts):
            name = f"attempt {len(self.staged)}"
            self.staged[name] = rows
            digest = sum(zlib.crc32(row.encode()) for row in rows)
            counts = {"target": len(rows)} if rows else {}
            attempts.append(StagedAttempt(partition, 0, "stage", name, "", len(rows), digest, {"target": 0}, counts))
        return tuple(attempts)

    def rows_of(self, record: BatchRecord) -> list[Row]:
        return [row for attempt in record.attempts for row in self.staged[attempt.name]]

    @property
    def records(self) -> list[BatchRecord]:
        return [decode_batch_record(data) for data in self.journal.messages if isinstance(data, bytes)]


class Driver(Stepped[CommittedBatch]):
    """One commit at one driver, and the `BatchLog` that it commits to. A crash may follow each step."""

    def __init__(
        self,
        world: World,
        batch: RangeBatch,
        attempts: tuple[StagedAttempt, ...],
        *,
        continues: bool = False,
        keeps_stored: bool = False,
        offsets: str = "",
    ) -> None:
        super().__init__()
        self.world = world
        self.batch = batch
        self.replay: Replay | None = Replay(attempts, offsets)
        self._continues = continues
        self._keeps_stored = keeps_stored
        self._journal_generation = self._target_generation = 0

    def work(self) -> CommittedBatch:
        return commit(self, self.batch, self.replay, continues=self._continues, keeps_stored=self._keeps_stored)

    def open_journal(self) -> tuple[int, BatchRecord | None]:
        """The record that was last when the journal was opened; a later one shows that another driver has it now."""
        self.pause()
        self._journal_generation = self.world.journal.open()
        number = len(self.world.journal.messages) - 1
        self.pause()
        records = self.world.records
        if len(records) - 1 != number:
            raise Retriable("the journal has grown")
        return number, records[-1] if records else None

    def open_destinations(self, topics: Sequence[str]) -> Mapping[str, int]:
        self.pause()
        self._target_generation = self.world.target.open()
        return dict.fromkeys(topics, len(self.world.target.messages) - 1)

    def append_record(self, number: int, record: BatchRecord) -> None:
        self.pause()
        self.world.journal.append(self._journal_generation, number, encode_record(record))

    def copy_rows(self, record: BatchRecord, done: Mapping[str, int]) -> None:
        rows = self.world.rows_of(record)
        for index in range(done["target"], len(rows)):
            self.pause()
            self.world.target.append(self._target_generation, record.bases["target"] + index, rows[index])
