"""Publishes the rows of one task in mode=position: each under the name of its source, after `position_claims`."""

from collections.abc import Iterator, Sequence
from typing import Any

from oncelog.client.sync import Producer
from oncelog.core.formats.message_id import MessageId
from oncelog_spark.sink.journal_records import ClaimRecord, RangeBatch, decode_claim_record, encode_record
from oncelog_spark.sink.log import SinkLog, send_rows
from oncelog_spark.sink.options import SinkOptions
from oncelog_spark.sink.position_claims import JournalTail, PositionClaims, interruptions_refused
from oncelog_spark.sink.position_proof import missing_of, never_stored, position_before
from oncelog_spark.sink.routing import Routes, spread
from oncelog_spark.sink.rows import Rows, check_ascending, cut, joined, names_and_ids, rows_of
from oncelog_spark.sink.run_order import no_journal

#: Rows of one producer that wait to be claimed together have at most so many bytes; one row may have more.
_WAITING_BYTES_MAX = 16 * 1024 * 1024


def publish_by_position(
    log: SinkLog, options: SinkOptions, batch: RangeBatch, arrow_batches: Iterator[Any]
) -> dict[str, int]:
    """Publish all rows of one task. Returns {producer: how many}. Raises OncelogError."""
    writers: dict[str, _ProducerWriter] = {}
    for arrow_batch in arrow_batches:
        if not arrow_batch.num_rows:
            continue
        rows = rows_of(arrow_batch, by_columns=options.by_columns, by_row=options.by_row)
        for name, start, ids in names_and_ids(arrow_batch, options.scope, by_columns=options.by_columns):
            if name not in writers:
                writers[name] = _ProducerWriter(log, name, batch, options)
            writers[name].add(rows.slice(start, start + len(ids)), ids)
    for writer in writers.values():
        writer.end()
    return {name: writer.count for name, writer in writers.items()}


class _ProducerWriter:
    """The rows of one producer name in one task: gathered, claimed, published."""

    def __init__(self, log: SinkLog, name: str, batch: RangeBatch, options: SinkOptions) -> None:
        self.count = 0
        self._name = name
        self._router = log.router
        self._log = _ProducerLog(log, name, continues=options.continues)
        self._claims = PositionClaims(self._log, name, batch, continues=options.continues)
        self._rows_per_claim = options.rows_per_claim
        self._opened = False
        self._last = -1
        self._waiting: list[tuple[Rows, Sequence[int]]] = []

    def add(self, rows: Rows, ids: Sequence[int]) -> None:
        """Take further rows; publish what is enough for a claim."""
        check_ascending(self._name, self._last, ids)
        self._last = ids[-1]
        self.count += len(ids)
        self._waiting.append((rows, ids))
        self._publish_waiting(at_end=False)

    def end(self) -> None:
        self._publish_waiting(at_end=True)
        self._claims.end()
        self._log.close()

    def _publish_waiting(self, *, at_end: bool) -> None:
        """Publish as many claims as there are rows for; at the end all rows."""
        if not self._opened:
            self._claims.open()
            self._opened = True
        waiting = sum(len(ids) for _, ids in self._waiting)
        waiting_bytes = sum(rows.size_bytes for rows, _ in self._waiting)
        if not at_end and waiting < self._claim_rows and waiting_bytes < _WAITING_BYTES_MAX:
            return
        rows, ids = joined(self._waiting)
        start = 0
        while start < len(ids):
            rest, wanted = len(ids) - start, self._claim_rows
            replayed = self._claims.rows_expected is not None
            fitting = wanted if replayed else cut(rows.sizes[start : start + wanted], _WAITING_BYTES_MAX)
            if rest < wanted and rest <= fitting and not at_end:
                break
            end = start + min(rest, wanted, fitting)
            self._publish(rows.slice(start, end), ids[start:end])
            start = end
        self._waiting = [(rows.slice(start, len(ids)), ids[start:])] if start < len(ids) else []

    @property
    def _claim_rows(self) -> int:
        """Rows of the next claim: as many as an earlier attempt claimed at once, if there was one."""
        expected = self._claims.rows_expected
        return self._rows_per_claim if expected is None else expected

    def _publish(self, rows: Rows, ids: Sequence[int]) -> None:
        """Claim these rows, then publish them."""
        routes = self._router.routes_for(rows)
        with interruptions_refused(self._name):
            positions = self._log.open_destinations(rows, routes)
            routed_by = self._claims.claim(ids, routes, positions)
            self._log.publish(rows, ids, routed_by)


class _ProducerLog:
    """The journal of one producer name, and a producer of this name for each topic or partition that its rows go to.

    continues: a run may follow messages without a journal.
    """

    def __init__(self, log: SinkLog, name: str, *, continues: bool) -> None:
        self._log = log
        self._name = name
        self._continues = continues
        self._journal = log.journal(name)
        #: as it was when the journal was opened
        self._tail = JournalTail(-1, (), "")
        self._producers: dict[str, Producer] = {}
        #: {destination: its last message as far as this task knows, in hex}
        self._ends: dict[str, str] = {}

    def open_journal(self) -> JournalTail:
        number, data = self._journal.open()
        if data is None:
            self._tail = JournalTail(number, (), "")
            return self._tail
        last = decode_claim_record(data)
        start = last.start or self._journal.last_id
        records = self._journal.records(start, number) if last.start else [data]
        self._tail = JournalTail(number, tuple(map(decode_claim_record, records)), start)
        return self._tail

    def open_target(self) -> int:
        target = self._log.router.target
        if target is None or self._log.router.partitions_of(target):
            return -1
        return self._open(target)

    def append_claim(self, number: int, record: ClaimRecord) -> str:
        return self._journal.append(number, encode_record(record))

    def open_destinations(self, rows: Rows, routes: Routes) -> dict[str, str]:
        """Open all destinations of the rows. Returns {destination: its end}; raises LogHole for one that holds messages
        of this name although there is no journal."""
        found = {}
        for topic in spread(rows, self._log.router.target, routes):
            known = topic in self._producers
            last_id = self._open(topic)
            if not known and last_id >= 0 and self._tail.number < 0 and not self._continues:
                raise no_journal(topic, last_id, "this run is to continue after them", self._name)
            found[topic] = self._ends[topic]
        return found

    def publish(self, rows: Rows, ids: Sequence[int], routes: Routes) -> None:
        """Publish each row to its destination. Raises Conflict for ids that the log takes for old ones, and does not
        have."""
        for topic, at in spread(rows, self._log.router.target, routes).items():
            self._open(topic)
            own = ids if len(at) == len(ids) else [ids[each] for each in at]
            sent = send_rows(self._producers[topic], rows.take(at), own)
            if sent.unverified:
                start = self._position_before(topic, sent.unverified)
                missing = missing_of(self._log, topic, self._name, sent.unverified, start)
                if missing:
                    raise never_stored(topic, self._name, missing)
            self._ends[topic] = _hex(sent.last) or self._ends[topic]

    def close(self) -> None:
        self._journal.close()
        for producer in self._producers.values():
            producer.close()

    def _open(self, topic: str) -> int:
        """Fence older attempts there, once. Returns the last sequence id there."""
        if topic not in self._producers:
            self._producers[topic] = self._log.producer(topic, self._name, "monotonic")
            self._ends[topic] = _hex(self._log.client.last_message_id(topic))
        return self._producers[topic].last_sequence_id

    def _position_before(self, topic: str, ids: Sequence[int]) -> str:
        """The position in the topic behind which these ids may have been published, in hex; empty: its beginning."""
        claims, found = self._tail.claims, None
        if claims and claims[0].ids.first <= ids[0]:
            found = position_before(claims, topic, ids)
        if found is None and self._tail.number >= 0:
            found = position_before(map(decode_claim_record, self._journal.records("", self._tail.number)), topic, ids)
        return found or ""


def _hex(message_id: MessageId | None) -> str:
    return "" if message_id is None else message_id.to_bytes().hex()
