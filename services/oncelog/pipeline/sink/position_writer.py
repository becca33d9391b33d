"""Performs what `position_claims` decides: a task's rows, each under the name of its source."""

from collections.abc import Iterator, Sequence
from typing import Any

from oncelog.client.sync import Producer
from oncelog.core.errors import InvariantViolated, LogHole, OncelogError
from oncelog.core.formats.message_id import MessageId
from oncelog.pipeline.sink import position_claims as core
from oncelog.pipeline.sink.journal_records import ClaimRecord, RunBatch, decode_claim, encode_record
from oncelog.pipeline.sink.log import Journal, SinkLog, is_interruption, send_rows
from oncelog.pipeline.sink.options import SinkOptions
from oncelog.pipeline.sink.position_proof import missing_of, never_stored, place_of
from oncelog.pipeline.sink.routing import Routes, spread
from oncelog.pipeline.sink.rows import Rows, check_ascending, cut, joined, names_and_ids, rows_of
from oncelog.pipeline.sink.run_order import CONTINUE

#: Rows of one producer that wait to be claimed together have at most so many bytes; one row may have more.
_WAITING_BYTES_MAX = 16 * 1024 * 1024


def publish_by_position(
    log: SinkLog, options: SinkOptions, batch: RunBatch, arrow_batches: Iterator[Any]
) -> dict[str, int]:
    """All rows of one task; {producer: how many}. Raises OncelogError."""
    outlets: dict[str, _Outlet] = {}
    for arrow_batch in arrow_batches:
        if not arrow_batch.num_rows:
            continue
        rows = rows_of(arrow_batch, by_columns=options.by_columns, by_row=options.by_row)
        for name, start, ids in names_and_ids(arrow_batch, options.scope, by_columns=options.by_columns):
            if name not in outlets:
                outlets[name] = _Outlet(log, name, batch, options)
            outlets[name].add(rows.part(start, start + len(ids)), ids)
    for outlet in outlets.values():
        outlet.end()
    return {name: outlet.count for name, outlet in outlets.items()}


def _hex(message_id: MessageId | None) -> str:
    return "" if message_id is None else message_id.to_bytes().hex()


class _Claims:
    """What the journal of one producer says of earlier claims, and new ones."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        #: of the last record when the journal was opened
        self._number = -1
        #: of the last record's batch
        self._newest: tuple[ClaimRecord, ...] = ()

    def open(self) -> core.JournalOpened:
        """Fence older attempts, and read the claims of the last batch."""
        self._number, data = self._journal.open()
        if data is None:
            return core.JournalOpened(self._number, (), "")
        last = decode_claim(data)
        start = last.start or self._journal.last_id
        records = self._journal.records(start, self._number) if last.start else [data]
        self._newest = tuple(map(decode_claim, records))
        return core.JournalOpened(self._number, self._newest, start)

    @property
    def none_yet(self) -> bool:
        """Whether the journal was empty when it was opened."""
        return self._number < 0

    def place_of(self, topic: str, ids: Sequence[int]) -> str:
        """From where in the topic these ids may have been published, in hex; empty: from its beginning."""
        place = None
        if self._newest and self._newest[0].ids.first <= ids[0]:
            place = place_of(self._newest, topic, ids)
        if place is None and self._number >= 0:
            place = place_of(map(decode_claim, self._journal.records("", self._number)), topic, ids)
        return place or ""

    def append(self, number: int, record: ClaimRecord) -> str:
        """Store a claim; its message id, in hex."""
        return self._journal.append(number, encode_record(record))

    def close(self) -> None:
        self._journal.close()


class _Destinations:
    """The producers of one name, one for each topic or part that its rows go to."""

    def __init__(self, log: SinkLog, name: str, claims: _Claims) -> None:
        self._log = log
        self._name = name
        self._claims = claims
        self._producers: dict[str, Producer] = {}
        #: {destination: its last message as far as this task knows, in hex}
        self._places: dict[str, str] = {}

    def open(self, topic: str) -> int:
        """The last sequence id there; older attempts are fenced."""
        if topic not in self._producers:
            self._producers[topic] = self._log.producer(topic, self._name, "monotonic")
            self._places[topic] = _hex(self._log.client.last_message_id(topic))
        return self._producers[topic].last_sequence_id

    def places_of(self, rows: Rows, routes: Routes, *, continues: bool) -> dict[str, str]:
        """Open all destinations of the rows; where each ends. Raises LogHole as for the one target of other sinks."""
        found = {}
        for topic in spread(rows, self._log.router.target, routes):
            known = topic in self._producers
            mark = self.open(topic)
            if not known and mark >= 0 and self._claims.none_yet and not continues:
                raise LogHole(
                    f"{topic} holds messages of {self._name} up to sequence id {mark}, but no journal tells of them: "
                    f"use another producerPrefix, or, if this run is meant to go on behind them, {CONTINUE}"
                )
            found[topic] = self._places[topic]
        return found

    def publish(self, rows: Rows, ids: Sequence[int], routes: Routes) -> None:
        """Each row where it goes. Raises Conflict for ids that the log takes for old ones, and does not have."""
        for topic, at in spread(rows, self._log.router.target, routes).items():
            self.open(topic)
            own = ids if len(at) == len(ids) else [ids[each] for each in at]
            sent = send_rows(self._producers[topic], rows.take(at), own)
            place = self._claims.place_of(topic, sent.unverified) if sent.unverified else ""
            missing = missing_of(self._log, topic, self._name, sent.unverified, place) if sent.unverified else []
            if missing:
                raise never_stored(topic, self._name, missing)
            self._places[topic] = _hex(sent.last) or self._places[topic]

    def close(self) -> None:
        for producer in self._producers.values():
            producer.close()


class _Outlet:
    """One producer's name in one task."""

    def __init__(self, log: SinkLog, name: str, batch: RunBatch, options: SinkOptions) -> None:
        self.count = 0
        self._name = name
        self._log = log
        self._claims = _Claims(log.journal(name))
        self._destinations = _Destinations(log, name, self._claims)
        self._continues = options.continues
        self._machine = core.PositionClaims(name, batch, continues=options.continues)
        self._rows_per_claim = options.rows_per_claim
        self._last = -1
        self._waiting: list[tuple[Rows, Sequence[int]]] = []
        #: what the machine asks for next; None: it was not begun
        self._asked: core.TakeRows | None = None

    def add(self, rows: Rows, ids: Sequence[int]) -> None:
        """Take further rows; publish what is enough for a claim."""
        check_ascending(self._name, self._last, ids)
        self._last = ids[-1]
        self.count += len(ids)
        self._waiting.append((rows, ids))
        self._publish(at_end=False)

    def end(self) -> None:
        self._publish(at_end=True)
        self._run(core.RowsEnded())

    def _publish(self, *, at_end: bool) -> None:
        """Hand over what is enough for a claim, as often as there is; at the end all of it."""
        if self._asked is None:
            self._run(core.Begin())
        waiting = sum(len(ids) for _, ids in self._waiting)
        waiting_bytes = sum(rows.size_bytes for rows, _ in self._waiting)
        if not at_end and waiting < self._wanted() and waiting_bytes < _WAITING_BYTES_MAX:
            return
        rows, ids = joined(self._waiting)
        start = 0
        while start < len(ids):
            rest, wanted = len(ids) - start, self._wanted()
            replayed = self._asked is not None and self._asked.count is not None
            fitting = wanted if replayed else cut(rows.sizes[start : start + wanted], _WAITING_BYTES_MAX)
            if rest < wanted and rest <= fitting and not at_end:
                break
            end = start + min(rest, wanted, fitting)
            self._run(self._given(rows.part(start, end), ids[start:end]), rows.part(start, end))
            start = end
        self._waiting = [(rows.part(start, len(ids)), ids[start:])] if start < len(ids) else []

    def _given(self, rows: Rows, ids: Sequence[int]) -> core.Event:
        routes = self._log.router.routes_for(rows)
        try:
            return core.RowsGiven(ids, routes, self._destinations.places_of(rows, routes, continues=self._continues))
        except OncelogError as error:
            if not is_interruption(error):
                raise
            return core.Interrupted(error)

    def _wanted(self) -> int:
        """Rows of the next claim: as many as an earlier attempt claimed at once, if there was one."""
        return self._rows_per_claim if self._asked is None or self._asked.count is None else self._asked.count

    def _run(self, event: core.Event, rows: Rows | None = None) -> None:
        """Feed the machine until it asks for rows, or ends."""
        ids = event.ids if isinstance(event, core.RowsGiven) else ()
        while True:
            (effect,) = self._machine.handle(event)
            if isinstance(effect, core.Refuse):
                raise effect.error
            if isinstance(effect, core.TakeRows):
                self._asked = effect
                return
            if isinstance(effect, core.Finish):
                self._close()
                return
            try:
                event = self._perform(effect, rows, ids)
            except OncelogError as error:
                if not is_interruption(error):
                    raise
                event = core.Interrupted(error)

    def _perform(self, effect: core.Effect, rows: Rows | None, ids: Sequence[int]) -> core.Event:
        match effect:
            case core.OpenJournal():
                return self._claims.open()
            case core.OpenTarget():
                return core.TargetOpened(self._open_target())
            case core.AppendClaim(number, record):
                return core.ClaimAppended(self._claims.append(number, record))
            case core.Publish(routes) if rows is not None:
                self._destinations.publish(rows, ids, routes)
                return core.Published()
            case _:
                raise InvariantViolated(f"{effect} is no step of {self._name}")

    def _open_target(self) -> int:
        """The last sequence id in the one target; -1 where rows have several, which are opened as they are met."""
        target = self._log.router.target
        if target is None or self._log.router.parts_of(target):
            return -1
        return self._destinations.open(target)

    def _close(self) -> None:
        self._claims.close()
        self._destinations.close()
