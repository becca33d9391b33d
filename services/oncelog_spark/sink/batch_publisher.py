"""Commits a batch of mode=batch on a cluster: the journal and the destinations that `batch_commit` calls."""

import logging
from collections.abc import Mapping, Sequence

from oncelog.client.sync import Producer
from oncelog.core.errors import InvariantViolated
from oncelog_spark.sink.batch_commit import CommittedBatch, commit
from oncelog_spark.sink.batch_replay import Replay, offsets_token
from oncelog_spark.sink.batch_staging import read_staged, remove_stage, store_pages
from oncelog_spark.sink.journal_records import (
    BatchRecord,
    RangeBatch,
    StagedAttempt,
    decode_batch_record,
    encode_record,
)
from oncelog_spark.sink.log import SinkLog, connected, send_rows
from oncelog_spark.sink.names import BATCHES_PER_STAGE, stage_number, stage_topic, stage_topics
from oncelog_spark.sink.options import SinkOptions
from oncelog_spark.sink.routing import spread

_LOG = logging.getLogger("oncelog")


def commit_batch(options: SinkOptions, batch: RangeBatch, attempts: tuple[StagedAttempt, ...]) -> BatchRecord | None:
    """Publish the batch, or finish publishing it; returns the record that counts. Raises OncelogError.

    Conflict: another batch was published under this number.
    """
    return _commit(options, batch, Replay(attempts, offsets_token(options.checkpoint, batch.batch_id)))


def finish_batch(options: SinkOptions, batch: RangeBatch) -> BatchRecord | None:
    """Publish what the target lacks of the batch's record; None: there is no record. Raises OncelogError."""
    return _commit(options, batch, None)


def _commit(options: SinkOptions, batch: RangeBatch, replay: Replay | None) -> BatchRecord | None:
    with connected(options) as client:
        committed = commit_to(SinkLog(client, options), options, batch, replay)
    if committed.warning:
        _LOG.warning("%s", committed.warning)
    remove_stage(options, stages_done_with(options, batch))
    return committed.record


def commit_to(log: SinkLog, options: SinkOptions, batch: RangeBatch, replay: Replay | None) -> CommittedBatch:
    """The commit alone, under the options' name. Raises as `batch_commit.commit`."""
    destinations = _Destinations(log, options.scope)
    return commit(destinations, batch, replay, continues=options.continues, keeps_stored=options.keeps_stored)


class _Destinations:
    """The `BatchLog` of one producer name."""

    def __init__(self, log: SinkLog, name: str) -> None:
        self._log = log
        self._name = name
        self._journal = log.journal(name)
        self._producers: dict[str, Producer] = {}

    def open_journal(self) -> tuple[int, BatchRecord | None]:
        number, last = self._journal.open()
        return number, None if last is None else decode_batch_record(last)

    def open_destinations(self, topics: Sequence[str]) -> Mapping[str, int]:
        self._producers = {topic: self._log.producer(topic, self._name, "contiguous") for topic in topics}
        return {topic: producer.last_sequence_id for topic, producer in self._producers.items()}

    def append_record(self, number: int, record: BatchRecord) -> None:
        """Pages of the record lie beside the staged rows: both are needed until the batch is copied, and no longer."""
        batch = record.batch
        pages_topic = stage_topic(self._log.target, self._name, batch.run_id, stage_number(batch.batch_id))
        self._journal.append(number, encode_record(store_pages(self._log, pages_topic, record)))

    def copy_rows(self, record: BatchRecord, done: Mapping[str, int]) -> None:
        """In the record's order. With a single destination the rows that are stored already are not read again."""
        skipped = sum(done.values()) if len(done) == 1 else 0
        at = dict.fromkeys(record.bases, skipped)
        for attempt, rows in read_staged(self._log, record, skipped):
            target = next(iter(attempt.routes)) if rows.topics is None else None
            for topic, numbers in spread(rows, target, attempt.routes).items():
                first, at[topic] = at[topic], at[topic] + len(numbers)
                known = min(len(numbers), max(0, done[topic] - first))
                if known < len(numbers):
                    ids = range(record.bases[topic] + first + known, record.bases[topic] + at[topic])
                    send_rows(self._producers[topic], rows.take(numbers[known:]), ids)
        if at != record.counts:
            raise InvariantViolated(f"{at} rows were copied of {record.counts}")


def stages_done_with(options: SinkOptions, batch: RangeBatch) -> tuple[str, ...]:
    """Staging topics that are not needed once this batch is published: a job's own, a query's from 64 batches ago."""
    number = stage_number(batch.batch_id)
    if options.job_id is None and batch.batch_id % BATCHES_PER_STAGE:
        return ()
    done = number if options.job_id is not None else number - 1
    return () if done < 0 else stage_topics(options.topic, options.scope, batch.run_id, done)
