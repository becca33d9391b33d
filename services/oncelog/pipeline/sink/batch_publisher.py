"""Performs what a commit of mode batch asks for (`batch_commit`): opens, appends, copies."""

import logging
from collections.abc import Mapping

from oncelog.client.sync import Producer
from oncelog.core.errors import InvariantViolated, OncelogError
from oncelog.pipeline.sink import batch_commit as core
from oncelog.pipeline.sink.batch_replay import Replay, offsets_token
from oncelog.pipeline.sink.batch_staging import paged, remove_stage, staged
from oncelog.pipeline.sink.journal_records import Attempt, RunBatch, WinnersRecord, decode_winners, encode_record
from oncelog.pipeline.sink.log import Journal, SinkLog, connected, is_interruption, send_rows
from oncelog.pipeline.sink.names import BATCHES_PER_STAGE, stage_number, stage_topic, stage_topics
from oncelog.pipeline.sink.options import SinkOptions
from oncelog.pipeline.sink.routing import spread

_LOG = logging.getLogger("oncelog")


def commit_batch(options: SinkOptions, batch: RunBatch, attempts: tuple[Attempt, ...]) -> WinnersRecord | None:
    """Publish the batch, or finish publishing it; the record that counts. Raises OncelogError.

    Conflict: another batch was published under this number.
    """
    return _commit(options, batch, Replay(attempts, offsets_token(options.checkpoint, batch.batch_id)))


def finish_batch(options: SinkOptions, batch: RunBatch) -> WinnersRecord | None:
    """Publish what the target lacks of the batch's record; None: there is no record. Raises OncelogError."""
    return _commit(options, batch, None)


def _commit(options: SinkOptions, batch: RunBatch, replay: Replay | None) -> WinnersRecord | None:
    with connected(options) as client:
        machine = core.BatchCommit(batch, replay, continues=options.continues, keeps_stored=options.keeps_stored)
        record = _Commit(SinkLog(client, options), options.scope).run(machine)
    if machine.warning:
        _LOG.warning("%s", machine.warning)
    remove_stage(options, stages_done_with(options, batch))
    return record


class _Commit:
    """One commit at one driver."""

    def __init__(self, log: SinkLog, name: str) -> None:
        self._log = log
        self._name = name
        self._journal: Journal = log.journal(name)
        self._targets: dict[str, Producer] = {}

    def run(self, machine: core.BatchCommit) -> WinnersRecord | None:
        event: core.Event = core.Begin()
        while True:
            (effect,) = machine.handle(event)
            if isinstance(effect, core.Finish):
                return effect.record
            if isinstance(effect, core.Refuse):
                raise effect.error
            try:
                event = self._perform(effect)
            except OncelogError as error:
                if not is_interruption(error):
                    raise
                event = core.Interrupted(error)

    def _perform(self, effect: core.Effect) -> core.Event:
        match effect:
            case core.OpenJournal():
                number, last = self._journal.open()
                return core.JournalOpened(number, None if last is None else decode_winners(last))
            case core.OpenTargets(topics):
                self._targets = {topic: self._log.producer(topic, self._name, "contiguous") for topic in topics}
                return core.TargetsOpened({topic: each.last_sequence_id for topic, each in self._targets.items()})
            case core.AppendRecord(number, record):
                self._journal.append(number, encode_record(paged(self._log, self._pages_topic(record), record)))
                return core.RecordAppended()
            case core.CopyRows(record, done):
                self._copy(record, done)
                return core.RowsCopied()
            case _:
                raise InvariantViolated(f"{effect} is no step")

    def _pages_topic(self, record: WinnersRecord) -> str:
        """Beside the staged rows: both are needed until the batch is copied, and no longer."""
        batch = record.batch
        return stage_topic(self._log.target, self._name, batch.run_id, stage_number(batch.batch_id))

    def _copy(self, record: WinnersRecord, done: Mapping[str, int]) -> None:
        """Row by row in the record's order; where all rows go to one destination, what is there is not read again."""
        skipped = sum(done.values()) if len(done) == 1 else 0
        at = dict.fromkeys(record.bases, skipped)
        for attempt, rows in staged(self._log, record, skipped):
            target = next(iter(attempt.routes)) if rows.topics is None else None
            for topic, places in spread(rows, target, attempt.routes).items():
                first, at[topic] = at[topic], at[topic] + len(places)
                known = min(len(places), max(0, done[topic] - first))
                if known < len(places):
                    ids = range(record.bases[topic] + first + known, record.bases[topic] + at[topic])
                    send_rows(self._targets[topic], rows.take(places[known:]), ids)
        if at != record.counts:
            raise InvariantViolated(f"{at} rows were copied of {record.counts}")


def stages_done_with(options: SinkOptions, batch: RunBatch) -> tuple[str, ...]:
    """The staging topics that nobody needs once this batch is published: a job's own, a query's from 64 batches ago."""
    number = stage_number(batch.batch_id)
    if options.job_id is None and batch.batch_id % BATCHES_PER_STAGE:
        return ()
    done = number if options.job_id is not None else number - 1
    return () if done < 0 else stage_topics(options.topic, options.scope, batch.run_id, done)
